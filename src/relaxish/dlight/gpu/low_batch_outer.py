"""Small padded batches times a packed matrix that is read along its rows."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import is_broadcast_epilogue
from ..base import auto_vectorize

__all__ = ["schedule_outer_reduction"]

# Elements in one packed word of the matrix, and words that share one scale.
_DECODED = 8
_SCALED = 4
_MOST_ROWS = 4


def schedule_outer_reduction(
    sch: Schedule, target: Target, block: BlockRV, dequantize: BlockRV | None, padded: BlockRV | None, bucket: int
) -> Schedule | None:
    """Schedule a product whose loops are batch, rows, reduction; None unless its matrix is decoded and the bucket small."""
    if bucket > _MOST_ROWS or dequantize is None:
        return None
    after = sch.get_consumers(block)
    if after and is_broadcast_epilogue(sch, block, after[0]):
        return None
    ts, tr, lanes, share = (64, 4, 4, True) if target.kind.name == "metal" else (32, 4, 1, False)
    _OuterReduction(sch, block, ts, tr, lanes, bucket).run(dequantize, padded, share)
    return sch


class _OuterReduction:
    """``ts`` rows by ``tr`` partial sums a thread block, for ``bucket`` rows of the batch."""

    def __init__(self, sch: Schedule, block: BlockRV, ts: int, tr: int, lanes: int, bucket: int) -> None:
        self.sch = sch
        self.main = block
        self.ts = ts
        self.tr = tr
        self.lanes = lanes
        self.bucket = bucket

    def run(self, dequantize: BlockRV, padded: BlockRV | None, share: bool) -> None:
        """Schedule the product, what decodes and pads its operands, and what follows it."""
        sch = self.sch
        partial, rows = self._factor()
        bx, step, scaled = self._bind_partial(partial)
        self._decode(dequantize, step, scaled)
        if padded is not None:
            if share:
                self._stage(padded, step)
            else:
                sch.compute_inline(padded)
        sch.reverse_compute_at(rows, bx, preserve_unit_loops=True)
        tr, word, batch, ts = sch.get_loops(rows)[2:]
        sch.reorder(ts, tr, batch, word)
        self._bind(ts, tr)
        sch.reverse_compute_at(self.main, bx, preserve_unit_loops=True)
        tr, batch, ts = sch.get_loops(self.main)[2:]
        sch.reorder(batch, ts, tr)
        self._bind(ts, tr)
        for rv in (partial, rows):
            sch.decompose_reduction(rv, sch.get_loops(rv)[4])
        for rv in (partial, rows):
            sch.set_scope(rv, 0, "local")
        after = sch.get_consumers(self.main)
        if after:
            sch.reverse_compute_at(after[0], bx, preserve_unit_loops=True)
            sch.bind(sch.get_loops(after[0])[3], "threadIdx.x")
            sch.set_scope(self.main, 0, "local")

    def _factor(self) -> tuple[Any, Any]:
        """Two levels of partial sums: one for each thread and element of a word, one for each thread."""
        sch = self.sch
        batch, s, r = sch.get_loops(self.main)
        by, batch = sch.split(batch, [None, self.bucket], preserve_unit_iters=True)
        bx, ts = sch.split(s, [None, self.ts], preserve_unit_iters=True)
        r, tr, scaled, word = sch.split(r, [None, self.tr, _SCALED, _DECODED], preserve_unit_iters=True)
        sch.reorder(by, bx, ts, r, batch, scaled, tr, word)
        partial = sch.rfactor(sch.fuse(tr, word), 0)
        *_, fused = sch.get_loops(self.main)
        tr, _ = sch.split(fused, [self.tr, _DECODED], preserve_unit_iters=True)
        return partial, sch.rfactor(tr, 0)

    def _bind_partial(self, partial: BlockRV) -> tuple[Any, Any, Any]:
        sch = self.sch
        by, bx, ts, r, batch, scaled, fused = sch.get_loops(partial)
        tr, word = sch.split(fused, [self.tr, _DECODED], preserve_unit_iters=True)
        sch.reorder(by, bx, ts, tr, r, scaled, batch, word)
        sch.bind(by, "blockIdx.y")
        sch.bind(bx, "blockIdx.x")
        self._bind(ts, tr)
        auto_vectorize(sch, word, self.lanes)
        return bx, r, scaled

    def _bind(self, ts: LoopRV, tr: LoopRV) -> None:
        self.sch.bind(ts, "threadIdx.x")
        self.sch.bind(tr, "threadIdx.y")

    def _decode(self, dequantize: BlockRV, step: LoopRV, scaled: LoopRV) -> None:
        """Decode one word at a time; words and scales are fetched once a step."""
        sch = self.sch
        sch.compute_at(dequantize, scaled, preserve_unit_loops=True)
        sch.set_scope(dequantize, 0, "local")
        auto_vectorize(sch, sch.fuse(*sch.get_loops(dequantize)[6:]), self.lanes)
        for index in (0, 1):
            packed = sch.cache_read(dequantize, index, "local")
            sch.compute_at(packed, step, preserve_unit_loops=True)
            auto_vectorize(sch, sch.fuse(*sch.get_loops(packed)[5:]), self.lanes)

    def _stage(self, padded: BlockRV, step: LoopRV) -> None:
        """All threads bring the batch's part of one step to shared memory."""
        sch = self.sch
        sch.set_scope(padded, 0, "shared")
        sch.compute_at(padded, step, preserve_unit_loops=True)
        sch.storage_align(padded, 0, axis=-2, factor=8, offset=1)
        tr, ts, lane = sch.split(sch.fuse(*sch.get_loops(padded)[5:]), [self.tr, self.ts, None])
        self._bind(ts, tr)
        auto_vectorize(sch, lane, self.lanes)
