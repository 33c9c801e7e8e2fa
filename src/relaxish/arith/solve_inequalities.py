"""Systems of linear inequalities over the integers, by Fourier-Motzkin elimination.

Source: Schrijver, "Theory of Linear and Integer Programming", section 12.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, lcm
from typing import Any, Literal, overload

from . import build as B
from ._ir import EQ, GE, GT, LE, LT, IntImm, PrimExpr, Range, Var, NE
from .analyzer import Analyzer
from .functor import substitute
from .int_constraints import (
    IntConstraints, IntConstraintsTransform, IntGroupBounds, as_conditions, as_system, unsolvable,
)  # fmt: skip
from .linear import detect_linear_equation

STEPS = 3
Term = tuple[int, PrimExpr]


def _zero(e: PrimExpr) -> PrimExpr:
    return B.const(e.dtype, 0)


def _normalized(e: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """A comparison as ``t <= 0`` or ``t == 0``; other conditions as they are."""
    if not B.is_comparison(e) or type(e) is NE:
        return e
    kind = type(e)
    a, b = (e.b, e.a) if kind in (GE, GT) else (e.a, e.b)
    diff = B.sub(a, b)
    if kind in (LT, GT):
        diff = B.add(diff, B.const(a.dtype, 1))
    return (EQ if kind is EQ else LE)(analyzer.simplify(diff), _zero(a))


class _Elimination:
    """Removes one variable after the other, keeping the bounds of each."""

    def __init__(self, system: IntConstraints) -> None:
        self.analyzer = Analyzer()
        self.analyzer.bind_map(system.ranges, True)
        self.rest: list[PrimExpr] = []
        self.current: list[PrimExpr] = []
        for relation in system.relations:
            self._add(self.current, _normalized(self.analyzer.simplify(relation, STEPS), self.analyzer))
        self.bounds = {var: self._eliminate(var, system.ranges.get(var)) for var in system.variables}
        self.relations = self._left_over()

    def _not_positive(self, e: PrimExpr) -> bool:
        return self.analyzer.can_prove(B.le(e, _zero(e)))

    def _add(self, into: list[PrimExpr], new: PrimExpr) -> None:
        """Add a condition unless it holds anyway or a stronger one is there; drop weaker ones."""
        if self.analyzer.can_prove(new) or any(B.deep_equal(new, old) for old in into):
            return
        if type(new) is LE:
            for old in list(into):
                if type(old) is not LE:
                    continue
                if self._not_positive(B.sub(new.a, old.a)):
                    return
                if self._not_positive(B.sub(old.a, new.a)):
                    into.remove(old)
        into.append(new)

    def _eliminate(self, var: Var, dom: Range | None) -> IntGroupBounds:
        upper: list[Term] = []  # c * var + e <= 0, c > 0
        lower: list[Term] = []  # the same with c < 0
        following: list[PrimExpr] = []
        if dom is not None:
            top = B.sub(B.add(dom.min, dom.extent), B.const(var.dtype, 1))
            lower.append((-1, self.analyzer.simplify(dom.min, STEPS)))
            upper.append((1, self.analyzer.simplify(B.sub(_zero(top), top), STEPS)))
        for condition in self.current:
            self._classify(var, condition, following, upper, lower)
        for up, above in upper:
            for low, below in lower:
                common = gcd(up, low)
                sum_ = B.add(B.mul(above, B.const(var.dtype, -low // common)),
                             B.mul(below, B.const(var.dtype, up // common)))  # fmt: skip
                made = self.analyzer.simplify(LE(sum_, _zero(sum_)), STEPS)
                self._add(following, _normalized(made, self.analyzer))
        self.current = following
        scale = lcm(*(abs(c) for c, _ in (*upper, *lower)))
        highs, lows = self._scaled(upper, scale, 1), self._scaled(lower, scale, -1)
        equal = [e for e in lows if any(B.deep_equal(e, o) for o in highs)]

        def others(values: list[PrimExpr]) -> list[PrimExpr]:
            return [e for e in values if not any(B.deep_equal(e, o) for o in equal)]

        return IntGroupBounds(B.const(var.dtype, scale), others(lows), equal, others(highs))

    def _classify(
        self, var: Var, condition: PrimExpr, following: list[PrimExpr], upper: list[Term], lower: list[Term]
    ) -> None:
        coeffs: list[Any] = (
            detect_linear_equation(condition.a, [var]) if type(condition) is LE or type(condition) is EQ else []
        )
        if not coeffs or type(coeffs[0]) is not IntImm:
            self.rest.append(condition)
            return
        c, e = coeffs[0].value, coeffs[1]
        if c == 0:
            following.append(condition)
            return
        (upper if c > 0 else lower).append((c, e))
        if type(condition) is EQ:
            (lower if c > 0 else upper).append((-c, self.analyzer.simplify(B.sub(_zero(e), e), STEPS)))

    def _scaled(self, terms: list[Term], scale: int, sign: int) -> list[PrimExpr]:
        """Bounds of ``scale * var``, the ones that another makes superfluous left out."""
        out: list[PrimExpr] = []
        for c, e in terms:
            bound = self.analyzer.simplify(B.mul(e, B.const(e.dtype, -scale // c)), STEPS)

            def excess(other: PrimExpr, bound: PrimExpr = bound) -> PrimExpr:
                return B.sub(other, bound) if sign > 0 else B.sub(bound, other)

            if any(self._not_positive(excess(other)) for other in out):
                continue
            out = [other for other in out if not self.analyzer.can_prove(B.ge(excess(other), _zero(bound)))]
            out.append(bound)
        return out

    def _left_over(self) -> list[PrimExpr]:
        """The conditions without the variables."""
        out: list[PrimExpr] = []
        for condition in self.current:
            found = self.analyzer.simplify(condition, STEPS)
            if B.is_zero(found):
                out = [B.false()]
                break
            if not B.is_one(found):
                out.append(found)
        return [*out, *self.rest]


def solve_inequalities_as_condition(
    variables: Sequence[Var], ranges: Mapping[Var, Range], inequalities: Sequence[PrimExpr]
) -> list[PrimExpr]:
    """The system solved for each variable, as conditions."""
    system = as_system(inequalities, variables, ranges)
    solved = _Elimination(system)
    return as_conditions(system.variables, solved.bounds, solved.relations)


def _empty(analyzer: Analyzer, dom: Range) -> bool:
    return analyzer.can_prove_greater_equal(B.sub(_zero(dom.extent), dom.extent), 0)


def _as_ranges(system: IntConstraints) -> IntConstraints:
    """Variables keep their names; each gets a range in terms of the later ones."""
    solved = _Elimination(system)
    known = dict(system.ranges)
    ranges: dict[Var, Range] = {}
    for var in reversed(system.variables):
        analyzer = Analyzer()
        analyzer.bind_map(known, True)
        group = solved.bounds[var]
        best: Range | None
        if B.is_one(group.coef) and group.equal:
            best = Range.from_min_extent(group.equal[0], B.const(var.dtype, 1))
        else:
            if var in known:
                group = group.with_range(known[var])
            best = group.find_best_range(known)
            if best is not None and _empty(analyzer, best):
                return unsolvable()
        if best is not None:
            ranges[var] = known[var] = best
    analyzer = Analyzer()
    analyzer.bind_map(known, True)
    conditions = as_conditions(system.variables, solved.bounds, solved.relations)
    return IntConstraints(system.variables, ranges, [c for c in conditions if not analyzer.can_prove(c)])


def _from_zero(system: IntConstraints) -> IntConstraintsTransform:
    """New variables that start at zero."""
    solved = _Elimination(system)
    known = dict(system.ranges)
    src_to_dst: dict[Var, PrimExpr] = {}
    dst_to_src: dict[Var, PrimExpr] = {}
    ranges: dict[Var, Range] = {}
    made: list[Var] = []
    for var in reversed(system.variables):
        analyzer = Analyzer()
        analyzer.bind_map(known, True)
        group = solved.bounds[var].substitute(src_to_dst)
        if B.is_one(group.coef) and group.equal:
            src_to_dst[var] = group.equal[0]
            continue
        if var in known:
            group = group.with_range(known[var])
        best = group.find_best_range(known)
        if best is None:
            src_to_dst[var] = dst_to_src[var] = var
            made.append(var)
        elif B.is_one(best.extent):
            src_to_dst[var] = best.min
        elif _empty(analyzer, best):
            return IntConstraintsTransform(system, unsolvable(), {}, {})
        else:
            fresh = Var(f"{var.name}.shifted", var.dtype)
            src_to_dst[var] = B.add(fresh, best.min)
            dst_to_src[fresh] = analyzer.simplify(B.sub(var, substitute(best.min, dst_to_src)))
            made.append(fresh)
            ranges[fresh] = known[fresh] = Range.from_min_extent(B.const(var.dtype, 0), best.extent)
    analyzer = Analyzer()
    analyzer.bind_map(known, True)
    relations = []
    for condition in as_conditions(system.variables, solved.bounds, solved.relations):
        found = analyzer.simplify(substitute(condition, src_to_dst))
        if not B.is_one(found):
            relations.append(found)
    return IntConstraintsTransform(system, IntConstraints(made[::-1], ranges, relations), src_to_dst, dst_to_src)


@overload
def solve_linear_inequalities(
    equations: IntConstraints | PrimExpr | Sequence[PrimExpr],
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
    deskew_range: Literal[False] = False,
) -> IntConstraints: ...
@overload
def solve_linear_inequalities(
    equations: IntConstraints | PrimExpr | Sequence[PrimExpr],
    variables: Sequence[Var] | None,
    ranges: Mapping[Var, Range] | None,
    deskew_range: Literal[True],
) -> IntConstraintsTransform: ...
def solve_linear_inequalities(
    equations: IntConstraints | PrimExpr | Sequence[PrimExpr],
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
    deskew_range: bool = False,
) -> IntConstraints | IntConstraintsTransform:
    """The range of each variable in terms of the later ones, and the conditions those ranges do not say.

    Without ``deskew_range`` an :class:`IntConstraints`; with it an :class:`IntConstraintsTransform` whose
    new variables all start at zero.

    >>> from relaxish import arith, tir
    >>> x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    >>> found = arith.solve_linear_inequalities([x + y >= 10, x - y >= 2, x <= 6], [x, y])
    >>> found.ranges[x].min, found.ranges[y].min
    (6, 4)
    """
    system = as_system(equations, variables, ranges)
    return _from_zero(system) if deskew_range else _as_ranges(system)
