"""Numbers of a program as formulas in the sketch's decisions, found from a few examples and checked on others.

Loop extents and index coefficients of scheduled programs are products of tile factors, or sums of two such products
(what a sliding window needs), sometimes cut off at a constant. These forms are tried in turn. What a block under a tile
reads of groups of channels, or of an input that is spread, is a function of no such form, yet of the tile alone, or of
the tile and that of one reduction: a table of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["Environment", "Fitter", "Formula", "Table", "Unfit", "Unlike", "column_ranges"]

Array = np.ndarray[Any, Any]
# So many more examples than a table has values: any function is one of enough of the columns.
_SURPLUS = 5


class Unfit(Exception):
    """A number follows no known form."""


class Unlike(Unfit):
    """Programs are written in two ways: ``alike`` says of each example, by place, whether it is as most are."""

    def __init__(self, alike: Mapping[Hashable, Sequence[bool]]) -> None:
        super().__init__("a non-affine index simplifies differently between candidates")
        self.alike = alike


@dataclass(frozen=True)
class Formula:
    """``min(cap, const + sum(factor * product of column ranges))``."""

    const: float
    terms: tuple[tuple[float, tuple[tuple[int, int], ...]], ...] = ()
    cap: float | None = None

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
        return self.cap is None

    @property
    def constant(self) -> bool:
        """Whether the value is the same for every row."""
        return not self.terms and self.cap is None

    @property
    def nonnegative(self) -> bool:
        """Whether no row can make the value negative."""
        return self.const >= 0 and all(factor >= 0 for factor, _ in self.terms) and (self.cap is None or self.cap >= 0)

    def start(self, env: Environment) -> float | Array:
        """What the multiples of products are added to."""
        return self.const


@dataclass(frozen=True)
class Table(Formula):
    """Multiples of products, added to a value known for each choice of the products ``keys``: ``values`` are pairs of
    choice and value. Not a number where a choice was never seen."""

    const: float = 0.0
    keys: tuple[tuple[int, int], ...] = ()
    values: tuple[tuple[tuple[float, ...], float], ...] = ()

    @property
    def plain(self) -> bool:
        return False

    @property
    def constant(self) -> bool:
        return False

    @property
    def nonnegative(self) -> bool:
        return all(factor >= 0 for factor, _ in self.terms) and all(value >= 0 for _, value in self.values)

    def start(self, env: Environment) -> float | Array:
        codes, grid = _grid(self.values)
        return grid[tuple(_coded(own, env.range(key)) for own, key in zip(codes, self.keys, strict=True))]


@lru_cache(maxsize=512)
def _grid(values: tuple[tuple[tuple[float, ...], float], ...]) -> tuple[list[Array], Array]:
    """By key an array from what it may be to a place, and the values by places; the last place is for all else."""
    codes, shape = [], []
    for column in zip(*(choice for choice, _ in values), strict=True):
        known = np.unique(column).astype(np.intp)
        code = np.full(known[-1] + 2, len(known), dtype=np.intp)
        code[known] = np.arange(len(known))
        codes.append(code)
        shape.append(len(known) + 1)
    grid = np.full(shape, np.nan, dtype=np.float32)
    for choice, value in values:
        grid[tuple(code[int(x)] for code, x in zip(codes, choice, strict=True))] = value
    return codes, grid


def _coded(code: Array, column: Array) -> Array:
    return code[np.minimum(column, len(code) - 1).astype(np.intp)]


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
            found = formula.start(self)
            for factor, keys in formula.terms:
                product: Any = self.range(keys[0])
                for key in keys[1:]:
                    product = product * self.range(key)
                product = product if factor == 1 else product * factor
                found = product if isinstance(found, float) and found == 0 else found + product
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
        # Loops inside of a place run over products of the tiles further in.
        ends = {high for _, high in tiles}
        self._inner = [i for i, (_, high) in enumerate(self._ranges) if high in ends]
        #: Whether examples may be parted by how their programs are written.
        self.parting = False
        #: The tables in use, which know what examples show.
        self.tables: set[Table] = set()

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
        found = found or self.tabulated(target, known)
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

    def tabulated(self, target: Array, rows: Array) -> Table | None:
        """The smallest table of one or two products that gives ``target``, perhaps beside a multiple of another one."""
        want, found, least = target[rows], None, int(rows.sum()) - _SURPLUS + 1
        columns = {
            i: self._table[i, rows] for i in self._inner if (self._table[i, rows] != self._table[i, rows][0]).any()
        }
        for i in columns:
            for j in columns:
                keys: tuple[int, ...] = (i,) if i == j else (i, j)
                factor = 0.0
                if i != j and self._owner[i] != self._owner[j]:
                    factor = _slope(columns[i], columns[j], want)
                    keys = (i,) if factor else keys
                if len(keys) == 2 and j < i:
                    continue
                left = want - factor * columns[j] if factor else want
                places, first, index = np.unique(
                    np.stack([columns[k] for k in keys]), axis=1, return_index=True, return_inverse=True
                )
                if len(first) < least and (left == left[first[index.reshape(-1)]]).all():
                    least = len(first)
                    found = Table(
                        terms=((factor, (self._ranges[j],)),) if factor else (),
                        keys=tuple(self._ranges[k] for k in keys),
                        values=tuple(zip(map(tuple, places.T.tolist()), left[first].tolist(), strict=True)),
                    )
        if found is not None:
            self.tables.add(found)
        return found

    def _windows(self, table: Array, want: Array) -> Formula | None:
        pairs = list(self._pairs())
        if not pairs:
            return None
        of = np.array(pairs)
        basis = np.stack([table[of[:, 0]], table[of[:, 1]], np.ones((len(pairs), len(want)))], axis=2)
        u, s, vt = np.linalg.svd(basis, full_matrices=False)
        ranked = s[:, 2:].min(axis=1, initial=np.inf) > s[:, 0] * np.finfo("float64").eps * max(len(want), 3)
        if len(want) < 3 or not ranked.any():
            return None
        u, s, vt, basis, of = u[ranked], s[ranked], vt[ranked], basis[ranked], of[ranked]
        solution = np.einsum("pij,pi->pj", vt, np.einsum("pni,n->pi", u, want) / s)
        rounded = np.round(solution)
        exact = (np.abs(solution - rounded).max(axis=1) < 1e-6) & (np.einsum("pni,pi->pn", basis, rounded) == want).all(
            axis=1
        )
        if not exact.any():
            return None
        at = int(np.flatnonzero(exact)[0])
        (i, j), (x, y, const) = of[at], rounded[at].tolist()
        return Formula(const, ((x, (self._ranges[i],)), (y, (self._ranges[j],))))


def _slope(key: Array, column: Array, want: Array) -> float:
    """How often ``column`` is added to what ``key`` decides, 0 where that is not so."""
    order = np.lexsort((column, key))
    alike = np.diff(key[order]) == 0
    steps, gained = np.diff(column[order])[alike], np.diff(want[order])[alike]
    if not steps.any():
        return 0.0
    at = int(np.flatnonzero(steps)[0])
    factor = float(gained[at] / steps[at])
    return factor if factor == round(factor) and (gained == factor * steps).all() else 0.0
