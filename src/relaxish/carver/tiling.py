"""Time of a multi-level tiled loop nest, estimated for many tilings at once.

The nest is that of a tiling structure such as ``SSRSRS``: every data parallel axis has a factor in each S, every
reduction axis one in each R. The innermost S is the register tile. The estimate adds what the vector unit needs for
the tile to what each cache level must deliver. Where the data of a nest fits a level, what the next iteration of the
loop around the nest uses again is still there: the level is filled once for that loop, and again at every iteration of
the loops outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .machine import CpuModel

__all__ = ["Access", "Axis", "TilingModel"]

Array = npt.NDArray[np.float64]
_LINE = 64
_PAGE = 4096
# Of a cache level's nominal size, what one nest can count on.
_USABLE = 0.75
# Transfers from each next level overlap with arithmetic in part: the share of them, and of page lookups, that still shows.
_VISIBLE = (0.15, 0.4, 0.5)
_LOOKUPS_VISIBLE = 0.5
# Cycles besides the arithmetic: of a load, of a row more than prefetchers follow, of a step of the innermost reduction, of
# a register tile's start and end.
_LOAD_SLOT = 0.25
_ROW_STREAM = 0.3
_STREAMS = 8
_STEP_OVERHEAD = 0.75
_PASS_OVERHEAD = 12.0
# Elements apart in memory that vector loads still collect.
_MOST_STRIDE = 4


@dataclass(frozen=True)
class Axis:
    """A loop: its extent and whether it is a reduction."""

    extent: int
    reduction: bool = False


@dataclass(frozen=True)
class Access:
    """A tensor that the nest touches.

    ``dims`` says for each dimension how far one step of an axis moves it (axis number -> step) and how many elements
    one point of the nest touches there. A ``packed`` tensor will be stored in the order the nest reads it; of others
    ``row_bytes`` is the distance of neighbours along the last dimension but one.
    """

    dims: tuple[tuple[dict[int, int], int], ...]
    element_bytes: int
    written: bool = False
    packed: bool = False
    row_bytes: int = 0

    def moves_with(self, axis: int) -> bool:
        """Whether a step of the axis touches other elements."""
        return any(axis in steps for steps, _ in self.dims)

    def stride(self, axis: int) -> int:
        """Elements along the last dimension from one step of the axis to the next; 0 where it moves in others as well."""
        if not self.dims or any(axis in steps for steps, _ in self.dims[:-1]):
            return 0
        return self.dims[-1][0].get(axis, 0)


class TilingModel:
    """Estimates one block's time from the factors of its axes.

    >>> axes = [Axis(64), Axis(64), Axis(64, reduction=True)]
    >>> a, b, c = ({0: 1}, 1), ({1: 1}, 1), ({2: 1}, 1)
    >>> accesses = [Access((a, c), 4), Access((c, b), 4, packed=True), Access((a, b), 4, written=True)]
    >>> model = TilingModel(axes, accesses, "SSRSRS", CpuModel())
    >>> good, bad = [[1, 16, 1, 4], [1, 2, 1, 32], [1, 64]], [[4, 1, 16, 1], [64, 1, 1, 1], [64, 1]]
    >>> cycles = model.cycles([np.array([g, b]) for g, b in zip(good, bad)])
    >>> bool(cycles[0] < cycles[1])
    True
    """

    def __init__(
        self, axes: Sequence[Axis], accesses: Sequence[Access], structure: str, machine: CpuModel, point_lanes: int = 1
    ) -> None:
        self.axes = list(axes)
        self.accesses = list(accesses)
        self.structure = structure
        self.machine = machine
        self.point_lanes = point_lanes
        result = next(a for a in self.accesses if a.written)
        self.lanes = machine.lanes(result.element_bytes)
        self.vector_axis = -1 if point_lanes > 1 else self._find_vector_axis(result)

    def _find_vector_axis(self, result: Access) -> int:
        """The axis in lanes: one along which operands are contiguous, else one along which they have small strides."""
        for most in (1, _MOST_STRIDE):
            for axis in reversed(range(len(self.axes))):
                fits = all(a.packed or not a.moves_with(axis) or 1 <= a.stride(axis) <= most for a in self.accesses)
                if not self.axes[axis].reduction and result.stride(axis) == 1 and fits:
                    return axis
        return -1

    def cycles(self, factors: Sequence[npt.NDArray[np.int64]]) -> Array:
        """Cycles on the busiest core, for matrices of factors (one for each axis, a row for each tiling)."""
        nest = [(axis, position) for slot, position in self._slots() for axis in self._axes_of(slot)]
        extents = [np.asarray(factors[axis][:, position], dtype=np.float64) for axis, position in nest]
        return (self._arithmetic(factors) + self._transfers(nest, extents)) / self._speedup(nest, extents)

    def _slots(self) -> list[tuple[str, int]]:
        seen = {"S": 0, "R": 0}
        slots = []
        for letter in self.structure:
            slots.append((letter, seen[letter]))
            seen[letter] += 1
        return slots

    def _axes_of(self, letter: str) -> list[int]:
        return [i for i, axis in enumerate(self.axes) if axis.reduction == (letter == "R")]

    def _arithmetic(self, factors: Sequence[npt.NDArray[np.int64]]) -> Array:
        """Cycles of the register tile times the number of tiles."""
        count = len(factors[0])
        vectors, rows, steps = np.ones(count), np.ones(count), np.ones(count)
        for index, axis in enumerate(self.axes):
            inner = factors[index][:, -1].astype(np.float64)
            steps *= axis.extent / inner if not axis.reduction else axis.extent
            if index == self.vector_axis:
                vectors = np.ceil(inner / self.lanes)
            elif not axis.reduction:
                rows *= inner
        depth = self._depth(factors)
        accumulators = rows * vectors
        machine = self.machine
        loads = np.zeros(count)
        for access in self.accesses:
            if access.written:
                continue
            touched = np.ones(count)
            for index, axis in enumerate(self.axes):
                if axis.reduction or not access.moves_with(index):
                    continue
                inner = factors[index][:, -1].astype(np.float64)
                # What lies apart is picked out of so many neighbouring vectors.
                touched *= vectors * max(1, access.stride(index)) if index == self.vector_axis else inner
            loads += touched
        spilled = accumulators > machine.registers - 3
        # Accumulators that do not fit are loaded and stored at every step, the others once for each inner reduction.
        moved = np.where(spilled, 2 * accumulators, 2 * accumulators / depth)
        step = np.maximum(accumulators / machine.fma_per_cycle, (loads + moved) / machine.loads_per_cycle)
        step = np.maximum(step, machine.fma_latency) + np.where(spilled, accumulators, 0.0)
        # Loads share issue slots with arithmetic; a step and a pass have a loop's overhead.
        besides = _LOAD_SLOT * loads + _ROW_STREAM * np.maximum(rows - _STREAMS, 0.0) + _STEP_OVERHEAD
        return steps * (step + besides) + steps / depth * _PASS_OVERHEAD

    def _depth(self, factors: Sequence[npt.NDArray[np.int64]]) -> Array:
        """Reduction steps for which a register tile stays in registers."""
        depth = np.ones(len(factors[0]))
        still = np.ones(len(factors[0]), dtype=bool)
        for letter, position in reversed(self._slots()[:-1]):
            size = np.ones_like(depth)
            for axis in self._axes_of(letter):
                size = size * factors[axis][:, position]
            if letter == "R":
                depth = np.where(still, depth * size, depth)
            else:
                still &= size == 1
        return depth

    def _transfers(self, nest: list[tuple[int, int]], extents: list[Array]) -> Array:
        """Cycles for what the caches must be filled with."""
        prints, occupied, pages = self._footprints(nest, extents)
        total = np.sum(occupied, axis=0)
        iterations = np.cumprod([np.ones_like(extents[0]), *extents], axis=0)
        carried = _reuse_carried(extents)
        cycles = np.zeros_like(extents[0])
        rows = np.arange(len(cycles))
        for size, rate, visible in zip(self.machine.caches, self.machine.bytes_per_cycle, _VISIBLE, strict=True):
            fits = total <= size * _USABLE
            at = carried[np.where(fits.any(axis=0), np.argmax(fits, axis=0), len(nest)), rows]
            for access, footprint in zip(self.accesses, prints, strict=True):
                moved = footprint[at, rows] * iterations[at, rows] * (2 if access.written else 1)
                cycles += visible * moved / rate
        fits = np.sum(pages, axis=0) <= self.machine.pages
        at = carried[np.where(fits.any(axis=0), np.argmax(fits, axis=0), len(nest)), rows]
        for touched in pages:
            cycles += _LOOKUPS_VISIBLE * touched[at, rows] * iterations[at, rows] * self.machine.page_cycles
        return cycles

    def _footprints(
        self, nest: list[tuple[int, int]], extents: list[Array]
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Bytes that the nest inside each depth touches, bytes of cache they take, and pages: ``[depth + 1, tilings]`` each.

        Whole cache lines are moved; rows a power of two apart share cache sets and so take more room than they fill.
        """
        count = len(extents[0])
        lengths = [np.ones((len(nest) + 1, count)) for _ in self.axes]
        for depth in range(len(nest) - 1, -1, -1):
            for axis in range(len(self.axes)):
                lengths[axis][depth] = lengths[axis][depth + 1]
            lengths[nest[depth][0]][depth] *= extents[depth]
        touched, occupied, pages = [], [], []
        for access in self.accesses:
            rows: Array = np.full((len(nest) + 1, count), float(access.element_bytes))
            spans = [_span(steps, each, lengths) for steps, each in access.dims]
            for span in spans[:-1]:
                rows = rows * span
            last = spans[-1] if spans else 1.0
            line = 1.0 if access.packed else _LINE / access.element_bytes
            aliased = 0 if access.packed else min(access.row_bytes & -access.row_bytes, _PAGE) // 2
            touched.append(rows * np.maximum(last, line))
            occupied.append(rows * np.maximum(last, max(line, aliased / access.element_bytes)))
            # Rows shorter than a page share it; longer ones have pages of their own.
            apart = 0 if access.packed else min(access.row_bytes, _PAGE)
            pages.append(rows * np.maximum(last, apart / access.element_bytes) / _PAGE)
        return touched, occupied, pages

    def _speedup(self, nest: list[tuple[int, int]], extents: list[Array]) -> Array:
        """How many cores the outer data parallel loops keep busy."""
        cores = self.machine.cores
        if cores <= 1:
            return np.ones_like(extents[0])
        tasks = np.ones_like(extents[0])
        for (axis, _), extent in zip(nest, extents, strict=True):
            if self.axes[axis].reduction:
                break
            tasks = tasks * extent
        return tasks / np.ceil(tasks / cores)


def _reuse_carried(extents: list[Array]) -> npt.NDArray[np.int64]:
    """For each depth the loop just outside it, those of one iteration left out: ``[depth + 1, tilings]``."""
    carried = np.zeros((len(extents) + 1, len(extents[0])), dtype=np.int64)
    for depth, extent in enumerate(extents):
        carried[depth + 1] = np.where(extent > 1, depth, carried[depth])
    return carried


def _span(steps: dict[int, int], each: int, lengths: list[Array]) -> Array:
    """Places of a dimension that are touched: from the first to the last, or the points where these are fewer."""
    span, points = np.full_like(lengths[0], float(each)), np.full_like(lengths[0], float(each))
    for axis, step in steps.items():
        span = span + step * (lengths[axis] - 1)
        points = points * lengths[axis]
    least: Array = np.minimum(span, points)
    return least
