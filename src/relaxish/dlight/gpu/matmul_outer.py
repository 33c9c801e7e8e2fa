"""Products on Adreno with the weight read along its columns and an unknown number of rows."""

from __future__ import annotations

from typing import Any

from ...tir import IndexMap
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..base import get_extent, get_max_factor

__all__ = ["schedule_outer_reduction"]


def schedule_outer_reduction(
    sch: Schedule, block: Any, blocks: list[Any], threads: tuple[int, int], vector: int, rows: int
) -> Schedule | None:
    """Schedule ``C[b, m, n] += A[b, m, k] * B[k, n]`` with unknown ``m`` and known ``b``, ``n``; None for any other.

    ``threads`` (x, y) threads of a block take ``vector`` columns by ``rows`` rows each. The rows of A are first
    interleaved by ``rows``, so that a thread reads them as one vector.
    """
    loops = sch.get_loops(block)
    if len(loops) != 4:
        return None
    b, m, n, _ = (get_extent(sch, loop) for loop in loops)
    if not isinstance(b, int) or isinstance(m, int) or not isinstance(n, int):
        return None
    vector = min(get_max_factor(n // threads[0], [1, 2, 4, 8]), vector)
    epilogue = None if _same(sch, blocks[-1], block) else blocks[-1]
    dequantize = None
    for other in blocks[:-1]:
        if "dequantize" in sch.get(other).name_hint:
            dequantize = other
        elif not _same(sch, other, block):
            sch.compute_inline(other)
    interleaved, result = _interleave(sch, block, rows)
    if epilogue is not None:
        sch.compute_inline(result)
        result = epilogue
    _schedule_interleave(sch, interleaved, threads, rows)
    _schedule_product(sch, block, dequantize, result, threads, vector, rows)
    return sch


def _same(sch: Schedule, one: Any, other: Any) -> bool:
    return sch.get(one).same_as(sch.get(other))


def _interleave(sch: Schedule, block: BlockRV, rows: int) -> tuple[Any, Any]:
    """Pad the rows and give A the layout (b, m // rows, k, m % rows); the blocks that copy A and the result."""
    copied = sch.reindex(block, ("read", 0))
    sch.pad_einsum(block, [1, rows, 1, 1])
    sch.compute_inline(copied)
    interleaved, result = sch.get_producers(block)[0], sch.get_consumers(block)[0]
    layout = IndexMap.from_func(lambda b, m, k: (b, m // rows, k, m % rows))
    sch.transform_layout(interleaved, ("write", 0), layout)
    return interleaved, result


def _schedule_interleave(sch: Schedule, block: BlockRV, threads: tuple[int, int], rows: int) -> None:
    b, m, k = sch.get_loops(block)
    bx, tx = sch.split(k, [None, threads[0]])
    by, ty, lane = sch.split(m, [None, threads[1], rows])
    bound = ((b, "blockIdx.z"), (by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x"))
    for loop, thread in bound:
        sch.bind(loop, thread)
    sch.reorder(b, by, bx, ty, tx, lane)
    sch.vectorize(lane)


def _schedule_product(
    sch: Schedule,
    block: BlockRV,
    dequantize: BlockRV | None,
    result: BlockRV,
    threads: tuple[int, int],
    vector: int,
    rows: int,
) -> None:
    b, m, n, k = sch.get_loops(block)
    bx, tx, lane = sch.split(n, [None, threads[0], vector])
    by, ty, row = sch.split(sch.fuse(b, m), [None, threads[1], rows])
    step, group, word = sch.split(k, [None, 4, 8])
    sch.reorder(bx, by, tx, ty, step, group, word, row, lane)
    sch.set_scope(block, 0, "local")
    if dequantize is not None:
        sch.compute_at(dequantize, word)
        sch.set_scope(dequantize, 0, "local")
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, thread)
    sch.vectorize(lane)
    operand = sch.cache_read(block, read_buffer_index=0, storage_scope="local")
    sch.compute_at(operand, word, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(operand)[-1])
    sch.unroll(row)
    sch.unroll(word)
    if dequantize is not None:
        for index, loop in ((0, group), (1, step)):
            packed = sch.cache_read(dequantize, read_buffer_index=index, storage_scope="local")
            sch.compute_at(packed, loop, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(packed)[-1])
        sch.vectorize(sch.get_loops(dequantize)[-1])
    sch.reverse_compute_at(result, ty)
    row, lane = sch.get_loops(result)[-2:]
    sch.vectorize(lane)
    sch.unroll(row)
    sch.decompose_reduction(block, step)
