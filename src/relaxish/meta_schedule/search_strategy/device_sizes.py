"""Sizes of GPU programs as formulas: products over many tiles, and values looked up by a sampled category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .fitting import Environment, Fitter, Formula

__all__ = ["DeviceEnvironment", "DeviceFitter", "Lookup", "Size", "times"]

Array = np.ndarray[Any, Any]
# Loops that are fused for a thread axis: one of every tiled axis.
_MOST_FACTORS = 5


@dataclass(frozen=True)
class Lookup(Formula):
    """A value for each choice of one sampled category."""

    const: float = 0.0
    column: int = -1
    values: tuple[float, ...] = ()

    def __call__(self, env: Environment) -> Array:
        """The value for every row."""
        assert isinstance(env, DeviceEnvironment)
        return env.look_up(self)

    @property
    def plain(self) -> bool:
        return False

    @property
    def constant(self) -> bool:
        return False

    @property
    def nonnegative(self) -> bool:
        return min(self.values) >= 0


Size = Formula


class DeviceEnvironment(Environment):
    """As the base; the matrix also has the categories' columns."""

    def __init__(self, matrix: Array, dtype: str = "float32") -> None:
        super().__init__(matrix, dtype)
        self._looked: dict[Lookup, Any] = {}
        self._products: dict[tuple[Size, ...], Any] = {}

    @property
    def used(self) -> set[int]:
        """The columns that were asked for."""
        columns = {column for low, high in self._ranges for column in range(low, high)}
        return columns | {lookup.column for lookup in self._looked}

    def rows(self, chosen: Array) -> DeviceEnvironment:
        """Some of the rows."""
        made = DeviceEnvironment(np.zeros((0, 0)))
        made.matrix = self.matrix[:, chosen]
        made.size = len(chosen)
        return made

    def look_up(self, lookup: Lookup) -> Array:
        """A looked-up value for every row."""
        found = self._looked.get(lookup)
        if found is None:
            table = np.array(lookup.values, dtype=self.matrix.dtype)
            found = self._looked[lookup] = table[self.matrix[lookup.column].astype(np.intp)]
        return found

    def product(self, sizes: tuple[Size, ...]) -> float | Array:
        """The product of some sizes."""
        if not sizes:
            return 1.0
        if len(sizes) == 1:
            return sizes[0](self)
        found = self._products.get(sizes)
        if found is None:
            found = self._products[sizes] = self.product(sizes[:-1]) * sizes[-1](self)
        return found


def times(a: Size | None, b: Size) -> Size | None:
    """The product of two sizes that are products themselves; None for others."""
    if a is None or not (a.plain and b.plain):
        return None
    for one, other in ((a, b), (b, a)):
        if not one.terms:
            return Formula(one.const * other.const, tuple((one.const * f, keys) for f, keys in other.terms))
    if a.const or b.const or len(a.terms) != 1 or len(b.terms) != 1:
        return None
    (f, keys), (g, others) = a.terms[0], b.terms[0]
    return Formula(0.0, ((f * g, (*keys, *others)),))


class DeviceFitter(Fitter):
    """Finds sizes over tile columns and over the columns of sampled categories.

    ``categories`` maps a column to the number of its choices.
    """

    def __init__(self, tiles: Sequence[tuple[int, int]], categories: Mapping[int, int], examples: Array) -> None:
        super().__init__(tiles, examples)
        self._categories = dict(categories)
        self._choices = {column: examples[:, column].astype(np.intp) for column in categories}
        self._sizes: dict[tuple[bytes, tuple[int, int] | None], Size] = {}

    def size(self, values: Sequence[float], of: Size | None = None, guess: Size | None = None) -> Size:
        """A size through all given values; NaN where one is unknown.

        ``of`` is the size of the loop when the value is its coefficient: most likely a multiple of the tiles further in.
        A ``guess`` that holds is taken.
        """
        target = np.asarray(values, dtype="float64")
        if guess is not None and not isinstance(guess, Lookup) and not np.isnan(target).all():
            guessed = np.broadcast_to(guess(self.env), target.shape)
            if (np.isnan(target) | (guessed == target)).all():
                return guess
        inside = None if of is None else of.product
        key = target.tobytes(), inside
        if key not in self._sizes:
            known = ~np.isnan(target)
            found: Size | None = None
            if known.any() and inside is not None:
                found = self._strided(target, known, inside)
            self._sizes[key] = found or self.fit(values)
        return self._sizes[key]

    def fit(self, values: Sequence[float], inside: tuple[int, int] | None = None) -> Formula:
        """As the base; what follows a sampled category is looked up."""
        target = np.asarray(values, dtype="float64")
        known = ~np.isnan(target)
        if self._categories and known.any() and (target[known] != target[known][0]).any():
            return self._look_up(target, known) or super().fit(values, inside)
        return super().fit(values, inside)

    def _look_up(self, target: Array, known: Array) -> Lookup | None:
        for column, count in self._categories.items():
            choices = self._choices[column]
            values = [1.0] * count
            fits = True
            for choice in range(count):
                found = target[known & (choices == choice)]
                # A choice for which the value is never seen does not need it.
                fits = fits and (not len(found) or (len(found) > 1 and bool((found == found[0]).all())))
                if fits and len(found):
                    values[choice] = float(found[0])
            if fits:
                return Lookup(column=column, values=tuple(values))
        return None

    def _strided(self, target: Array, rows: Array, inside: tuple[int, int]) -> Formula | None:
        # Few examples show the digit of a fused loop: the product of all tiles further in is the likeliest.
        for i in sorted(range(len(self._ranges)), key=lambda i: -self._ranges[i][1]):
            key = self._ranges[i]
            if key[0] == inside[1] and self._owner[i] == self._owner_of(inside):
                factors = target[rows] / self._table[i, rows]
                if (factors == factors[0]).all() and factors[0] == np.round(factors[0]):
                    return Formula(0.0, ((float(factors[0]), (key,)),))
        return None

    def _fit_on(self, target: Array, rows: Array) -> Formula | None:
        # Few values leave many formulas to choose from: plain multiples are likelier than sums.
        want, table = target[rows], self._table[:, rows]
        if not (want == want[0]).all():
            for i, column in enumerate(table):
                factor = want[0] / column[0]
                if factor == np.round(factor) and (column * factor == want).all():
                    return Formula(0.0, ((float(factor), (self._ranges[i],)),))
            found = self._products(table, want)
            if found is not None:
                return found
        return super()._fit_on(target, rows)

    def _products(self, table: Array, want: Array) -> Formula | None:
        if (want <= 0).any() or (want != np.round(want)).any():
            return None
        useful = [i for i, column in enumerate(table) if (column != 1).any()]
        for count in range(2, _MOST_FACTORS + 1):
            found = self._factors(table, want, useful, count, -1)
            if found is not None:
                scale, chosen = found
                return Formula(0.0, ((scale, tuple(self._ranges[i] for i in chosen)),))
        return None

    def _factors(
        self, table: Array, want: Array, useful: Sequence[int], count: int, after: int
    ) -> tuple[float, tuple[int, ...]] | None:
        """A factor and ``count`` products of neighbouring tiles, of ascending axes, that give ``want`` together."""
        if count == 0:
            return (float(want[0]), ()) if (want == want[0]).all() else None
        for i in useful:
            if self._owner[i] <= after:
                continue
            column = table[i]
            if count == 1:
                scale = want[0] / column[0]
                if scale == np.round(scale) and (column * scale == want).all():
                    return float(scale), (i,)
                continue
            rest = want / column
            if (rest != np.round(rest)).any():
                continue
            found = self._factors(table, rest, useful, count - 1, self._owner[i])
            if found is not None:
                return found[0], (i, *found[1])
        return None
