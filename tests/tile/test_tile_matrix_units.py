"""Products of every type by the unit that an architecture has for it: the instruction asked for, and right in emulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, run

import relaxish.tile.language as T

NUMPY = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def values(seed, shape, dtype):
    """Random numbers that products sum exactly, or nearly so."""
    if dtype in NUMPY:
        return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32").astype(NUMPY[dtype])
    (made,) = arrays(seed, shape, dtype=dtype)
    return made


def product(m, n, k, kinds, trans_a=False, trans_b=False, bias=False, block=(64, 64, 64), stages=2, threads=128):
    """(program, inputs, result) of ``C = A @ B`` (and ``max(2 C + bias, 0)``) in blocks."""
    left, right, accum = kinds
    bm, bn, bk = block
    shape_a, shape_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(
        A: T.Tensor(shape_a, left),
        B: T.Tensor(shape_b, right),
        bias_: T.Tensor((n,), accum),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bk, bm) if trans_a else (bm, bk), left)
            b = T.alloc_shared((bn, bk) if trans_b else (bk, bn), right)
            c = T.alloc_fragment((bm, bn), accum)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if trans_a:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if trans_b:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            if bias:
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = T.max(c[i, j] * 2 + bias_[bx * bn + j], 0)
            T.copy(c, C[by * bm, bx * bn])

    a, b, add = values(1, shape_a, left), values(2, shape_b, right), values(3, (n,), accum)
    wide = [x.astype("float64") for x in (a.T if trans_a else a, b.T if trans_b else b)]
    wanted = wide[0] @ wide[1]
    if bias:
        wanted = np.maximum(wanted * 2 + add.astype("float64"), 0)
    return main, [a, b, add], wanted


def right(made, arch, tolerance=1e-3):
    """Compare with NumPy, races looked for."""
    main, inputs, wanted = made
    accum = main.buffer_map[main.params[3]].dtype
    (found,) = run(main, arch, inputs, [np.full(wanted.shape, 7, accum)])
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=tolerance, atol=tolerance)


INT8, UINT8, MIXED = ("int8", "int8", "int32"), ("uint8", "uint8", "int32"), ("uint8", "int8", "int32")
DOUBLE, HALF = ("float64",) * 3, ("float16", "float16", "float32")
E4M3, E5M2 = ("float8_e4m3fn", "float8_e4m3fn", "float32"), ("float8_e5m2", "float8_e4m3fn", "float32")
FORMS = [
    (INT8, "sm_80", "m16n8k32.row.col.s32.s8.s8.s32"), (UINT8, "sm_80", "m16n8k32.row.col.s32.u8.u8.s32"),
    (MIXED, "sm_80", "m16n8k32.row.col.s32.u8.s8.s32"), (DOUBLE, "sm_80", "m8n8k4.row.col.f64.f64.f64.f64"),
    (E4M3, "sm_89", "m16n8k32.row.col.f32.e4m3.e4m3.f32"), (E5M2, "sm_90", "m16n8k32.row.col.f32.e5m2.e4m3.f32"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kinds, arch, instruction", FORMS)
@pytest.mark.parametrize("trans_a, trans_b", [(False, True), (False, False), (True, True)])
def test_mma_of_other_types(kinds, arch, instruction, trans_a, trans_b):
    made = product(80, 72, 128, kinds, trans_a, trans_b, bias=True, block=(64, 32, 64))
    assert instruction in source(made[0], arch)
    right(made, arch)


@pytest.mark.parametrize("kinds, arch, instruction", FORMS)
def test_instructions(kinds, arch, instruction):
    """Bytes lie along the depth as they are loaded, four rows of eight at a time; others one by one."""
    text = source(product(64, 64, 128, kinds, trans_b=True)[0], arch)
    assert instruction in text and ("ldmatrix" in text) is (kinds is not DOUBLE)
    turned = source(product(64, 64, 128, kinds)[0], arch)
    assert instruction in turned


@pytest.mark.parametrize("kinds, arch, words", [
    (E4M3, "sm_80", "sm_80 has no instruction for float8_e4m3fn x float8_e4m3fn -> float32, sm_89 has"),
    (INT8, "sm_75", "sm_75 has no instruction for int8 x int8 -> int32, sm_80 has"),
    (("float8_e4m3fn", "float8_e4m3fn", "float16"), "sm_90", "-> float16 are not written here"),
    (HALF, "sm_80", "tiles of 20 x 64 x 64 among 128 threads are no whole pieces of 16 x 8 x 16"),
])  # fmt: skip
def test_what_threads_multiply_is_said(kinds, arch, words, caplog):
    made = product(64, 64, 128, kinds, block=(20, 64, 64) if kinds is HALF else (64, 64, 64))
    with caplog.at_level("WARNING", "relaxish.tile"):
        text = source(made[0], arch)
    assert words in caplog.text and "mma.sync" not in text
    caplog.clear()
    with caplog.at_level("WARNING", "relaxish.tile"):
        source(product(64, 64, 128, ("float32",) * 3)[0], arch)
    assert not caplog.text  # a unit would round them


def test_products_that_hopper_does_without_wgmma_are_said(caplog):
    with caplog.at_level("INFO", "relaxish.tile"):
        text = source(product(128, 128, 64, HALF, trans_b=True, block=(128, 128, 64))[0], "sm_90a")
    assert ("wgmma" in text) is not ("not wgmma" in caplog.text)
    caplog.clear()

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    with caplog.at_level("INFO", "relaxish.tile"):
        text = source(main, "sm_90a")
    assert "mma.sync" in text and "not wgmma: it takes one product of shared tiles in one pipelined loop" in caplog.text


def test_products_of_four_bits_are_said_to_be_of_threads(caplog):
    @T.prim_func
    def main(A: T.Tensor((32, 64), "int4"), B: T.Tensor((32, 64), "int4"), C: T.Tensor((32, 32), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((32, 64), "int4")
            b = T.alloc_shared((32, 64), "int4")
            c = T.alloc_fragment((32, 32), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    with caplog.at_level("WARNING", "relaxish.tile"):
        source(main, "sm_80")
    assert "instructions for int4 x int4 -> int32 are not written here" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [INT8, DOUBLE])
def test_left_operand_in_registers(kinds):
    """The result of one product is the left operand of the next, in the types of the other units."""
    dtype, _, accum = kinds

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), dtype),
        B: T.Tensor((64, 32), dtype),
        D: T.Tensor((48, 64), dtype),
        E: T.Tensor((64, 48), accum),
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((64, 32), dtype)
            d = T.alloc_shared((48, 64), dtype)
            first = T.alloc_fragment((64, 64), accum)
            between = T.alloc_shared((64, 64), dtype)
            narrow = T.alloc_fragment((64, 64), dtype)
            second = T.alloc_fragment((64, 48), accum)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(D, d)
            T.clear(first)
            T.gemm(a, b, first, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(64, 64):
                first[i, j] = T.truncmod(first[i, j], 100) if accum == "int32" else first[i, j]
            T.copy(first, between)
            T.copy(between, narrow)
            T.clear(second)
            T.gemm(narrow, d, second, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(second, E)

    a, b, d = values(1, (64, 32), dtype), values(2, (64, 32), dtype), values(3, (48, 64), dtype)
    middle = a.astype("float64") @ b.astype("float64").T
    if accum == "int32":
        middle = np.fmod(middle, 100)
    (found,) = run(main, "sm_80", [a, b, d], [np.ones((64, 48), accum)])
    np.testing.assert_allclose(found.astype("float64"), middle @ d.astype("float64").T, rtol=1e-6)
    kernel = source(main, "sm_80").split("__global__")[1]
    # Sixteen rows to a warp: every piece of both products goes by the unit.
    assert kernel.count("mma_m16n8k32") == (8 + 2 * 6 if accum == "int32" else 0)
    assert kernel.count("mma_m8n8k4") == (0 if accum == "int32" else 2 * (8 * 8 + 16 * 6))


WGMMA = [
    (HALF, False, False, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"),
    (HALF, True, True, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"),
    (INT8, False, True, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"),
    (INT8, True, False, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"),
    (E4M3, False, True, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"),
    (E5M2, False, True, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e4m3"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kinds, trans_a, trans_b, instruction", WGMMA)
def test_wgmma(kinds, trans_a, trans_b, instruction, bias):
    """Products of a warpgroup: transposed operands, bytes, and what follows the product."""
    made = product(128, 192, 256, kinds, trans_a, trans_b, bias)
    assert instruction in source(made[0], "sm_90a")
    right(made, "sm_90a")
