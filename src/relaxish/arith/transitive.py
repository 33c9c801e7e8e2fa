"""Comparisons that follow from conditions in force: ``x <= y + 3`` known, ``x < y + 5`` asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import build as B
from ._ir import EQ, GE, GT, LE, LT, Add, IntImm, PrimExpr, Sub
from .constraints import split_conjunction

LESS, EQUAL, GREATER, UNKNOWN = 1, 2, 4, 7


def _offset(e: Any) -> tuple[Any, int]:
    if type(e) is Add and type(e.b) is IntImm:
        return e.a, e.b.value
    if type(e) is Sub and type(e.b) is IntImm:
        return e.a, -e.b.value
    return e, 0


class TransitiveComparisons:
    """Facts ``a - b <= c`` between expressions; one step of chaining is followed."""

    def __init__(self) -> None:
        self.known: list[tuple[PrimExpr, PrimExpr, int]] = []

    def enter_constraint(self, cond: PrimExpr) -> Callable[[], None] | None:
        """Learn from a condition; returns the undo."""
        size = len(self.known)
        for part in split_conjunction(cond):
            self._learn(part)
        if len(self.known) == size:
            return None

        def undo() -> None:
            del self.known[size:]

        return undo

    def _learn(self, e: Any) -> None:
        kind = type(e)
        if kind not in (LT, LE, GT, GE, EQ) or type(e.a) is IntImm or type(e.b) is IntImm:
            return
        (a, a_off), (b, b_off) = _offset(e.a), _offset(e.b)
        if kind in (LT, LE, EQ):
            self.known.append((a, b, b_off - a_off - (kind is LT)))
        if kind in (GT, GE, EQ):
            self.known.append((b, a, a_off - b_off - (kind is GT)))

    def _upper(self, a: Any, b: Any) -> int | None:
        """The best known ``c`` with ``a - b <= c``."""
        best: int | None = None
        for left, right, c in self.known:
            if not B.deep_equal(left, a):
                continue
            if B.deep_equal(right, b):
                best = c if best is None else min(best, c)
                continue
            for left2, right2, c2 in self.known:
                if B.deep_equal(left2, right) and B.deep_equal(right2, b):
                    best = c + c2 if best is None else min(best, c + c2)
        return best

    def compare(self, x: PrimExpr, y: PrimExpr) -> int:
        """Possible relations of ``x`` to ``y`` as bits: 1 less, 2 equal, 4 greater."""
        (a, a_off), (b, b_off) = _offset(x), _offset(y)
        possible = UNKNOWN
        upper = self._upper(a, b)
        if upper is not None:
            slack = upper + a_off - b_off
            possible &= LESS if slack < 0 else LESS | EQUAL if slack == 0 else UNKNOWN
        lower = self._upper(b, a)
        if lower is not None:
            slack = lower + b_off - a_off
            possible &= GREATER if slack < 0 else GREATER | EQUAL if slack == 0 else UNKNOWN
        return possible or UNKNOWN
