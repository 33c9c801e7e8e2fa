"""Loads and stores under a predicate touch the lanes it holds for, and no others."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish as rx
from relaxish import tir
from relaxish.runtime.arrays.dtype import numpy_dtype


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


_CONVERSIONS = [
    ("int32", "int16"), ("int32", "int8"), ("int64", "int32"), ("int16", "uint8"), ("int64", "int8"),
    ("float32", "bfloat16"), ("float32", "float16"), ("float64", "float32"), ("float32", "float8_e4m3fn"),
    ("int8", "int32"), ("bfloat16", "float32"), ("int16", "int64"),
]  # fmt: skip


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 96, 128])
@pytest.mark.parametrize(("given", "stored"), _CONVERSIONS)
def test_known_masks_of_conversions(given: str, stored: str, lanes: int) -> None:
    """Masks that the compiler knows: LLVM stores the whole wide element of a truncation under a mask of one lane."""
    rng = np.random.default_rng(lanes)
    picks = [[0], [lanes - 1], list(range(lanes // 2 + 1)), sorted({*rng.integers(0, lanes, 3).tolist()})]
    kernels: list[tir.Stmt] = []
    a = tir.decl_buffer((len(picks) * lanes,), given, "A")
    b = tir.decl_buffer((len(picks) * 2 * (lanes + 1),), stored, "B")
    for row, pick in enumerate(picks):
        mask = _known_mask(pick, lanes)
        source = tir.Ramp(row * lanes, 1, lanes)
        for half, (load_mask, store_mask) in enumerate(((None, mask), (mask, None))):
            value = tir.BufferLoad(a, [source], load_mask).astype(f"{stored}x{lanes}")
            place = tir.Ramp((row * 2 + half) * (lanes + 1), 1, lanes)
            kernels.append(tir.BufferStore(b, value, [place], store_mask))
    func = tir.PrimFunc([a, b], tir.SeqStmt(kernels)).with_attr("global_symbol", "main")
    x = (rng.integers(-100, 100, len(picks) * lanes)).astype(numpy_dtype(given))
    before = rng.integers(0, 100, (len(picks), 2, lanes + 1)).astype(numpy_dtype(stored))
    out = rx.nd.array(before.reshape(-1).copy())
    rx.tir.build(func, target="llvm")["main"](rx.nd.array(x), out)
    expected = before.copy()
    for row, pick in enumerate(picks):
        made = x[row * lanes : (row + 1) * lanes].astype(numpy_dtype(stored))
        expected[row, 0, pick] = made[pick]
        expected[row, 1, :lanes] = 0
        expected[row, 1, pick] = made[pick]
    np.testing.assert_array_equal(out.numpy().reshape(expected.shape).astype("f8"), expected.astype("f8"))


def _known_mask(pick: list[int], lanes: int) -> tir.PrimExpr:
    """One constant for each lane: those of ``pick`` are set."""
    return tir.Shuffle([tir.const(i in pick, "bool") for i in range(lanes)], list(range(lanes)))
