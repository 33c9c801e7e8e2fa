"""Updates of memory that other threads update at the same time, as instructions of LLVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...support.errors import RelaxishError
from .ltypes import element_bytes, llvm_type

if TYPE_CHECKING:
    from .expr_gen import ExprGen

__all__ = ["atomic_update"]

_OF_FLOATS = {"add": "fadd", "max": "fmaximum", "min": "fminimum", "exch": "xchg"}
_OF_INTEGERS = {"add": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor", "exch": "xchg"}


def atomic_update(gen: ExprGen, how: str, args: Sequence[PrimExpr], order: str = "acq_rel") -> str:
    """One ``atomicrmw``. Extremes keep NaN, as everywhere. Raises RelaxishError for what a type has no such update of."""
    pointer, value, dtype = gen.visit(args[0]), gen.visit(args[1]), args[1].dtype
    floating = dt.is_float(dtype) or dt.code(dtype) == "bfloat"
    name = (_OF_FLOATS if floating else _OF_INTEGERS).get(how)
    if (
        name is None
        or dt.lanes(dtype) != 1
        or dt.bits(dtype) not in (8, 16, 32, 64)
        or (floating and dt.bits(dtype) < 16)
    ):
        raise RelaxishError(f"there is no atomic {how} of {dtype}")
    if dt.is_uint(dtype) and how in ("max", "min"):
        name = f"u{name}"
    own = llvm_type(dtype)
    kind = "bfloat" if dt.code(dtype) == "bfloat" else own
    if kind != own:
        value = gen.w.pure(f"bitcast {own} {value} to {kind}", value)
    gen.w.touch_all()
    before = gen.w.effect(f"atomicrmw {name} ptr {pointer}, {kind} {value} {order}, align {element_bytes(dtype)}")
    return before if kind == own else gen.w.pure(f"bitcast {kind} {before} to {own}", before)
