"""Index expressions whose numbers are columns: one value for each candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import Affine, Rest, Term

__all__ = ["Column", "ColumnForm", "ColumnRest", "ColumnTerm", "min_nonzero"]

Column = Any  # a number, or an array of length P


@dataclass
class ColumnTerm(Term[Column]):
    """A digit of the loop at position ``var``, ``extent`` its number of values; ``rising``: whether the coefficient is
    never negative."""

    rising: bool = False


@dataclass
class ColumnRest(Rest[Column]):
    """A rest of column forms."""

    forms: list[ColumnForm]  # type: ignore[assignment]

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
class ColumnForm(Affine[Column]):
    """A form whose variables are positions in a store's loops."""

    terms: list[ColumnTerm]  # type: ignore[assignment]
    rests: list[ColumnRest]  # type: ignore[assignment]
    # Whether some loop moves the index by uneven steps (only known of probed indices).
    bent: Column = 0.0

    def __post_init__(self) -> None:
        self.positions = frozenset(self.variables())

    def bounds(self, relaxed: int) -> tuple[Column, Column]:
        """Smallest and largest value when loops from ``relaxed`` inwards run and the others stand at 0."""
        low = high = self.const
        for term in self.terms:
            if term.var < relaxed:
                continue
            span = term.coef * (term.extent - 1)
            if term.rising:
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
        for term in self.terms:
            if term.var == position:
                best = min_nonzero(best, term.coef if term.rising else np.abs(term.coef))
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
        for term in self.terms:
            if term.var == position:
                best = min_nonzero(best, (term.coef if term.rising else np.abs(term.coef)) * (term.extent > 1))
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
