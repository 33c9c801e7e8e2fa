"""Loops that codegen improves by itself: vectors from serial loops, register accumulators, peeled guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import tir
from relaxish.backend.llvm.compile import compile_primfuncs, jit_load
from relaxish.ir import IRModule
from relaxish.runtime.kernels.kernel import NativeKernel
from relaxish.tir import BufferLoad, BufferStore, For, ForKind, IfThenElse, IntImm, PrimFunc, SeqStmt, Var, decl_buffer


def compiled_func(buffers: list[Any], body: Any) -> Any:
    handles = [Var(b.name, "handle") for b in buffers]
    func = PrimFunc(handles, body, None, dict(zip(handles, buffers, strict=True)))
    func = func.with_attr("global_symbol", "f").with_attr("tir.noalias", True)
    return compile_primfuncs(IRModule({"f": func}))


def call(compiled: Any, *args: Any) -> None:
    NativeKernel(compiled.kernels["f"], jit_load(compiled))(*args)


@pytest.mark.parametrize("size", [3, 5, 16, 31, 64, 1000])
@pytest.mark.parametrize("dynamic", [False, True])
def test_elementwise_of_any_length(size: int, dynamic: bool) -> None:
    n: Any = Var("n", "int64") if dynamic else size
    a, b = decl_buffer((n,), "float32", "A"), decl_buffer((n,), "float32", "B")
    i = Var("i", "int64")
    body = For(i, IntImm("int64", 0), n, ForKind.SERIAL, BufferStore(b, tir.exp(BufferLoad(a, [i])) + 1.0, [i]))
    x, out = np.random.rand(size + 1).astype("float32")[:size], np.zeros(size + 8, "float32")
    compiled = compiled_func([a, b], body)
    target = np.ascontiguousarray(out[:size])
    call(compiled, np.ascontiguousarray(x), target)
    np.testing.assert_allclose(target, np.exp(x) + 1, rtol=1e-6)
    if size >= 16:
        assert "x float>" in compiled.llvm_text


@pytest.mark.parametrize("size", [4, 17, 64, 129, 1000])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("op", ["sum", "max", "min", "dot"])
def test_reductions_of_any_length(size: int, dynamic: bool, op: str) -> None:
    n: Any = Var("n", "int64") if dynamic else size
    a, b = decl_buffer((2, n), "float32", "A"), decl_buffer((2,), "float32", "B")
    j, i = Var("j", "int64"), Var("i", "int64")
    x = BufferLoad(a, [j, i])
    old = BufferLoad(b, [j])
    value = {"sum": old + x, "max": tir.Max(old, x), "min": tir.Min(old, x), "dot": old + x * x}[op]
    loop = For(i, IntImm("int64", 0), n, ForKind.SERIAL, BufferStore(b, value, [j]))
    body = For(j, IntImm("int64", 0), IntImm("int64", 2), ForKind.SERIAL, loop)
    data, out = np.random.randn(2, size).astype("float32"), np.array([0.5, -0.5], "float32")
    want = {
        "sum": out + data.sum(1),
        "max": np.maximum(out, data.max(1)),
        "min": np.minimum(out, data.min(1)),
        "dot": out + (data * data).sum(1),
    }[op]
    call(compiled_func([a, b], body), data, out)
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=1e-5)


def test_int_reduction_and_prefix_sum() -> None:
    a, b = decl_buffer((50,), "int32", "A"), decl_buffer((50,), "int32", "B")
    i, j = Var("i", "int32"), Var("j", "int32")
    total = For(i, 0, 50, ForKind.SERIAL, BufferStore(b, BufferLoad(b, [0]) + BufferLoad(a, [i]), [0]))
    scan = For(j, 1, 49, ForKind.SERIAL, BufferStore(b, BufferLoad(b, [j - 1]) + BufferLoad(a, [j]), [j]))
    x, out = np.random.randint(0, 99, 50).astype("int32"), np.zeros(50, "int32")
    call(compiled_func([a, b], SeqStmt([total, scan])), x, out)
    np.testing.assert_array_equal(out, np.cumsum(np.concatenate([[x.sum()], x[1:]])))


@pytest.mark.parametrize("m", [12, 13, 17])
def test_register_tile_with_guarded_rows(m: int) -> None:
    """C[i, j] += A[i, k] * B[k, j] in tiles of 6 rows, accumulated in place; the last tile may be partial."""
    n, k_size, rows = 32, 20, 6
    a, b = decl_buffer((m, k_size), "float32", "A"), decl_buffer((k_size, n), "float32", "B")
    c = decl_buffer((m, n), "float32", "C")
    io, ii, k, jv = (Var(name, "int32") for name in ("io", "ii", "k", "jv"))
    i = io * rows + ii
    col = tir.Ramp(jv * 16, 1, 16)
    update = BufferStore(
        c, BufferLoad(c, [i, col]) + tir.Broadcast(BufferLoad(a, [i, k]), 16) * BufferLoad(b, [k, col]), [i, col]
    )
    guarded = IfThenElse(i < m, For(jv, 0, n // 16, ForKind.UNROLLED, update))
    body = For(
        io, 0, -(-m // rows), ForKind.SERIAL,
        For(k, 0, k_size, ForKind.SERIAL, For(ii, 0, rows, ForKind.UNROLLED, guarded)),
    )  # fmt: skip
    x, y = np.random.rand(m, k_size).astype("float32"), np.random.rand(k_size, n).astype("float32")
    out = np.zeros((m, n), "float32")
    compiled = compiled_func([a, b, c], body)
    call(compiled, x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)
    assert "%acc" in compiled.llvm_text, "the tile should be accumulated in registers"


def test_overlapping_accesses_are_not_promoted() -> None:
    c = decl_buffer((32,), "float32", "C")
    k, u = Var("k", "int32"), Var("u", "int32")
    index = tir.Ramp(u * 8, 1, 16)
    store = BufferStore(c, BufferLoad(c, [index]) + tir.Broadcast(tir.FloatImm("float32", 1.0), 16), [index])
    body = For(k, 0, 5, ForKind.SERIAL, For(u, 0, 3, ForKind.UNROLLED, store))
    out = np.zeros(32, "float32")
    call(compiled_func([c], body), out)
    want = np.zeros(32, "float32")
    for _ in range(5):
        for u_value in range(3):
            want[u_value * 8 : u_value * 8 + 16] += 1
    np.testing.assert_array_equal(out, want)
