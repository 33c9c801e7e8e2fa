"""Binds the blocks that reach the end of scheduling without a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...target.limits import attrs_with_limits
from ...tir import PrimFunc, Schedule
from ..analysis import blocks as ba
from ..analysis.thread_binding import bind_block_thread_idx, thread_tag
from .postproc import Postproc

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram
    from ..task import Task

__all__ = ["RewriteUnboundBlock"]


class RewriteUnboundBlock(Postproc):
    """Binds every outermost block that lacks ``blockIdx`` or ``threadIdx``, with as many threads as a block may have."""

    def __init__(self, max_threadblocks: int = 256) -> None:
        self.max_threadblocks = max_threadblocks
        self._max_threads = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        attrs: Any = attrs_with_limits(context.target)
        if "max_threads_per_block" not in attrs:
            raise ValueError("missing attribute `max_threads_per_block` in the target")
        self._max_threads = int(attrs["max_threads_per_block"])

    def on_columns(self, program: ColumnProgram) -> bool:
        """A sketch that leaves a block unbound has no formulas."""
        return True

    def apply(self, sch: Schedule) -> bool:
        for gv, func in list(sch.mod.functions.items()):
            if not isinstance(func, PrimFunc):
                continue
            for name in self._unbound(func):
                bind_block_thread_idx(
                    sch,
                    sch.get_block(name, gv.name_hint),
                    self.max_threadblocks,
                    self._max_threads,
                    lambda limit: min(self._max_threads, limit),
                )
        return True

    @staticmethod
    def _unbound(func: PrimFunc) -> list[str]:
        places = ba.places(func)
        root = next((p.realize.block for p in places if p.scope is None), None)
        found = []
        for place in places:
            tags = [thread_tag(loop) for loop in place.loops]
            bound = all(any(t.startswith(kind) for t in tags) for kind in ("blockIdx", "threadIdx"))
            if place.scope is root and root is not None and not bound and not ba.in_tiles(place):
                found.append(place.realize.block.name_hint)
        return found
