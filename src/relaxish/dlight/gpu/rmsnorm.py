"""RMS normalisation: one row a thread block, read once into registers."""

from __future__ import annotations

from typing import Any

from ...ir.prim import is_call_of
from ...target import Target
from ...tir import Block, BufferLoad, BufferStore, Cast, PrimFunc
from ...tir.schedule import Schedule
from .common import GPUScheduleRule

_THREADS = {"cuda": 512, "opencl": 256}
_VECTOR = 8


class RMSNorm(GPUScheduleRule):
    """``x * rsqrt(sum(x * x) / n + eps) * weight``: read, square, sum, rsqrt, scale, write.

    Before and after::

        six nests over (rows, n)      ->      blockIdx.x = row, threadIdx.x = parts of 8 elements of the row;
                                              squares and sums in registers, the rsqrt in shared memory
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        threads = _THREADS.get(target.kind.name, 64)
        sch = Schedule(func)
        root = sch.get_block(name="root", func_name="main")
        blocks = sch.get_child_blocks(root)
        if not any(_is_rsqrt(sch.get(b)) for b in blocks):
            return None
        sch.cache_read(block=blocks[0], read_buffer_index=0, storage_scope="local")
        sch.cache_write(block=blocks[-1], write_buffer_index=0, storage_scope="local")
        for rv in blocks:
            if _is_copy(sch.get(rv)):
                sch.compute_inline(rv)
        parts = sch.get_child_blocks(root)
        if len(parts) != 6 or not _is_rsqrt(sch.get(parts[3])):
            return None
        self._schedule(sch, parts, threads)
        return sch

    def _schedule(self, sch: Schedule, parts: list[Any], threads: int) -> None:
        read, square, total, rsqrt, norm, write = parts
        for rv in parts:
            outer = sch.get_loops(rv)[:-1]
            if outer:
                sch.fuse(*outer)
        row, columns = sch.get_loops(read)
        tx, _, _ = sch.split(columns, factors=[threads, None, _VECTOR], preserve_unit_iters=True)
        sch.bind(row, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(sch.get_loops(read)[-1])
        sch.reverse_compute_at(square, tx)
        sch.reverse_compute_at(total, tx)
        sch.reverse_compute_at(rsqrt, row, index=-1)
        sch.reverse_compute_at(norm, row, index=-1)
        row, columns = sch.get_loops(norm)
        tx, _, _ = sch.split(columns, factors=[threads, None, _VECTOR], preserve_unit_iters=True)
        sch.bind(tx, "threadIdx.x")
        sch.reverse_compute_at(write, tx, index=-1)
        sch.vectorize(sch.get_loops(write)[-1])
        for rv, scope in ((square, "local"), (total, "local"), (rsqrt, "shared"), (norm, "local")):
            sch.set_scope(rv, 0, scope)


def _single_store(block: Block) -> BufferStore | None:
    one = len(block.reads) == 1 and len(block.writes) == 1 and isinstance(block.body, BufferStore)
    return block.body if one else None  # type: ignore[return-value]


def _is_copy(block: Block) -> bool:
    """Whether the block stores what it loads at the same place, perhaps in another dtype."""
    store = _single_store(block)
    if store is None:
        return False
    value = store.value.value if isinstance(store.value, Cast) else store.value
    if not isinstance(value, BufferLoad) or len(value.indices) != len(store.indices):
        return False
    return all(a.same_as(b) for a, b in zip(value.indices, store.indices))


def _is_rsqrt(block: Block) -> bool:
    store = _single_store(block)
    return store is not None and is_call_of(store.value, "tir.rsqrt")
