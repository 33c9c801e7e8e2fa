"""Softmax, layer norm and RMS norm of contiguous rows: a thread block keeps a row in registers and moves 16 bytes at a time."""

from __future__ import annotations

from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...target import Target
from ...tir import PrimFunc
from ...tir.analysis import undefined_vars
from ...tir.buffer import Buffer
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ...tir.stmt import BufferRegion
from ..analysis import BlockInfo, normalize_prim_func
from ..base import ILLEGAL, int_of, try_inline_contiguous_spatial
from .common import GPUScheduleRule, unroll_explicitly
from .general_reduction import results_of

__all__ = ["WideRows"]

_VECTOR_BYTES = 16
_MOST_THREADS = 1024
# Threads of a block that hide latency well; rows that need fewer share a block.
_THREADS = 256
_WARP = 32
# Vectors of one input that a thread keeps, and registers for all inputs and results together.
_MOST_VECTORS, _MOST_REGISTERS = 8, 64


class WideRows(GPUScheduleRule):
    """Reductions over rows that lie together in memory, and results of the same rows, on NVIDIA GPUs.

    Before and after (softmax of rows of 4096 float16)::

        maximum, exp, sum, normalise:      for bx in T.thread_binding(rows, "blockIdx.x"):
        one nest after the other               for tx in T.thread_binding(256, "threadIdx.x"), i in range(2):
                                                   for v in T.vectorized(8): x_local[..] = x[bx, tx * 16 + i * 8 + v]
                                               maximum and sum of what threads hold into shared memory
                                               results in registers, then stored as they were loaded

    Every input is read once. Short rows share a thread block. Takes functions whose rows are of one constant length that
    is made up of whole vectors; others are left to :class:`GeneralReduction`.
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target) or target.kind.name != "cuda":
            return None
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos or len(infos) < 2:
            return None
        infos, also = results_of(infos)
        rows = _Rows.of(sch, infos, also)
        if rows is None:
            return None
        try:
            rows.schedule()
        except ILLEGAL:
            return None
        return sch


class _Rows:
    """A function that fits, and its schedule."""

    def __init__(
        self, sch: Schedule, reductions: list[BlockInfo], results: list[BlockInfo], length: int, inputs: list[Any]
    ) -> None:
        self.sch = sch
        self.reductions = reductions
        self.results = results
        self.inputs = inputs
        outputs = [sch.get(info.block_rv).writes[0].buffer for info in results]
        sizes = [dt.bits(buffer.dtype) // 8 for buffer in (*inputs, *outputs)]
        self.lanes = _VECTOR_BYTES // max(sizes)
        vectors = length // self.lanes
        steps = 1 if vectors <= _THREADS else 2 if vectors <= 2 * _MOST_THREADS else -(-vectors // _MOST_THREADS)
        threads = -(-vectors // steps)
        if threads > _WARP:
            threads = -(-threads // _WARP) * _WARP
        self.steps, self.threads = steps, threads
        self.fits = length % self.lanes == 0 and steps <= _MOST_VECTORS and vectors >= 2
        self.fits &= self.lanes * steps * sum(sizes) // 4 <= _MOST_REGISTERS
        known = int_of(results[0].dom()[-2]) if len(results[0].iters) > 1 else 1
        self.together = 1  # rows of a thread block, neighbours along their last axis
        while threads * self.together * 2 <= _THREADS and known is not None and known % (self.together * 2) == 0:
            self.together *= 2

    @staticmethod
    def of(sch: Schedule, infos: list[BlockInfo], also: list[BlockInfo]) -> _Rows | None:
        """None for a function of another form."""
        *reductions, last = infos
        if not reductions or not last.is_injective() or any(not info.is_reduction() for info in reductions):
            return None
        kinds, results = reductions[0].dom_kind(), [last, *also]
        if kinds != "S" * (len(kinds) - 1) + "R" or any(i.dom_kind() != kinds for i in reductions):
            return None
        length = int_of(reductions[0].dom()[-1])
        # Results of one row have no axis for it.
        axes = 1 if all(int_of(n) == 1 for n in reductions[0].dom()[:-1]) else len(kinds)
        if length is None or any(len(info.iters) not in (len(kinds), axes) for info in results):
            return None
        if any(int_of(info.dom()[-1]) != length for info in (*reductions, *results)):
            return None
        for info in results:
            block = sch.get(info.block_rv)
            if len(block.writes) != 1 or not _along(block.writes[0], info.iters[-1].var):
                return None
        inputs = _row_inputs(sch, [*reductions, *results])
        if not inputs:
            return None
        made = _Rows(sch, reductions, results, length, inputs)
        return made if made.fits else None

    def schedule(self) -> None:
        """Raises ScheduleError."""
        sch, last = self.sch, self.results[0].block_rv
        writes = [sch.cache_write(info.block_rv, 0, "local") for info in self.results]
        reads = [self._cached(buffer) for buffer in self.inputs]
        *outer, column = sch.get_loops(last)
        if not outer:
            outer = [sch.add_unit_loop(column)]
        if self.together > 1:
            outer[-1], row = sch.split(outer[-1], factors=[None, self.together])
            sch.bind(row, "threadIdx.y")
        bx = sch.fuse(*outer)
        sch.bind(bx, "blockIdx.x")
        ty = row if self.together > 1 else bx
        self._share(last)
        # What threads hold is stored by themselves; other results are computed beside the first.
        for info, write in zip(self.results, writes, strict=True):
            if info is not self.results[0]:
                sch.reverse_compute_at(info.block_rv, ty, preserve_unit_loops=True)
                self._share(info.block_rv)
            sch.reverse_compute_at(write, ty, preserve_unit_loops=True)
            self._share(write, vectors=True)
        for info in reversed(self.reductions):
            # What is shared counts as wanted by all threads: as memory of its own, each row computes its own.
            self._put(info, "local")
            sch.compute_at(info.block_rv, ty, preserve_unit_loops=True)
            self._put(info, "shared")
            self._share(info.block_rv)
        for read in reads:
            sch.compute_at(read, ty, preserve_unit_loops=True)
            self._share(read, vectors=True)

    def _cached(self, buffer: Buffer) -> BlockRV:
        """A copy of an input in registers, for all that read it."""
        sch = self.sch
        for info in (*self.reductions, *self.results):
            for index, read in enumerate(sch.get(info.block_rv).reads):
                if read.buffer is buffer:
                    return sch.cache_read(info.block_rv, index, "local")
        raise AssertionError("an input is read by some block")

    def _put(self, info: BlockInfo, scope: str) -> None:
        for index in range(len(self.sch.get(info.block_rv).writes)):
            self.sch.set_scope(info.block_rv, buffer_index=index, storage_scope=scope)

    def _share(self, rv: BlockRV, vectors: bool = False) -> None:
        """Give neighbouring threads neighbouring vectors of a row, each as many as it keeps."""
        sch = self.sch
        unit, lane = sch.split(sch.get_loops(rv)[-1], factors=[None, self.lanes])
        tx, step = sch.split(unit, factors=[self.threads, self.steps])
        sch.bind(tx, "threadIdx.x")
        if vectors:
            sch.vectorize(lane)
        unroll_explicitly(sch, step, self.lanes * self.steps)


def _along(region: BufferRegion, var: PrimExpr) -> bool:
    """Whether a region's last index is an axis, which the others do not depend on."""
    *outer, last = region.region
    return last.min.same_as(var) and not any(var in undefined_vars(dim.min) for dim in outer)


def _row_inputs(sch: Schedule, infos: list[BlockInfo]) -> list[Any]:
    """The buffers of which blocks read whole rows that lie together, all of them at the same places.

    Empty where a block reads along a row in any other way.
    """
    made = {id(write.buffer) for info in infos for write in sch.get(info.block_rv).writes}
    found: dict[int, Any] = {}
    for info in infos:
        axis = info.iters[-1].var
        for read in sch.get(info.block_rv).reads:
            buffer = read.buffer
            if id(buffer) in made or not any(axis in undefined_vars(dim.min) for dim in read.region):
                continue
            whole = all(int_of(dim.extent) == 1 for dim in read.region)
            if not whole or not _along(read, axis) or buffer.strides or dt.bits(buffer.dtype) not in (16, 32):
                return []
            if int_of(buffer.shape[-1]) != int_of(info.dom()[-1]):
                return []
            found[id(buffer)] = buffer
    return list(found.values())
