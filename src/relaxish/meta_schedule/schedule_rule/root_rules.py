"""Rules about whole functions and about where producers are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...tir import Schedule
from ...tir.schedule import BlockRV
from ..analysis import blocks as ba
from .schedule_rule import ScheduleRule, target_cores

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["ParallelizeVectorizeUnroll", "RandomComputeLocation"]


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Annotates the root block with limits for parallel and vector loops and a sampled unroll depth.

    The postproc ``RewriteParallelVectorizeUnroll`` turns the annotations into loop kinds: at most
    ``max_jobs_per_core * cores`` parallel iterations, vectors of at most ``max_vectorize_extent`` lanes, and unrolling up
    to one of ``unroll_max_steps``.
    """

    def __init__(
        self,
        max_jobs_per_core: int = 16,
        max_vectorize_extent: int = 16,
        unroll_max_steps: Sequence[int] | None = None,
        unroll_explicit: bool = True,
    ) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self.max_vectorize_extent = max_vectorize_extent
        self.unroll_max_steps = [] if unroll_max_steps is None else list(unroll_max_steps)
        self.unroll_explicit = unroll_explicit
        self._max_parallel_extent = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        if self.max_jobs_per_core != -1:
            self._max_parallel_extent = target_cores(context) * self.max_jobs_per_core

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        func, place = ba.enclosing(sch, sch.get(block))
        if place.scope is not None:
            return [sch]
        if self.max_jobs_per_core != -1:
            sch.annotate(block, "meta_schedule.parallel", self._max_parallel_extent)
        if self.max_vectorize_extent != -1:
            sch.annotate(block, "meta_schedule.vectorize", self.max_vectorize_extent)
        if self.unroll_max_steps and not ba.is_spatial_function(func):
            n = len(self.unroll_max_steps)
            step = sch.sample_categorical(candidates=self.unroll_max_steps, probs=[1.0 / n] * n)
            kind = "explicit" if self.unroll_explicit else "implicit"
            sch.annotate(block, f"meta_schedule.unroll_{kind}", step)
        return [sch]


class RandomComputeLocation(ScheduleRule):
    """Samples the loop of its consumers at which a block is computed (``sample_compute_location``).

    Applies to blocks outside of the root that have consumers and are not tiled; others stay where they are.
    """

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        if not self._applies(sch, block):
            return [sch]
        producers: list[BlockRV] = []
        if ba.annotation(sch.get(block), "meta_schedule.random_compute_producer"):
            # Asked for now: the block itself may be inlined below, and with it the way to its producer.
            producers = sch.get_producers(block)
            sch.unannotate(block, "meta_schedule.random_compute_producer")
            if len(producers) != 1:
                raise ValueError("a block with sampled producer location must have exactly one producer")
        for moved in [block, *producers]:
            sch.compute_at(moved, sch.sample_compute_location(moved), preserve_unit_loops=True)
        return [sch]

    @staticmethod
    def _applies(sch: Schedule, block_rv: BlockRV) -> bool:
        block = sch.get(block_rv)
        func, place = ba.enclosing(sch, block)
        if place.scope is None or not place.loops:
            return False
        root = next(p for p in ba.places(func) if p.scope is None)
        if place.scope is not root.realize.block or len(ba.blocks_in(place.loops[0])) > 1:
            return False
        return not ba.has_been_tiled(block) and bool(ba.consumers(sch, block_rv))
