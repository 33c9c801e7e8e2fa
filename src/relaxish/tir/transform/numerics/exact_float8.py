"""8-bit floats as devices without them compute with them: every value, zero and the ends of the range included.

The passes that users know (``FP8ComputeLegalize``, ``FP8StorageLegalize``) write conversions that shift bits and know of
normal numbers only. Programs that are built have these.
"""

from __future__ import annotations

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Select
from ...function import PrimFunc
from ..base import call, FunctionRewrite
from .dtype_conversion import FORMATS, FloatFormat, convert_float, reinterpret, uint_of
from .legalize_compute import ComputeLegalizer, is_float8, natively_supported
from .legalize_storage import StorageLegalizer

__all__ = ["ExactFP8ComputeLegalize", "ExactFP8StorageLegalize", "convert_exactly"]

_INFINITY, _NAN = 0x7F800000, 0x7FC00000


def convert_exactly(value: PrimExpr, target: str) -> PrimExpr:
    """``value`` as a float of another format, to the nearest (ties to even); between 8 bits and float32, else as
    :func:`convert_float`. What is too large becomes infinity, or NaN in a format without."""
    old, new = dt.element_of(value.dtype), dt.element_of(target)
    if is_float8(old) and new == "float32":
        return _decoded(value, target, FORMATS[old], old)
    if old == "float32" and is_float8(new):
        return _encoded(value, target, FORMATS[new], new)
    return convert_float(value, target)


def _infinite(kind: str) -> bool:
    return "e5m2" in kind


def _op(name: str, a: PrimExpr, b: PrimExpr | int) -> PrimExpr:
    return call(a.dtype, name, a, B.const(a.dtype, b) if isinstance(b, int) else b)


def _decoded(value: PrimExpr, target: str, form: FloatFormat, kind: str) -> PrimExpr:
    words = dt.with_lanes("uint32", dt.lanes(target))
    bits = B.cast(words, reinterpret(uint_of(value.dtype), value))
    sign = _op("shift_left", _op("bitwise_and", bits, 0x80), 24)
    size = _op("bitwise_and", bits, 0x7F)
    normal = _op("shift_left", size, 23 - form.mantissa) + B.const(words, (127 - form.bias) << 23)
    # Below the normal numbers the bits count the smallest one.
    small = B.cast(target, size) * B.const(target, 2.0 ** (1 - form.bias - form.mantissa))
    found = Select(B.lt(size, B.const(words, 1 << form.mantissa)), reinterpret(words, small), normal)
    top = ((1 << form.exponent) - 1) << form.mantissa if _infinite(kind) else 0x7F
    ends = B.const(words, _NAN)
    if _infinite(kind):
        ends = Select(B.eq(size, B.const(words, top)), B.const(words, _INFINITY), ends)
    found = Select(B.lt(size, B.const(words, top)), found, ends)
    return reinterpret(target, _op("bitwise_or", found, sign))


def _encoded(value: PrimExpr, target: str, form: FloatFormat, kind: str) -> PrimExpr:
    words = dt.with_lanes("uint32", dt.lanes(target))
    bits = reinterpret(words, value)
    sign = _op("bitwise_and", _op("shift_right", bits, 24), 0x80)
    size = _op("bitwise_and", bits, 0x7FFFFFFF)
    cut = 23 - form.mantissa
    even = _op("bitwise_and", _op("shift_right", size, cut), 1)
    rounded = _op("shift_right", size + B.const(words, (1 << (cut - 1)) - 1) + even, cut)
    normal = rounded - B.const(words, (127 - form.bias) << form.mantissa)
    # Added to a number whose last place is that of the smallest result, a value is rounded to it.
    exponent = 24 - form.bias - form.mantissa
    magic = B.const(value.dtype, 2.0**exponent)
    small = reinterpret(words, reinterpret(value.dtype, size) + magic) - B.const(words, (exponent + 127) << 23)
    found = Select(B.lt(size, B.const(words, (128 - form.bias) << 23)), small, normal)
    ends = ((1 << form.exponent) - 1) << form.mantissa if _infinite(kind) else 0x7F
    found = Select(B.lt(found, B.const(words, ends)), found, B.const(words, ends))
    found = Select(B.lt(B.const(words, _INFINITY), size), B.const(words, 0x7E if _infinite(kind) else 0x7F), found)
    return reinterpret(target, B.cast(uint_of(target), _op("bitwise_or", found, sign)))


class _Compute(ComputeLegalizer):
    convert = staticmethod(convert_exactly)


class _Storage(StorageLegalizer):
    convert = staticmethod(convert_exactly)


class ExactFP8ComputeLegalize(FunctionRewrite):
    """:func:`FP8ComputeLegalize` to float32, with conversions that are right for all values."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 9)) else _Compute(is_float8, "float32").run(func)


class ExactFP8StorageLegalize(FunctionRewrite):
    """:func:`FP8StorageLegalize`, with conversions that are right for all values."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 9)) else _Storage(is_float8).run(func)
