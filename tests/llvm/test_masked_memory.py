"""Loads and stores under a predicate touch the lanes it holds for, and no others."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish as rx
from relaxish import tir
from relaxish.runtime.dtype import numpy_dtype


def _kernel(dtype: str, stride: int, kind: str) -> object:
    """``B[1 + i * stride] = A[1 + i * stride]`` for 8 lanes, of which the first ``n`` count."""
    a, b = tir.decl_buffer((32,), dtype, "A"), tir.decl_buffer((32,), dtype, "B")
    n, i = tir.Var("n", "int32"), tir.Var("i", "int32")
    index = tir.Ramp(1, stride, 8)
    mask = tir.Ramp(0, 1, 8) < tir.Broadcast(n, 8)
    if kind == "active lanes":
        mask = tir.get_active_lane_mask("boolx8", 0, n)
    load = tir.BufferLoad(a, [index], None if kind == "store" else mask)
    store = tir.BufferStore(b, load, [index], None if kind == "load" else mask)
    body = tir.For(i, 0, 2, tir.ForKind.SERIAL, store)
    return rx.tir.build(tir.PrimFunc([a, b, n], body).with_attr("global_symbol", "main"), target="llvm")["main"]


@pytest.mark.parametrize("kind", ["load", "store", "both", "active lanes"])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16"])
def test_masked_lanes_stay(dtype: str, stride: int, kind: str) -> None:
    kernel = _kernel(dtype, stride, kind)
    rng = np.random.default_rng(5)
    x, before = ((rng.random(32) * 5).astype(numpy_dtype(dtype)) for _ in range(2))
    for n in (0, 3, 8):
        y = rx.nd.array(before.copy())
        kernel(rx.nd.array(x), y, n)  # type: ignore[operator]
        expected, at = before.copy(), 1 + stride * np.arange(8)
        if kind == "load":
            expected[at] = np.where(np.arange(8) < n, x[at], np.zeros((), x.dtype))
        else:
            expected[at[:n]] = x[at[:n]]
        np.testing.assert_array_equal(y.numpy().astype("float64"), expected.astype("float64"))


def test_a_masked_store_in_a_loop_that_sums() -> None:
    """The buffer is read and written at one place in a loop, where it would otherwise live in a register."""
    a, c = tir.decl_buffer((4, 8), "float32", "A"), tir.decl_buffer((8,), "float32", "C")
    i, n = tir.Var("i", "int32"), tir.Var("n", "int32")
    lanes, mask = tir.Ramp(0, 1, 8), tir.Ramp(0, 1, 8) < tir.Broadcast(n, 8)
    value = tir.BufferLoad(c, [lanes]) + tir.BufferLoad(a, [i, lanes])
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(c, value, [lanes], mask))
    kernel = rx.tir.build(tir.PrimFunc([a, c, n], loop).with_attr("global_symbol", "main"), target="llvm")["main"]
    values = np.random.default_rng(2).random((4, 8)).astype("float32")
    out = rx.nd.array(np.ones(8, "float32"))
    kernel(rx.nd.array(values), out, 5)
    expected = 1 + np.where(np.arange(8) < 5, values.sum(0), 0)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("store", [True, False])
def test_masked_and_volatile_is_refused(store: bool) -> None:
    a, b = tir.decl_buffer((8,), "float32", "A"), tir.decl_buffer((8,), "float32", "B")
    index, mask = tir.Ramp(0, 1, 8), tir.Broadcast(tir.const(True, "bool"), 8)
    load = tir.BufferLoad(a, [index], None if store else mask)
    body = tir.BufferStore(b, load, [index], mask if store else None)
    marked = tir.AttrStmt((b if store else a).data, "volatile_scope", 1, body)
    func = tir.PrimFunc([a, b], marked).with_attr("global_symbol", "main")
    with pytest.raises(rx.support.errors.RelaxishError, match="cannot be volatile"):
        rx.tir.build(func, target="llvm")
