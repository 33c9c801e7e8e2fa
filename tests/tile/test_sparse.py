"""Products with 2:4 sparse left operands: the compressor, and ``T.gemm_sp`` everywhere against NumPy on the whole matrix."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, run

import relaxish.tile.language as T
from relaxish.backend.cuda.compile import nvrtc
from relaxish.tile.utils.sparse import compress
from relaxish.tir.transform.tiles.program import TileLoweringError

NUMPY = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
HALF, HALVES = ("float16", "float16", "float32"), ("float16",) * 3
BFLOAT, FLOAT = ("bfloat16", "bfloat16", "float32"), ("float32",) * 3
INT8, MIXED = ("int8", "int8", "int32"), ("uint8", "int8", "int32")
E4M3 = ("float8_e4m3fn", "float8_e5m2", "float32")


def pruned(seed, m, k, dtype):
    """A matrix with at most half of the elements of each group; some groups have one or none."""
    group = 2 if dtype == "float32" else 4
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 5, (m, k // group, group)) * rng.choice(
        [1, -1] if dtype != "uint8" else [1], (m, k // group, group)
    )
    order = rng.permuted(np.broadcast_to(np.arange(group), values.shape), axis=2)
    values = np.where(order < group // 2, values, 0)
    values = np.where(rng.random(values.shape) < 0.15, 0, values)
    return values.reshape(m, k).astype(NUMPY.get(dtype, dtype))


def product(
    m,
    n,
    k,
    kinds,
    trans_a=False,
    trans_e=False,
    trans_b=False,
    words="int16",
    block=(32, 32, 64),
    stages=2,
    threads=128,
):
    """(program, inputs, result) of ``C = A @ B`` in blocks, A sparse."""
    left, right, accum = kinds
    bm, bn, bk = block
    per = {"8": 8, "6": 16, "2": 32}[words[-1]] // (2 if left == "float32" else 1)
    shape_a, shape_e = (k // 2, m) if trans_a else (m, k // 2), (k // per, m) if trans_e else (m, k // per)
    shape_b = (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(
        A: T.Tensor(shape_a, left), E: T.Tensor(shape_e, words), B: T.Tensor(shape_b, right), C: T.Tensor((m, n), accum)
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bk // 2, bm) if trans_a else (bm, bk // 2), left)
            e = T.alloc_shared((bk // per, bm) if trans_e else (bm, bk // per), words)
            b = T.alloc_shared((bn, bk) if trans_b else (bk, bn), right)
            c = T.alloc_fragment((bm, bn), accum)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if trans_a:
                    T.copy(A[ko * bk // 2, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk // 2], a)
                if trans_e:
                    T.copy(E[ko * bk // per, by * bm], e)
                else:
                    T.copy(E[by * bm, ko * bk // per], e)
                if trans_b:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm_sp(a, e, b, c, trans_a, trans_e, trans_b)
            T.copy(c, C[by * bm, bx * bn])

    whole = pruned(1, m, k, left)
    b = np.random.default_rng(2).integers(-4, 5, shape_b).astype(NUMPY.get(right, right))
    kept, meta = compress(np.ascontiguousarray(whole.T) if trans_a else whole, words, transposed=trans_a)
    wanted = whole.astype("float64") @ (b.T if trans_b else b).astype("float64")
    return main, [kept, np.ascontiguousarray(meta.T) if trans_e else meta, b], wanted


def right(made, where):
    """Compare with NumPy; the numbers are whole and small, so that all sums are exact."""
    main, inputs, wanted = made
    accum = main.buffer_map[main.params[3]].dtype
    (found,) = run(main, where, inputs, [np.full(wanted.shape, 7, accum)])
    np.testing.assert_array_equal(found.astype("float64"), wanted)


# -- the compressor


def expanded(kept, meta, bits):
    """The whole matrix again, from the definition of the format, one element after the other."""
    rows, stored = kept.shape
    group, half = (2, 1) if bits == 32 else (4, 2)
    made = np.zeros((rows, stored * 2), kept.dtype)
    stream = meta.view(f"uint{8 * meta.dtype.itemsize}")
    for i in range(rows):
        number = sum(int(w) << (8 * meta.dtype.itemsize * n) for n, w in enumerate(stream[i]))
        for g in range(stored // half):
            nibble = number >> (4 * g) & 15
            if group == 2:
                assert nibble in (0b0100, 0b1110)
                made[i, g * 2 + (nibble == 0b1110)] = kept[i, g]
                continue
            first, second = nibble & 3, nibble >> 2
            assert first < second
            made[i, g * 4 + first], made[i, g * 4 + second] = kept[i, 2 * g], kept[i, 2 * g + 1]
    return made


@pytest.mark.parametrize("words", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float8_e4m3fn", "float32"])
def test_compressed_matrices_hold_all(dtype, words):
    whole = pruned(5, 12, 96, dtype)
    kept, meta = compress(whole, words)
    assert kept.shape == (12, 48) and meta.dtype == words and kept.dtype == whole.dtype
    np.testing.assert_array_equal(expanded(kept, meta, 8 * whole.dtype.itemsize), whole)
    turned, same = compress(np.ascontiguousarray(whole.T), words, transposed=True)
    np.testing.assert_array_equal(turned.T, kept)
    np.testing.assert_array_equal(same, meta)


def test_the_format_of_metadata():
    row = np.array([[0, 7, 0, 3, 1, 5, 0, 0, 0, 0, 2, 4, 9, 0, 9, 0]], "float16")
    kept, meta = compress(row)
    assert kept.tolist() == [[7, 3, 1, 5, 2, 4, 9, 9]] and meta.tolist() == [[-29107]]


def test_torch_tensors_are_compressed_to_torch_tensors():
    torch = pytest.importorskip("torch")
    whole = pruned(6, 16, 64, "bfloat16")
    kept, meta = compress(torch.from_numpy(whole.astype("float32")).bfloat16())
    wanted, words = compress(whole)
    assert kept.dtype is torch.bfloat16 and meta.dtype is torch.int16
    np.testing.assert_array_equal(kept.float().numpy(), wanted.astype("float32"))
    np.testing.assert_array_equal(meta.numpy(), words)


@pytest.mark.parametrize("matrix, kind, words", [
    (np.ones((4, 32), "float16"), None, "row 0 has more than 2 of the 4 elements from 0 on"),
    (np.zeros((4, 24), "float16"), None, "a depth of 24 is no multiple of 16"),
    (np.zeros((4, 32), "float64"), None, "8, 16 or 32 bits"), (np.zeros(32, "float16"), None, "takes a matrix"),
    (np.zeros((4, 32), "float16"), "int64", "words have 8, 16 or 32 bits"),
])  # fmt: skip
def test_what_is_not_compressed(matrix, kind, words):
    with pytest.raises(T.TileError, match=words):
        compress(matrix, kind)


# -- products


@pytest.mark.parametrize("kinds", [HALF, HALVES, BFLOAT, FLOAT, INT8, MIXED, E4M3], ids="-".join)
@pytest.mark.parametrize("where", ["llvm", "sm_89"])
def test_types(kinds, where):
    right(product(32, 32, 128, kinds), where)


def test_in_the_interpreter():
    right(product(16, 16, 64, HALF, block=(16, 16, 64), stages=0), "interp")
    right(product(16, 16, 32, FLOAT, True, True, True, "int8", block=(16, 16, 32), stages=0), "interp")


@pytest.mark.parametrize("words", ["uint8", "int8", "int32", "uint16"])
@pytest.mark.parametrize("kinds", [HALF, INT8], ids="-".join)
@pytest.mark.parametrize("where", ["llvm", "sm_80"])
def test_words_of_metadata(kinds, words, where):
    right(product(32, 16, 128, kinds, words=words, block=(32, 16, 64)), where)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("where", ["llvm", "sm_80"])
def test_transposed(trans_a, trans_b, where):
    right(product(48, 40, 128, HALF, trans_a, trans_a is trans_b, trans_b, block=(32, 32, 64)), where)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_89", "sm_90a"])
def test_architectures(arch):
    right(product(32, 32, 64, HALF), arch)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [HALF, INT8], ids="-".join)
@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90a"])
def test_large_tiles_and_ends(kinds, arch):
    right(product(100, 90, 256, kinds, False, False, True, block=(64, 64, 128)), arch)
    right(product(128, 64, 192, kinds, True, False, False, block=(64, 32, 64), stages=3), arch)


FORMS = [
    (HALF, "sm_80", "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"),
    (BFLOAT, "sm_90a", "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
    (INT8, "sm_80", "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32"),
    (E4M3, "sm_89", "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32"),
]


@pytest.mark.parametrize("kinds, arch, instruction", FORMS)
def test_instructions(kinds, arch, instruction):
    text = source(product(64, 64, 128, kinds, trans_b=True)[0], arch)
    assert instruction in text and "ldmatrix" in text and "cp.async" in text


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
@pytest.mark.parametrize("kinds, arch, instruction", FORMS)
def test_machine_code(kinds, arch, instruction):
    image = nvrtc.compile_image(source(product(64, 64, 128, kinds)[0], arch), arch, "cubin")
    [resources] = image.resources().values()
    assert resources.spill_store_bytes == 0


@pytest.mark.parametrize("kinds, arch", [(HALF, "sm_75"), (E4M3, "sm_80"), (FLOAT, "sm_80")])
def test_expanded_where_there_is_no_instruction(kinds, arch):
    text = source(product(64, 64, 128, kinds)[0], arch)
    assert "mma.sp" not in text and ("wmma" in text) is (kinds is HALF)


@pytest.mark.parametrize("where", ["interp", "llvm", "sm_80", "sm_70"])
def test_cleared_sums_and_parts_of_tiles(where):
    """``clear_accum`` drops what was there; operands may be parts of larger tiles."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 32), "float16"),
        E: T.Tensor((16, 4), "int16"),
        B: T.Tensor((64, 16), "float16"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16, 32), "float16")
            e = T.alloc_shared((16, 4), "int16")
            b = T.alloc_shared((64, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(E, e)
            T.copy(B, b)
            T.fill(c, 100.0)
            T.gemm_sp(a[0:16, 0:16], e[0:16, 0:2], b[0:32, 0:16], c, clear_accum=True)
            T.gemm_sp(a[0:16, 16:32], e[0:16, 2:4], b[32:64, 0:16], c)
            T.copy(c, C)

    whole = pruned(3, 16, 64, "float16")
    b = np.random.default_rng(4).integers(-4, 5, (64, 16)).astype("float16")
    (found,) = run(main, where, [*compress(whole), b], [np.zeros((16, 16), "float32")])
    np.testing.assert_array_equal(found, whole.astype("float32") @ b.astype("float32"))


def _program(call, a="float16", e="int16", scopes=("shared", "shared")):
    alloc = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}

    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            x = alloc[scopes[0]]((16, 16), a)
            m = alloc[scopes[1]]((16, 2), e)
            y = T.alloc_shared((32, 16), a)
            z = T.alloc_fragment((16, 16), "float32")
            call(x, m, y, z)

    return main


@pytest.mark.parametrize("call, options, words", [
    (lambda x, m, y, z: T.gemm_sp(x, m, x, z), {}, "A_sparse has half of the depth of B"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z, False, True), {}, r"transpose_E, transpose_B follows"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, y), {}, "C is a fragment"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z), {"e": "int32"}, r"E is \[16, 32 / 32\]"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z), {"e": "float16"}, "words of 8, 16 or 32 bits"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z), {"scopes": ("fragment", "shared")}, "A_sparse lies in shared memory"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z), {"scopes": ("shared", "fragment")}, "E lies in shared memory"),
    (lambda x, m, y, z: T.gemm_sp(x, m, y, z), {"a": "float64"}, "no product of float64"),
])  # fmt: skip
def test_what_does_not_fit_is_said(call, options, words):
    with pytest.raises(Exception, match=words) as error:
        _program(call, **options)
    assert "T.gemm_sp" in str(error.value)


def test_stages_of_ones_own_need_the_instruction():
    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float16"),
        E: T.Tensor((32, 8), "int16"),
        B: T.Tensor((128, 32), "float16"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((32, 16), "float16")
            e = T.alloc_shared((32, 2), "int16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for ko in T.Pipelined(4, order=[0, 1, 2, 3], stage=[0, 0, 0, 1]):
                T.copy(A[0, ko * 16], a)
                T.copy(E[0, ko * 2], e)
                T.copy(B[ko * 32, 0], b)
                T.gemm_sp(a, e, b, c)
            T.copy(c, C)

    whole = pruned(8, 32, 128, "float16")
    (b,) = arrays(9, (128, 32), dtype="float16")
    (found,) = run(main, "sm_80", [*compress(whole), b], [np.zeros((32, 32), "float32")])
    np.testing.assert_allclose(found, whole.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-2)
    with pytest.raises(TileLoweringError, match="T.gemm_sp is a copy and a product here"):
        source(main, "sm_75")
