"""Numbers of a program as formulas in the sketch's decisions, found from a few examples and checked on others.

Loop extents and index coefficients of scheduled programs are products of tile factors, or sums of two such products
(what a sliding window needs), sometimes cut off at a constant, or no less than one (what groups of channels need). These
forms are tried in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Environment", "Fitter", "Formula", "Unfit", "column_ranges"]

Array = np.ndarray[Any, Any]
# Values of a product that a formula between two constants must be seen to hold for.
_POINTS = 3


class Unfit(Exception):
    """A number follows no known form."""


@dataclass(frozen=True)
class Formula:
    """``min(cap, max(least, const + sum(factor * product of column ranges)))``."""

    const: float
    terms: tuple[tuple[float, tuple[tuple[int, int], ...]], ...] = ()
    cap: float | None = None
    least: float | None = None

    def __call__(self, env: Environment) -> float | Array:
        """The value for every row of the environment."""
        if self.constant:
            return self.const
        return env.value(self)

    @property
    def product(self) -> tuple[int, int] | None:
        """The columns this is nothing but the product of."""
        if self.const == 0 and len(self.terms) == 1 and self.plain and self.terms[0][0] == 1:
            keys = self.terms[0][1]
            return keys[0] if len(keys) == 1 else None
        return None

    @property
    def plain(self) -> bool:
        """Whether this is nothing but a sum of multiples of products."""
        return self.cap is None and self.least is None

    @property
    def constant(self) -> bool:
        """Whether the value is the same for every row."""
        return not self.terms and self.cap is None

    @property
    def nonnegative(self) -> bool:
        """Whether no row can make the value negative."""
        if self.least is not None:
            return self.least >= 0
        return self.const >= 0 and all(factor >= 0 for factor, _ in self.terms) and (self.cap is None or self.cap >= 0)


class Environment:
    """One matrix of decisions; products and formulas are computed once.

    Single precision holds every product of tile factors that an index can be multiplied by.
    """

    def __init__(self, matrix: Array, dtype: str = "float32") -> None:
        self.matrix = np.array(matrix.T, dtype=dtype, order="C")
        self.size = len(matrix)
        self._ranges: dict[tuple[int, int], Array] = {}
        self._values: dict[Formula, Any] = {}

    def range(self, key: tuple[int, int]) -> Array:
        """The product of columns ``key[0]`` to ``key[1] - 1``."""
        found = self._ranges.get(key)
        if found is None:
            low, high = key
            last = self.matrix[high - 1]
            found = last if high == low + 1 else self.range((low, high - 1)) * last
            self._ranges[key] = found
        return found

    def value(self, formula: Formula) -> float | Array:
        """A formula's values."""
        found = self._values.get(formula)
        if found is None:
            found = formula.const
            for factor, keys in formula.terms:
                product: Any = self.range(keys[0])
                for key in keys[1:]:
                    product = product * self.range(key)
                product = product if factor == 1 else product * factor
                found = product if isinstance(found, float) and found == 0 else found + product
            if formula.least is not None:
                found = np.maximum(found, formula.least)
            if formula.cap is not None:
                found = np.minimum(found, formula.cap)
            self._values[formula] = found
        return found


def column_ranges(tiles: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """All products of neighbouring factors of one tile, but the product of all, which is the same for everyone."""
    return [
        (a, b)
        for low, high in tiles
        for a in range(low, high)
        for b in range(a + 1, high + 1)
        if not (a == low and b == high)
    ]


class Fitter:
    """Finds formulas over tile columns, given as ``(first, past the last)`` for each sampled tile."""

    def __init__(self, tiles: Sequence[tuple[int, int]], examples: Array) -> None:
        self.env = Environment(examples, "float64")
        self._ranges = column_ranges(tiles)
        self._owner = [next(i for i, (low, high) in enumerate(tiles) if low <= a < high) for a, _ in self._ranges]
        self._table = np.array([self.env.range(r) for r in self._ranges]).reshape(len(self._ranges), self.env.size)
        self._known: dict[tuple[bytes, tuple[int, int] | None], Formula] = {}
        #: The products in formulas between two constants, for which examples say little of the values in between.
        self.guessed: set[tuple[int, int]] = set()

    def fit(self, values: Sequence[float], inside: tuple[int, int] | None = None) -> Formula:
        """A formula through all given values; NaN where a value is unknown.

        ``inside`` names the columns of a loop's extent when the value is the loop's coefficient: most likely that is
        the product of the tiles further in, which is tried first, for few values leave many formulas to choose from.
        """
        target = np.asarray(values, dtype="float64")
        key = target.tobytes(), inside
        if key not in self._known:
            self._known[key] = self._search(target, inside)
        return self._known[key]

    def _search(self, target: Array, inside: tuple[int, int] | None) -> Formula:
        known = ~np.isnan(target)
        if not known.any():
            return Formula(1.0)
        found = None if inside is None else self._strided(target, known, inside)
        found = found or self._fit_on(target, known)
        if found is None:
            # Perhaps cut off at the largest value seen.
            cap = float(np.nanmax(target))
            below = known & (target < cap)
            if below.sum() >= 3:
                found = self._fit_on(target, below)
                if found is not None:
                    found = Formula(found.const, found.terms, cap)
                    values = np.broadcast_to(self.env.value(found), target.shape)
                    if not np.array_equal(values[known], target[known]):
                        found = None
        found = found or self._bounded(target, known)
        if found is None:
            raise Unfit(f"no formula for the values {sorted(set(target[known].tolist()))[:8]}")
        return found

    def _strided(self, target: Array, rows: Array, inside: tuple[int, int]) -> Formula | None:
        """A multiple of a product of tiles directly further in."""
        for i, key in enumerate(self._ranges):
            if key[0] == inside[1] and self._owner[i] == self._owner_of(inside):
                factors = target[rows] / self._table[i, rows]
                if (factors == factors[0]).all() and factors[0] == round(factors[0]):
                    return Formula(0.0, ((float(factors[0]), (key,)),))
        return None

    def _owner_of(self, key: tuple[int, int]) -> int:
        return next((self._owner[i] for i, known in enumerate(self._ranges) if known == key), -1)

    def _fit_on(self, target: Array, rows: Array) -> Formula | None:
        want, table = target[rows], self._table[:, rows]
        if (want == want[0]).all():
            return Formula(float(want[0]))
        for i in range(len(self._ranges)):
            if np.array_equal(table[i], want):
                return Formula(0.0, ((1.0, (self._ranges[i],)),))
        found = self._scaled(table, want)
        return found or self._products(table, want) or self._windows(table, want)

    def _scaled(self, table: Array, want: Array) -> Formula | None:
        for i, column in enumerate(table):
            spread = column.max() - column.min()
            if spread == 0:
                continue
            low, high = column.argmin(), column.argmax()
            factor = (want[high] - want[low]) / spread
            const = want[low] - factor * column[low]
            # Sizes never shrink when a tile grows.
            if factor > 0 and factor == round(factor) and np.array_equal(factor * column + const, want):
                return Formula(float(const), ((float(factor), (self._ranges[i],)),))
        return None

    def _pairs(self) -> Iterator[tuple[int, int]]:
        for i, j in itertools.combinations(range(len(self._ranges)), 2):
            if self._owner[i] != self._owner[j]:
                yield i, j

    def _products(self, table: Array, want: Array) -> Formula | None:
        for i, j in self._pairs():
            if np.array_equal(table[i] * table[j], want):
                return Formula(0.0, ((1.0, (self._ranges[i], self._ranges[j])),))
        return None

    def _bounded(self, target: Array, rows: Array) -> Formula | None:
        """A part of one product, between two constants: groups of channels that a tile reads."""
        want, table = target[rows], self._table[:, rows]
        for i, column in enumerate(table):
            values = dict(zip(column.tolist(), want.tolist(), strict=True))
            if len(values) >= _POINTS and all(
                values[x] == y for x, y in zip(column.tolist(), want.tolist(), strict=True)
            ):
                made = _between(self._ranges[i], sorted(values.items()))
                if made is not None:
                    self.guessed.add(self._ranges[i])
                    return made
        return None

    def _windows(self, table: Array, want: Array) -> Formula | None:
        ones = np.ones_like(want)
        for i, j in self._pairs():
            basis = np.stack([table[i], table[j], ones], axis=1)
            solution, _, rank, _ = np.linalg.lstsq(basis, want, rcond=None)
            rounded: Any = np.round(solution)
            if rank == 3 and np.abs(solution - rounded).max() < 1e-6 and np.array_equal(basis @ rounded, want):
                return Formula(
                    float(rounded[2]),
                    ((float(rounded[0]), (self._ranges[i],)), (float(rounded[1]), (self._ranges[j],))),
                )
        return None


def _between(key: tuple[int, int], points: Sequence[tuple[float, float]]) -> Formula | None:
    """The multiple of a product that all points lie on but those of the least value, of the largest, or of both."""
    low, high = (float(f(y for _, y in points)) for f in (min, max))
    for least, cap in ((low, None), (0.0, high), (low, high)):
        factors = {y / x for x, y in points if y > least and (cap is None or y < cap)}
        if len(factors) == 1:
            made = Formula(0.0, ((factors.pop(), (key,)),), cap, least)
            if all(min(max(made.terms[0][0] * x, least), np.inf if cap is None else cap) == y for x, y in points):
                return made
    return None
