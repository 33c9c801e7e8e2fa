"""Matrix times vector with the matrix read along the rows, as on phones: neighbouring threads take neighbouring rows."""

from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ...target import Target
from ...tir import Buffer
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import BlockInfo, is_broadcast_epilogue
from ..base import auto_vectorize, get_extent, get_max_factor
from .common import unroll_explicitly
from .gemv_config import is_adreno

__all__ = ["schedule_outer_reduction"]

# Elements in one packed word of the matrix, and words that share one scale.
_DECODED = 8
_SCALED = 4
_VECTOR = 8
_UNROLL = 8
_MOST_ROWS = 32000


def schedule_outer_reduction(
    sch: Schedule, target: Target, block: Any, vectors: list[Buffer], epilogue: BlockInfo | None
) -> Schedule | None:
    """Schedule a product whose loops are batch, rows, reduction, packed; None off Adreno."""
    if not is_adreno(target):
        return None
    _, s, r, c = (get_extent(sch, loop) for loop in sch.get_loops(block))
    ts, tr = (64, 4) if isinstance(s, int) else (256, 1)
    # Partial sums pay only where each thread keeps whole groups of words.
    long = isinstance(r, int) and r >= 4 * _SCALED * _DECODED
    if not long or (isinstance(s, int) and s > _MOST_ROWS):
        return _without_partial_sums(sch, block, vectors, epilogue)
    _OuterReduction(sch, block, ts, tr, _load_width(r, c, tr) if not isinstance(s, int) else 0).run(epilogue)
    return sch


def _load_width(r: PrimExpr | int, c: PrimExpr | int, tr: int) -> int:
    tile = c if isinstance(c, int) and c > 1 else max(get_max_factor(r, [tr, tr * 2, tr * 4, tr * 8]) // tr, 1)
    return min(get_max_factor(tile, [1, 2, 4, 8]), 4)


class _OuterReduction:
    """``ts`` rows by ``tr`` partial sums a thread block; the vector through shared memory if ``load_width`` is not 0."""

    def __init__(self, sch: Schedule, block: BlockRV, ts: int, tr: int, load_width: int) -> None:
        self.sch = sch
        self.gemv = block
        self.ts = ts
        self.tr = tr
        self.load_width = load_width

    def run(self, epilogue: BlockInfo | None) -> None:
        """Schedule the product and what follows it."""
        sch = self.sch
        partial, rows = self._factor()
        bx = self._bind_partial(partial)
        self._finish(rows, bx, [2, 0, 1])
        self._finish(self.gemv, bx, [1, 0])
        sch.decompose_reduction(partial, sch.get_loops(partial)[2])
        sch.decompose_reduction(rows, sch.get_loops(rows)[-1])
        sch.set_scope(partial, 0, "local")
        sch.set_scope(rows, 0, "local")
        unroll_explicitly(sch, sch.get_loops(rows)[3], _UNROLL)
        if epilogue is not None:
            self._epilogue(epilogue.block_rv, bx)

    def _factor(self) -> tuple[Any, Any]:
        """Two levels of partial sums: one for each thread and element of a word, one for each thread."""
        sch = self.sch
        batch, s, r, packed = sch.get_loops(self.gemv)
        s = sch.fuse(batch, s)
        r = sch.fuse(r, packed)
        bx, ts = sch.split(s, factors=[None, self.ts], preserve_unit_iters=True)
        r, tile, tr, scaled, word = sch.split(
            r, factors=[None, 1, self.tr, _SCALED, _DECODED], preserve_unit_iters=True
        )
        sch.reorder(bx, ts, r, tile, scaled, tr, word)
        partial = sch.rfactor(sch.fuse(tr, word), 0)
        *_, fused = sch.get_loops(self.gemv)
        tr, _ = sch.split(fused, factors=[self.tr, None], preserve_unit_iters=True)
        return partial, sch.rfactor(tr, 0)

    def _bind_partial(self, partial: Any) -> LoopRV:
        sch = self.sch
        bx, ts, r, tile, scaled, fused = sch.get_loops(partial)
        tr, word = sch.split(fused, factors=[self.tr, _DECODED])
        sch.reorder(bx, ts, tr, r, tile, scaled, word)
        for loop, thread in ((bx, "blockIdx.x"), (ts, "threadIdx.x"), (tr, "threadIdx.y")):
            sch.bind(loop, thread)
        auto_vectorize(sch, word, _VECTOR)
        if len(sch.get(partial).reads) >= 3:
            scales = sch.cache_read(partial, read_buffer_index=2, storage_scope="local")
            sch.compute_at(scales, tile, preserve_unit_loops=True)
        words = sch.cache_read(partial, read_buffer_index=1, storage_scope="local")
        sch.compute_at(words, scaled, preserve_unit_loops=True)
        if self.load_width:
            self._load_vector(partial, r)
        return bx

    def _load_vector(self, partial: BlockRV, step: LoopRV) -> None:
        sch = self.sch
        shared = sch.cache_read(partial, read_buffer_index=0, storage_scope="shared")
        sch.compute_at(shared, step, preserve_unit_loops=True)
        last = sch.get_loops(shared)[-1]
        factors = [None, 1, self.ts, self.tr, self.load_width]
        _, _, ts, tr, lane = sch.split(last, factors=factors, preserve_unit_iters=True)
        sch.bind(tr, "threadIdx.y")
        sch.bind(ts, "threadIdx.x")
        auto_vectorize(sch, lane, self.load_width)

    def _finish(self, rv: Any, bx: LoopRV, order: list[int]) -> None:
        """Move a summation below the block; its rows and partial sums go to the threads."""
        sch = self.sch
        sch.reverse_compute_at(rv, bx, preserve_unit_loops=True)
        loops = sch.get_loops(rv)[1:]
        loops = [loops[i] for i in order]
        sch.reorder(*loops)
        sch.bind(loops[0], "threadIdx.x")
        sch.bind(loops[1], "threadIdx.y")

    def _epilogue(self, epilogue: Any, bx: Any) -> None:
        sch = self.sch
        if is_broadcast_epilogue(sch, self.gemv, epilogue):
            sch.reverse_compute_at(epilogue, bx)
            sch.set_scope(self.gemv, 0, "shared")
            _, ts = sch.split(sch.fuse(*sch.get_loops(epilogue)[1:]), factors=[None, self.ts])
        else:
            sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
            fused = sch.fuse(*sch.get_loops(epilogue)[1:])
            ts, _ = sch.split(fused, factors=[self.ts, None], preserve_unit_iters=True)
            sch.set_scope(self.gemv, 0, "local")
        sch.bind(ts, "threadIdx.x")


def _without_partial_sums(sch: Schedule, block: BlockRV, vectors: list[Buffer], epilogue: BlockInfo | None) -> Schedule:
    """128 threads a block, each with a vector of rows; the whole vector operand through shared memory."""
    threads, lanes, inner = 128, 1, 4
    batch, s, r, c = sch.get_loops(block)
    rows = get_extent(sch, s)
    if isinstance(rows, int):
        lanes = 4 if rows > 4096 else 2
    bx, tx, lane = sch.split(s, factors=[None, threads, lanes])
    step, r = sch.split(r, factors=[None, inner])
    for loop, thread in ((batch, "blockIdx.y"), (bx, "blockIdx.x"), (tx, "threadIdx.x")):
        sch.bind(loop, thread)
    sch.reorder(bx, tx, step, r, c, lane)
    unroll_explicitly(sch, tx, _UNROLL)
    shared = sch.cache_read(block, vectors[0], storage_scope="shared")
    sch.compute_at(shared, bx, preserve_unit_loops=True)
    _, tx, wide = sch.split(sch.get_loops(shared)[-1], factors=[None, threads, 8], preserve_unit_iters=True)
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(wide)
    sch.vectorize(lane)
    if epilogue is not None:
        sch.reverse_compute_at(epilogue.block_rv, bx, preserve_unit_loops=True)
        last = sch.get_loops(epilogue.block_rv)[-1]
        tx, lane = sch.split(last, factors=[threads, lanes], preserve_unit_iters=True)
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(lane)
        sch.set_scope(block, 0, "local")
    sch.decompose_reduction(block, step)
    return sch
