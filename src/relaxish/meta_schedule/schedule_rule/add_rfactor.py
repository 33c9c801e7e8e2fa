"""Parallel reductions: the fused reduction loop is split, and one of the two loops becomes data parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir import IterVar, Schedule
from ...tir.schedule import BlockRV, LoopRV, ScheduleError
from ..analysis import blocks as ba
from .schedule_rule import ScheduleRule, target_cores

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["AddRFactor", "reorder_and_fuse_reduction"]


def reorder_and_fuse_reduction(sch: Schedule, block: BlockRV) -> tuple[LoopRV, int]:
    """Move reduction loops innermost and fuse them; returns the fused loop and the number of other loops."""
    loops = sch.get_loops(block)
    place = ba.enclosing(sch, sch.get(block))[1]
    kinds = [ba.loop_type(place, sch.get(loop)) for loop in loops]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.DataPar]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.CommReduce]
    order = spatial + reduction
    if any(a is not b for a, b in zip(order, loops, strict=True)):
        sch.reorder(*order)
    fused = sch.fuse(*reduction) if len(reduction) > 1 else reduction[0]
    return fused, len(spatial)


class AddRFactor(ScheduleRule):
    """Gives up to three schedules of a reduction: the original, and ``rfactor`` by either loop of its split.

    A reduction is factored where there is too little data parallelism for ``max_jobs_per_core`` jobs on each core. Before
    and after (the outer loop factored)::

        for i, k in T.grid(2, 4096):       for i, ko, ki in T.grid(2, 16, 256): P[ko, i] += A[i, ko * 256 + ki]
            S[i] += A[i, k]                for i, ko in T.grid(2, 16): S[i] += P[ko, i]
    """

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: int | None = None) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self.max_innermost_factor = max_innermost_factor
        self._max_parallel_extent = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        if self.max_jobs_per_core != -1:
            self._max_parallel_extent = target_cores(context) * self.max_jobs_per_core

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        node = sch.get(block)
        place = ba.enclosing(sch, node)[1]
        if place.scope is None or not ba.needs_rfactor(place, self._max_parallel_extent):
            return [sch]
        original = sch.copy()
        original.seed(sch.fork_seed())
        fused, num_spatial = reorder_and_fuse_reduction(sch, block)
        limit = -1 if self.max_innermost_factor is None else self.max_innermost_factor
        factors = sch.sample_perfect_tile(fused, n=2, max_innermost_factor=limit)
        halves = sch.split(fused, factors=factors)
        results = []
        for half in halves:
            trial = sch.copy()
            trial.seed(sch.fork_seed())
            try:
                factored = trial.rfactor(half, num_spatial)
                trial.get_loops(factored)
                trial.annotate(block, "meta_schedule.random_compute_producer", 1)
            except ScheduleError:
                continue
            results.append(trial)
        return [*results, original]
