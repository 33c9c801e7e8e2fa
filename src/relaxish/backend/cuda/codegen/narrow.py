"""Indices of 64 bits whose value, and that of every part, fits 32 bits are computed in 32."""

from __future__ import annotations


from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.prim import BinaryOp, Call, Cast, IntImm, Ramp, Var

__all__ = ["narrowed"]

_BITWISE = ("tir.shift_left", "tir.shift_right", "tir.bitwise_and", "tir.bitwise_or", "tir.bitwise_xor")
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1


class _TooWide(Exception):
    """A part of the expression may not fit."""


class _Narrow(Mutator):
    """Rebuilds an expression with int32 for int64."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def check(self, e: PrimExpr) -> None:
        """Raise where the value is not known to fit."""
        low, high = self.analyzer.const_int_bound.bound(e)
        if low < _LOW or high > _HIGH:
            raise _TooWide

    def visit_Var(self, e: Var) -> PrimExpr:
        if e.dtype != "int64":
            return e
        self.check(e)
        return Cast("int32", e)

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        if e.dtype != "int64":
            return e
        self.check(e)
        return IntImm("int32", e.value)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        if e.dtype == "int64" and e.value.dtype == "int32":
            return e.value
        raise _TooWide

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        return Ramp(self.visit(e.base), self.visit(e.stride), e.lanes)

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        if dt.lanes(e.dtype) != 1:
            raise _TooWide
        self.check(e)
        return type(e)(self.visit(e.a), self.visit(e.b))

    def visit_Call(self, e: Call) -> PrimExpr:
        if e.op.name not in _BITWISE or e.dtype != "int64":
            raise _TooWide
        self.check(e)
        return Call("int32", e.op, [self.visit(a) for a in e.args])

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        raise _TooWide


def narrowed(index: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """The index in int32 where this cannot overflow, else itself."""
    if dt.element_of(index.dtype) != "int64":
        return index
    try:
        return _Narrow(analyzer).visit(index)
    except _TooWide:
        return index
