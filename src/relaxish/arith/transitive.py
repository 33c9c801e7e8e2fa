"""Comparisons that follow from conditions in force: ``x <= y + 3`` known, ``x < y + 5`` asked.

Facts are differences ``a - b <= c`` of expressions.  Without propagation only a fact on the very two sides asked for
counts; with it (``Extension.TransitivelyProveInequalities``) facts are chained, ``x < y`` and ``y <= z`` giving
``x < z``, and the constant bounds of each side take part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import build as B
from ._ir import EQ, GE, GT, LE, LT, NE, Add, IntImm, PrimExpr, Range, Sub, Var
from .const_int_bound import NEG_INF, POS_INF
from .constraints import split_conjunction

if TYPE_CHECKING:
    from .analyzer import Analyzer

LESS, EQUAL, GREATER, UNKNOWN = 1, 2, 4, 7
_ORIGIN = 0  # the place of the number zero: a literal is an offset from it
Place = int
Pair = tuple[Place, Place]


def _offset(e: PrimExpr) -> tuple[Any, int]:
    if type(e) is Add and type(e.b) is IntImm:
        return e.a, e.b.value
    if type(e) is Sub and type(e.b) is IntImm:
        return e.a, -e.b.value
    if type(e) is Add and type(e.a) is IntImm:
        return e.b, e.a.value
    return e, 0


class TransitiveComparisons:
    """Facts ``a - b <= c`` and ``a - b != c`` between expressions."""

    def __init__(self, parent: Analyzer) -> None:
        self.parent = parent
        self._variables: dict[Any, Place] = {}
        self._compound: list[tuple[PrimExpr, Place]] = []
        self._exprs: dict[Place, PrimExpr] = {}
        self._next = _ORIGIN + 1
        self._upper: dict[Pair, int] = {}
        self._unequal: list[tuple[Pair, int]] = []
        self._bound: dict[Any, list[Pair]] = {}

    @property
    def active(self) -> bool:
        """Whether anything is known at all."""
        return bool(self._upper or self._unequal)

    # -- facts ---------------------------------------------------------------------------------------------

    def bind(self, var: Var, dom: Range) -> None:
        """Learn the ends of the range of a variable that are no constants; forget the old ones."""
        self.unbind(var)
        before = dict(self._upper)
        if type(dom.min) is not IntImm:
            self._learn(LE(dom.min, var))
        end = B.add(dom.min, dom.extent)
        if type(end) is not IntImm:
            self._learn(LT(var, end))
        made = [pair for pair, c in self._upper.items() if before.get(pair) != c]
        if made:
            self._bound[var] = made

    def unbind(self, var: Var) -> None:
        """Forget what a binding said of a variable."""
        for pair in self._bound.pop(var, ()):
            self._upper.pop(pair, None)

    def enter_constraint(self, cond: PrimExpr) -> Callable[[], None] | None:
        """Learn from a condition; returns the undo."""
        upper, unequal, compound = self._upper, len(self._unequal), len(self._compound)
        self._upper = dict(upper)
        for part in split_conjunction(cond):
            self._learn(part)
        if self._upper == upper and len(self._unequal) == unequal:
            self._upper = upper
            return None

        def undo() -> None:
            self._upper = upper
            del self._unequal[unequal:]
            for _, place in self._compound[compound:]:
                del self._exprs[place]
            del self._compound[compound:]

        return undo

    def _learn(self, e: PrimExpr) -> None:
        if not B.is_comparison(e) or e.a.dtype not in ("int32", "int64"):
            return
        kind = type(e)
        (a, a_off), (b, b_off) = self._side(e.a, True), self._side(e.b, True)
        assert a is not None and b is not None
        if a == b:
            return
        if kind is NE:
            self._unequal.append(((a, b), b_off - a_off))
        if kind in (LT, LE, EQ):
            self._tighten((a, b), b_off - a_off - (kind is LT))
        if kind in (GT, GE, EQ):
            self._tighten((b, a), a_off - b_off - (kind is GT))

    def _tighten(self, pair: Pair, c: int) -> None:
        old = self._upper.get(pair)
        if old is None or c < old:
            self._upper[pair] = c

    def _side(self, e: PrimExpr, make: bool) -> tuple[Place | None, int]:
        """Where the variable part of one side is kept, and its constant offset."""
        if type(e) is IntImm:
            return _ORIGIN, e.value
        base, offset = _offset(e)
        if isinstance(base, Var):
            place = self._variables.get(base)
        else:
            place = next((p for known, p in self._compound if B.deep_equal(known, base)), None)
        if place is None and make:
            place, self._next = self._next, self._next + 1
            self._exprs[place] = base
            if isinstance(base, Var):
                self._variables[base] = place
            else:
                self._compound.append((base, place))
        return place, offset

    # -- questions -----------------------------------------------------------------------------------------

    def compare(self, x: PrimExpr, y: PrimExpr, propagate: bool) -> int:
        """Possible relations of ``x`` to ``y`` as bits: 1 less, 2 equal, 4 greater."""
        left: Any = x
        if type(left) is Sub and type(y) is IntImm and type(left.b) is not IntImm:
            x, y = left.a, B.add(left.b, y)
        a, a_off = self._side(x, False)
        b, b_off = self._side(y, False)
        if a is None or b is None:
            return UNKNOWN
        shift = a_off - b_off
        find = self._chained if propagate else self._direct
        possible = UNKNOWN
        upper, lower = find(a, b), find(b, a)
        if upper is not None and upper + shift <= 0:
            possible &= LESS if upper + shift < 0 else LESS | EQUAL
        if lower is not None and lower - shift <= 0:
            possible &= GREATER if lower - shift < 0 else GREATER | EQUAL
        for pair, c in self._unequal:
            if (pair == (a, b) and c + shift == 0) or (pair == (b, a) and c - shift == 0):
                possible &= ~EQUAL
        return possible or UNKNOWN

    def _direct(self, a: Place, b: Place) -> int | None:
        """The ``c`` of a fact ``a - b <= c``."""
        return self._upper.get((a, b))

    def _chained(self, a: Place, b: Place) -> int | None:
        """The least ``c`` with ``a - b <= c`` by any chain of facts and constant bounds: a shortest path."""
        edges = [(p, q, c) for (p, q), c in self._upper.items()]
        bounds = self.parent.const_int_bound
        for place in {p for pair in self._upper for p in pair} - {_ORIGIN}:
            low, high = bounds.bound(self._exprs[place])
            if high < POS_INF:
                edges.append((place, _ORIGIN, high))
            if low > NEG_INF:
                edges.append((_ORIGIN, place, -low))
        reach = {a: 0}
        for _ in range(len(self._exprs) + 1):
            changed = False
            for p, q, c in edges:
                if p in reach and reach[p] + c < reach.get(q, POS_INF):
                    reach[q], changed = reach[p] + c, True
            if not changed:
                break
        return reach.get(b)
