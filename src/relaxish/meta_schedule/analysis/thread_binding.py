"""Binding the loops of a block to blocks and threads of a GPU; shared by a rule and a postproc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tir import ForKind, Schedule
from ...tir.schedule import BlockRV, LoopRV
from ...tir.schedule.rv import ExprRV
from ...tir.stmt import For
from . import blocks as ba

__all__ = [
    "THREAD_EXTENTS",
    "bind_block_thread_idx",
    "bind_spatial_loop",
    "factor_sampler",
    "in_thread_scope",
    "thread_tag",
]

THREAD_EXTENTS = (32, 64, 128, 256, 512, 1024)


def thread_tag(loop: For) -> str:
    """The thread axis a loop is bound to, ``""`` if it is not bound."""
    if loop.kind != ForKind.THREAD_BINDING or loop.thread_binding is None:
        return ""
    return str(loop.thread_binding.thread_tag)


def in_thread_scope(sch: Schedule, block: BlockRV) -> bool:
    """Whether some loop around a block is bound to a thread index."""
    return any(thread_tag(sch.get(loop)).startswith("threadIdx") for loop in sch.get_loops(block))


class _Nest:
    """Where the loops around a block stop being free: positions of first bindings, and how many may be fused."""

    def __init__(self, place: ba.Place) -> None:
        self.count = len(place.loops)
        self.block_idx = self.thread_idx = self.multi_child = self.spatial = -1
        for i, loop in enumerate(place.loops):
            tag = thread_tag(loop)
            if tag.startswith("blockIdx") and self.block_idx == -1:
                self.block_idx = i
            if tag.startswith("threadIdx") and self.thread_idx == -1:
                self.thread_idx = i
            if self.multi_child == -1:
                if loop.kind != ForKind.SERIAL:
                    self.multi_child = i
                elif not ba.is_single_statement(loop.body):
                    self.multi_child = i + 1
            if ba.is_parallel(place, loop) and self.spatial == i - 1:
                self.spatial = i
        if self.multi_child == -1:
            self.multi_child = self.count

    def shift(self) -> None:
        """A loop was added outside."""
        self.spatial = 0
        self.block_idx += self.block_idx != -1
        self.thread_idx += self.thread_idx != -1
        self.multi_child += 1


def bind_block_thread_idx(
    sch: Schedule, block: BlockRV, max_threadblocks: int, max_threads_per_block: int, get_factor: Callable[[int], Any]
) -> None:
    """Fuse the free outer data parallel loops of a block and bind them, where it is not bound already.

    ``get_factor(limit)`` gives the number of threads of a block, at most ``limit``. More iterations than
    ``max_threadblocks * max_threads_per_block`` are walked by a loop inside each thread.
    """
    place = ba.enclosing(sch, sch.get(block))[1]
    if place.scope is None or ba.annotation(place.realize.block, ba.TILING_KEY) is not None:
        # Tiling bound the loops, perhaps those around a block that encloses this one.
        return
    if ba.in_tiles(place):
        return
    nest = _Nest(place)
    if nest.block_idx != -1:
        if nest.thread_idx == -1:
            raise ValueError("Unsupported case, where blockIdx is bound but threadIdx is not")
        return
    loops = sch.get_loops(block)
    if nest.spatial == -1:
        loops = [sch.add_unit_loop(loops[0] if loops else block), *loops]
        nest.shift()
    if nest.thread_idx != -1:
        # Asked for anew, as the replay of traces expects it.
        fused = sch.fuse(*sch.get_loops(block)[: min(nest.multi_child, nest.thread_idx, nest.spatial + 1)])
        sch.bind(fused, "blockIdx.x")
        return
    fused = sch.fuse(*loops[: min(nest.multi_child, nest.spatial + 1)])
    bind_spatial_loop(sch, fused, max_threadblocks, max_threads_per_block, get_factor)


def bind_spatial_loop(
    sch: Schedule, loop: LoopRV, max_threadblocks: int, max_threads_per_block: int,
    get_factor: Callable[[int], Any] | None = None,
) -> list[LoopRV]:  # fmt: skip
    """Split a loop into blocks and threads, and a loop inside each thread if they are too few or it has no fixed extent.

    Without ``get_factor`` the number of threads is sampled.
    """
    extent = ba.int_extent(sch.get(loop))
    if extent is None or extent > max_threadblocks * max_threads_per_block:
        rest, blocks, threads = sch.split(loop, factors=[None, max_threadblocks, max_threads_per_block])
        sch.reorder(blocks, threads, rest)
        made = [blocks, threads, rest]
    else:
        choose = get_factor or factor_sampler(sch, THREAD_EXTENTS)
        blocks, threads = sch.split(loop, factors=[None, choose(min(extent, max_threads_per_block))])
        made = [blocks, threads]
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    return made


def factor_sampler(sch: Schedule, thread_extents: Sequence[int]) -> Callable[[int], int | ExprRV]:
    """Draws one of the numbers of threads that are not above a limit; the limit itself where all are."""

    def choose(limit: int) -> int | ExprRV:
        extents = [x for x in thread_extents if x <= limit]
        if len(extents) < 2:
            return extents[0] if extents else limit
        return sch.sample_categorical(candidates=extents, probs=[1.0 / len(extents)] * len(extents))

    return choose
