"""Conversions between number types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import dtype as dt
from .ltypes import float_literal, llvm_type, scalar_type, splat, zero_of

if TYPE_CHECKING:
    from .expr_gen import ExprGen


def convert_value(gen: ExprGen, value: str, source: str, target: str) -> str:
    """``value`` of dtype ``source`` as dtype ``target``."""
    if source == target:
        return value
    lanes = dt.lanes(target)
    if dt.lanes(source) == 1 and lanes > 1:
        element = dt.element_of(target)
        return gen.splat_value(convert_value(gen, value, source, element), scalar_type(target), lanes)
    a, b = llvm_type(source), llvm_type(target)
    pure = gen.w.pure
    if dt.is_handle(source) or dt.is_handle(target):
        if dt.is_handle(source) and dt.is_handle(target):
            return value
        how = "ptrtoint" if dt.is_handle(source) else "inttoptr"
        return pure(f"{how} {a} {value} to {b}", value)
    if _is_float8(source) or _is_float8(target):
        return _convert_float8(gen, value, source, target)
    if dt.is_float(source):
        return _from_float(gen, value, source, target)
    if dt.is_bool(target):
        return pure(f"icmp ne {a} {value}, {zero_of(source)}", value)
    unsigned = dt.is_uint(source)
    if dt.is_float(target):
        return pure(f"{'uitofp' if unsigned else 'sitofp'} {a} {value} to {b}", value)
    from_bits, to_bits = dt.bits(source), dt.bits(target)
    if from_bits == to_bits:
        return value
    how = "trunc" if to_bits < from_bits else "zext" if unsigned else "sext"
    return pure(f"{how} {a} {value} to {b}", value)


def _from_float(gen: ExprGen, value: str, source: str, target: str) -> str:
    if source == target:
        return value
    a, b = llvm_type(source), llvm_type(target)
    pure = gen.w.pure
    if dt.is_bool(target):
        return pure(f"fcmp une {a} {value}, {zero_of(source)}", value)
    if dt.is_float(target):
        from_bits, to_bits = dt.bits(source), dt.bits(target)
        if from_bits == to_bits:
            middle = dt.with_lanes("float32", dt.lanes(source))
            return _from_float(gen, _from_float(gen, value, source, middle), middle, target)
        return pure(f"{'fptrunc' if to_bits < from_bits else 'fpext'} {a} {value} to {b}", value)
    name = "fptosi" if dt.is_int(target) else "fptoui"
    # The saturating form costs little and, unlike the plain one, is defined for every input.
    full = f"llvm.{name}.sat.{_mangle(target)}.{_mangle(source)}"
    gen.w.module.declare(f"declare {b} @{full}({a})")
    return pure(f"call {b} @{full}({a} {value})", value)


def _mangle(dtype: str) -> str:
    from .expr_gen import type_suffix

    return type_suffix(dtype)


def _is_float8(dtype: str) -> bool:
    return dt.code(dtype).startswith("float8")


def _convert_float8(gen: ExprGen, value: str, source: str, target: str) -> str:
    lanes = dt.lanes(target)
    middle = dt.with_lanes("float32", lanes)
    if _is_float8(source) and _is_float8(target):
        return _convert_float8(gen, _convert_float8(gen, value, source, middle), middle, target)
    if _is_float8(source):
        return convert_value(gen, _float8_to_float(gen, value, source, lanes), middle, target)
    return _float_to_float8(gen, convert_value(gen, value, source, middle), target, lanes)


def _layout8(dtype: str) -> tuple[int, int, bool]:
    """Exponent bits' bias, mantissa bits, and whether infinity exists."""
    return (15, 2, True) if "e5m2" in dtype else (7, 3, False)


def _float8_to_float(gen: ExprGen, value: str, source: str, lanes: int) -> str:
    bias, mantissa, has_inf = _layout8(source)
    m = gen.math(lanes)
    pure = gen.w.pure
    wide = pure(f"zext {llvm_type(source)} {value} to {m.i}", value)
    sign = m.iop("shl", m.iop("and", wide, m.iconst(0x80)), m.iconst(24))
    magnitude = m.iop("shl", m.iop("and", wide, m.iconst(0x7F)), m.iconst(23 - mantissa))
    # Placing the bits and scaling by 2^(127-bias) converts normal and subnormal numbers alike.
    scaled = m.op("fmul", m.from_bits(magnitude), m.const(2.0 ** (127 - bias)))
    top = 0x7C if has_inf else 0x7F
    limit = m.iop("and", wide, m.iconst(0x7F))
    special = pure(f"icmp uge {m.i} {limit}, {m.iconst(top)}", limit)
    if has_inf:
        bits = m.iop("or", m.iconst(0x7F800000), m.iop("shl", m.iop("and", wide, m.iconst(3)), m.iconst(21)))
        scaled = m.select(special, m.from_bits(bits), scaled)
    else:
        scaled = m.select(special, m.const(float("nan")), scaled)
    return m.from_bits(m.iop("or", m.bits(scaled), sign))


def _float_to_float8(gen: ExprGen, value: str, target: str, lanes: int) -> str:
    bias, mantissa, has_inf = _layout8(target)
    m = gen.math(lanes)
    pure = gen.w.pure
    sign = m.iop("lshr", m.iop("and", m.bits(value), m.iconst(0x80000000)), m.iconst(24))
    magnitude = m.abs(value)
    scaled = m.bits(m.op("fmul", magnitude, m.const(2.0 ** (bias - 127))))
    drop = 23 - mantissa
    odd = m.iop("and", m.iop("lshr", scaled, m.iconst(drop)), m.iconst(1))
    rounded = m.iop("lshr", m.iop("add", m.iop("add", scaled, m.iconst((1 << (drop - 1)) - 1)), odd), m.iconst(drop))
    nan = 0x7E if has_inf else 0x7F
    over = 0x7C if has_inf else 0x7F
    cap = pure(f"icmp ugt {m.i} {rounded}, {m.iconst(over)}", rounded)
    rounded = pure(f"select {m.b} {cap}, {m.i} {m.iconst(over)}, {m.i} {rounded}", cap, rounded)
    is_nan = m.cmp("uno", value, value)
    rounded = pure(f"select {m.b} {is_nan}, {m.i} {m.iconst(nan)}, {m.i} {rounded}", is_nan, rounded)
    whole = m.iop("or", rounded, sign)
    return pure(f"trunc {m.i} {whole} to {llvm_type(target)}", whole)


__all__ = ["convert_value", "float_literal", "splat"]
