"""One sum over rows or columns, with a spatial epilogue: partial sums by threads, then across them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import IterSumExpr, normalize_to_iter_sum
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import LoopRV
from ..analysis import BlockInfo, IterInfo, detect_dominant_read, is_broadcast_epilogue, summand
from ..base import int_of, suggest_threads_per_block
from .common import GPUScheduleRule, reduction_and_epilogue, unroll_explicitly


@dataclass
class _Layout:
    """How the dominant read walks memory: what its innermost axis is, and the loops in its order.

    ``packed`` is the number of outputs that one packed element holds (None without packing), ``order`` the place of
    each spatial block iterator among the fused loops, ``split_at`` the place of the one that packing divided.
    """

    inner_reduction: bool
    packed: int | None
    order: dict[int, int]
    split_at: int | None


class Reduction(GPUScheduleRule):
    """``Y[s] += f(X[s, r])``: along contiguous reductions threads share a row, else neighbouring threads take columns.

    Before and after (contiguous reduction of 4096 elements)::

        for i, k in T.grid(n, 4096):               for bx in T.thread_binding(n, "blockIdx.x"):
            Y[i] += X[i, k]                            for tx in T.thread_binding(1024, "threadIdx.x"): partial sums
                                                       cross-thread sum of the partial sums
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        blocks = reduction_and_epilogue(sch)
        if blocks is None:
            return None
        info, epilogue = blocks
        block = sch.get(info.block_rv)
        if not info.is_reduction() or len(block.writes) != 1 or summand(block) is None:
            return None
        try:
            access = normalize_to_iter_sum(detect_dominant_read(block), {v.var: v.dom for v in block.iter_vars})
        except ValueError:  # the read does not go through memory by steps
            return None
        layout = _normalize(sch, info, access)
        if layout is None:
            return None
        if layout.inner_reduction:
            _rows(sch, target, info, layout, epilogue)
        else:
            _columns(sch, info, layout, epilogue)
        return sch


def _normalize(sch: Schedule, info: BlockInfo, access: IterSumExpr) -> _Layout | None:
    """Order the loops as the dominant read goes through memory and fuse them: spatial, reduction, packed."""
    if int_of(access.base) != 0:
        return None
    waiting: dict[Any, IterInfo] = {i.var: i for i in info.iters}
    spatial: list[Any] = []
    reductions: list[Any] = []
    packed_loop = packed = split_loop = split_at = None
    inner_reduction = False
    for term in access.args:
        axis = waiting.pop(term.source.source)
        loop = axis.loop_rv
        inner_reduction = axis.kind == "R"
        factor = int_of(term.lower_factor)
        if factor is None or factor > 1:
            if packed_loop is not None or factor is None:
                return None
            split_loop, split_at = loop, len(spatial)
            loop, packed_loop = sch.split(loop, factors=[None, term.lower_factor])
            if not inner_reduction:
                packed = factor
        (reductions if inner_reduction else spatial).append(loop)
    for axis in waiting.values():
        if axis.kind != "S" or axis.dom != 1:
            return None
        spatial.append(axis.loop_rv)
    if not spatial or not reductions or len(spatial) != sum(i.kind == "S" for i in info.iters):
        return None
    order = _order(info, spatial, split_loop, split_at)
    innermost = sch.add_unit_loop(info.block_rv) if packed_loop is None else packed_loop
    sch.reorder(*spatial, *reductions, innermost)
    sch.fuse(*spatial)
    sch.fuse(*reductions)
    return _Layout(inner_reduction, packed, order, split_at)


def _order(info: BlockInfo, spatial: list[Any], split_loop: LoopRV | None, split_at: int | None) -> dict[int, int]:
    own = [i.loop_rv for i in info.iters if i.loop_rv in spatial or i.loop_rv is split_loop]
    return {
        index: split_at if loop is split_loop and split_at is not None else spatial.index(loop)
        for index, loop in enumerate(own)
    }


def _rows(sch: Schedule, target: Target, info: BlockInfo, layout: _Layout, epilogue: BlockInfo | None) -> None:
    """Threads of a block sum parts of one row each."""
    rv = info.block_rv
    _, r, _ = sch.get_loops(rv)
    (threads,) = suggest_threads_per_block(target, [sch.get(r)])
    _, tx = sch.split(r, factors=[None, threads])
    partial = sch.rfactor(tx, 0)
    bx, r, tx, _ = sch.get_loops(partial)
    sch.reorder(bx, tx, r)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    unroll_explicitly(sch, tx, 256)
    sch.set_scope(partial, 0, "local")
    sch.decompose_reduction(partial, r)
    sch.reverse_compute_at(rv, bx, preserve_unit_loops=True)
    _, tx, *outputs = sch.get_loops(rv)
    fused, c = _fuse_outputs(sch, outputs, layout)
    sch.reorder(fused, tx, *c)
    sch.bind(tx, "threadIdx.x")
    if epilogue is None:
        return
    sch.reverse_compute_at(epilogue.block_rv, bx, preserve_unit_loops=True)
    if is_broadcast_epilogue(sch, rv, epilogue.block_rv):
        sch.set_scope(rv, 0, "shared")
        _, *loops = sch.get_loops(epilogue.block_rv)
        _, tx = sch.split(sch.fuse(*loops), factors=[None, threads])
        sch.bind(tx, "threadIdx.x")
    else:
        sch.set_scope(rv, 0, "local")


def _columns(sch: Schedule, info: BlockInfo, layout: _Layout, epilogue: BlockInfo | None) -> None:
    """16 x 16 threads: neighbours in x take neighbouring outputs, those in y share a column."""
    rv = info.block_rv
    len_ty = 16
    last = [i.dom for i in info.iters if i.kind == "S"][-1]
    # The width divides the innermost spatial extent, so that the write-back can go back to its scope.
    len_tx = next(w for w in range(16, 0, -1) if w == 1 or (isinstance(last, int) and last % w == 0))
    s, r, _ = sch.get_loops(rv)
    sch.split(s, factors=[None, len_tx])
    _, ty = sch.split(r, factors=[None, len_ty])
    partial = sch.rfactor(ty, 0)
    bx, tx, r, ty, _ = sch.get_loops(partial)
    sch.reorder(bx, tx, ty, r)
    sch.bind(tx, "threadIdx.x")
    sch.bind(ty, "threadIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.set_scope(partial, 0, "local")
    sch.decompose_reduction(partial, r)
    sch.reverse_compute_at(rv, bx, preserve_unit_loops=True)
    _, r, *outputs = sch.get_loops(rv)
    fused, c = _fuse_outputs(sch, outputs, layout)
    sch.reorder(fused, *c, r)
    sch.bind(fused, "threadIdx.x")
    sch.bind(r, "threadIdx.y")
    if epilogue is None:
        return
    sch.reverse_compute_at(epilogue.block_rv, bx, preserve_unit_loops=True)
    if is_broadcast_epilogue(sch, rv, epilogue.block_rv):
        sch.set_scope(rv, 0, "shared")
        _, *loops = sch.get_loops(epilogue.block_rv)
        _, tx, ty = sch.split(sch.fuse(*loops), factors=[None, len_tx, len_ty])
        sch.bind(tx, "threadIdx.x")
        sch.bind(ty, "threadIdx.y")
    else:
        # Without broadcasting each output has one thread in x to finish it.
        sch.set_scope(rv, 0, "local")
        _, *loops = sch.get_loops(epilogue.block_rv)
        tx, _ = sch.split(sch.fuse(*loops), factors=[len_tx, None])
        sch.bind(tx, "threadIdx.x")


def _fuse_outputs(sch: Schedule, loops: list[Any], layout: _Layout) -> tuple[Any, list[Any]]:
    """Fuse the spatial loops of the write-back in memory order; the packed part stays a loop of its own."""
    if layout.packed is None:
        return sch.fuse(*loops), []
    ordered = [loops[layout.order[i]] for i in range(len(loops))]
    sch.reorder(*ordered)
    at = layout.split_at or 0
    ordered[at], c = sch.split(ordered[at], factors=[None, layout.packed])
    sch.reorder(*ordered, c)
    return sch.fuse(*ordered), [c]
