"""Code generation against NumPy: expressions, vectors, control flow, allocation, types, threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxish import tir
from relaxish.backend.llvm.compile import compile_primfuncs, jit_load, link_shared
from relaxish.ir import IRModule
from relaxish.runtime.kernels.kernel import NativeKernel, SharedLibrary
from relaxish.tir import (
    Allocate, AssertStmt, Broadcast, BufferLoad, BufferStore, Cast, Evaluate, FloatImm, For, ForKind, IfThenElse,
    IntImm, LetStmt, PrimFunc, Ramp, Select, SeqStmt, Var, decl_buffer,
)  # fmt: skip


def func_of(buffers: list[Any], body: Any, scalars: tuple[Any, ...] = (), name: str = "f") -> Any:
    """A PrimFunc over the buffers in order, then the scalars."""
    handles = [Var(b.name, "handle") for b in buffers]
    func = PrimFunc([*handles, *scalars], body, None, dict(zip(handles, buffers, strict=True)))
    return func.with_attr("global_symbol", name).with_attr("tir.noalias", True)


def run(func: Any, *args: Any) -> None:
    """Compile, load and call."""
    compiled = compile_primfuncs(IRModule({"f": func}))
    NativeKernel(next(iter(compiled.kernels.values())), jit_load(compiled))(*args)


def elementwise(x: np.ndarray, op: Callable[[Any], Any], lanes: int, out_dtype: str = "float32") -> np.ndarray:
    """``op`` applied to every element in vectors of ``lanes``."""
    n = x.size
    a, b = decl_buffer((n,), str(x.dtype), "A"), decl_buffer((n,), out_dtype, "B")
    i = Var("i", "int32")
    index: Any = i if lanes == 1 else Ramp(i * lanes, 1, lanes)
    body = For(i, 0, n // lanes, ForKind.SERIAL, BufferStore(b, op(BufferLoad(a, [index])), [index]))
    out = np.zeros(n, out_dtype)
    run(func_of([a, b], body), x, out)
    return out


MATH: dict[str, tuple[Callable[..., Any], float, float]] = {
    "exp": (np.exp, -80, 80),
    "exp2": (np.exp2, -120, 120),
    "log": (np.log, 1e-6, 1e6),
    "log2": (np.log2, 1e-3, 1e6),
    "log10": (np.log10, 1e-3, 1e6),
    "log1p": (np.log1p, -0.9, 10),
    "tanh": (np.tanh, -10, 10),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -30, 30),
    "sin": (np.sin, -100, 100),
    "cos": (np.cos, -100, 100),
    "tan": (np.tan, -1.4, 1.4),
    "atan": (np.arctan, -50, 50),
    "sinh": (np.sinh, -10, 10),
    "cosh": (np.cosh, -10, 10),
    "erf": (np.vectorize(math.erf), -6, 6),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e4),
    "sqrt": (np.sqrt, 0, 1e4),
    "asin": (np.arcsin, -1, 1),
    "acosh": (np.arccosh, 1, 100),
}


@pytest.mark.parametrize("name", sorted(MATH))
@pytest.mark.parametrize("lanes", [1, 16])
def test_math_is_accurate(name: str, lanes: int) -> None:
    reference, low, high = MATH[name]
    x = np.random.default_rng(0).uniform(low, high, 1024).astype("float32")
    got = elementwise(x, getattr(tir, name), lanes)
    want = reference(x.astype("float64"))
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6 if name in ("sin", "cos", "tan") else 1e-7)


@pytest.mark.parametrize("lanes", [1, 8])
def test_math_special_values(lanes: int) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -100.0, 1.0], "float32")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(elementwise(x, tir.exp, lanes), np.exp(x), rtol=1e-6, atol=1e-37)
        np.testing.assert_allclose(elementwise(x, tir.log, lanes), np.log(x), rtol=1e-6)
        np.testing.assert_allclose(elementwise(x, tir.tanh, lanes), np.tanh(x), rtol=1e-6)
        np.testing.assert_allclose(
            elementwise(x, tir.sigmoid, lanes), 1 / (1 + np.exp(-x.astype("float64"))), rtol=1e-6, atol=1e-37
        )
    np.testing.assert_array_equal(elementwise(x, tir.isnan, lanes, "bool"), np.isnan(x))
    np.testing.assert_array_equal(elementwise(x, tir.isfinite, lanes, "bool"), np.isfinite(x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_casts_there_and_back(dtype: str, lanes: int) -> None:
    x = np.arange(64).astype("float32")
    got = elementwise(x, lambda v: Cast(v.dtype, Cast(_lanes(dtype, lanes), v)), lanes)
    np.testing.assert_array_equal(got, x != 0 if dtype == "bool" else x)


def _lanes(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_conversions(dtype: str) -> None:
    import ml_dtypes

    x = np.random.default_rng(0).normal(0, 4, 256).astype("float32")
    got = elementwise(x, lambda v: Cast(v.dtype, Cast(f"{dtype}x8", v)), 8)
    np.testing.assert_array_equal(got, x.astype(getattr(ml_dtypes, dtype)).astype("float32"))


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, -3])
def test_integer_division_rounds_as_it_says(divisor: int) -> None:
    x = np.arange(-20, 20, dtype="int32")
    np.testing.assert_array_equal(elementwise(x, lambda v: tir.floordiv(v, divisor), 1, "int32"), x // divisor)
    np.testing.assert_array_equal(elementwise(x, lambda v: tir.floormod(v, divisor), 1, "int32"), x % divisor)
    np.testing.assert_array_equal(
        elementwise(x, lambda v: tir.truncdiv(v, divisor), 1, "int32"), np.trunc(x / divisor).astype("int32")
    )
    wide = Broadcast(IntImm("int32", divisor), 8)
    np.testing.assert_array_equal(elementwise(x, lambda v: tir.FloorDiv(v, wide), 8, "int32"), x // divisor)
    np.testing.assert_array_equal(elementwise(x, lambda v: tir.FloorMod(v, wide), 8, "int32"), x % divisor)


def test_bit_operations() -> None:
    x = np.random.default_rng(0).integers(0, 1 << 31, 64).astype("int32")
    np.testing.assert_array_equal(elementwise(x, tir.popcount, 1, "int32"), [bin(int(v)).count("1") for v in x])
    np.testing.assert_array_equal(elementwise(x, lambda v: v >> 3, 1, "int32"), x >> 3)
    np.testing.assert_array_equal(elementwise(x, lambda v: v & 255, 1, "int32"), x & 255)
    np.testing.assert_array_equal(elementwise(x, lambda v: v ^ 77, 1, "int32"), x ^ 77)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [4, 16])
def test_strided_vector_loads_stay_inside(stride: int, lanes: int) -> None:
    a = decl_buffer(((lanes - 1) * stride + 1,), "float32", "A")
    b = decl_buffer((lanes,), "float32", "B")
    body = BufferStore(b, BufferLoad(a, [Ramp(0, stride, lanes)]), [Ramp(0, 1, lanes)])
    x = np.random.rand((lanes - 1) * stride + 1).astype("float32")
    out = np.zeros(lanes, "float32")
    run(func_of([a, b], body), x, out)
    np.testing.assert_array_equal(out, x[::stride])


def test_gather_and_scatter() -> None:
    a, idx = decl_buffer((32,), "float32", "A"), decl_buffer((8,), "int32", "I")
    b = decl_buffer((32,), "float32", "B")
    where = BufferLoad(idx, [Ramp(0, 1, 8)])
    body = BufferStore(b, BufferLoad(a, [where]), [where])
    x, i = np.random.rand(32).astype("float32"), np.random.permutation(32)[:8].astype("int32")
    out = np.zeros(32, "float32")
    run(func_of([a, idx, b], body), x, i, out)
    want = np.zeros(32, "float32")
    want[i] = x[i]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_less_itself_is_zero(dtype: str, lanes: int) -> None:
    """A product that is rounded once in a difference is rounded twice."""
    x = np.random.default_rng(4).standard_normal(64).astype(dtype)
    three = FloatImm(dtype, 3.1)

    def times(v: Any, by: Any) -> Any:
        return v * (by if lanes == 1 else Broadcast(by, lanes))

    for op in (
        lambda v: v * v - v * v,
        lambda v: times(v, three) - (Broadcast(three, lanes) if lanes > 1 else three) * v,
    ):
        np.testing.assert_array_equal(elementwise(x, op, lanes, dtype), np.zeros(64, dtype))


def test_conditional_loads_are_guarded() -> None:
    """A read past the end must not happen when its condition is false."""
    a, b = decl_buffer((4,), "float32", "A"), decl_buffer((8,), "float32", "B")
    i = Var("i", "int32")
    value = tir.if_then_else(i < 4, BufferLoad(a, [i * 100000000]), FloatImm("float32", -1.0))
    body = For(i, 1, 7, ForKind.SERIAL, BufferStore(b, tir.if_then_else(i < 1, value, FloatImm("float32", 5.0)), [i]))
    out = np.zeros(8, "float32")
    run(func_of([a, b], body), np.zeros(4, "float32"), out)
    np.testing.assert_array_equal(out[1:], 5.0)


def test_branches_lets_and_stores_keep_their_order() -> None:
    a = decl_buffer((8,), "int32", "A")
    i, t = Var("i", "int32"), Var("t", "int32")
    body = For(
        i, 0, 8, ForKind.SERIAL,
        SeqStmt([
            LetStmt(t, BufferLoad(a, [i]) + 1, BufferStore(a, t * 2, [i])),
            IfThenElse(
                tir.EQ(tir.floormod(i, 2), IntImm("int32", 0)),
                BufferStore(a, BufferLoad(a, [i]) + 100, [i]),
                BufferStore(a, Select(BufferLoad(a, [i]) > 10, IntImm("int32", 7), BufferLoad(a, [i])), [i]),
            ),
        ]),
    )  # fmt: skip
    x = np.arange(8, dtype="int32")
    out = x.copy()
    run(func_of([a], body), out)
    y = (x + 1) * 2
    np.testing.assert_array_equal(out, np.where(x % 2 == 0, y + 100, np.where(y > 10, 7, y)))


def test_loop_carried_memory_is_not_hoisted() -> None:
    a = decl_buffer((16,), "float32", "A")
    i = Var("i", "int32")
    body = For(i, 1, 15, ForKind.SERIAL, BufferStore(a, BufferLoad(a, [i - 1]) + BufferLoad(a, [0]), [i]))
    out = np.ones(16, "float32")
    run(func_of([a], body), out)
    np.testing.assert_array_equal(out, np.arange(1, 17))


@pytest.mark.parametrize("size", [64, 5_000_000])
def test_allocations_on_stack_and_heap(size: int) -> None:
    a, b = decl_buffer((64,), "float32", "A"), decl_buffer((64,), "float32", "B")
    t = decl_buffer((size,), "float32", "t")
    i, j = Var("i", "int32"), Var("j", "int32")
    body = Allocate(
        t.data, "float32", [size], IntImm("bool", 1),
        SeqStmt([
            For(i, 0, 64, ForKind.SERIAL, BufferStore(t, BufferLoad(a, [i]) * 2.0, [i])),
            For(j, 0, 64, ForKind.SERIAL, BufferStore(b, BufferLoad(t, [63 - j]), [j])),
        ]),
    )  # fmt: skip
    x, out = np.random.rand(64).astype("float32"), np.zeros(64, "float32")
    run(func_of([a, b], body), x, out)
    np.testing.assert_array_equal(out, 2 * x[::-1])


def test_symbolic_shapes_scalars_and_asserts() -> None:
    n, k = Var("n", "int64"), Var("k", "float32")
    a, b = decl_buffer((n, n * 2), "float32", "A"), decl_buffer((n * 2,), "float32", "B")
    i, j = Var("i", "int64"), Var("j", "int64")
    loops = For(
        i, 0, n, ForKind.SERIAL,
        For(j, 0, n * 2, ForKind.SERIAL, BufferStore(b, BufferLoad(b, [j]) + BufferLoad(a, [i, j]) * k, [j])),
    )  # fmt: skip
    body = AssertStmt(n < 100, tir.StringImm("n too large"), loops)
    func = func_of([a, b], body, (k,))
    for size in (1, 7):
        x, out = np.random.rand(size, 2 * size).astype("float32"), np.zeros(2 * size, "float32")
        run(func, x, out, 2.0)
        np.testing.assert_allclose(out, 2 * x.sum(0), rtol=1e-6)
    with pytest.raises(RuntimeError, match="Assert fail: n too large"):
        run(func, np.zeros((100, 200), "float32"), np.zeros(200, "float32"), 1.0)


def _parallel_func() -> Any:
    a, b = decl_buffer((1000,), "float32", "A"), decl_buffer((1000,), "float32", "B")
    i, j = Var("i", "int32"), Var("j", "int32")
    inner = For(j, 0, 10, ForKind.PARALLEL, BufferStore(b, BufferLoad(a, [i * 10 + j]) * 3.0, [i * 10 + j]))
    return func_of([a, b], For(i, 0, 100, ForKind.PARALLEL, inner))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parallel_loops(threads: int) -> None:
    from relaxish.backend.llvm import engine

    compiled = compile_primfuncs(IRModule({"f": _parallel_func()}))
    kernel = NativeKernel(compiled.kernels["f"], jit_load(compiled))
    engine.set_num_threads(threads)
    try:
        for _ in range(50):
            x, out = np.random.rand(1000).astype("float32"), np.zeros(1000, "float32")
            kernel(x, out)
            np.testing.assert_allclose(out, 3 * x, rtol=1e-6)
    finally:
        engine.set_num_threads(None)


def test_parallel_loops_survive_fork() -> None:
    from relaxish.backend.llvm import engine

    compiled = compile_primfuncs(IRModule({"f": _parallel_func()}))
    kernel = NativeKernel(compiled.kernels["f"], jit_load(compiled))
    engine.set_num_threads(2)
    x, out = np.random.rand(1000).astype("float32"), np.zeros(1000, "float32")
    kernel(x, out)
    child = os.fork()
    if child == 0:
        out[:] = 0
        kernel(x, out)
        os._exit(0 if np.allclose(out, 3 * x) else 1)
    assert os.waitpid(child, 0)[1] == 0
    kernel(x, out)
    engine.set_num_threads(None)


def test_shared_library_and_cache(tmp_path: Any) -> None:
    from relaxish.support import config

    with config.CACHE_DIR.override(tmp_path / "cache"):
        first = compile_primfuncs(IRModule({"f": _parallel_func()}))
        again = compile_primfuncs(IRModule({"f": _parallel_func()}))
        assert not first.from_cache and again.from_cache and first.object_bytes == again.object_bytes
        for entry in (tmp_path / "cache").rglob("*"):
            if entry.is_file():
                entry.write_bytes(entry.read_bytes()[:-5])
        assert not compile_primfuncs(IRModule({"f": _parallel_func()})).from_cache
    path = tmp_path / "lib.so"
    link_shared(path, [first.object_bytes])
    x, out = np.random.rand(1000).astype("float32"), np.zeros(1000, "float32")
    NativeKernel(first.kernels["f"], SharedLibrary(str(path)))(x, out)
    np.testing.assert_allclose(out, 3 * x, rtol=1e-6)


def test_model_entry_calls_kernels_in_order() -> None:
    import ctypes

    from relaxish.runtime.bytecode.plan import ExecutionPlan, KernelCall, Operand

    plan = ExecutionPlan(
        "main", "main_entry", (), (),
        (
            KernelCall("f", (Operand.pointer(0), Operand.pointer(1))),
            KernelCall("f", (Operand.pointer(1), Operand.pointer(2, 4000))),
        ),
        (),
    )  # fmt: skip
    compiled = compile_primfuncs(IRModule({"f": _parallel_func()}), plans=[plan])
    library = jit_load(compiled)
    x, y, z = (np.random.rand(n).astype("float32") for n in (1000, 1000, 2000))
    slots = (ctypes.c_int64 * 3)(x.ctypes.data, y.ctypes.data, z.ctypes.data)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("main_entry"))
    assert entry(ctypes.addressof(slots)) == 0
    np.testing.assert_allclose(z[1000:], 9 * x, rtol=1e-6)


def test_external_calls() -> None:
    a = decl_buffer((4,), "float64", "A")
    value = tir.call_extern("float64", "cbrt", FloatImm("float64", 27.0))
    ctpop = tir.call_llvm_pure_intrin("int32", "llvm.ctpop", IntImm("int32", 255))
    body = SeqStmt(
        [BufferStore(a, value, [0]), BufferStore(a, Cast("float64", ctpop), [1]), Evaluate(IntImm("int32", 0))]
    )
    out = np.zeros(4)
    run(func_of([a], body), out)
    np.testing.assert_allclose(out[:2], [3.0, 8.0])
