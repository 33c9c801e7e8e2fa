"""Detecting linear forms, bounds and repetitions in expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import build as B
from ._ir import EQ, GE, GT, LE, LT, Add, IntImm, Mul, PrimExpr, Sub, Var
from .analyzer import Analyzer
from .constraints import split_conjunction
from .functor import uses_var


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
    for part in split_conjunction(analyzer.rewrite_simplify(expr)):
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

    def count(e: PrimExpr) -> None:
        if not isinstance(e, PrimExpr) or type(e) is IntImm or isinstance(e, Var):
            return
        for entry in found:
            if B.deep_equal(entry[0], e):
                entry[1] += 1
                return
        found.append([e, 1])

    def walk(e: PrimExpr | Sequence[PrimExpr]) -> None:
        match e:
            case PrimExpr():
                for child in e.iter_children():
                    walk(child)
                count(e)
            case tuple() | list():
                for item in e:
                    walk(item)

    walk(expr)
    return {e: n for e, n in found if n >= threshold}
