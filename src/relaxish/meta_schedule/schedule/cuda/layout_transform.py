"""Transposing tensors through shared memory, so that both reads and writes of global memory are contiguous.

A tile has ``t`` elements along the innermost axes of the source by ``t`` along those of the destination. Its rows are
read side by side, its columns written side by side::

    before:  for d, c, a: Out[d, c, a] = In[a, c, d]
    after:   for tile (blockIdx.x):
                 for x (threadIdx.x): for y: shared[...] = In[...]
                 for ...: for x (threadIdx.x): Out[...] = shared[...]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ....runtime.registry import register_func
from ....support.log import get_logger
from ....tir import Schedule
from ....tir.schedule import BlockRV, LoopRV, ScheduleError
from ...analysis import blocks as ba
from ....ir.plain import plain_int

__all__ = ["cuda_layout_transform_schedule_rule"]

_log = get_logger("meta_schedule")
_TILE_SIZES = range(2, 33)


@dataclass(frozen=True)
class _Transform:
    """Axes of source and destination by one letter each, with the extents of the source's axes."""

    source: str
    destination: str
    shape: tuple[int, ...]


@register_func("meta_schedule.cuda.layout_transform")
def cuda_layout_transform_schedule_rule(
    sch: Schedule, block: BlockRV, testing_tile_sizes: Sequence[int] | None = None
) -> list[Schedule]:
    """The schedule as it is, and one for each tile size from 2 to 32 whose padding the primitives accept.

    With ``testing_tile_sizes`` these tiles only, and not the schedule as it is.
    """
    node = sch.get(block)
    source, destination = (str(ba.annotation(node, key)) for key in ("src_layout", "dst_layout"))
    shape = tuple(plain_int(extent) for extent in ba.annotation(node, "input_shape"))
    tiled = sch.copy()
    write = _inlined_into_the_last(tiled, block)
    read = tiled.cache_read(write, 0, "shared")
    transform = _split_packed_axes(tiled, read, source, destination, shape)
    found = [sch] if testing_tile_sizes is None else []
    for tile in _TILE_SIZES if testing_tile_sizes is None else testing_tile_sizes:
        variant = tiled.copy()
        try:
            _tile(variant, read, write, transform, tile)
        except ScheduleError as err:
            _log.info("no layout transformation by tiles of %d: %s", tile, err)
            continue
        found.append(variant)
    return found


def _inlined_into_the_last(sch: Schedule, block: BlockRV) -> BlockRV:
    """Inline a block into its consumers, and those into theirs; the block that remains."""
    while consumers := sch.get_consumers(block):
        sch.compute_inline(block)
        block = consumers[0]
    return block


def _split_packed_axes(
    sch: Schedule, read: BlockRV, source: str, destination: str, shape: tuple[int, ...]
) -> _Transform:
    """Give the staged source an axis for each of the destination's: ``NCHW -> NCHW4c`` becomes ``NCcHW -> NCHWc``."""
    factors = {letter.upper(): int(size) for size, letter in re.findall(r"(\d+)([a-z])", destination)}
    loops = sch.get_loops(read)
    extents: list[int] = []
    for letter, extent, loop in zip(source, shape, loops, strict=True):
        factor = factors.get(letter)
        if factor is None:
            extents.append(extent)
            continue
        extents += [extent // factor, factor]
        sch.split(loop, [extent // factor, factor])

    def packed(*indices: Any) -> list[Any]:
        out: list[Any] = []
        for letter, index in zip(source, indices, strict=True):
            factor = factors.get(letter)
            out += [index] if factor is None else [index // factor, index % factor]
        return out

    sch.transform_layout(read, ("write", 0), packed, assume_injective_transform=True)
    axes = "".join(letter + letter.lower() * (letter in factors) for letter in source)
    return _Transform(axes, re.sub(r"\d", "", destination), tuple(extents))


def _at_least(sch: Schedule, loop: LoopRV, extent: int) -> LoopRV:
    """The loop with its extent rounded up to a multiple of another."""
    return sch.fuse(*sch.split(loop, [None, extent]))


class _Nest:
    """The loops of the read with their extents: one for each axis, then the tile's."""

    def __init__(self, sch: Schedule, read: BlockRV, shape: Iterable[int]) -> None:
        self.sch = sch
        self.loops: list[LoopRV] = list(sch.get_loops(read))
        self.extents = list(shape)

    def _cut(self, axis: int, wanted: int) -> tuple[LoopRV, int]:
        """Take from an axis what contributes to ``wanted`` iterations; a short axis is padded to one of its divisors."""
        loop, extent = self.loops[axis], self.extents[axis]
        if extent < wanted and wanted % extent:
            extent = next(size for size in range(extent, wanted + 1) if wanted % size == 0)
            loop = _at_least(self.sch, loop, extent)
        taken = min(extent, wanted)
        self.loops[axis], inner = self.sch.split(loop, [None, taken])
        self.extents[axis] = -(-extent // taken)
        return inner, taken

    def collect(self, axes: Iterable[int], tile: int) -> None:
        """Make a new innermost loop of up to ``tile`` iterations, of pieces of the axes, the first counting fastest."""
        pieces: list[LoopRV] = []
        wanted = tile
        for axis in axes:
            inner, taken = self._cut(axis, wanted)
            pieces.insert(0, inner)
            wanted //= taken
            if wanted == 1:
                break
        self.sch.reorder(*self.loops, *pieces)
        self.loops.append(self.sch.fuse(*pieces))


def _tile(sch: Schedule, read: BlockRV, write: BlockRV, transform: _Transform, tile: int) -> None:
    """Tile, bind and place both blocks."""
    rank = len(transform.shape)
    nest = _Nest(sch, read, transform.shape)
    nest.collect(reversed(range(rank)), tile)
    nest.collect((transform.source.index(letter) for letter in reversed(transform.destination)), tile)
    outer, rows, columns = nest.loops[:rank], nest.loops[rank], nest.loops[rank + 1]
    columns, rows = _at_least(sch, columns, tile), _at_least(sch, rows, tile)
    # Neighbouring tiles of the destination's innermost axis are worked on side by side.
    innermost = outer.pop(transform.source.index(transform.destination[-1]))
    outer = [*outer[:-1], innermost, *outer[-1:]]
    sch.reorder(*outer, rows, columns)
    blocks = sch.fuse(*outer)
    sch.reverse_compute_at(write, blocks)
    _, threads = sch.split(sch.fuse(*sch.get_loops(write)[1:]), [None, tile])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    sch.bind(sch.get_loops(read)[-2], "threadIdx.x")
