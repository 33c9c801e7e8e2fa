"""Facts from loop ranges: proofs of guards, and loops whose last iteration is worth peeling."""

from __future__ import annotations

from typing import Any

from ...arith.affine import affine
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import pre_order_visit
from ...ir.node import Node
from ...ir.op import Op
from ...ir.prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Call, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Not, Or, Sub, Var,
)  # fmt: skip
from ...tir import For, IfThenElse

Interval = tuple[int, int]
Ranges = dict[Any, Interval]
_LIKELY = Op.register("tir.likely")


def bounds(expr: PrimExpr, ranges: Ranges) -> Interval | None:
    """Smallest and largest value of an integer expression; None when not known, or where it may wrap around."""
    found = _span(expr, ranges)
    return found if found is None or _fits(found, expr.dtype) else None


def _fits(span: Interval, dtype: str) -> bool:
    """Whether a type holds all values of a range."""
    if dt.is_bool(dtype):
        return 0 <= span[0] and span[1] <= 1
    return dt.is_integral(dtype) and dt.min_value(dtype) <= span[0] and span[1] <= dt.max_value(dtype)


def _span(expr: Any, ranges: Ranges) -> Interval | None:
    """What plain arithmetic gives, as if this expression (not those in it) could not wrap around."""
    kind = type(expr)
    if kind is IntImm:
        return expr.value, expr.value
    if isinstance(expr, Var):
        return ranges.get(expr)
    if kind is Cast:
        return bounds(expr.value, ranges)
    if kind not in (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max):
        return None
    form = affine(expr, digits=False, casts=False)
    factors = form.factors()
    if factors:
        low = high = form.const
        for var, factor in factors.items():
            span = ranges.get(var)
            if span is None:
                return None
            low += min(factor * span[0], factor * span[1])
            high += max(factor * span[0], factor * span[1])
        return low, high
    a, b = bounds(expr.a, ranges), bounds(expr.b, ranges)
    if a is None or b is None:
        return None
    if kind is Add:
        return a[0] + b[0], a[1] + b[1]
    if kind is Sub:
        return a[0] - b[1], a[1] - b[0]
    if kind is Mul:
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if kind is Min:
        return min(a[0], b[0]), min(a[1], b[1])
    if kind is Max:
        return max(a[0], b[0]), max(a[1], b[1])
    if b[0] != b[1] or b[0] <= 0:
        return None
    if kind is FloorDiv:
        return a[0] // b[0], a[1] // b[0]
    if a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, b[0] - 1


def prove(cond: Any, ranges: Ranges) -> bool | None:
    """True or False when the ranges decide ``cond``; else None."""
    kind = type(cond)
    if kind is IntImm:
        return bool(cond.value)
    if kind is Call and cond.op is _LIKELY:
        return prove(cond.args[0], ranges)
    if kind is And or kind is Or:
        a, b = prove(cond.a, ranges), prove(cond.b, ranges)
        strong = kind is Or
        if a is strong or b is strong:
            return strong
        return None if a is None or b is None else not strong
    if kind is Not:
        inner = prove(cond.a, ranges)
        return None if inner is None else not inner
    if kind not in (LT, LE, GT, GE, EQ, NE) or not cond.a.dtype.startswith(("int", "uint")):
        return None
    sides = (_span(cond.a, ranges), _span(cond.b, ranges))
    if any(side is not None and not _fits(side, cond.a.dtype) for side in sides):
        return None
    difference = _span(Sub(cond.a, cond.b), ranges) if cond.a.dtype == cond.b.dtype else None
    if difference is None:
        return None
    return _decide(kind, *difference)


def _decide(kind: type, low: int, high: int) -> bool | None:
    if kind in (GE, GT, NE):
        opposite = _decide({GE: LT, GT: LE, NE: EQ}[kind], low, high)
        return None if opposite is None else not opposite
    if kind is EQ:
        return True if low == high == 0 else False if low > 0 or high < 0 else None
    limit = 0 if kind is LE else -1
    return True if high <= limit else False if low > limit else None


def peel_count(loop: For, low: int, count: int, ranges: Ranges) -> tuple[int, int]:
    """Numbers of first and last iterations to generate apart, so that every guard is decided in between."""
    conditions: list[Any] = []
    inner: Ranges = dict(ranges)

    def look(item: Node) -> bool:
        match item:
            case IfThenElse():
                conditions.append((item.condition, dict(inner)))
            case For():
                begin, extent = item.min, item.extent
                if isinstance(begin, IntImm) and isinstance(extent, IntImm):
                    inner[item.loop_var] = (begin.value, begin.value + extent.value - 1)
        return True

    pre_order_visit(loop.body, look)
    inner.pop(loop.loop_var, None)
    best = (0, 0)
    for cond, known in conditions:
        if not uses_var(cond, loop.loop_var):
            continue
        for first, last in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if first + last >= count:
                break
            known[loop.loop_var] = (low + first, low + count - 1 - last)
            if prove(cond, known) is not None:
                best = max(best[0], first), max(best[1], last)
                break
    return best
