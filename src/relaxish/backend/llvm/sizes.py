"""Assumptions of generated code about sizes that are parameters: none is negative, and inside of a loop as long as
their product all are positive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.prim import Add, FloorDiv, IntImm, Mul, Var


@dataclass
class Sizes:
    """The variables that are sizes, and those of them that are positive here."""

    known: set[Any] = field(default_factory=set)
    positive: set[Any] = field(default_factory=set)

    def copy(self) -> Sizes:
        """The same knowledge, for code that is written elsewhere."""
        return Sizes(set(self.known), set(self.positive))

    @contextmanager
    def inside(self, extent: PrimExpr) -> Iterator[None]:
        """In the body of a loop of this extent."""
        found = [var for var in self._factors(extent) if var not in self.positive]
        self.positive.update(found)
        yield
        self.positive.difference_update(found)

    def _factors(self, extent: PrimExpr) -> Iterator[Var]:
        """Sizes that are positive where ``extent``, a product of what is not negative, is."""
        match extent:
            case Var() if extent in self.known:
                yield extent
            case Mul():
                yield from self._factors(extent.a)
                yield from self._factors(extent.b)
            case FloorDiv(a=Add(a=Var() as size, b=IntImm() as more), b=IntImm() as by):
                # The size rounded up: less than one would leave nothing.
                if size in self.known and 0 <= more.value < by.value:
                    yield size

    def is_positive(self, expr: PrimExpr) -> bool:
        """Whether a divisor is certainly positive."""
        match expr:
            case IntImm():
                return int(expr.value) > 0
            case Var():
                return expr in self.positive
            case Mul():
                return self.is_positive(expr.a) and self.is_positive(expr.b)
            case FloorDiv(a=Add(a=Var() as size, b=IntImm() as more), b=IntImm() as by):
                return size in self.positive and 0 < by.value <= more.value + 1
        return False
