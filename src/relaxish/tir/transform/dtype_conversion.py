"""Conversions between floating-point formats, written in integer operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import build as B
from ...ir import dtype as dt
from ...ir.prim import LT, Add, Cast, Sub
from .base import call


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
    """The unsigned integer of a type's width."""
    return dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype))


def _shl(e: Any, by: int) -> Any:
    return call(e.dtype, "shift_left", e, B.const(e.dtype, by))


def _shr(e: Any, by: int) -> Any:
    return call(e.dtype, "shift_right", e, B.const(e.dtype, by))


def _and(e: Any, mask: int) -> Any:
    return call(e.dtype, "bitwise_and", e, B.const(e.dtype, mask))


def _or(a: Any, b: Any) -> Any:
    return call(a.dtype, "bitwise_or", a, b)


def widen(bits: Any, source: str, target: str) -> Any:
    """The value of a wider float, from the bits of a narrower one."""
    small, large = FORMATS[dt.element_of(source)], FORMATS[dt.element_of(target)]
    wide = uint_of(target)
    shift = large.mantissa - small.mantissa
    if small.exponent == large.exponent:
        return call(target, "reinterpret", _shl(Cast(wide, bits), shift))
    mantissa = _and(_shl(Cast(wide, bits), shift), (1 << large.mantissa) - 1)
    raised = Cast(wide, _shr(_shl(bits, 1), small.mantissa + 1))
    exponent = _shl(Add(raised, B.const(wide, large.bias - small.bias)), large.mantissa)
    sign = _shl(Cast(wide, _shr(bits, dt.bits(source) - 1)), dt.bits(target) - 1)
    return call(target, "reinterpret", _or(_or(mantissa, exponent), sign))


def narrow(value: Any, target: str) -> Any:
    """The bits of a narrower float, rounded to nearest even; too small values become zero."""
    source = value.dtype
    large, small = FORMATS[dt.element_of(source)], FORMATS[dt.element_of(target)]
    bits: Any = call(uint_of(source), "reinterpret", value)
    storage = uint_of(target)
    shift = large.mantissa - small.mantissa
    bias = Add(_and(_shr(bits, shift), 1), B.const(bits.dtype, (1 << (shift - 1)) - 1))
    bits = Add(bits, bias)
    if small.exponent == large.exponent:
        return Cast(storage, _shr(bits, shift))
    mantissa = _and(Cast(storage, _shr(bits, shift)), (1 << small.mantissa) - 1)
    raised = _shr(_shl(bits, 1), large.mantissa + 1)
    delta = B.const(bits.dtype, large.bias - small.bias)
    exponent = _shl(Cast(storage, Sub(raised, delta)), small.mantissa)
    sign = _shl(Cast(storage, _shr(bits, dt.bits(source) - 1)), dt.bits(target) - 1)
    whole = _or(_or(mantissa, exponent), sign)
    return call(storage, "if_then_else", LT(raised, delta), B.const(storage, 0), whole)
