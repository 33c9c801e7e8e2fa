"""Conditions over fewer variables: what must hold so that a predicate holds whatever its free variables are."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.functor import Mutator
from ..ir.prim import And, BinaryOp, CmpOp, Or
from . import build as B
from ._ir import EQ, GE, GT, LE, LT, NE, Add, FloorDiv, IntImm, Mul, Not, PrimExpr, Range, Sub, Var
from .functor import free_vars

LEAST, GREATEST = False, True


class _Narrower(Mutator):
    """Rebuilds an expression at its least or greatest value; conditions at their least are the narrowed ones."""

    def __init__(self, ranges: Mapping[Var, Range]) -> None:
        self.ranges = ranges
        self.goal = LEAST
        self.unknown = False

    def extreme(self, e: PrimExpr, goal: bool) -> PrimExpr:
        """``e`` at its extreme."""
        before, self.goal = self.goal, goal
        try:
            return self.visit(e)
        finally:
            self.goal = before

    def condition(self, e: PrimExpr, goal: bool) -> PrimExpr:
        """A condition at its extreme: a literal where some operand has none."""
        outside, self.unknown = self.unknown, False
        made = self.extreme(e, goal)
        if self.unknown:
            made = B.const("bool", goal)
        self.unknown = outside
        return made

    def _unknown(self, e: PrimExpr) -> PrimExpr:
        self.unknown = True
        return e

    def visit_Var(self, e: Var) -> PrimExpr:
        dom = self.ranges.get(e)
        if dom is None:
            return e
        return B.sub(B.add(dom.min, dom.extent), B.const(e.dtype, 1)) if self.goal else dom.min

    visit_SizeVar = visit_Var

    # -- conditions ----------------------------------------------------------------------------------------

    def visit_And(self, e: And | Or) -> PrimExpr:
        return type(e)(self.condition(e.a, self.goal), self.condition(e.b, self.goal))

    visit_Or = visit_And

    def visit_Not(self, e: Not) -> PrimExpr:
        inner = self.condition(e.a, not self.goal)
        return B.const("bool", not inner.value) if type(inner) is IntImm else Not(inner)

    def _order(self, e: CmpOp, rising: bool) -> PrimExpr:
        """A comparison: ``rising`` if it becomes true as its first side grows."""
        first = self.goal if rising else not self.goal
        return type(e)(self.extreme(e.a, first), self.extreme(e.b, not first))

    def visit_LT(self, e: LT) -> PrimExpr:
        return self._order(e, False)

    def visit_LE(self, e: LE) -> PrimExpr:
        return self._order(e, False)

    def visit_GT(self, e: GT) -> PrimExpr:
        return self._order(e, True)

    def visit_GE(self, e: GE) -> PrimExpr:
        return self._order(e, True)

    def visit_EQ(self, e: EQ) -> PrimExpr:
        return B.and_(self.condition(LE(e.a, e.b), self.goal), self.condition(LE(e.b, e.a), self.goal))

    def visit_NE(self, e: NE) -> PrimExpr:
        return B.or_(self.condition(LT(e.a, e.b), self.goal), self.condition(LT(e.b, e.a), self.goal))

    # -- arithmetic ----------------------------------------------------------------------------------------

    def visit_Add(self, e: Add) -> PrimExpr:
        return Add(self.visit(e.a), self.visit(e.b))

    def visit_Sub(self, e: Sub) -> PrimExpr:
        return Sub(self.visit(e.a), self.extreme(e.b, not self.goal))

    def visit_Mul(self, e: Mul) -> PrimExpr:
        return self._by_constant(e, e.a, e.b) if type(e.b) is IntImm else self._by_constant(e, e.b, e.a)

    def _by_constant(self, e: BinaryOp, value: PrimExpr, factor: PrimExpr) -> PrimExpr:
        if not self._free(e):
            return e
        if type(factor) is not IntImm:
            return self._unknown(e)
        made = self.extreme(value, self.goal if factor.value >= 0 else not self.goal)
        return type(e)(made, factor) if factor is e.b else type(e)(factor, made)

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        if type(e.b) is IntImm and e.b.value == 0:
            return self._unknown(e)
        return self._by_constant(e, e.a, e.b)

    visit_Div = visit_FloorDiv

    def visit_FloorMod(self, e: PrimExpr) -> PrimExpr:
        return self._unknown(e)  # neither rising nor falling

    visit_Mod = visit_FloorMod
    visit_BufferLoad = visit_FloorMod
    visit_ProducerLoad = visit_FloorMod

    def visit_Select(self, e: PrimExpr) -> PrimExpr:
        return self._unknown(e) if self._free(e) else e

    visit_Call = visit_Select
    visit_Let = visit_Select

    def _free(self, e: PrimExpr) -> bool:
        return any(v in self.ranges for v in free_vars(e))


def narrow_predicate_expression(expr: PrimExpr, free_parameters: Mapping[Var, Range]) -> PrimExpr:
    """A condition without ``free_parameters`` under which ``expr`` holds for all of their values.

    >>> from relaxish import arith, tir
    >>> from relaxish.ir import Range
    >>> i, n = tir.Var("i", "int32"), tir.Var("n", "int32")
    >>> arith.narrow_predicate_expression(i < n, {n: Range(4, 8)})
    i < 4
    """
    narrowed: PrimExpr = _Narrower(free_parameters).condition(expr, LEAST)
    return narrowed
