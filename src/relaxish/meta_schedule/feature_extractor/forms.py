"""Index expressions whose numbers are columns: one value for each candidate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Column", "ColumnForm", "ColumnRest", "min_nonzero"]

Column = Any  # a number, or an array of length P


@dataclass
class ColumnRest:
    """A non-affine part of an index: ``coef * op(forms, divisor)``."""

    coef: Column
    op: str
    forms: list[ColumnForm]
    divisor: Column

    def bounds(self, relaxed: int) -> tuple[Column, Column]:
        """Bounds of ``op(forms, divisor)`` when loops from ``relaxed`` inwards run."""
        pairs = [form.bounds(relaxed) for form in self.forms]
        low, high = pairs[0]
        if self.op == "div":
            return np.floor_divide(low, self.divisor), np.floor_divide(high, self.divisor)
        if self.op == "mod":
            same = np.floor_divide(low, self.divisor) == np.floor_divide(high, self.divisor)
            return (
                np.where(same, np.mod(low, self.divisor), 0.0),
                np.where(same, np.mod(high, self.divisor), self.divisor - 1),
            )
        if self.op in ("min", "max"):
            pick = np.minimum if self.op == "min" else np.maximum
            return pick(low, pairs[1][0]), pick(high, pairs[1][1])
        for a, b in pairs[1:]:
            low, high = np.minimum(low, a), np.maximum(high, b)
        return low, high

    def moved(self, inner: Column) -> Column:
        """The move of the whole rest when its argument moves by ``inner``."""
        if self.op == "div":
            inner = np.where(inner > 0, np.maximum(1.0, np.floor_divide(inner, self.divisor)), 0.0)
        return np.abs(self.coef) * inner


@dataclass
class ColumnForm:
    """``const + sum(coef * digit)``.

    Terms are ``(position in the store's loops, coef, number of digit values, whether the coef is never negative)``.
    """

    const: Column
    terms: list[tuple[int, Column, Column, bool]]
    rests: list[ColumnRest] = field(default_factory=list)
    positions: frozenset[int] = frozenset()
    # Whether some loop moves the index by uneven steps (only known of probed indices).
    bent: Column = 0.0

    def __post_init__(self) -> None:
        if not self.positions:
            found = {t[0] for t in self.terms}
            for rest in self.rests:
                for form in rest.forms:
                    found |= form.positions
            self.positions = frozenset(found)

    def bounds(self, relaxed: int) -> tuple[Column, Column]:
        """Smallest and largest value when loops from ``relaxed`` inwards run and the others stand at 0."""
        low = high = self.const
        for position, coef, width, positive in self.terms:
            if position < relaxed:
                continue
            span = coef * (width - 1)
            if positive:
                high = high + span
            else:
                low, high = low + np.minimum(span, 0), high + np.maximum(span, 0)
        for rest in self.rests:
            a, b = rest.bounds(relaxed)
            x, y = rest.coef * a, rest.coef * b
            low, high = low + np.minimum(x, y), high + np.maximum(x, y)
        return low, high

    def coefficient(self, position: int) -> Column:
        """Smallest coefficient of one loop, whether or not it has more than one iteration."""
        best: Column = 0.0
        for at, coef, _, positive in self.terms:
            if at == position:
                best = min_nonzero(best, coef if positive else np.abs(coef))
        for rest in self.rests:
            inner: Column = 0.0
            for form in rest.forms:
                if position in form.positions:
                    inner = min_nonzero(inner, form.coefficient(position))
            best = min_nonzero(best, rest.moved(inner))
        return best

    def moved_by(self, position: int) -> Column:
        """Whether the index moves when the loop at ``position`` does."""
        return position in self.positions

    def affine_step(self, position: int) -> Column:
        """Smallest move of the affine part when one loop moves, 0 for none."""
        best: Column = 0.0
        for at, coef, width, positive in self.terms:
            if at == position:
                best = min_nonzero(best, (coef if positive else np.abs(coef)) * (width > 1))
        return best

    def step(self, position: int) -> Column:
        """Smallest move of the index when one loop moves, 0 for none."""
        best = self.affine_step(position)
        for rest in self.rests:
            for form in rest.forms:
                if position in form.positions:
                    best = min_nonzero(best, rest.moved(form.step(position)))
        return best


def min_nonzero(a: Column, b: Column) -> Column:
    """The smaller of two non-negative columns, where 0 stands for "nothing"."""
    if isinstance(a, float) and a == 0.0:
        return b
    return np.where(a == 0, b, np.where(b == 0, a, np.minimum(a, b)))
