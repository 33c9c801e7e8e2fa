"""Taking conditions apart."""

from __future__ import annotations

import functools
from typing import Any

from ._ir import And, Call, Not, Or, PrimExpr
from . import build as B
from .effects import is_pure


def strip_likely(e: PrimExpr) -> PrimExpr:
    """The condition inside ``likely(...)``."""
    while type(e) is Call and getattr(e.op, "name", "") == "tir.likely":
        e = e.args[0]
    return e


def split_conjunction(cond: PrimExpr) -> list[PrimExpr]:
    """The parts of ``a and b and ...``; negated disjunctions are opened too."""
    out: list[PrimExpr] = []
    stack: list[Any] = [cond]
    while stack:
        e = strip_likely(stack.pop())
        if type(e) is And:
            stack.append(e.b)
            stack.append(e.a)
        elif type(e) is Not and type(e.a) is Or:
            stack.append(B.not_(e.a.b))
            stack.append(B.not_(e.a.a))
        else:
            out.append(e)
    return out


def lasting(cond: PrimExpr) -> PrimExpr:
    """Conjuncts of a condition that no store can change: ``cond`` without the parts that read memory."""
    if is_pure(cond):
        return cond
    parts = [part for part in split_conjunction(cond) if is_pure(part)]
    return functools.reduce(B.and_, parts) if parts else B.true()
