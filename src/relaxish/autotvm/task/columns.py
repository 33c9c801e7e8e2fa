"""Configurations as columns of numbers: what searches and cost models work on, without making one entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .subspace import SplitSpace, TransformSpace

__all__ = ["SpaceColumns"]

Array = np.ndarray[Any, Any]


class SpaceColumns:
    """Tables of the values of each parameter; rows of a population are looked up in them."""

    def __init__(self, spaces: Sequence[TransformSpace]) -> None:
        self.spaces = list(spaces)
        self.dims = np.array([len(s) for s in spaces], dtype=np.int64)
        # In Python integers: the last weight of a large space does not fit in 64 bits.
        self.weights: list[int] = []
        weight = 1
        for size in self.dims:
            self.weights.append(weight)
            weight *= int(size)
        self.length = weight
        self.tables = [_table(space) for space in self.spaces]

    def digits(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), parameters]``: which value each parameter has."""
        if self.length >= 1 << 62:
            return np.array([self._digits(int(p)) for p in points], dtype=np.int64).reshape(len(points), len(self.dims))
        rest = np.asarray(points, dtype=np.int64)
        out = np.empty((len(rest), len(self.dims)), dtype=np.int64)
        for j, dim in enumerate(self.dims):
            rest, out[:, j] = np.divmod(rest, dim)
        return out

    def _digits(self, point: int) -> list[int]:
        out = []
        for dim in self.dims:
            point, digit = divmod(point, int(dim))
            out.append(digit)
        return out

    def points(self, digits: Array) -> Array:
        """The inverse of :meth:`digits` (Python integers where 64 bits do not hold them)."""
        if self.length >= 1 << 62:
            made = [sum(int(d) * w for d, w in zip(row, self.weights, strict=True)) for row in digits]
            return np.array(made, dtype=object)
        weights = np.array(self.weights, dtype=np.int64)
        return np.asarray(digits, dtype=np.int64) @ weights if len(weights) else np.zeros(len(digits), np.int64)

    def features(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), width]`` float32: for each point what its entity's ``get_flatten_feature`` gives."""
        digits = self.digits(points)
        parts = [table[digits[:, j]] for j, table in enumerate(self.tables)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(digits), 0), np.float32)

    def split_sizes(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), sizes]`` int64: the inner sizes (all but the first) of all splits, in order of definition."""
        digits = self.digits(points)
        parts = [self.tables[j][digits[:, j], 1:] for j, s in enumerate(self.spaces) if isinstance(s, SplitSpace)]
        joined = np.concatenate(parts, axis=1) if parts else np.zeros((len(digits), 0), np.float32)
        return np.asarray(joined, dtype=np.int64)

    def other_digits(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), others]``: the values' numbers of what is no split."""
        keep = [j for j, s in enumerate(self.spaces) if not isinstance(s, SplitSpace)]
        return np.asarray(self.digits(points)[:, keep])

    def walk(self, digits: Array, rng: np.random.Generator) -> Array:
        """Each row with one random parameter (that has a choice) at another random value."""
        out = digits.copy()
        free = np.flatnonzero(self.dims > 1)
        if not len(free) or not len(out):
            return out
        which = free[rng.integers(0, len(free), len(out))]
        rows = np.arange(len(out))
        sizes = self.dims[which]
        out[rows, which] = (out[rows, which] + 1 + rng.integers(0, sizes - 1)) % sizes
        return out


def _table(space: TransformSpace) -> Array:
    rows = [entity.features() for entity in space.entities]
    width = max((len(r) for r in rows), default=0)
    out = np.zeros((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
