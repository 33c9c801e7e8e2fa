"""Detecting linear forms and bounds in expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.functor import post_order_visit
from . import build as B
from ._ir import EQ, GE, GT, LE, LT, Add, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, Sub, Var
from .analyzer import Analyzer
from .constraints import split_conjunction
from .functor import uses_var
from .int_set import IntervalSet, IntSetEvaluator, everything, neg_inf, normalize_dom_map, nothing, pos_inf


def _linear(e: Any, variables: Sequence[Var]) -> list[PrimExpr] | None:
    """Coefficients of ``variables`` and the rest, or None."""
    zero = B.const(e.dtype, 0)
    if not any(uses_var(e, v) for v in variables):
        return [zero] * len(variables) + [e]
    if isinstance(e, Var):
        return [B.const(e.dtype, 1) if v is e else zero for v in variables] + [zero]
    if type(e) in (Add, Sub):
        a, b = _linear(e.a, variables), _linear(e.b, variables)
        if a is None or b is None:
            return None
        op = B.add if type(e) is Add else B.sub
        return [op(x, y) for x, y in zip(a, b)]
    if type(e) is Mul:
        a, b = _linear(e.a, variables), _linear(e.b, variables)
        if a is None or b is None:
            return None
        if all(B.is_zero(x) for x in b[:-1]):
            return [B.mul(x, b[-1]) for x in a]
        if all(B.is_zero(x) for x in a[:-1]):
            return [B.mul(x, a[-1]) for x in b]
    return None


def detect_linear_equation(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr]:
    """``[c0, c1, ..., base]`` with ``expr == sum(ci * vi) + base``; empty where ``expr`` is not linear."""
    found = _linear(expr, list(var_list))
    if found is None:
        return []
    analyzer = Analyzer()
    return [analyzer.simplify(c) for c in found]


def detect_clip_bound(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """``[lo0, hi0, lo1, hi1, ...]`` with inclusive bounds that a conjunction puts on variables; empty if unsure."""
    bounds: dict[Var, list[PrimExpr | None]] = {v: [None, None] for v in var_list}
    analyzer = Analyzer()
    for part in split_conjunction(expr):
        e: Any = part
        if type(e) not in (LT, LE, GT, GE, EQ):
            return []
        used = [v for v in var_list if uses_var(e, v)]
        if len(used) != 1:
            if not used:
                continue
            return []
        var = used[0]
        diff = detect_linear_equation(B.sub(e.a, e.b), [var])
        if not diff or type(diff[0]) is not IntImm or abs(diff[0].value) != 1:
            return []
        sign, rest = diff[0].value, diff[1]
        kind = type(e)
        if kind in (GT, GE):
            sign, rest, kind = -sign, B.sub(B.const(rest.dtype, 0), rest), LT if kind is GT else LE
        # now sign * var + rest < 0, <= 0 or == 0
        limit = B.sub(B.const(rest.dtype, 0), rest) if sign > 0 else rest
        strict = B.const(rest.dtype, 1 if kind is LT else 0)
        slot = bounds[var]
        if sign > 0 or kind is EQ:
            high = analyzer.simplify(B.sub(limit, strict))
            slot[1] = high if slot[1] is None else analyzer.simplify(B.minimum(slot[1], high))
        if sign < 0 or kind is EQ:
            low = analyzer.simplify(B.add(limit, strict))
            slot[0] = low if slot[0] is None else analyzer.simplify(B.maximum(slot[0], low))
    return [end for v in var_list for end in bounds[v]]


def detect_common_subexpr(expr: PrimExpr, threshold: int) -> dict[PrimExpr, int]:
    """Subexpressions that occur at least ``threshold`` times, with their counts."""
    found: list[list[Any]] = []

    def count(e: Any) -> None:
        if not isinstance(e, PrimExpr) or type(e) is IntImm or isinstance(e, Var):
            return
        for entry in found:
            if B.deep_equal(entry[0], e):
                entry[1] += 1
                return
        found.append([e, 1])

    def walk(e: Any) -> None:
        if isinstance(e, PrimExpr):
            for child in e.iter_children():
                walk(child)
            count(e)
        elif isinstance(e, (tuple, list)):
            for item in e:
                walk(item)

    walk(expr)
    return {e: n for e, n in found if n >= threshold}


def deduce_bound(
    var: Var, cond: PrimExpr, hint_map: Mapping[Any, Any], relax_map: Mapping[Any, Any]
) -> IntervalSet:
    """The values of ``var`` for which ``cond`` certainly holds while other variables run over ``relax_map``.

    >>> from relaxish import arith, tir
    >>> x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    >>> upto = {y: arith.IntervalSet(0, 3)}
    >>> arith.deduce_bound(x, x * 4 + y < 16, upto, upto).max_value
    3
    """
    e: Any = cond
    if type(e) not in (LT, LE, GT, GE, EQ):
        return nothing() if uses_var(cond, var) else everything()
    analyzer = Analyzer()
    hints = normalize_dom_map(hint_map)
    relax = normalize_dom_map(relax_map)
    for v, s in hints.items():
        if type(s.min_value) is IntImm and type(s.max_value) is IntImm:
            analyzer.const_int_bound.update(v, (s.min_value.value, s.max_value.value), True)
    kind = type(e)
    left, right = (e.a, e.b) if uses_var(e.a, var) else (e.b, e.a)
    flip = left is e.b
    if uses_var(right, var):
        left, right, flip = B.sub(e.a, e.b), B.const(e.a.dtype, 0), False
    if not uses_var(left, var):
        return everything()
    is_upper = (kind in (LT, LE)) != flip if kind is not EQ else None
    bound = right
    if kind in (LT, GT):
        one = B.const(right.dtype, 1)
        bound = B.sub(right, one) if is_upper else B.add(right, one)
    ends: list[tuple[bool, PrimExpr]] = []
    for upper in ((True, False) if is_upper is None else (is_upper,)):
        solved = _solve(analyzer, var, analyzer.canonical_simplify(left), bound, upper, relax, hints)
        if solved is None:
            return nothing()
        ends.append(solved)
    low: PrimExpr = neg_inf()
    high: PrimExpr = pos_inf()
    for upper, value in ends:
        value = analyzer.simplify(value)
        low, high = (low, value) if upper else (value, high)
    return IntervalSet(low, high)


def _solve(
    analyzer: Analyzer, var: Var, e: Any, bound: PrimExpr, upper: bool, relax: Mapping[Any, IntervalSet],
    hints: Mapping[Any, IntervalSet],
) -> tuple[bool, PrimExpr] | None:
    """Peel operators off ``e <= bound`` (``>=`` unless ``upper``) until ``var`` stands alone."""
    while not isinstance(e, Var):
        if type(e) in (Add, Sub):
            in_left = uses_var(e.a, var)
            if in_left and uses_var(e.b, var):
                return None
            other = e.b if in_left else e.a
            if type(e) is Add:
                bound, e = B.sub(bound, other), (e.a if in_left else e.b)
            elif in_left:
                bound, e = B.add(bound, other), e.a
            else:
                bound, e, upper = B.sub(other, bound), e.b, not upper
        elif type(e) is Mul:
            in_left = uses_var(e.a, var)
            if in_left and uses_var(e.b, var):
                return None
            factor, e = (e.b, e.a) if in_left else (e.a, e.b)
            positive = analyzer.can_prove_greater_equal(factor, 1)
            if not positive and not analyzer.can_prove_less(factor, 0):
                return None
            if not positive:
                zero = B.const(factor.dtype, 0)
                bound, factor, upper = B.sub(zero, bound), B.sub(zero, factor), not upper
            if upper:
                bound = B.floordiv(_extreme(analyzer, bound, True, relax), factor)
            else:
                slack = B.sub(factor, B.const(factor.dtype, 1))
                bound = B.floordiv(B.add(_extreme(analyzer, bound, False, relax), slack), factor)
        elif type(e) is FloorDiv and not uses_var(e.b, var) and analyzer.can_prove_greater_equal(e.b, 1):
            one = B.const(e.b.dtype, 1)
            bound = B.sub(B.mul(B.add(bound, one), e.b), one) if upper else B.mul(bound, e.b)
            e = e.a
        else:
            return None
    bound = _extreme(analyzer, bound, upper, relax)
    if bound is neg_inf() or bound is pos_inf():
        return None
    return upper, bound


def _extreme(analyzer: Analyzer, e: PrimExpr, upper: bool, relax: Mapping[Any, IntervalSet]) -> PrimExpr:
    """The tightest value ``e`` takes: the smallest for an upper bound, else the largest."""
    found = IntSetEvaluator(analyzer, relax, True).eval(analyzer.simplify(e))
    return found.min_value if upper else found.max_value


__all__ = [
    "Max", "Min", "deduce_bound", "detect_clip_bound", "detect_common_subexpr", "detect_linear_equation",
    "post_order_visit",
]  # fmt: skip
