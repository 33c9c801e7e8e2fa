"""Floats of at most sixteen bits: their formats, and exact conversions from and to float32 in integer operations.

Such a float lives in registers and memory as an integer that holds its bits: few processors compute with it, and LLVM's
own support for it differs between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir import dtype as dt
from .ltypes import llvm_type

if TYPE_CHECKING:
    from .expr_gen import ExprGen
    from .mathlib import VectorMath


@dataclass(frozen=True)
class SmallFloat:
    """A sign bit (see ``e8m0fnu`` for the exception), then exponent and mantissa.

    ``special``: "ieee" (infinities and NaNs), "fn" (NaN where all bits but the sign are ones), "fnuz" (one NaN, in the
    place of negative zero) or "none" (neither: what is too large becomes the largest number).
    """

    exponent: int
    mantissa: int
    bias: int
    special: str

    @property
    def sign(self) -> int:
        """The sign bit's value."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The code of infinity in a format that has one."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        if self.special == "ieee":
            return self.infinity - 1
        return self.sign - (2 if self.special == "fn" else 1)


FORMATS = {
    "float16": SmallFloat(5, 10, 15, "ieee"),
    "float8_e3m4": SmallFloat(3, 4, 3, "ieee"),
    "float8_e4m3": SmallFloat(4, 3, 7, "ieee"),
    "float8_e4m3b11fnuz": SmallFloat(4, 3, 11, "fnuz"),
    "float8_e4m3fn": SmallFloat(4, 3, 7, "fn"),
    "float8_e4m3fnuz": SmallFloat(4, 3, 8, "fnuz"),
    "float8_e5m2": SmallFloat(5, 2, 15, "ieee"),
    "float8_e5m2fnuz": SmallFloat(5, 2, 16, "fnuz"),
    "float6_e2m3fn": SmallFloat(2, 3, 1, "none"),
    "float6_e3m2fn": SmallFloat(3, 2, 3, "none"),
    "float4_e2m1fn": SmallFloat(2, 1, 1, "none"),
}
FORMATS["e4m3_float8"] = FORMATS["float8_e4m3fn"]
FORMATS["e5m2_float8"] = FORMATS["float8_e5m2"]
# Powers of two without sign and zero: the byte is the exponent.
E8M0 = "float8_e8m0fnu"


def kept_as_bits(dtype: str) -> bool:
    """Whether values of a type are integers to LLVM."""
    code, bits, _ = dt.parse(dtype)
    return code == "bfloat" or (code.startswith("float") and bits <= 8)


def to_float32(gen: ExprGen, value: str, source: str) -> str:
    """The float32 value of bits of a small float; exact."""
    lanes, element = dt.lanes(source), dt.element_of(source)
    m = gen.math(lanes)
    bits = gen.w.pure(f"zext {_bits_type(source)} {value} to {m.i}", value)
    if element == "bfloat16":
        return m.from_bits(m.iop("shl", bits, m.iconst(16)))
    if element == E8M0:
        return _from_e8m0(gen, m, bits)
    return _decode(gen, m, bits, FORMATS[element])


def from_float32(gen: ExprGen, value: str, target: str) -> str:
    """The bits of the small float nearest to a float32, ties to even."""
    lanes, element = dt.lanes(target), dt.element_of(target)
    m = gen.math(lanes)
    if element == "bfloat16":
        bits = _to_bfloat(gen, m, value)
    elif element == E8M0:
        bits = _to_e8m0(gen, m, value)
    else:
        bits = _encode(gen, m, value, FORMATS[element])
    return gen.w.pure(f"trunc {m.i} {bits} to {_bits_type(target)}", bits)


def _bits_type(dtype: str) -> str:
    if kept_as_bits(dtype):
        return llvm_type(dtype)
    return llvm_type(dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype)))


def _icmp(gen: ExprGen, m: VectorMath, how: str, a: str, b: str) -> str:
    return gen.w.pure(f"icmp {how} {m.i} {a}, {b}", a, b)


def _choose(gen: ExprGen, m: VectorMath, cond: str, a: str, b: str) -> str:
    return gen.w.pure(f"select {m.b} {cond}, {m.i} {a}, {m.i} {b}", cond, a, b)


def _decode(gen: ExprGen, m: VectorMath, bits: str, form: SmallFloat) -> str:
    """Placing the bits and scaling by a power of two converts normal and subnormal numbers alike."""
    magnitude = m.iop("and", bits, m.iconst(form.sign - 1))
    sign = m.iop("shl", m.iop("and", bits, m.iconst(form.sign)), m.iconst(31 - form.exponent - form.mantissa))
    placed = m.iop("shl", magnitude, m.iconst(23 - form.mantissa))
    value = m.bits(m.op("fmul", m.from_bits(placed), m.const(2.0 ** (127 - form.bias))))
    if form.special == "ieee":
        # All ones in the exponent: the mantissa of a NaN is kept.
        special = _icmp(gen, m, "uge", magnitude, m.iconst(form.infinity))
        value = _choose(gen, m, special, m.iop("or", placed, m.iconst(0x7F800000)), value)
    elif form.special == "fn":
        special = _icmp(gen, m, "eq", magnitude, m.iconst(form.sign - 1))
        value = _choose(gen, m, special, m.iconst(0x7FC00000), value)
    elif form.special == "fnuz":
        special = _icmp(gen, m, "eq", bits, m.iconst(form.sign))
        value = _choose(gen, m, special, m.iconst(0x7FC00000), value)
    return m.from_bits(m.iop("or", value, sign))


def _encode(gen: ExprGen, m: VectorMath, value: str, form: SmallFloat) -> str:
    bits = m.bits(value)
    sign = m.iop("and", m.iop("lshr", bits, m.iconst(31 - form.exponent - form.mantissa)), m.iconst(form.sign))
    magnitude = m.iop("and", bits, m.iconst(0x7FFFFFFF))
    drop = 23 - form.mantissa
    odd = m.iop("and", m.iop("lshr", magnitude, m.iconst(drop)), m.iconst(1))
    rebased = m.iop("sub", magnitude, m.iconst((127 - form.bias) << 23))
    half = m.iop("add", m.iop("add", rebased, m.iconst((1 << (drop - 1)) - 1)), odd)
    normal = m.iop("lshr", half, m.iconst(drop))
    # Below the normal numbers, adding a number whose last place is the smallest step makes the adder round.
    magic = 2.0 ** (24 - form.bias - form.mantissa)
    shifted = m.bits(m.op("fadd", m.from_bits(magnitude), m.const(magic)))
    subnormal = m.iop("sub", shifted, m.bits(m.const(magic)))
    tiny = _icmp(gen, m, "ult", magnitude, m.iconst((128 - form.bias) << 23))
    code = _choose(gen, m, tiny, subnormal, normal)
    # The first float32 that does not round to a finite number any more: between the largest and one step further.
    over = {"ieee": form.infinity, "fn": form.sign - 1, "fnuz": form.sign, "none": form.largest}[form.special]
    large = m.iop("or", _flag(m, gen, "uge", magnitude, 0x7F800000), _flag_above(m, gen, code, form.largest, tiny))
    code = _choose(gen, m, _icmp(gen, m, "ne", large, m.iconst(0)), m.iconst(over), code)
    is_nan = _icmp(gen, m, "ugt", magnitude, m.iconst(0x7F800000))
    if form.special == "none":
        # Without a NaN, it becomes zero of the other sign.
        code = _choose(gen, m, is_nan, m.iconst(form.sign), code)
        return m.iop("xor", code, sign)
    if form.special == "fnuz":
        code = _choose(gen, m, is_nan, m.iconst(form.sign), code)
        plain = m.iop("or", code, sign)
        zero_or_nan = _icmp(gen, m, "eq", m.iop("and", code, m.iconst(form.sign - 1)), m.iconst(0))
        return _choose(gen, m, zero_or_nan, code, plain)
    quiet = form.infinity | 1 << (form.mantissa - 1) if form.special == "ieee" else form.sign - 1
    return m.iop("or", _choose(gen, m, is_nan, m.iconst(quiet), code), sign)


def _flag(m: VectorMath, gen: ExprGen, how: str, a: str, limit: int) -> str:
    cond = _icmp(gen, m, how, a, m.iconst(limit))
    return gen.w.pure(f"zext {m.b} {cond} to {m.i}", cond)


def _flag_above(m: VectorMath, gen: ExprGen, code: str, largest: int, tiny: str) -> str:
    above = _flag(m, gen, "ugt", code, largest)
    return _choose(gen, m, tiny, m.iconst(0), above)


def _to_bfloat(gen: ExprGen, m: VectorMath, value: str) -> str:
    bits = m.bits(value)
    high = m.iop("lshr", bits, m.iconst(16))
    odd = m.iop("and", high, m.iconst(1))
    rounded = m.iop("lshr", m.iop("add", m.iop("add", bits, m.iconst(0x7FFF)), odd), m.iconst(16))
    is_nan = m.cmp("uno", value, value)
    return _choose(gen, m, is_nan, m.iop("or", high, m.iconst(0x40)), rounded)


def _from_e8m0(gen: ExprGen, m: VectorMath, bits: str) -> str:
    value = m.iop("shl", bits, m.iconst(23))
    value = _choose(gen, m, _icmp(gen, m, "eq", bits, m.iconst(0)), m.iconst(0x00400000), value)
    return m.from_bits(_choose(gen, m, _icmp(gen, m, "eq", bits, m.iconst(255)), m.iconst(0x7FC00000), value))


def _to_e8m0(gen: ExprGen, m: VectorMath, value: str) -> str:
    """Halves go up; zero and what is negative or no number is NaN, which is what rounds past the largest power, too."""
    bits = m.bits(value)
    rounded = m.iop("lshr", m.iop("add", bits, m.iconst(0x400000)), m.iconst(23))
    small = _flag(m, gen, "uge", bits, 0x600000)
    code = _choose(gen, m, _icmp(gen, m, "ult", bits, m.iconst(0x800000)), small, rounded)
    # As an unsigned number, anything with a sign is above infinity.
    outside = _icmp(gen, m, "uge", m.iop("sub", bits, m.iconst(1)), m.iconst(0x7F7FFFFF))
    return _choose(gen, m, outside, m.iconst(255), code)
