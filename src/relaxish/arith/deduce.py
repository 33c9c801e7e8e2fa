"""Solving one comparison for a variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.functor import Visitor
from ..ir.prim import SizeVar
from . import build as B
from ._ir import GE, GT, LE, LT, Add, FloorDiv, Mul, PrimExpr, Sub, Var, NE
from .analyzer import Analyzer
from .functor import uses_var
from .int_set import IntervalSet, IntSetEvaluator, neg_inf, normalize_dom_map, nothing, pos_inf

AT_MOST, EQUAL, AT_LEAST = -1, 0, 1
_KINDS: dict[type, tuple[int, int]] = {LT: (AT_MOST, -1), LE: (AT_MOST, 0), GT: (AT_LEAST, 1), GE: (AT_LEAST, 0)}


class _Count(Visitor):
    def __init__(self, var: Var) -> None:
        self.var = var
        self.count = 0

    def visit_Var(self, e: Var | SizeVar) -> None:
        self.count += e is self.var

    visit_SizeVar = visit_Var


def _occurrences(var: Var, e: PrimExpr) -> int:
    counter = _Count(var)
    counter.visit(e)
    return counter.count


class _Deducer:
    """Holds ``expr (<= or == or >=) result`` and peels operators off ``expr`` until the variable stands alone."""

    def __init__(self, var: Var, hints: Mapping[Any, IntervalSet], relaxed: Mapping[Any, IntervalSet]) -> None:
        self.var = var
        self.analyzer = Analyzer()
        self.hints = IntSetEvaluator(self.analyzer, hints, True)
        self.relaxed = IntSetEvaluator(self.analyzer, relaxed, True)
        self.relation = EQUAL

    def solve(self, cond: PrimExpr) -> PrimExpr | None:
        """The bound of the variable, its kind in ``relation``; None where the condition cannot be solved."""
        if not B.is_comparison(cond) or type(cond) is NE:
            return None
        a, b = cond.a, cond.b
        self.relation, step = _KINDS.get(type(cond), (EQUAL, 0))
        if not uses_var(a, self.var):
            a, b, self.relation, step = b, a, -self.relation, -step
        if step:
            b = B.add(b, B.const(b.dtype, step))
        return self._peel(*found) if (found := self._relax(a, b)) is not None else None

    def _relax(self, expr: PrimExpr, result: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
        """The worst case of both sides over the relaxed variables."""
        left, right = self.relaxed.eval(expr), self.relaxed.eval(result)
        if left.is_everything() or right.is_everything():
            return None
        if self.relation == EQUAL:
            same = self.analyzer.can_prove_equal
            if not same(left.min_value, left.max_value) or not same(right.min_value, right.max_value):
                return None
        if self.relation == AT_LEAST:
            return left.min_value, right.max_value
        return left.max_value, right.min_value

    def _peel(self, e: Any, result: PrimExpr) -> PrimExpr | None:
        while e is not self.var:
            step = _STEPS.get(type(e))
            found = None if step is None else step(self, e, result, uses_var(e.a, self.var))
            if found is None:
                return None
            e, result = found
        return self.analyzer.simplify(result)

    def _add(self, e: Add, result: PrimExpr, left: bool) -> tuple[PrimExpr, PrimExpr]:
        return (e.a, B.sub(result, e.b)) if left else (e.b, B.sub(result, e.a))

    def _sub(self, e: Sub, result: PrimExpr, left: bool) -> tuple[PrimExpr, PrimExpr]:
        if left:
            return e.a, B.add(result, e.b)
        self.relation = -self.relation
        return e.b, B.sub(B.const(e.dtype, 0), B.sub(result, e.a))

    def _mul(self, e: Mul, result: PrimExpr, left: bool) -> tuple[PrimExpr, PrimExpr] | None:
        inside, factor = (e.a, e.b) if left else (e.b, e.a)
        if not self._turn(factor):
            return None
        exact = self.analyzer.can_prove_equal(B.floormod(result, factor), B.const(e.dtype, 0))
        quotient = B.floordiv(result, factor)
        if not exact:
            if self.relation == EQUAL:
                return None
            if self.relation == AT_LEAST:  # the quotient was rounded down
                quotient = B.add(quotient, B.const(e.dtype, 1))
        return inside, quotient

    def _floordiv(self, e: FloorDiv, result: PrimExpr, left: bool) -> tuple[PrimExpr, PrimExpr] | None:
        if not left or self.relation == EQUAL or not self.analyzer.can_prove_greater_equal(self._low(e.b), 1):
            return None
        product = B.mul(result, e.b)
        if self.relation == AT_MOST:
            product = B.sub(B.add(product, e.b), B.const(e.dtype, 1))
        return e.a, product

    def _low(self, e: PrimExpr) -> PrimExpr:
        low = self.hints.eval(e).min_value
        return e if low is neg_inf() else low

    def _turn(self, factor: PrimExpr) -> bool:
        """Turn the relation for a negative factor; False where its sign is not known."""
        found = self.hints.eval(factor)
        if found.has_lower() and self.analyzer.can_prove_greater_equal(found.min_value, 1):
            return True
        if found.has_upper() and self.analyzer.can_prove_less(found.max_value, 0):
            self.relation = -self.relation
            return True
        return False


_STEPS: dict[type, Any] = {
    Add: _Deducer._add, Sub: _Deducer._sub, Mul: _Deducer._mul, FloorDiv: _Deducer._floordiv,
}  # fmt: skip


def deduce_bound(var: Var, cond: PrimExpr, hint_map: Mapping[Any, Any], relax_map: Mapping[Any, Any]) -> IntervalSet:
    """The values of ``var`` for which ``cond`` certainly holds while other variables run over ``relax_map``.

    ``hint_map`` says what signs factors have.  The empty set stands for "not known": other forms than one
    comparison, or a variable that occurs more than once.

    >>> from relaxish import arith, tir
    >>> x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    >>> upto = {y: arith.IntervalSet(0, 3)}
    >>> arith.deduce_bound(x, x * 4 + y < 16, upto, upto).max_value
    3
    """
    if _occurrences(var, cond) != 1:
        return nothing()
    deducer = _Deducer(var, normalize_dom_map(hint_map), normalize_dom_map(relax_map))
    value = deducer.solve(cond)
    if value is None:
        return nothing()
    low = neg_inf() if deducer.relation == AT_MOST else value
    high = pos_inf() if deducer.relation == AT_LEAST else value
    return IntervalSet(low, high)
