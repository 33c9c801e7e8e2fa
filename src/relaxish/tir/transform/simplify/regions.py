"""Sets of buffer elements as conjunctions of conditions: intersecting, subtracting, and projecting loops out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from ....arith import Analyzer, Extension, detect_linear_equation
from ....arith import build as B
from ....arith.functor import substitute, uses_var
from ....ir.expr import PrimExpr
from ....ir.prim import EQ, GE, GT, LE, LT, And, IntImm, Not, Or, Var

Where = tuple[Any, ...]
"""Conditions that hold together; the empty tuple is always true."""

_MOST_PIECES = 16


def new_analyzer() -> Analyzer:
    """An analyzer that draws conclusions from several conditions at once."""
    analyzer = Analyzer()
    analyzer.enabled_extensions = Extension.TransitivelyProveInequalities | Extension.ApplyConstraintsToBooleanBranches
    return analyzer


def conjuncts(e: PrimExpr) -> list[Any]:
    """The conditions that ``e`` joins by "and"."""
    match e:
        case And():
            return [*conjuncts(e.a), *conjuncts(e.b)]
        case IntImm() if e.value:
            return []
    return [e]


def disjuncts(e: PrimExpr) -> list[Any]:
    """The alternatives that ``e`` joins by "or"."""
    return [*disjuncts(e.a), *disjuncts(e.b)] if isinstance(e, Or) else [e]


def joined(where: Iterable[Any]) -> PrimExpr:
    """The conditions as one expression."""
    out: Any = B.true()
    for part in where:
        out = B.and_(out, part)
    return out


def point(axes: tuple[Var, ...], indices: Iterable[Any]) -> Where:
    """The one element at ``indices``."""
    return tuple(EQ(axis, B.cast(axis.dtype, index)) for axis, index in zip(axes, indices))


def refine(where: Iterable[Any], analyzer: Analyzer) -> Where | None:
    """Simplify conditions under each other, dropping those that follow from the rest; None if they contradict."""
    parts = [p for c in where for p in conjuncts(c)]
    parts.sort(key=lambda p: not isinstance(p, EQ))
    known: dict[Any, Any] = {}
    out: list[Any] = []
    with ExitStack() as held:
        for part in parts:
            if known:
                part = substitute(part, known)
            simple: Any = analyzer.simplify(part)
            if isinstance(simple, IntImm):
                if not simple.value:
                    return None
                continue
            if isinstance(part, EQ) and isinstance(part.a, Var) and not uses_var(part.b, part.a):
                if part.a not in known:
                    known[part.a] = part.b
                    out.append(part)
                    continue
            for piece in conjuncts(simple):
                out.append(piece)
                held.enter_context(analyzer.constraint_scope(piece))
    return tuple(out)


def negations(condition: PrimExpr, analyzer: Analyzer) -> list[Any]:
    """Conditions whose alternatives make up "not ``condition``"."""
    if isinstance(condition, EQ):
        return [LT(condition.a, condition.b), LT(condition.b, condition.a)]
    return [analyzer.rewrite_simplify(Not(condition))]


def subtract(where: Where, other: Where, analyzer: Analyzer) -> list[Where]:
    """``where`` without ``other``, in pieces that do not overlap."""
    if refine((*where, *other), analyzer) is None:
        return [where]
    pieces: list[Where] = []
    held: list[Any] = list(where)
    for condition in other:
        for negated in negations(condition, analyzer):
            piece = refine((*held, negated), analyzer)
            if piece is not None:
                pieces.append(piece)
        held.append(condition)
    return pieces[:_MOST_PIECES]


def subtract_all(where: Where, others: Iterable[Where], analyzer: Analyzer) -> list[Where]:
    """``where`` without any of ``others``."""
    pieces = [where]
    for other in others:
        pieces = [p for piece in pieces for p in subtract(piece, other, analyzer)][:_MOST_PIECES]
    return pieces


class Projection:
    """A set with one loop variable removed, and the value the variable must have had (None if there are several)."""

    def __init__(self, where: Where, value: PrimExpr | None) -> None:
        self.where = where
        self.value = value


def _linear(e: PrimExpr, var: Var) -> tuple[int, Any] | None:
    found = detect_linear_equation(e, [var])
    factor = B.as_int(found[0]) if len(found) == 2 else None
    return None if factor is None else (factor, found[1])


def _normal(condition: PrimExpr) -> tuple[str, Any] | None:
    """A comparison as ``e == 0`` or ``e >= 0``."""
    match condition:
        case EQ():
            return "eq", condition.a - condition.b
        case LT() | GT():
            small, large = (condition.a, condition.b) if isinstance(condition, LT) else (condition.b, condition.a)
            return "ge", large - small - 1
        case LE() | GE():
            small, large = (condition.a, condition.b) if isinstance(condition, LE) else (condition.b, condition.a)
            return "ge", large - small
    return None


def project(where: Where, var: Var, low: PrimExpr, high: PrimExpr, analyzer: Analyzer, over: bool) -> Projection | None:
    """The elements that some value of ``var`` in ``[low, high)`` selects.

    Conditions that cannot be solved for ``var`` are left out with ``over``; otherwise they make the answer None.
    None also stands for the empty set.
    """
    rest = [c for c in where if not uses_var(c, var)]
    mine = [c for c in where if uses_var(c, var)]
    lowers: list[Any] = [low]
    uppers: list[Any] = [high - 1]
    for condition in mine:
        normal = _normal(condition)
        linear = _linear(normal[1], var) if normal is not None else None
        if normal is None or linear is None or linear[0] == 0:
            if over:
                continue
            return None
        kind, (factor, base) = normal[0], linear
        if kind == "eq":
            return _solved(where, condition, var, factor, base, (low, high), analyzer, over)
        step = B.const(var.dtype, abs(factor))
        if factor > 0:
            lowers.append(analyzer.simplify(B.floordiv(step - 1 - base, step)))
        else:
            uppers.append(analyzer.simplify(B.floordiv(base, step)))
    value = None
    for lower in lowers:
        for upper in uppers:
            rest.append(LE(lower, upper))
            if value is None and analyzer.can_prove_equal(lower, upper):
                value = lower
    made = refine(rest, analyzer)
    return None if made is None else Projection(made, value)


def _solved(
    where: Where,
    equation: PrimExpr,
    var: Var,
    factor: int,
    base: PrimExpr,
    bounds: tuple[Any, Any],
    analyzer: Analyzer,
    over: bool,
) -> Projection | None:
    total = analyzer.simplify(-base if factor > 0 else base)
    step = B.const(var.dtype, abs(factor))
    value = total if abs(factor) == 1 else analyzer.simplify(B.floordiv(total, step))
    rest = [substitute(c, {var: value}) for c in where if c is not equation]
    if abs(factor) != 1:
        rest.append(EQ(B.floormod(total, step), B.const(var.dtype, 0)))
    made = refine((*rest, LE(bounds[0], value), LT(value, bounds[1])), analyzer)
    return None if made is None else Projection(made, value)
