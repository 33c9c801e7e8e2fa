"""Transposition through shared memory, so that both sides are accessed in order."""

from __future__ import annotations


from ...arith import normalize_to_iter_sum
from ...target import Target
from ...tir import BufferLoad, BufferStore, PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..analysis import BlockInfo, detect_dominant_read, normalize_prim_func
from ..base import int_of, try_inline_contiguous_spatial
from .common import GPUScheduleRule, unroll_explicitly

# Threads in x, threads in y, unroll depth.
_SHAPE = {"cuda": (16, 8, 256), "opencl": (16, 8, 64)}
_OTHER = (8, 4, 64)
_VECTOR = 4


class Transpose(GPUScheduleRule):
    """A two-dimensional transposition, possibly of decoded data: tiles go through padded shared memory.

    Before and after::

        for i, j in T.grid(n, m):                  a (8 x 16)-thread block copies a tile to shared memory, row-major,
            B[i, j] = A[j, i]                      with one element of padding a row, and writes it out transposed
    """

    def is_transpose(self, sch: Schedule, block_rv: BlockRV) -> bool:
        """Whether the block copies with its indices in another order."""
        store = sch.get(block_rv).body
        if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
            return False
        to, source = list(store.indices), list(store.value.indices)
        moved = len(to) != len(source) or any(not a.same_as(b) for a, b in zip(to, source))
        return moved and {id(i) for i in to} == {id(i) for i in source}

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        infos = normalize_prim_func(sch)
        if infos is None:
            return None
        at = self._find(sch, infos)
        if at is None:
            return None
        prologue = None
        if at > 0:
            before = try_inline_contiguous_spatial(sch, infos[: at - 1])
            if before:
                return None
            prologue = infos[at - 1].block_rv
        rv = infos[at].block_rv
        if len(sch.get_loops(rv)) != 2:
            return None
        self._schedule(sch, rv, prologue, _SHAPE.get(target.kind.name, _OTHER))
        return sch

    def _find(self, sch: Schedule, infos: list[BlockInfo]) -> int | None:
        for index in reversed(range(len(infos))):
            if self.is_transpose(sch, infos[index].block_rv):
                return index
            if not infos[index].is_injective():
                return None
        return None

    def _schedule(self, sch: Schedule, rv: BlockRV, prologue: BlockRV | None, shape: tuple[int, int, int]) -> None:
        len_tx, len_ty, depth = shape
        packed = 1 if prologue is None else _elements_in_one(sch, prologue)
        i, j = sch.get_loops(rv)
        i, vi = sch.split(i, factors=[None, packed], preserve_unit_iters=True)
        bi, ti = sch.split(i, factors=[None, len_ty], preserve_unit_iters=True)
        bj, tj = sch.split(j, factors=[None, len_tx], preserve_unit_iters=True)
        sch.reorder(bi, bj, ti, tj, vi)
        for loop, thread in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
            sch.bind(loop, thread)
        width = min(_VECTOR, packed)
        _, vi = sch.split(vi, factors=[None, width])
        if width > 1:
            sch.vectorize(vi)
        staged = sch.cache_read(rv, read_buffer_index=0, storage_scope="shared")
        sch.compute_at(staged, bj)
        fused = sch.fuse(*sch.get_loops(staged)[2:])
        _, ty, tx, v = sch.split(fused, factors=[None, len_ty, len_tx, packed])
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        sch.unroll(v)
        sch.storage_align(block=staged, buffer_index=0, axis=0, factor=32, offset=1)
        unroll_explicitly(sch, bi, depth)
        if prologue is not None:
            sch.compute_inline(prologue)


def _elements_in_one(sch: Schedule, prologue: BlockRV) -> int:
    """How many results one element of the prologue's dominant read decodes to."""
    block = sch.get(prologue)
    total = normalize_to_iter_sum(detect_dominant_read(block), {v.var: v.dom for v in block.iter_vars})
    return (int_of(total.args[0].lower_factor) or 1) if total.args else 1
