"""Index expressions in one normal form: constant + sum of coefficient * (digit of a loop) + non-affine rests.

A *digit* is what fusing leaves of a loop: ``(f // div) % extent``. A non-affine rest is ``floordiv`` or ``floormod`` of
another form by a constant. The features and the vectoriser read programs only through this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tir import Add, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var

__all__ = ["IndexForm", "Rest", "Term", "parse_index"]


@dataclass
class Term:
    """``coef * ((var // div) % extent)``; an extent of 0 means "whatever the loop has left"."""

    coef: int
    var: Var
    div: int = 1
    extent: int = 0


@dataclass
class Rest:
    """``coef * (form op divisor)``; op is ``div``, ``mod``, ``min``, ``max`` or ``opaque``."""

    coef: int
    op: str
    forms: list[IndexForm]
    divisor: int = 1

    def value(self, point: Mapping[Var, int]) -> int:
        """What the operation gives at ``point``; one that is not known counts as the sum of its operands."""
        values = [form.value(point) for form in self.forms]
        if self.op == "div":
            return values[0] // self.divisor
        if self.op == "mod":
            return values[0] % self.divisor
        if self.op in ("min", "max"):
            return (min if self.op == "min" else max)(values)
        return sum(values)


@dataclass
class IndexForm:
    """A parsed index expression."""

    const: int = 0
    terms: list[Term] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)

    def scaled(self, factor: int) -> IndexForm:
        """Every coefficient times ``factor``."""
        return IndexForm(
            self.const * factor,
            [Term(t.coef * factor, t.var, t.div, t.extent) for t in self.terms],
            [Rest(r.coef * factor, r.op, r.forms, r.divisor) for r in self.rests],
        )

    def plus(self, other: IndexForm) -> IndexForm:
        """The sum; equal digits are merged."""
        terms = [Term(t.coef, t.var, t.div, t.extent) for t in self.terms]
        for t in other.terms:
            for mine in terms:
                if mine.var is t.var and mine.div == t.div and mine.extent == t.extent:
                    mine.coef += t.coef
                    break
            else:
                terms.append(Term(t.coef, t.var, t.div, t.extent))
        return IndexForm(self.const + other.const, [t for t in terms if t.coef], self.rests + other.rests)

    def single_digit(self) -> Term | None:
        """The digit this form is, if it is nothing but one."""
        if self.const == 0 and not self.rests and len(self.terms) == 1 and self.terms[0].coef == 1:
            return self.terms[0]
        return None

    def coefficient(self, var: Var) -> int:
        """Smallest step the index makes when ``var`` does, 0 if it does not move."""
        found = [abs(t.coef) for t in self.terms if t.var is var]
        for rest in self.rests:
            inner = [c for form in rest.forms if (c := form.coefficient(var))]
            if inner:
                step = min(inner)
                found.append(abs(rest.coef) * (max(1, step // rest.divisor) if rest.op == "div" else step))
        return min(found, default=0)

    def value(self, point: Mapping[Var, int]) -> int:
        """The index where loops stand at ``point``, those not in it at 0."""
        total = self.const
        for term in self.terms:
            digit = point.get(term.var, 0) // term.div
            total += term.coef * (digit % term.extent if term.extent else digit)
        for rest in self.rests:
            total += rest.coef * rest.value(point)
        return total

    def variables(self) -> set[Var]:
        """Every loop variable mentioned."""
        found = {t.var for t in self.terms}
        for rest in self.rests:
            for form in rest.forms:
                found |= form.variables()
        return found


def parse_index(expr: Any, bindings: Mapping[Var, Any]) -> IndexForm:
    """The normal form of ``expr`` with variables replaced by ``bindings`` (expressions or parsed forms)."""
    if isinstance(expr, int):
        return IndexForm(expr)
    if isinstance(expr, IntImm):
        return IndexForm(expr.value)
    if isinstance(expr, Var):
        bound = bindings.get(expr)
        if bound is None or bound is expr:
            return IndexForm(0, [Term(1, expr)])
        return bound if isinstance(bound, IndexForm) else parse_index(bound, bindings)
    if isinstance(expr, Cast):
        return parse_index(expr.value, bindings)
    if isinstance(expr, (Add, Sub)):
        right = parse_index(expr.b, bindings)
        return parse_index(expr.a, bindings).plus(right.scaled(-1) if isinstance(expr, Sub) else right)
    if isinstance(expr, Mul):
        left, right = parse_index(expr.a, bindings), parse_index(expr.b, bindings)
        for one, other in ((left, right), (right, left)):
            if not one.terms and not one.rests:
                return other.scaled(one.const)
        return IndexForm(0, [], [Rest(1, "opaque", [left, right])])
    if isinstance(expr, (FloorDiv, FloorMod)):
        return _divided(expr, bindings)
    if isinstance(expr, (Min, Max)):
        forms = [parse_index(expr.a, bindings), parse_index(expr.b, bindings)]
        return IndexForm(0, [], [Rest(1, "min" if isinstance(expr, Min) else "max", forms)])
    operands = [parse_index(x, bindings) for x in _operands(expr)]
    return IndexForm(0, [], [Rest(1, "opaque", operands)])


def _operands(expr: Any) -> list[Any]:
    found: list[Any] = []
    for child in expr.iter_children():
        for item in child if isinstance(child, (tuple, list)) else (child,):
            if hasattr(item, "dtype") and hasattr(item, "iter_children"):
                found.append(item)
    return found


def _divided(expr: Any, bindings: Mapping[Var, Any]) -> IndexForm:
    inner, divisor = parse_index(expr.a, bindings), parse_index(expr.b, bindings)
    if divisor.terms or divisor.rests or divisor.const <= 0:
        return IndexForm(0, [], [Rest(1, "opaque", [inner])])
    by, is_div = divisor.const, isinstance(expr, FloorDiv)
    if by == 1:
        return inner if is_div else IndexForm()
    if not inner.terms and not inner.rests:
        return IndexForm(inner.const // by if is_div else inner.const % by)
    digit = inner.single_digit()
    if digit is not None and is_div:
        extent = 0 if digit.extent == 0 else -(-digit.extent // by)
        return IndexForm(0, [Term(1, digit.var, digit.div * by, extent)])
    if digit is not None:
        return IndexForm(0, [Term(1, digit.var, digit.div, by if digit.extent == 0 else min(by, digit.extent))])
    return IndexForm(0, [], [Rest(1, "div" if is_div else "mod", [inner], by)])
