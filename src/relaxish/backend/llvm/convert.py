"""Conversions between number types, each rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import dtype as dt
from .ltypes import float_literal, llvm_type, scalar_type, splat, zero_of
from .narrow_floats import from_float32, kept_as_bits, to_float32

if TYPE_CHECKING:
    from .expr_gen import ExprGen


def convert_value(gen: ExprGen, value: str, source: str, target: str) -> str:
    """``value`` of dtype ``source`` as dtype ``target``.

    Floats round to nearest, ties to even. Floats become integers towards zero: those of fewer than 32 bits wrap around,
    the others keep to their range.
    """
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
    if dt.is_float(source):
        return _from_float(gen, value, source, target)
    if dt.is_bool(target):
        return pure(f"icmp ne {a} {value}, {zero_of(source)}", value)
    if dt.is_float(target):
        return _integer_to_float(gen, value, source, target)
    from_bits, to_bits = dt.bits(source), dt.bits(target)
    if from_bits == to_bits:
        return value
    how = "trunc" if to_bits < from_bits else "zext" if dt.is_uint(source) else "sext"
    return pure(f"{how} {a} {value} to {b}", value)


# ---- floats


def _from_float(gen: ExprGen, value: str, source: str, target: str) -> str:
    if dt.is_float(target):
        return _between_floats(gen, value, source, target)
    if dt.bits(source) < 32:
        middle = dt.with_lanes("float32", dt.lanes(source))
        return _from_float(gen, _widened(gen, value, source), middle, target)
    if dt.is_bool(target):
        return gen.w.pure(f"fcmp une {llvm_type(source)} {value}, {zero_of(source)}", value)
    return _float_to_integer(gen, value, source, target)


def _between_floats(gen: ExprGen, value: str, source: str, target: str) -> str:
    """Any float as any other; exactly one rounding."""
    lanes, a, b = dt.lanes(source), llvm_type(source), llvm_type(target)
    from_bits, to_bits = dt.bits(source), dt.bits(target)
    single = dt.with_lanes("float32", lanes)
    if from_bits < 32:
        wide = _widened(gen, value, source)
        return wide if target == single else _between_floats(gen, wide, single, target)
    if to_bits >= 32:
        return gen.w.pure(f"{'fptrunc' if to_bits < from_bits else 'fpext'} {a} {value} to {b}", value)
    if from_bits == 64:
        value = _rounded_to_odd(gen, value, lanes)
    return _narrowed(gen, value, target)


def _widened(gen: ExprGen, value: str, source: str) -> str:
    """A float below 32 bits as float32."""
    if kept_as_bits(source):
        return to_float32(gen, value, source)
    lanes = dt.lanes(source)
    if gen.converts_half:
        return gen.w.pure(f"fpext {llvm_type(source)} {value} to {llvm_type(dt.with_lanes('float32', lanes))}", value)
    bits = gen.w.pure(f"bitcast {llvm_type(source)} {value} to {llvm_type(dt.with_lanes('uint16', lanes))}", value)
    return to_float32(gen, bits, source)


def _narrowed(gen: ExprGen, value: str, target: str) -> str:
    """A float32 as a float below 32 bits."""
    if kept_as_bits(target):
        return from_float32(gen, value, target)
    lanes = dt.lanes(target)
    if gen.converts_half:
        return gen.w.pure(f"fptrunc {llvm_type(dt.with_lanes('float32', lanes))} {value} to {llvm_type(target)}", value)
    bits = from_float32(gen, value, target)
    return gen.w.pure(f"bitcast {llvm_type(dt.with_lanes('uint16', lanes))} {bits} to {llvm_type(target)}", bits)


def _rounded_to_odd(gen: ExprGen, value: str, lanes: int) -> str:
    """A float64 as the float32 towards zero, its last bit set where something was lost.

    Rounding that once more to a float of fewer bits gives what rounding the float64 itself would have given.
    """
    m = gen.math(lanes)
    pure = gen.w.pure
    wide = llvm_type(dt.with_lanes("float64", lanes))
    near = pure(f"fptrunc {wide} {value} to {m.f}", value)
    back = pure(f"fpext {m.f} {near} to {wide}", near)
    full = dt.with_lanes("float64", lanes)
    size, size_back = gen.intrinsic("llvm.fabs", full, value), gen.intrinsic("llvm.fabs", full, back)
    beyond = pure(f"fcmp ogt {wide} {size_back}, {size}", size_back, size)
    inexact = pure(f"fcmp one {wide} {size_back}, {size}", size_back, size)
    bits = m.iop("sub", m.bits(near), pure(f"zext {m.b} {beyond} to {m.i}", beyond))
    return m.from_bits(m.iop("or", bits, pure(f"zext {m.b} {inexact} to {m.i}", inexact)))


# ---- integers and floats


def _float_to_integer(gen: ExprGen, value: str, source: str, target: str) -> str:
    """A float32 or float64 as an integer; the saturating forms are defined for every input, unlike the plain ones."""
    lanes, bits = dt.lanes(target), dt.bits(target)
    if dt.is_int(target) and bits >= 32:
        return _saturated(gen, value, source, target)
    if bits < 64:
        # Narrow ones wrap, as they do where processors convert to a wider one and keep the low bits.
        middle = dt.with_lanes("int32" if bits < 32 else "int64", lanes)
        return convert_value(gen, _saturated(gen, value, source, middle), middle, target)
    ty = llvm_type(target)
    signed = _saturated(gen, value, source, dt.with_lanes("int64", lanes))
    unsigned = _saturated(gen, value, source, target)
    negative = gen.w.pure(f"fcmp olt {llvm_type(source)} {value}, {zero_of(source)}", value)
    flag = llvm_type(dt.with_lanes("bool", lanes))
    return gen.w.pure(f"select {flag} {negative}, {ty} {signed}, {ty} {unsigned}", negative, signed, unsigned)


def _saturated(gen: ExprGen, value: str, source: str, target: str) -> str:
    from .expr_gen import type_suffix

    a, b = llvm_type(source), llvm_type(target)
    name = "fptosi" if dt.is_int(target) else "fptoui"
    full = f"llvm.{name}.sat.{type_suffix(target)}.{type_suffix(source)}"
    gen.w.module.declare(f"declare {b} @{full}({a})")
    return gen.w.pure(f"call {b} @{full}({a} {value})", value)


def _integer_to_float(gen: ExprGen, value: str, source: str, target: str) -> str:
    lanes, bits = dt.lanes(source), dt.bits(source)
    unsigned = dt.is_uint(source)
    if dt.bits(target) >= 32:
        how = "uitofp" if unsigned else "sitofp"
        return gen.w.pure(f"{how} {llvm_type(source)} {value} to {llvm_type(target)}", value)
    if bits <= 16:
        middle = dt.with_lanes("float32", lanes)
    else:
        # Exact in float64, and rounded once from there.
        middle = dt.with_lanes("float64", lanes)
        if bits == 64:
            value = _without_low_bits(gen, value, source)
    return _between_floats(gen, _integer_to_float(gen, value, source, middle), middle, target)


def _without_low_bits(gen: ExprGen, value: str, source: str) -> str:
    """An integer of 64 bits that float64 holds: where it is too long, twelve low bits become one that stands for them.

    No float below 32 bits can tell the difference.
    """
    lanes, ty = dt.lanes(source), llvm_type(source)
    flag = llvm_type(dt.with_lanes("bool", lanes))
    pure = gen.w.pure

    def number(n: int) -> str:
        return splat(str(n), "i64", lanes)

    low = pure(f"and {ty} {value}, {number(0xFFF)}", value)
    some = pure(f"icmp ne {ty} {low}, {number(0)}", low)
    high = pure(f"and {ty} {value}, {number(-0x1000)}", value)
    marked = pure(f"or {ty} {high}, {number(0x800)}", high)
    shortened = pure(f"select {flag} {some}, {ty} {marked}, {ty} {high}", some, marked, high)
    if dt.is_uint(source):
        fits = pure(f"icmp ult {ty} {value}, {number(1 << 53)}", value)
    else:
        moved = pure(f"add {ty} {value}, {number(1 << 53)}", value)
        fits = pure(f"icmp ult {ty} {moved}, {number(1 << 54)}", moved)
    return pure(f"select {flag} {fits}, {ty} {value}, {ty} {shortened}", fits, value, shortened)


__all__ = ["convert_value", "float_literal", "splat"]
