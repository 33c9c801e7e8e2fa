"""Bounds of variables implied by a condition: ``1 <= i and i < 17`` bounds ``i`` to ``[1, 17)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import free_vars
from ....arith.int_set import IntervalSet
from ....arith.solve_inequalities import solve_linear_inequalities
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Add, And, CmpOp, FloorDiv, FloorMod, IntImm, Mul, Sub, Var
from ..base import is_call

_AFFINE = (Add, Sub, Mul, FloorDiv, FloorMod, IntImm, Var)


def _is_simple(e: PrimExpr) -> bool:
    return isinstance(e, _AFFINE) and all(_is_simple(c) for c in e.iter_children() if hasattr(c, "dtype"))


def _comparisons(condition: PrimExpr) -> list[Any]:
    """The comparisons of plain index arithmetic that a condition is the conjunction of."""
    if isinstance(condition, And):
        return _comparisons(condition.a) + _comparisons(condition.b)
    if is_call(condition, "likely"):
        return _comparisons(condition.args[0])
    if isinstance(condition, CmpOp) and _is_simple(condition.a) and _is_simple(condition.b):
        return [condition] if free_vars(condition) else []
    return []


def solve_condition(
    condition: PrimExpr, domains: Mapping[Var, IntervalSet], hints: Mapping[Var, IntervalSet]
) -> dict[Var, Range] | None:
    """Ranges of variables that say the same as the condition; None where none do.

    >>> from relaxish.tir import Var
    >>> i = Var("i", "int32")
    >>> solve_condition(i < 8, {i: IntervalSet(IntImm("int32", 0), IntImm("int32", 15))}, {})[i].extent
    8
    """
    if isinstance(condition, IntImm):
        return None
    analyzer = Analyzer()
    condition = analyzer.simplify(condition)
    comparisons = _comparisons(condition)
    variables: list[Var] = []
    for e in comparisons:
        variables += [v for v in free_vars(e) if dt.is_integral(v.dtype) and v not in variables]
    if not variables:
        return None
    ranges: dict[Var, Range] = {}
    for var in variables:
        dom = domains.get(var) or hints.get(var)
        if dom is not None and dom.has_lower() and dom.has_upper():
            one = B.const(dom.max_value.dtype, 1)
            extent = analyzer.simplify(B.add(B.sub(dom.max_value, dom.min_value), one))
            ranges[var] = Range.from_min_extent(dom.min_value, extent)
    result = solve_linear_inequalities(comparisons, variables, ranges)
    if result.relations or any(var not in result.ranges for var in variables):
        return None
    return result.ranges if _same_meaning(comparisons, result.ranges) else None


def _same_meaning(comparisons: list[Any], ranges: Mapping[Var, Range]) -> bool:
    """Whether ranges independent of one another imply all comparisons."""
    analyzer = Analyzer()
    for var, dom in ranges.items():
        if any(v in ranges for v in free_vars(dom.min)) or any(v in ranges for v in free_vars(dom.extent)):
            return False
        if analyzer.can_prove(B.le(dom.extent, B.const(dom.extent.dtype, 0))):
            return False
        analyzer.bind(var, dom, True)
    return all(analyzer.can_prove(e) for e in comparisons)
