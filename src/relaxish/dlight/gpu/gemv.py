"""Matrix times vector, decoded matrices included: a group of threads shares the dot product of a row."""

from __future__ import annotations

import math
from typing import Any

from ...target import Target
from ...target.shared_memory import static_limit
from ...tir import Buffer, PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import BlockInfo, is_broadcast_epilogue, is_gemv, normalize
from ..base import get_bytes, get_extent, get_max_factor, int_of
from .common import GPUScheduleRule, reduction_and_epilogue, unroll_explicitly
from .gemv_config import GEMVConfig, for_product
from .gemv_outer import schedule_outer_reduction

# Bytes of shared memory a block has on any device of a kind; what Vulkan promises is the least of all.
_LEAST_SHARED = {"cuda": 49152, "rocm": 65536, "metal": 32768, "vulkan": 16384}


class GEMV(GPUScheduleRule):
    """``Y[s] += A[s, r] * X[r]`` with the matrix read along ``r``: threads share rows, partial sums in registers.

    Before and after (cuda, 4096 x 4096)::

        for i, k in T.grid(4096, 4096):            blockIdx.x: 16 rows; threads 16 x 32
            Y[i] += A[i, k] * X[k]                     X in shared memory, A in vectors of 4, two levels of partial sums,
                                                       then one sum across the 32 threads of a row
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        blocks = reduction_and_epilogue(sch, nested=True)
        if blocks is None:
            return None
        info, epilogue = blocks
        # [S, R] * [R], or the same for each of a batch.
        if len(info.iters) not in (2, 3):
            return None
        vectors = is_gemv(sch, info)
        if vectors is None:
            return None
        inner = normalize(sch, info)
        if inner is None:
            return None
        if not inner:
            return schedule_outer_reduction(sch, target, info.block_rv, vectors, epilogue)
        config = for_product(sch, target, info.block_rv)
        return InnerReduction(sch, target, info.block_rv, vectors, config).run(epilogue)


class InnerReduction:
    """The schedule of one product; a step a method, in order.

    Loops are called as in ``GEMVConfig``: ``ts`` and ``tr`` are the threads along rows and along the reduction, ``bx``
    the thread blocks. A subclass may have ``batch_loops`` loops over the vectors of a batch outside of the rows.
    """

    batch_loops = 0

    def __init__(
        self, sch: Schedule, target: Target, block: BlockRV, vectors: list[Buffer], config: GEMVConfig
    ) -> None:
        self.sch = sch
        self.target = target
        self.gemv = block
        self.vectors = vectors
        self.c = config

    def run(self, epilogue: BlockInfo | None) -> Schedule | None:
        """Schedule the product and what follows it; None for several vectors that would share memory."""
        sch = self.sch
        shares = self._vectors_fit()
        if shares and len(self.vectors) != 1:
            return None
        partial, rows = self._factor()
        bx, thread, step = self._bind_partial(partial)
        self._load_matrix(partial, step)
        vector = self._load_vector(partial, thread) if shares else None
        self._finish_vectors(rows, bx)
        self._finish_rows(bx)
        self._keep_in_registers(partial, rows)
        if vector is not None:
            self._unroll_load(vector)
        if epilogue is not None:
            self._epilogue(epilogue.block_rv, bx)
        return sch

    def _product_loops(self) -> tuple[Any, Any]:
        """Rows and reduction, each as one loop."""
        batch, s, r, packed = self.sch.get_loops(self.gemv)
        return self.sch.fuse(batch, s), self.sch.fuse(r, packed)

    def _factor(self) -> tuple[Any, Any]:
        """Two levels of partial sums: one for each thread and vector lane, one for each thread."""
        sch, c = self.sch, self.c
        s, r = self._product_loops()
        sch.split(s, factors=[None, c.ts, c.tile_s], preserve_unit_iters=True)
        r, tr, tile, lane = sch.split(r, factors=[None, c.tr, c.tile_r // c.vec_c, c.vec_c], preserve_unit_iters=True)
        sch.reorder(r, tile, tr, lane)
        partial = sch.rfactor(sch.fuse(tr, lane), 0)
        *_, fused = sch.get_loops(self.gemv)
        tr, _ = sch.split(fused, factors=[c.tr, None], preserve_unit_iters=True)
        return partial, sch.rfactor(tr, 0)

    def _bind_partial(self, partial: BlockRV) -> tuple[Any, Any, Any]:
        """Bind the threads of the first partial sums; gives ``bx``, ``tr`` and the serial loop of the reduction."""
        sch, c = self.sch, self.c
        bx, ts, tile_s, r, tile_r, fused = sch.get_loops(partial)[self.batch_loops :]
        tr, lane = sch.split(fused, factors=[c.tr, None], preserve_unit_iters=True)
        sch.reorder(bx, ts, tr, r, tile_s, tile_r, lane)
        sch.bind(bx, "blockIdx.x")
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)
        sch.vectorize(lane)
        return bx, tr, r

    def _load_matrix(self, partial: BlockRV, step: LoopRV) -> None:
        sch = self.sch
        local = sch.cache_read(partial, read_buffer_index=1, storage_scope="local")
        sch.compute_at(local, step, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(local)[-2:])
        width = max(1, self.c.vec_load // get_bytes(sch.get(local).reads[0].buffer.dtype))
        _, lane = sch.split(fused, factors=[None, width], preserve_unit_iters=True)
        sch.vectorize(lane)

    def _vectors_fit(self) -> bool:
        """Whether the vectors go into shared memory; ones of unknown length do not."""
        used = 0
        for buffer in self.vectors:
            sizes = [int_of(d) for d in buffer.shape]
            if any(n is None for n in sizes):
                return False
            used += math.prod(n for n in sizes if n is not None) * get_bytes(buffer.dtype)
            if not self.c.warp_shuffle:
                # Sums across threads then go through shared memory, too.
                used += self.c.ts * self.c.tr * get_bytes(buffer.dtype)
        return self.c.load_v_shared and used <= self._shared_memory()

    def _shared_memory(self) -> int:
        """Bytes of shared memory of a block; of a target that does not say, what every device of its kind has."""
        if "max_shared_memory_per_block" in self.target.attrs:
            return static_limit(self.target)
        return _LEAST_SHARED.get(self.target.kind.name, _LEAST_SHARED["vulkan"])

    def _load_vector(self, partial: BlockRV, thread: LoopRV) -> BlockRV:
        sch, c = self.sch, self.c
        shared = sch.cache_read(partial, read_buffer_index=0, storage_scope="shared")
        sch.compute_at(shared, thread, preserve_unit_loops=True)
        loop = sch.get_loops(shared)[-1]
        extent, threads = get_extent(sch, loop), c.ts * c.tr
        width = c.load_v_vec
        if isinstance(extent, int):
            # A width that divides needs no predicate.
            width = max(min(get_max_factor(extent, [threads * w for w in (1, 2, 4, 8)]) // threads, width), 1)
        outer, inner = (c.ts, c.tr) if c.tag_r == "threadIdx.x" else (c.tr, c.ts)
        _, ty, tx, lane = sch.split(loop, factors=[None, outer, inner, width], preserve_unit_iters=True)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(lane)
        return shared

    def _tiles(self, outputs: list[Any]) -> list[LoopRV]:
        """The fused rows as a unit loop, threads and tile."""
        factors = [None, self.c.ts, self.c.tile_s]
        return self.sch.split(self.sch.fuse(*outputs), factors=factors, preserve_unit_iters=True)

    def _finish_vectors(self, rows: BlockRV, bx: LoopRV) -> None:
        """Sum over the vector lanes of each thread."""
        sch, c = self.sch, self.c
        sch.reverse_compute_at(rows, bx, preserve_unit_loops=True)
        tr, lane, *inside = sch.get_loops(rows)[1 + self.batch_loops :]
        batch, outputs = inside[: self.batch_loops], inside[self.batch_loops :]
        outer, ts, tile = self._tiles(outputs)
        width = get_max_factor(c.tile_s, [1, 2, 4, 8])
        tile, vec = sch.split(tile, factors=[None, width], preserve_unit_iters=True)
        ts = sch.fuse(outer, ts)
        sch.reorder(ts, tr, tile, *batch, vec, lane)
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)
        sch.vectorize(vec)

    def _finish_rows(self, bx: LoopRV) -> None:
        """Sum across the threads of each row."""
        sch, c = self.sch, self.c
        sch.reverse_compute_at(self.gemv, bx, preserve_unit_loops=True)
        tr, *inside = sch.get_loops(self.gemv)[1 + self.batch_loops :]
        batch, outputs = inside[: self.batch_loops], inside[self.batch_loops :]
        outer, ts, tile = self._tiles(outputs)
        ts = sch.fuse(outer, ts)
        sch.reorder(tile, *batch, ts, tr)
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)

    def _keep_in_registers(self, partial: BlockRV, rows: BlockRV) -> None:
        """Initialise both levels of partial sums where their loops begin, keep them in registers, and unroll."""
        sch, at = self.sch, 3 + self.batch_loops
        sch.decompose_reduction(partial, sch.get_loops(partial)[at])
        sch.decompose_reduction(rows, sch.get_loops(rows)[-1])
        for rv in (partial, rows):
            sch.set_scope(rv, 0, "local")
        for rv in (partial, rows):
            unroll_explicitly(sch, sch.get_loops(rv)[at], self.c.unroll)

    def _unroll_load(self, vector: BlockRV) -> None:
        loop = self.sch.get_loops(vector)[-4]
        self.sch.annotate(loop, ann_key="pragma_unroll_explicit", ann_val=self.c.unroll)
        self.sch.annotate(loop, ann_key="pragma_vectorize", ann_val=1)

    def _epilogue(self, epilogue: BlockRV, bx: LoopRV) -> None:
        sch, c = self.sch, self.c
        if is_broadcast_epilogue(sch, self.gemv, epilogue):
            sch.reverse_compute_at(epilogue, bx)
            sch.set_scope(self.gemv, 0, "shared")
            loops = sch.get_loops(epilogue)[1:]
            _, tx = sch.split(sch.fuse(*loops), factors=[None, c.tr])
            sch.bind(tx, "threadIdx.x")
            return
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(epilogue)[1:])
        ts, _ = sch.split(fused, factors=[c.ts, None], preserve_unit_iters=True)
        sch.bind(ts, c.tag_s)
        sch.set_scope(self.gemv, 0, "local")
