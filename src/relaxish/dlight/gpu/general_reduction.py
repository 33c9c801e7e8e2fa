"""Chains of reductions over the same rows: softmax, layer norm and the like."""

from __future__ import annotations

from math import prod
from typing import Any

from ...arith import Analyzer
from ...ir.prim import const
from ...target import Target
from ...tir import IndexMap, PrimFunc
from ...tir.analysis import undefined_vars
from ...tir.schedule import Schedule
from ..analysis import BlockInfo, normalize_prim_func
from ..base import int_of, try_inline_contiguous_spatial
from .common import GPUScheduleRule, unroll_explicitly

# Threads of a block, unroll depth.
_SHAPE = {"cuda": (256, 256), "opencl": (256, 64)}
_OTHER = (64, 64)
# Elements of a row that one thread takes by itself.
_WINDOW = 16


class GeneralReduction(GPUScheduleRule):
    """Blocks that share leading spatial axes and reduce the trailing ones: a thread block does all of them for a row.

    Before and after (softmax)::

        maximum, exp, sum, normalise:          for bx in T.thread_binding(rows, "blockIdx.x"):
        one nest after the other                   maximum, exp and sum of row bx into shared memory, 256 threads each
                                                   normalise row bx
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        threads, depth = _SHAPE.get(target.kind.name, _OTHER)
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos:
            return None
        kinds = infos[0].dom_kind()
        leading = len(kinds) - len(kinds.lstrip("S"))
        trailing = len(kinds) - len(kinds.rstrip("R"))
        infos, also = results_of(infos)
        last = infos[-1]
        if not last.iters:
            return None
        if len(last.dom_kind()) < len(kinds):
            sch.transform_block_layout(last.block_rv, _widen(infos[0], last))
        if trailing == 0 or leading + trailing != len(kinds):
            return None
        if any(i.dom_kind() != kinds for i in infos[1:-1]) or _is_window(infos, trailing):
            return None
        if not last.is_injective() or len(last.dom_kind()) > len(kinds):
            return None
        if "R" not in last.dom_kind():
            _align_loops(sch, infos)
        fits = self._schedule(sch, infos, also, leading, trailing, threads, depth)
        return sch if fits else None

    def _schedule(
        self, sch: Schedule, infos: list[BlockInfo], also: list[BlockInfo], leading: int, trailing: int, threads: int,
        depth: int,
    ) -> bool:  # fmt: skip
        """Schedule; False where what a row needs of the reductions is of unknown size."""
        loops = sch.get_loops(infos[-1].block_rv)
        bx = sch.fuse(*loops[:leading])
        inner, tx = sch.split(loops[-1], factors=[None, threads])
        sch.reorder(tx, inner)
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        unroll_explicitly(sch, inner, depth)
        for info in also:
            sch.reverse_compute_at(info.block_rv, bx, preserve_unit_loops=True)
            inner, tx = sch.split(sch.fuse(*sch.get_loops(info.block_rv)[1:]), factors=[None, threads])
            sch.reorder(tx, inner)
            sch.bind(tx, "threadIdx.x")
            unroll_explicitly(sch, inner, depth)
        for info in reversed(infos[:-1]):
            rv = info.block_rv
            for index in range(len(sch.get(rv).writes)):
                sch.set_scope(rv, buffer_index=index, storage_scope="shared")
            sch.compute_at(rv, bx, preserve_unit_loops=True)
            _, *rows = sch.get_loops(rv)[:-trailing]
            if any(int_of(sch.get(loop).extent) is None for loop in rows):
                return False
            inner, tx = sch.split(sch.fuse(*sch.get_loops(rv)[-trailing:]), factors=[None, threads])
            sch.reorder(tx, inner)
            sch.bind(tx, "threadIdx.x")
            unroll_explicitly(sch, inner, depth)
        return True


def results_of(infos: list[BlockInfo]) -> tuple[list[BlockInfo], list[BlockInfo]]:
    """(reductions and the first result, results of the same shape made from it element by element)."""
    last, first = infos[-1], len(infos) - 1
    while (
        first > 0 and infos[first - 1].is_injective() and last.is_injective() and infos[first - 1].dom() == last.dom()
    ):
        first -= 1
    return infos[: first + 1], infos[first + 1 :]


def _is_window(infos: list[BlockInfo], trailing: int) -> bool:
    """Whether a row is the short window of a pooling: one thread sums it sooner than several meet.

    Rows that are reduced more than once (softmax) stay together, however short: apart they would be several kernels.
    """
    if sum("R" in info.dom_kind() for info in infos) > 1:
        return False
    extents = [int_of(n) for n in infos[0].dom()[-trailing:]]
    return all(n is not None for n in extents) and prod(n or 0 for n in extents) <= _WINDOW


def _widen(first: BlockInfo, last: BlockInfo) -> IndexMap:
    """Unit axes for the last block where the first one has axes that the last lacks."""
    analyzer = Analyzer()

    def place(*iters: Any) -> list[Any]:
        zero = const(0, iters[0].dtype)
        placed: list[Any] = []
        used = 0
        for axis in first.iters:
            fits = used < len(iters) and analyzer.can_prove_equal(axis.dom, last.iters[used].dom)
            placed.append(iters[used] if fits else zero)
            used += fits
        if used == len(iters):
            return placed
        return [zero] * (len(first.iters) - len(iters)) + list(iters)

    return IndexMap.from_func(place, ndim=len(last.iters))


def _align_loops(sch: Schedule, infos: list[BlockInfo]) -> None:
    """Put those loops of the last block first that index what the blocks before it reduced, as these have them."""
    reduced = {id(write.buffer) for info in infos[:-1] for write in sch.get(info.block_rv).writes}
    last = infos[-1].block_rv
    block, loops = sch.get(last), sch.get_loops(last)
    used: set[Any] = set()
    for read in block.reads:
        if id(read.buffer) in reduced:
            for dim in read.region:
                used |= {*undefined_vars(dim.min), *undefined_vars(dim.extent)}
    shared = [
        v.var in used or int_of(sch.get(loop).extent) == 1 for v, loop in zip(block.iter_vars, loops, strict=True)
    ]
    first = [loop for loop, is_shared in zip(loops, shared, strict=True) if is_shared]
    sch.reorder(*first, *(loop for loop, is_shared in zip(loops, shared, strict=True) if not is_shared))
