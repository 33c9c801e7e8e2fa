"""Features of configurations by columns: once the programs of a few are read, no more programs are made.

In a template that only splits loops every quantity of a program is a product of powers of the split sizes, for each
choice of the parameters that are no splits. The powers are found from a few programs and held against others; where
that fails, as it does for templates that do more, the space has no such columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..support.log import get_logger
from .feature import Array, Program, Structure, assemble
from .task.space import ConfigSpace

__all__ = ["QuantityColumns"]

_log = get_logger("autotvm")
# Kinds of structure that are looked into, and programs of each kind that check what was found.
_MOST_KINDS, _CHECKS = 24, 4


class _Monomials:
    """``constant * product(size ** power)`` for each quantity; some are 0 where their loop has one step only."""

    def __init__(self, structure: Structure, constants: Array, powers: Array, masked: Array, owner: Array) -> None:
        self.structure = structure
        self.constants, self.powers, self.masked, self.owner = constants, powers, masked, owner

    def quantities(self, sizes: Array) -> Array:
        logs = np.log2(np.maximum(sizes, 1).astype(np.float64))
        values = np.exp2(logs @ self.powers.T + self.constants[None, :])
        values = np.rint(values)
        lengths = values[:, self.owner]
        return np.where(self.masked[None, :] & (lengths <= 1.0), 0.0, values * (self.constants > -np.inf)[None, :])


class QuantityColumns:
    """Rows of features for many configurations of a space; ``read(index)`` reads the program of one."""

    def __init__(self, space: ConfigSpace, read: Callable[[int], Program]) -> None:
        self.space = space
        self.read = read
        self.kinds: dict[tuple[int, ...], _Monomials | None] = {}
        self.programs_read = 0
        self.failed = False
        self.width = 0
        self._rng = np.random.default_rng(0)

    def rows(self, points: Sequence[int] | Array, kind: str) -> Array | None:
        """``[len(points), features]``, zeros behind short rows; None where this space has no such columns."""
        columns = self.space.columns
        sizes, others = columns.split_sizes(points), columns.other_digits(points)
        parts: list[tuple[Array, Array]] = []
        unique, inverse = np.unique(others, axis=0, return_inverse=True)
        for i, digits in enumerate(unique):
            found = self._kind(tuple(int(d) for d in digits))
            if found is None:
                return None
            chosen = np.flatnonzero(inverse.reshape(-1) == i)
            parts.append((chosen, assemble(found.structure, found.quantities(sizes[chosen]), kind)))
        self.width = max([self.width, *(rows.shape[1] for _, rows in parts)])
        out = np.zeros((len(sizes), self.width), dtype=np.float32)
        for chosen, rows in parts:
            out[chosen, : rows.shape[1]] = rows
        return out

    def _kind(self, digits: tuple[int, ...]) -> _Monomials | None:
        if self.failed:
            return None
        if digits not in self.kinds:
            found = None
            if len(self.kinds) < _MOST_KINDS:
                try:
                    found = self._fit(digits)
                except Exception as error:  # a template that refuses most configurations, say
                    _log.debug("the programs of this space cannot be read: %s", error)
            self.kinds[digits] = found
            if found is None:
                self.failed = True
                _log.info("the features of this space's programs are no products of sizes; parameters are used instead")
        return self.kinds[digits]

    def _samples(self, digits: tuple[int, ...], count: int) -> list[int]:
        """Different configurations of one kind, those with few sizes of 1 first."""
        columns = self.space.columns
        drawn = self._rng.integers(0, columns.dims, (64 * count, len(columns.dims)))
        others = [j for j, s in enumerate(columns.spaces) if type(s).__name__ != "SplitSpace"]
        drawn[:, others] = digits
        points = columns.points(drawn)
        points = points[self.space.valid_mask(points)]
        _, first = np.unique(points, return_index=True)
        points = points[np.sort(first)]
        ones = (columns.split_sizes(points) <= 1).sum(axis=1)
        order = np.argsort(ones, kind="stable")
        spread = [*order[: 2 * count : 2], *order[1 : 2 * count : 2], *order[2 * count :]]
        return [int(points[i]) for i in spread[:count]]

    def _fit(self, digits: tuple[int, ...]) -> _Monomials | None:
        columns = self.space.columns
        unknown = columns.split_sizes([0]).shape[1] + 1
        wanted = self._samples(digits, 2 * unknown + 4 + _CHECKS)
        if not wanted:
            return None
        read: list[Program] = []
        points: list[int] = []
        for point in wanted:
            self.programs_read += 1
            read.append(self.read(point))
            points.append(point)
            if read[-1].structure != read[0].structure:
                return None
        structure = read[0].structure
        values = np.stack([program.quantities for program in read])
        sizes = columns.split_sizes(points).astype(np.float64)
        split = max(1, len(points) - _CHECKS)
        found = _solve(structure, sizes[:split], values[:split])
        if found is None or not np.array_equal(found.quantities(sizes), values):
            return None
        return found


def _owners(structure: Structure) -> tuple[Array, Array]:
    """For each quantity whether it is a stride (0 in loops of one step), and where its loop's length stands."""
    masked: list[bool] = []
    owner: list[int] = []
    for loop in structure.loops:
        at = len(masked)
        masked += [False] * 3
        for _ in loop.accesses:
            masked += [True, True, False, False, False, False]
        owner += [at] * (len(masked) - at)
    return np.array(masked, bool), np.array(owner, np.int64)


def _solve(structure: Structure, sizes: Array, values: Array) -> _Monomials | None:
    """Powers and constants from the programs that were read; None if one of them is not determined."""
    masked, owner = _owners(structure)
    logs = np.log2(np.maximum(sizes, 1))
    design = np.concatenate([logs, np.ones((len(logs), 1))], axis=1)
    constants = np.zeros(values.shape[1])
    powers = np.zeros((values.shape[1], sizes.shape[1]))
    for j in range(values.shape[1]):
        use = values[:, owner[j]] > 1 if masked[j] else np.ones(len(values), bool)
        column = values[use, j]
        if not len(column) or not column.any():
            constants[j] = -np.inf
            continue
        if (column <= 0).any():
            return None
        answer, *_ = np.linalg.lstsq(design[use], np.log2(column), rcond=None)
        powers[j] = np.rint(answer[:-1])
        constants[j] = np.log2(np.rint(np.exp2(np.median(np.log2(column) - logs[use] @ powers[j]))))
    return _Monomials(structure, constants, powers, masked, owner)
