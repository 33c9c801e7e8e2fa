"""Sums of narrow floats in float32: the pass itself, and kernels with every kind of schedule against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish.driver import build_tir
from relaxish.ir.structural import structural_equal
from relaxish.script import from_source
from relaxish.tir import PrimFunc
from relaxish.tir.schedule import Schedule
from relaxish.tir.transform.numerics.wide_accumulators import widen_accumulators

DTYPES = ["float16", "bfloat16"]


def matmul(dtype: str, m: int = 24, k: int = 2048, n: int = 32) -> PrimFunc:
    return from_source(f"""
@T.prim_func
def main(A: T.Buffer(({m}, {k}), "{dtype}"), B: T.Buffer(({k}, {n}), "{dtype}"), C: T.Buffer(({m}, {n}), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for i, j, k in T.grid({m}, {n}, {k}):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{dtype}(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def as_written(sch: Schedule) -> None:
    pass


def tiled(sch: Schedule) -> None:
    i, j, k = sch.get_loops("matmul")
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, [None, 16])
    ko, ki = sch.split(k, [None, 64])
    sch.reorder(io, jo, ko, ii, ki, ji)
    sch.parallel(sch.fuse(io, jo))
    sch.vectorize(ji)


def decomposed(sch: Schedule) -> None:
    tiled(sch)
    sch.decompose_reduction("matmul", sch.get_loops("matmul")[1])


def cached(sch: Schedule) -> None:
    local = sch.cache_write("matmul", 0, "local")
    tiled(sch)
    sch.reverse_compute_at(local, sch.get_loops("matmul")[0])
    sch.decompose_reduction("matmul", sch.get_loops("matmul")[1])


def read_cached(sch: Schedule) -> None:
    sch.cache_read("matmul", 0, "global")
    tiled(sch)


def factored(sch: Schedule) -> None:
    loops = sch.get_loops("matmul")
    ko, _ = sch.split(loops[2], [None, 256])
    sch.rfactor(ko, 0)


def unfactored(sch: Schedule) -> None:
    loops = sch.get_loops("matmul")
    _, ki = sch.split(loops[2], [None, 8])
    sch.vectorize(sch.get_loops(sch.rfactor(ki, 2))[-1])


SCHEDULES = [as_written, tiled, decomposed, cached, read_cached, factored, unfactored]


def numbers(dtype: str, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(relaxish.runtime.arrays.dtype.numpy_dtype(dtype))


def near(got: Any, exact: Any, dtype: str) -> None:
    """Rounded about once: half a step of the largest, and a little."""
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert np.abs(got.astype("float64") - exact).max() <= 1.1 * step * np.abs(exact).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.__name__)
def test_scheduled_products(schedule: Callable[[Schedule], None], dtype: str) -> None:
    func = matmul(dtype)
    sch = Schedule(func)
    schedule(sch)
    a, b = numbers(dtype, 24, 2048), numbers(dtype, 2048, 32, seed=1)
    out = relaxish.nd.array(numbers(dtype, 24, 32))
    build_tir(sch.mod["main"], "llvm")(relaxish.nd.array(a), relaxish.nd.array(b), out)
    near(out.numpy(), a.astype("float64") @ b.astype("float64"), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_adds_to_what_is_there(dtype: str) -> None:
    """Without a first step, and where only some elements are written, the others stay."""
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((8, 3000), "{dtype}"), C: T.Buffer((12,), "{dtype}")):
    for i, k in T.grid(8, 3000):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi + 2] = C[vi + 2] + A[vi, vk]
""")
    a, start = numbers(dtype, 8, 3000), numbers(dtype, 12, seed=1)
    out = relaxish.nd.array(start)
    build_tir(func, "llvm")(relaxish.nd.array(a), out)
    exact = start.astype("float64")
    exact[2:10] += a.astype("float64").sum(1)
    near(out.numpy(), exact, dtype)
    untouched = [0, 1, 10, 11]
    assert (out.numpy()[untouched] == start[untouched]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_running_sums_and_loops_without_blocks(dtype: str) -> None:
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((3000,), "{dtype}"), C: T.Buffer((3000,), "{dtype}"), D: T.Buffer((1,), "{dtype}")):
    C[0] = A[0]
    for i in range(2999):
        C[i + 1] = C[i] + A[i + 1]
    D[0] = A[0]
    for i in range(2999):
        D[0] = D[0] + A[i + 1]
""")
    a = numbers(dtype, 3000)
    c, d = relaxish.nd.array(numbers(dtype, 3000)), relaxish.nd.array(numbers(dtype, 1))
    build_tir(func, "llvm")(relaxish.nd.array(a), c, d)
    near(c.numpy(), a.astype("float64").cumsum(), dtype)
    near(d.numpy(), a.astype("float64").sum(keepdims=True), dtype)


def test_temporaries_follow_their_sums() -> None:
    """A copy of a wide result is wide, too: half precision would overflow."""
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((4, 256), "float16"), C: T.Buffer((4,), "float16")):
    S = T.alloc_buffer((4,), "float16")
    R = T.alloc_buffer((4, 1), "float16")
    for i, k in T.grid(4, 256):
        with T.block("squares"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float16(0)
            S[vi] = S[vi] + A[vi, vk] * A[vi, vk]
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, i)
            R[vi, 0] = S[vi]
    for i in range(4):
        with T.block("root_of"):
            vi = T.axis.spatial(4, i)
            C[vi] = T.sqrt(R[vi, 0])
""")
    a = (numbers("float16", 4, 256) + 1) * np.float16(300)
    out = relaxish.nd.empty((4,), "float16")
    build_tir(func, "llvm")(relaxish.nd.array(a), out)
    near(out.numpy(), np.sqrt((a.astype("float64") ** 2).sum(1)), "float16")


def test_form() -> None:
    """What becomes of a product; functions without narrow sums stay the very same."""
    made = widen_accumulators(matmul("float16", 4, 8, 4))
    expected = from_source("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float16"), B: T.Buffer((8, 4), "float16"), C: T.Buffer((4, 4), "float16")):
    T.func_attr({"tir.noalias": True})
    C_wide = T.alloc_buffer((4, 4))
    for i, j, k in T.grid(4, 4, 8):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_wide[vi, vj] = T.float32(0)
            C_wide[vi, vj] = C_wide[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
    for i0, i1 in T.grid(4, 4):
        with T.block("C_rounded"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            C[v0, v1] = T.Cast("float16", C_wide[v0, v1])
""")
    assert structural_equal(made, expected), made.script()
    assert widen_accumulators(made) is made
    full = matmul("float32")
    assert widen_accumulators(full) is full
    largest = from_source("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float16"), C: T.Buffer((4,), "float16")):
    for i, k in T.grid(4, 8):
        with T.block("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.min_value("float16")
            C[vi] = T.max(C[vi], A[vi, vk])
""")
    assert widen_accumulators(largest) is largest


def test_integers_and_wide_sums_are_left_alone() -> None:
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((4, 300), "int8"), B: T.Buffer((4, 300), "int8"), C: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 300):
        with T.block("dot"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vi, vk])
""")
    assert widen_accumulators(func) is func
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (4, 300)).astype("int8") for _ in range(2))
    out = relaxish.nd.empty((4,), "int32")
    build_tir(func, "llvm")(relaxish.nd.array(a), relaxish.nd.array(b), out)
    assert (out.numpy() == (a.astype("int64") * b).sum(1)).all()


def test_sums_of_float8() -> None:
    kind = "float8_e4m3fn"
    func = matmul(kind, 8, 64, 16)
    a, b = (
        np.random.default_rng(s).uniform(-1, 1, d).astype(ml_dtypes.float8_e4m3fn)
        for s, d in ((0, (8, 64)), (1, (64, 16)))
    )
    out = relaxish.nd.empty((8, 16), kind)
    build_tir(func, "llvm")(relaxish.nd.array(a), relaxish.nd.array(b), out)
    exact = (a.astype("float32") @ b.astype("float32")).astype(ml_dtypes.float8_e4m3fn)
    assert np.mean(out.numpy().view("uint8") == exact.view("uint8")) > 0.98
    np.testing.assert_allclose(out.numpy().astype("float32"), exact.astype("float32"), rtol=0.13, atol=0.01)
