"""Division of integers: zero divisors and overflow are errors, and what a select throws away is none."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import tir
from relaxish.ir import dtype as dt
from relaxish.ir.prim import Div, FloorDiv, FloorMod, Mod, Select, Var
from relaxish.support.errors import DivisionByZeroError, DivisionOverflowError, RelaxishError
from relaxish.tir import BufferLoad, BufferStore, For, ForKind, PrimFunc, decl_buffer

SIGNED = ("int8", "int16", "int32", "int64")
TYPES = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
KINDS: dict[str, Any] = {"truncdiv": Div, "truncmod": Mod, "floordiv": FloorDiv, "floormod": FloorMod}


def _reference(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    exact = [int(x) for x in a], [int(y) for y in b]
    out = []
    for x, y in zip(*exact, strict=True):
        q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        out.append({"truncdiv": q, "truncmod": x - q * y, "floordiv": x // y, "floormod": x % y}[kind])
    return np.array(out, a.dtype)


def _kernel(kind: str, dtype: str, size: int, loop: ForKind, wrap: Any = None) -> Any:
    a, b, c = (decl_buffer((size,), dtype, n) for n in "abc")
    i = Var("i", "int32")
    value = KINDS[kind](BufferLoad(a, [i]), BufferLoad(b, [i]))
    if wrap is not None:
        value = wrap(value, BufferLoad(b, [i]))
    params = [Var(n, "handle") for n in "xyz"]
    body = For(i, 0, size, loop, BufferStore(c, value, [i]))
    func = PrimFunc(params, body, buffer_map=dict(zip(params, (a, b, c), strict=True)))
    return relaxish.build(func.with_attr("global_symbol", "divide"), target="llvm")


def _values(dtype: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    low, high = dt.min_value(dtype), dt.max_value(dtype)
    a = rng.integers(low, high, size, dtype, endpoint=True)
    b = rng.integers(max(low, -9), 9, size, dtype, endpoint=True)
    b[b == 0] = 3
    b[(a == low) & (low < 0)] = 2
    return a, b


@pytest.mark.parametrize("loop", [ForKind.SERIAL, ForKind.VECTORIZED, ForKind.PARALLEL])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_and_overflow_are_errors(kind: str, dtype: str, loop: ForKind) -> None:
    size = 16
    run = _kernel(kind, dtype, size, loop)
    a, b = _values(dtype, size, 3)
    out = np.zeros(size, dtype)
    run(a, b, out)
    np.testing.assert_array_equal(out, _reference(kind, a, b))
    for place in (0, 5, size - 1):
        zero = b.copy()
        zero[place] = 0
        with pytest.raises(DivisionByZeroError, match=f"divide: .* of {dtype} by zero") as caught:
            run(a, zero, out)
        assert isinstance(caught.value, ZeroDivisionError) and isinstance(caught.value, RelaxishError)
        if dtype in SIGNED:
            low, minus = a.copy(), b.copy()
            low[place], minus[place] = dt.min_value(dtype), -1
            with pytest.raises(
                DivisionOverflowError, match=f"of {dt.min_value(dtype)} by -1 overflows {dtype}"
            ) as over:
                run(low, minus, out)
            assert isinstance(over.value, OverflowError)
    run(a, b, out)
    np.testing.assert_array_equal(out, _reference(kind, a, b))


@pytest.mark.parametrize("loop", [ForKind.SERIAL, ForKind.VECTORIZED])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_not_taken_raises_nothing(kind: str, dtype: str, loop: ForKind, lazy: bool) -> None:
    def wrap(value: Any, divisor: Any) -> Any:
        legal = divisor > tir.const(0, dtype)
        other = tir.const(7, dtype)
        return tir.if_then_else(legal, value, other) if lazy else Select(legal, value, other)

    size = 32
    run = _kernel(kind, dtype, size, loop, wrap)
    a, b = _values(dtype, size, 5)
    b[::3] = 0
    if dtype in SIGNED:
        a[1], b[1] = dt.min_value(dtype), -1
    out = np.zeros(size, dtype)
    run(a, b, out)
    taken = b > 0
    expected = np.where(taken, _reference(kind, a, np.where(taken, b, 1).astype(dtype)), 7)
    np.testing.assert_array_equal(out, expected.astype(dtype))


def test_a_value_that_is_taken_raises_beside_others_that_are_not() -> None:
    run = _kernel("truncdiv", "int32", 16, ForKind.VECTORIZED, lambda v, d: Select(d < 1, v, tir.const(7, "int32")))
    a, b = np.arange(16, dtype="int32"), np.ones(16, "int32")
    out = np.zeros(16, "int32")
    run(a, b, out)
    assert (out == 7).all()
    b[9] = 0
    with pytest.raises(DivisionByZeroError):
        run(a, b, out)


@pytest.mark.parametrize("kind", KINDS)
def test_index_arithmetic_with_values_of_the_call(kind: str) -> None:
    n, i = Var("n", "int32"), Var("i", "int32")
    a, b = decl_buffer((64,), "float32", "a"), decl_buffer((64,), "float32", "b")
    load = BufferLoad(a, [KINDS[kind](i, n)])
    x, y = Var("x", "handle"), Var("y", "handle")
    func = PrimFunc([x, y, n], For(i, 0, 64, ForKind.SERIAL, BufferStore(b, load, [i])), buffer_map={x: a, y: b})
    run = relaxish.build(func.with_attr("global_symbol", "divide"), target="llvm")
    data, out = np.random.default_rng(1).random(64, "float32"), np.zeros(64, "float32")
    for number in (1, 3, 70):
        run(data, out, number)
        index = _reference(kind, np.arange(64), np.full(64, number))
        np.testing.assert_array_equal(out, data[index])
    with pytest.raises(DivisionByZeroError, match="divide"):
        run(data, out, 0)


def _hex(text: str) -> str:
    return "".join(f"\\{ord(c):02X}" for c in text)


def test_a_constant_divisor_costs_nothing() -> None:
    a, b = decl_buffer((64,), "int32", "a"), decl_buffer((64,), "int32", "b")
    i, x, y = Var("i", "int32"), Var("x", "handle"), Var("y", "handle")
    for divisor, checks in ((7, 0), (-3, 0), (-1, 1)):  # only the last can overflow
        value = FloorDiv(BufferLoad(a, [i]), tir.const(divisor, "int32"))
        body = For(i, 0, 64, ForKind.SERIAL, BufferStore(b, value, [i]))
        built = relaxish.build(PrimFunc([x, y], body, buffer_map={x: a, y: b}), target="llvm")
        text = built.sources["ll"]
        assert (_hex("division") in text) == bool(checks), divisor
        data, out = np.arange(-32, 32, dtype="int32"), np.zeros(64, "int32")
        built(data, out)
        np.testing.assert_array_equal(out, data // divisor)


@pytest.mark.parametrize("kind", KINDS)
def test_code_for_the_host_side_of_devices_never_traps(kind: str) -> None:
    from relaxish.backend.llvm.native import HostCompiler

    a, b, c = (decl_buffer((16,), "int32", n) for n in "abc")
    i = Var("i", "int32")
    params = [Var(n, "handle") for n in "xyz"]
    value = KINDS[kind](BufferLoad(a, [i]), BufferLoad(b, [i]))
    body = For(i, 0, 16, ForKind.SERIAL, BufferStore(c, value, [i]))
    func = PrimFunc(params, body, buffer_map=dict(zip(params, (a, b, c), strict=True)))
    code = HostCompiler().compile([("quiet_" + kind, func)])
    x, y = _values("int32", 16, 7)
    x[3], y[3], y[5] = np.iinfo("int32").min, -1, 0
    out = np.zeros(16, "int32")
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(code.addresses["quiet_" + kind])
    assert call(x.ctypes.data, y.ctypes.data, out.ctypes.data) == 0
    legal = np.ones(16, bool)
    legal[[3, 5]] = False
    np.testing.assert_array_equal(out[legal], _reference(kind, x[legal], y[legal]))
