"""Binds what no other rule has bound to blocks and threads of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...target.limits import attrs_with_limits
from ...tir import Schedule
from ...tir.schedule import BlockRV
from ..analysis.thread_binding import THREAD_EXTENTS, bind_block_thread_idx, factor_sampler
from .schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["AutoBind"]


class AutoBind(ScheduleRule):
    """Fuses the outer data-parallel loops of a block that is not bound to threads yet, and binds them.

    The number of threads is sampled from ``thread_extents``. Before and after::

        for i, j in T.grid(64, 64): ...      for x in T.thread_binding(16, "blockIdx.x"):
                                                 for y in T.thread_binding(256, "threadIdx.x"): ...
    """

    def __init__(
        self, max_threadblocks: int = 256, thread_extents: Sequence[int] | None = None, max_threads_per_block: int = -1
    ) -> None:
        self.max_threadblocks = max_threadblocks
        self.thread_extents = list(THREAD_EXTENTS if thread_extents is None else thread_extents)
        self.max_threads_per_block = max_threads_per_block

    def _initialize_with_tune_context(self, context: Task) -> None:
        if self.max_threads_per_block == -1:
            attrs = attrs_with_limits(context.target)
            if "max_threads_per_block" not in attrs:
                raise ValueError("missing attribute `max_threads_per_block` in the target")
            self.max_threads_per_block = int(attrs["max_threads_per_block"])

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        factor = factor_sampler(sch, self.thread_extents)
        bind_block_thread_idx(sch, block, self.max_threadblocks, self.max_threads_per_block, factor)
        return [sch]
