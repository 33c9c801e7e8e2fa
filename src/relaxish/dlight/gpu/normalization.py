"""Normalisations of several axes: group norm, instance norm, layer norm of images, batch norm in training."""

from __future__ import annotations

from math import prod
from typing import Any

from ...ir.prim import FloorDiv, IntImm
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ..analysis import BlockInfo, normalize_prim_func
from ..base import int_of, try_inline_contiguous_spatial
from .common import GPUScheduleRule, unroll_explicitly
from .general_reduction import results_of

# Threads of a block for rows that are short, of unknown length, and long.
_THREADS = {"cuda": (256, 512, 1024)}
_OTHER = (64, 64, 64)
_LONG = 8192
# Rows of fewer elements are for one thread.
_SHORT = 32


class Normalization(GPUScheduleRule):
    """A thread block reduces one row of several axes and makes all results of it; its threads share both evenly.

    Before and after (group norm: ``groups`` of ``channels // groups`` channels)::

        for n, g, c, h, w: sums[n, g] += x[..]      ->   for bx in T.thread_binding(n * groups, "blockIdx.x"):
        for n, c, h, w:                                      sums of row bx into shared memory, 512 threads
            y[n, c, h, w] = f(x[..], sums[n, c // 8])        for i, tx: f of element i * 512 + tx of the row

    Takes functions that :class:`GeneralReduction` would give only some of its threads work in: a result of several
    axes beside those of the rows, or rows that are a part of an axis of the result.
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos or len(infos) < 2 or not infos[-1].is_injective():
            return None
        infos, also = results_of(infos)
        reductions, last = infos[:-1], infos[-1]
        if not reductions or not _same_rows(reductions):
            return None
        rows = _rows_of(sch, reductions, last)
        if rows is None or (len(last.iters) - len(rows) < 2 and all(part is None for part in rows.values())):
            return None
        kinds = reductions[0].dom_kind()
        length = [int_of(n) for n, kind in zip(reductions[0].dom(), kinds, strict=True) if kind == "R"]
        known = None if None in length else prod(n or 0 for n in length)
        if known is not None and known < _SHORT:
            return None
        short, unknown, long = _THREADS.get(target.kind.name, _OTHER)
        threads = unknown if known is None else long if known >= _LONG else short
        return sch if _schedule(sch, reductions, last, also, rows, threads) else None


def _same_rows(reductions: list[BlockInfo]) -> bool:
    kinds, dom = reductions[0].dom_kind(), reductions[0].dom()
    inner = kinds.lstrip("S")
    return (
        inner != ""
        and len(inner) < len(kinds)
        and set(inner) == {"R"}
        and all(i.is_reduction() and i.dom_kind() == kinds and _equal(i.dom(), dom) for i in reductions)
    )


def _equal(a: list[Any], b: list[Any]) -> bool:
    return all(
        x == y if isinstance(x, int) and isinstance(y, int) else x is y or str(x) == str(y) for x, y in zip(a, b)
    )


def _rows_of(sch: Schedule, reductions: list[BlockInfo], last: BlockInfo) -> dict[int, int | None] | None:
    """The axes of the result that say which row it belongs to, in the order of the rows' axes.

    An axis comes with None, or with ``c`` where ``axis // c`` counts rows. None where rows are not told so.
    """
    places: dict[int, list[int | None]] = {}
    for info in reductions:
        block = sch.get(info.block_rv)
        spatial = [i.var for i in info.iters if i.kind == "S"]
        for write in block.writes:
            places[id(write.buffer)] = [
                next((n for n, var in enumerate(spatial) if dim.min.same_as(var)), None) for dim in write.region
            ]
    count = sum(i.kind == "S" for i in reductions[0].iters)
    found: list[tuple[int, int | None] | None] = [None] * count
    for read in sch.get(last.block_rv).reads:
        for dim, place in zip(read.region, places.get(id(read.buffer), ()), strict=False):
            if place is None:
                continue
            axis = _axis(last, dim.min)
            if axis is None or found[place] not in (None, axis):
                return None
            found[place] = axis
    axes = [axis for axis in found if axis is not None]
    return dict(axes) if len(axes) == count == len(dict(axes)) else None


def _axis(last: BlockInfo, index: Any) -> tuple[int, int | None] | None:
    part = None
    if isinstance(index, FloorDiv) and isinstance(index.b, IntImm):
        index, part = index.a, index.b.value
    for n, axis in enumerate(last.iters):
        if index.same_as(axis.var):
            extent = int_of(axis.dom)
            return (n, part) if part is None or (extent is not None and extent % part == 0) else None
    return None


def _schedule(
    sch: Schedule, reductions: list[BlockInfo], last: BlockInfo, also: list[BlockInfo], rows: dict[int, int | None],
    threads: int,
) -> bool:  # fmt: skip
    """Schedule; False where a block would need more of the reductions than its row."""
    loops = sch.get_loops(last.block_rv)
    inner: list[Any] = []
    outer: dict[int, Any] = {}
    for n, loop in enumerate(loops):
        if n not in rows:
            inner.append(loop)
        elif rows[n] is None:
            outer[n] = loop
        else:
            outer[n], part = sch.split(loop, factors=[None, rows[n]])
            inner.append(part)
    if not inner:
        return False
    leading = [outer[n] for n in rows]
    sch.reorder(*leading, *inner)
    bx = sch.fuse(*leading)
    sch.bind(bx, "blockIdx.x")
    for info in also:
        sch.reverse_compute_at(info.block_rv, bx, preserve_unit_loops=True)
        _share(sch, sch.get_loops(info.block_rv)[1:], threads)
    for info in reversed(reductions):
        rv = info.block_rv
        for index in range(len(sch.get(rv).writes)):
            sch.set_scope(rv, buffer_index=index, storage_scope="shared")
        sch.compute_at(rv, bx, preserve_unit_loops=True)
        _, *around = sch.get_loops(rv)
        reduced = info.dom_kind().count("R")
        if any(int_of(sch.get(loop).extent) != 1 for loop in around[:-reduced]):
            return False
        _share(sch, around[-reduced:], threads)
    _share(sch, inner, threads)
    return True


def _share(sch: Schedule, loops: list[Any], threads: int) -> None:
    """Neighbouring threads take neighbouring points of the loops."""
    step, tx = sch.split(sch.fuse(*loops), factors=[None, threads])
    sch.reorder(tx, step)
    sch.bind(tx, "threadIdx.x")
    unroll_explicitly(sch, step, 4)
