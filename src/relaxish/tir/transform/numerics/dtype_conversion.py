"""Conversions between floating-point formats, written in integer operations."""

from __future__ import annotations

from dataclasses import dataclass

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ..base import call


@dataclass(frozen=True)
class FloatFormat:
    """Widths of exponent and mantissa, and the exponent's bias."""

    exponent: int
    mantissa: int
    bias: int


FORMATS = {
    "float8_e4m3fn": FloatFormat(4, 3, 7),
    "e4m3_float8": FloatFormat(4, 3, 7),
    "float8_e5m2": FloatFormat(5, 2, 15),
    "e5m2_float8": FloatFormat(5, 2, 15),
    "float16": FloatFormat(5, 10, 15),
    "bfloat16": FloatFormat(8, 7, 127),
    "float32": FloatFormat(8, 23, 127),
    "float64": FloatFormat(11, 52, 1023),
}


def uint_of(dtype: str) -> str:
    """The unsigned integer of a type's width.

    >>> uint_of("bfloat16x4")
    'uint16x4'
    """
    return dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype))


def reinterpret(dtype: str, value: PrimExpr) -> PrimExpr:
    """The same bits as another type."""
    return value if value.dtype == dtype else call(dtype, "reinterpret", value)


def _shl(e: PrimExpr, by: int) -> PrimExpr:
    return call(e.dtype, "shift_left", e, B.const(e.dtype, by))


def _shr(e: PrimExpr, by: int) -> PrimExpr:
    return call(e.dtype, "shift_right", e, B.const(e.dtype, by))


def _and(e: PrimExpr, mask: int) -> PrimExpr:
    return call(e.dtype, "bitwise_and", e, B.const(e.dtype, mask))


def _or(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return call(a.dtype, "bitwise_or", a, b)


def convert_float(value: PrimExpr, target: str) -> PrimExpr:
    """``value`` as a float of another format and as many lanes, rounded half to even.

    Before: ``T.Cast("float32", x)`` of a bfloat16 ``x``.
    After: ``T.reinterpret("float32", T.shift_left(T.Cast("uint32", T.reinterpret("uint16", x)), 16))``.

    Numbers whose exponent the target cannot hold become zero when they are too small; denormals, infinities and
    NaNs get no care where exponents differ in width.
    """
    old, new = FORMATS[dt.element_of(value.dtype)], FORMATS[dt.element_of(target)]
    bits, storage = reinterpret(uint_of(value.dtype), value), uint_of(target)
    grown = new.mantissa - old.mantissa
    if grown < 0:
        bias = _and(_shr(bits, -grown), 1) + B.const(bits.dtype, (1 << (-grown - 1)) - 1)
        bits = bits + bias
    if old.exponent == new.exponent:
        made = _shl(B.cast(storage, bits), grown) if grown >= 0 else B.cast(storage, _shr(bits, -grown))
        if old.bias != new.bias:
            made = made + _shl(B.const(storage, new.bias - old.bias), new.mantissa)
        return reinterpret(target, made)
    mantissa = _shl(B.cast(storage, bits), grown) if grown >= 0 else B.cast(storage, _shr(bits, -grown))
    mantissa = _and(mantissa, (1 << new.mantissa) - 1)
    raised = _shr(_shl(bits, 1), old.mantissa + 1)
    sign = _shl(B.cast(storage, _shr(bits, old.mantissa + old.exponent)), new.mantissa + new.exponent)
    delta = B.const(raised.dtype, abs(new.bias - old.bias))
    if new.bias >= old.bias:
        exponent = _shl(B.cast(storage, raised + delta), new.mantissa)
        return reinterpret(target, _or(_or(mantissa, exponent), sign))
    exponent = _shl(B.cast(storage, raised - delta), new.mantissa)
    whole = _or(_or(mantissa, exponent), sign)
    small = B.lt(raised, delta)
    return reinterpret(target, call(storage, "if_then_else", small, B.const(storage, 0), whole))
