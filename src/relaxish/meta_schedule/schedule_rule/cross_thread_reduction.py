"""Reductions shared by the threads of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...target.limits import attrs_with_limits
from ...tir import IterVar, Schedule
from ...tir.schedule import BlockRV, LoopRV
from ...tir.schedule.rv import ExprRV
from ...tir.stmt import For
from ..analysis import blocks as ba
from ..analysis.thread_binding import in_thread_scope
from .add_rfactor import reorder_and_fuse_reduction
from .schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["CrossThreadReduction"]


class _Target(NamedTuple):
    """Where a reduction can be computed: under ``loop`` of the consumer ``block``, whose innermost loop is ``last``."""

    loop: LoopRV
    block: BlockRV
    last: LoopRV


class CrossThreadReduction(ScheduleRule):
    """Binds part of a reduction to ``threadIdx.x``, and computes it inside its consumer where that is possible.

    Gives two schedules: the reduction shared by the threads of a block, and the original. The number of threads is
    sampled from ``thread_extents``. Before and after (64 threads)::

        for i, k in T.grid(128, 4096):             for i, ko in T.grid(128, 64):
            S[i] += A[i, k]                            for ki in T.thread_binding(64, "threadIdx.x"):
                                                           S[i] += A[i, ko * 64 + ki]
    """

    def __init__(self, thread_extents: Sequence[int]) -> None:
        if any(int(x) <= 0 for x in thread_extents):
            raise ValueError("The candidates of thread extent must be positive")
        self.thread_extents = [int(x) for x in thread_extents]
        self._max_threads = -1
        self._warp_size = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        attrs: Any = attrs_with_limits(context.target)
        if "max_threads_per_block" in attrs and "thread_warp_size" in attrs:
            self._max_threads = int(attrs["max_threads_per_block"])
            self._warp_size = int(attrs["thread_warp_size"])

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        if self._max_threads == -1 or self._warp_size == -1:
            return [sch]
        place = ba.enclosing(sch, sch.get(block))[1]
        if place.scope is None or not ba.needs_rfactor(place, self._max_threads):
            return [sch]
        trial = sch.copy()
        trial.seed(sch.fork_seed())
        target = self._target(trial, block)
        n = len(self.thread_extents)
        extent = trial.sample_categorical(candidates=self.thread_extents, probs=[1.0 / n] * n)
        if target is not None:
            loop = target.loop
            if not in_thread_scope(trial, target.block):
                outer, inner = trial.split(target.last, factors=[None, extent])
                trial.bind(inner, "threadIdx.x")
                if target.last is loop:
                    loop = outer
            else:
                # Another reduction has split the consumer already; both must use the same threads.
                extent = _thread_extent(trial)
            trial.compute_at(block, loop, preserve_unit_loops=True)
            trial.set_scope(block, 0, "shared")
        fused, _ = reorder_and_fuse_reduction(trial, block)
        _, threads = trial.split(fused, factors=[None, extent])
        trial.bind(threads, "threadIdx.x")
        return [trial, sch]

    def _target(self, sch: Schedule, block: BlockRV) -> _Target | None:
        """Where to compute the block, None where it has to stay."""
        if len(sch.get(block).writes) != 1:
            return None
        consumers = sch.get_consumers(block)
        if not consumers:
            return None
        places = [ba.enclosing(sch, sch.get(c))[1] for c in consumers]
        if ba.needs_multi_level_tiling(places[0]):
            return None
        shared = _shared_loop(places)
        if len(consumers) > 1 and shared is None:
            return None
        outer = sch.get_loops(consumers[0])
        position = _position(sch, block, sch.get_loops(block), outer, shared if len(consumers) > 1 else None)
        return _Target(outer[position], consumers[0], outer[-1]) if position >= 0 else None


def _thread_extent(sch: Schedule) -> int | ExprRV:
    """What the first loop bound to ``threadIdx.x`` was split by: a literal or a sampled variable of the trace."""
    assert sch.trace is not None
    for inst in sch.trace.insts:
        if inst.kind.name != "Bind" or inst.attrs[0] != "threadIdx.x":
            continue
        for split in sch.trace.insts:
            if split.kind.name == "Split" and inst.inputs[0] in split.outputs:
                return split.inputs[1 + list(split.outputs).index(inst.inputs[0])]
    raise ValueError('no loop with a known extent is bound to "threadIdx.x"')


def _shared_loop(places: list[ba.Place]) -> For | None:
    """The innermost loop around all the places."""
    found = None
    for level in zip(*(p.loops for p in places), strict=False):
        if any(loop is not level[0] for loop in level):
            break
        found = level[0]
    return found


def _position(sch: Schedule, block: BlockRV, own: list[LoopRV], outer: list[LoopRV], deepest: For | None) -> int:
    """How deep in the consumer's nest the block fits."""
    place = ba.enclosing(sch, sch.get(block))[1]
    for i, (mine, theirs) in enumerate(zip(own, outer, strict=False)):
        if ba.loop_type(place, sch.get(mine)) != IterVar.DataPar:
            return i - 1
        if sch.get(theirs) is deepest:
            return i
    return min(len(own), len(outer)) - 1
