"""``T.annotate_layout``: tiles lie in shared memory as asked for, on every architecture that can read them so."""

from __future__ import annotations

import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, check, run

import relaxish.tile.language as T
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError
from relaxish.tile import layout as L
from relaxish.tir import IndexMap
from relaxish.tir.transform.tiles import TileLoweringError


def product(layout_a, layout_b, m=64, n=64, k=96, depth=32, dtype="float16", stages=2, threads=128):
    """A product whose operands lie as functions of their buffers say (None: as the compiler likes)."""

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=threads) as (bx, by):
            a = T.alloc_shared((64, depth), dtype)
            b = T.alloc_shared((depth, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            if layout_a is not None:
                T.annotate_layout({a: layout_a(a)})
            if layout_b is not None:
                T.annotate_layout({b: layout_b(b)})
            T.clear(c)
            for turn in T.Pipelined(T.ceildiv(k, depth), num_stages=stages):
                T.copy(A[by * 64, turn * depth], a)
                T.copy(B[turn * depth, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


def kernel(func, arch):
    """The text of a program's kernel, without the prelude."""
    text = source(func, arch)
    return text[text.rindex("__global__") :]


LAYOUTS = {
    "swizzled": L.make_swizzled_layout,
    "padded": lambda buffer: L.make_padded_layout(buffer),
    "columns": lambda buffer: lambda i, j: [j, i],
    "pairs": lambda buffer: L.Layout(buffer.shape, lambda i, j: [i // 2, j, i % 2]),
    "map": lambda buffer: IndexMap.from_func(lambda i, j: [j // 8, i, j % 8]),
}


@pytest.mark.parametrize("name", list(LAYOUTS))
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_read_what_was_laid_out(name, arch):
    a, b = arrays(1, (100, 96), dtype="float16")[0], arrays(2, (96, 72), dtype="float16")[0]
    func = product(LAYOUTS[name], LAYOUTS[name], 100, 72)
    check(func, [a, b], a.astype("float32") @ b.astype("float32"), where=(arch,), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_61"])
def test_other_units(arch):
    """Layouts with rows at one distance for wmma, any for threads that multiply."""
    a, b = arrays(1, (64, 96), dtype="float16")[0], arrays(2, (96, 64), dtype="float16")[0]
    how = LAYOUTS["columns"] if arch == "sm_61" else lambda x: L.make_padded_layout(x, pad_bytes=32)
    func = product(how, how, stages=0)
    check(func, [a, b], a.astype("float32") @ b.astype("float32"), where=(arch, "interp", "llvm"), rtol=1e-3, atol=1e-3)
    (x, y) = (r.astype("int8") for r in np.random.default_rng(3).integers(-9, 9, (2, 64, 64)))

    @T.prim_func
    def bytes_(A: T.Tensor((64, 64), "int8"), B: T.Tensor((64, 64), "int8"), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "int8")
            b = T.alloc_shared((64, 64), "int8")
            c = T.alloc_fragment((64, 64), "int32")
            T.annotate_layout({a: L.make_swizzled_layout(a), b: LAYOUTS["pairs"](b)})
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    check(bytes_, [x, y], x.astype("int32") @ y.T.astype("int32"), where=(arch,))


def test_addresses_are_those_of_the_layout():
    """What lies where: a tile is written by its layout and read through a flat view of the memory."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({a: L.make_swizzled_layout(a)})
            T.copy(A, a)
            T.copy(a, B)

    assert " ^ " in kernel(main, "sm_80"), "copies store to swizzled places"
    (a,) = arrays(4, (64, 64), dtype="float16")
    check(main, [a], a, where=("interp", "llvm", "sm_70", "sm_80"), rtol=0, atol=0)
    plain = kernel(product(None, None), "sm_80")
    swizzled = kernel(product(L.make_swizzled_layout, L.make_swizzled_layout), "sm_80")
    assert "ldmatrix" in swizzled and "copy_async" in swizzled and " ^ " in swizzled and " ^ " not in plain


def test_hopper_takes_the_layouts_of_its_unit():
    """wgmma where the layout asked for is the unit's own, mma.sync for others."""
    assert "wgmma" in source(product(None, None), "sm_90a")
    own = source(product(L.make_half_bank_swizzled_layout, L.make_full_bank_swizzled_layout), "sm_90a")
    other = source(product(L.make_quarter_bank_swizzled_layout, None), "sm_90a")
    assert "wgmma" in own and "wgmma" not in other and "mma.sync" in other
    a, b = arrays(1, (64, 96), dtype="float16")[0], arrays(2, (96, 64), dtype="float16")[0]
    func = product(L.make_quarter_bank_swizzled_layout, None)
    check(func, [a, b], a.astype("float32") @ b.astype("float32"), where=("sm_90a",), rtol=1e-3, atol=1e-3)


def test_swizzled_layouts():
    """The published permutation: 16-byte units of a row exclusive-ored with the row's number."""
    for make, width in (
        (L.make_full_bank_swizzled_layout, 128), (L.make_half_bank_swizzled_layout, 64),
        (L.make_quarter_bank_swizzled_layout, 32),
    ):  # fmt: skip
        table = make((16, 128), "float16").order.table
        row, column = np.indices((16, 128))
        address = column * 2 // width * 16 * width + row * width + column * 2 % width
        address ^= (address >> 7 & (width // 16 - 1)) << 4
        np.testing.assert_array_equal(table, address // 2)
    assert L.make_swizzled_layout((16, 12), "float16").order.pitch == 20
    assert L.make_swizzled_layout((16, 12), "float16", allow_pad=False).order.pitch == 12


def test_the_text_of_a_program_keeps_its_layouts():
    func = product(L.make_swizzled_layout, LAYOUTS["pairs"])
    assert_structural_equal(from_source(func.script()), func)


def test_errors():
    with pytest.raises(TileLoweringError, match="T.annotate_layout: a is an operand of wmma"):
        source(product(L.make_swizzled_layout, None), "sm_70")
    for wrong, message in (
        (lambda b: lambda i, j: i, "two elements in one place"), (lambda b: lambda i, j: [i - 1, j], "before the first"),
        (lambda b: 7, "not a int"), (lambda b: L.Layout((64, 32, 2), lambda i, j, k: [i, j, k]), "takes 3 indices"),
    ):  # fmt: skip
        with pytest.raises(RelaxishError, match=message):
            product(wrong, None)

    with pytest.raises(RelaxishError, match="layouts are of shared memory"):

        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=64) as _bx:
                a = T.alloc_fragment((64, 64), "float16")
                T.annotate_layout({a: L.make_swizzled_layout(a)})
                T.copy(A, a)


def test_views_of_laid_out_tiles():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((32, 128), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared((64, 64), "float32")
            T.annotate_layout({a: L.make_swizzled_layout(a)})
            wide = T.view(a, (32, 128))
            T.copy(A, a)
            T.copy(wide, B)

    (a,) = arrays(5, (64, 64))
    (found,) = run(main, "sm_80", [a], [np.zeros((32, 128), "float32")])
    np.testing.assert_array_equal(found, a.reshape(32, 128))
