"""Further shapes and types of ``wmma`` and ``mma``, and ``wgmma``: tensorised products in the interpreter against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from programs.products import product
from relaxish import interp, tir
from relaxish.tir.tensor_intrin import wgmma
from relaxish.tir.tensor_intrin.cuda import get_wgmma_intrin_group

rng = np.random.default_rng(11)
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
LONG = {
    "f16": "float16", "f32": "float32", "bf16": "bfloat16", "s8": "int8", "u8": "uint8", "s32": "int32", "tf32": "float32",
}  # fmt: skip


def values(shape, dtype):
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -8, 8, shape).astype(dtype)
    return (rng.integers(-6, 7, shape) / 4).astype(NUMPY.get(dtype, dtype))


def check(func, m, n, k, in_dtype, out_dtype, trans_b):
    a, b = values((m, k), in_dtype), values((n, k) if trans_b else (k, n), in_dtype)
    out = np.zeros((m, n), NUMPY.get(out_dtype, out_dtype))
    interp.run_prim_func(func, [a, b, out])
    wanted = a.astype("float64") @ (b.T if trans_b else b).astype("float64")
    np.testing.assert_allclose(out.astype("float64"), wanted, rtol=0, atol=0)


def tiled(sch, sizes):
    block = sch.get_block("C")
    split = [sch.split(loop, [None, size]) for loop, size in zip(sch.get_loops(block), sizes, strict=True)]
    sch.reorder(*[outer for outer, _ in split], *[inner for _, inner in split])
    return block, [outer for outer, _ in split], sch.blockize(split[0][1])


WMMA = [
    ((16, 16, 16), "bf16", "f32"), ((16, 16, 16), "u8", "s32"), ((8, 32, 16), "f16", "f32"), ((8, 32, 16), "s8", "s32"),
    ((32, 8, 16), "f16", "f16"), ((32, 8, 16), "bf16", "f32"), ((16, 16, 8), "tf32", "f32"),
]  # fmt: skip


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("shape, inputs, output", WMMA)
def test_wmma(shape, inputs, output, trans_b):
    m, n, k = (2 * s for s in shape)
    text, trans = "x".join(map(str, shape)), "_trans" if trans_b else ""
    sch = tir.Schedule(product(m, n, k, LONG[inputs], LONG[output], trans_b=trans_b), debug_mask="all")
    block, (i, j, r), outer = tiled(sch, shape)
    for index, operand in enumerate("ab"):
        shared = sch.cache_read(outer, index, "shared")
        sch.compute_at(shared, r)
        loaded = sch.cache_read(outer, index, f"wmma.matrix_{operand}")
        suffix = trans if operand == "b" else ""
        sch.tensorize(sch.get_loops(loaded)[-2], f"wmma_load_{text}_{inputs}_{operand}{suffix}_shared")
    stored = sch.cache_write(outer, 0, "wmma.accumulator")
    sch.reverse_compute_at(stored, j)
    init = sch.decompose_reduction(outer, r)
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], f"wmma_fill_{text}_{output}")
    sch.tensorize(sch.get_loops(stored)[-2], f"wmma_store_{text}_{output}_global")
    sch.tensorize(sch.get_loops(block)[-3], f"wmma_sync_{text}_{inputs}{inputs}{output}{trans}")
    check(sch.mod["main"], m, n, k, LONG[inputs], LONG[output], trans_b=trans_b)


def core_matrices(dtype):
    width = 16 // np.dtype(NUMPY.get(dtype, dtype)).itemsize
    return lambda i, k: (i // 8, k // width, i % 8, k % width)


WGMMA = [
    (8, "float16", "float32"), (64, "float16", "float16"), (96, "bfloat16", "float32"), (32, "float8_e4m3fn", "float32"),
    (16, "float8_e5m2", "float16"), (24, "int8", "int32"), (48, "uint8", "int32"),
]  # fmt: skip


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("n, in_dtype, out_dtype", WGMMA)
def test_wgmma(n, in_dtype, out_dtype, held):
    depth = 32 // np.dtype(NUMPY.get(in_dtype, in_dtype)).itemsize
    m, k = 64, 2 * depth
    names = get_wgmma_intrin_group(n, in_dtype, out_dtype, "shared.dyn", "global", held)
    sch = tir.Schedule(product(m, n, k, in_dtype, out_dtype, trans_b=True))
    block, (i, j, r), outer = tiled(sch, (64, n, depth))
    for index in (0, 1):
        shared = sch.cache_read(outer, index, "shared.dyn")
        sch.compute_at(shared, r)
        if held and index == 0:
            registers = sch.cache_read(outer, 0, "local")
            sch.transform_layout(
                registers, ("write", 0), lambda i, k: (k // depth, *wgmma._operand_place(i, k % depth, depth))
            )
        sch.transform_layout(shared, ("write", 0), core_matrices(in_dtype))
    stored = sch.cache_write(outer, 0, "local")
    sch.reverse_compute_at(stored, j)
    sch.transform_layout(stored, ("read", 0), wgmma.result_place)
    init = sch.decompose_reduction(outer, r)
    sch.tensorize(sch.get_loops(stored)[-2], names["store"])
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], names["init"])
    sch.tensorize(sch.get_loops(block)[-3], names["compute"])
    text = sch.mod["main"].script()
    assert f"T.ptx_wgmma_{'rs' if held else 'ss'}({n}, " in text
    check(sch.mod["main"], m, n, k, in_dtype, out_dtype, True)


@pytest.mark.parametrize("n", wgmma.COLUMNS)
def test_every_result_has_one_place(n):
    places = {wgmma.result_place(i, j) for i in range(64) for j in range(n)}
    assert places == {(t, e) for t in range(128) for e in range(n // 2)}


def test_unknown_products_are_refused():
    with pytest.raises(ValueError, match="no wgmma"):
        get_wgmma_intrin_group(40, "int8", "int32")
    with pytest.raises(ValueError, match="no wgmma"):
        get_wgmma_intrin_group(64, "float32", "float32")
