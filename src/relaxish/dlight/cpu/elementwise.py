"""Elementwise functions, and whatever no other rule takes."""

from __future__ import annotations


from ...carver.block_facts import BlockInfo
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ..base import ScheduleRule
from .contraction import best_hint, tile_block
from .common import (
    attempt, decompose, inline_injective, open_function, parallel_outer, refresh, schedule_elementwise, work_of,
)  # fmt: skip
from .facts import vector_axis


def _is_cpu(target: Target) -> bool:
    return target.get_target_device_type() == 1


class Elementwise(ScheduleRule):
    """Functions without reductions: inline the stages, run rows in parallel, vectors along the last axis."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not _is_cpu(target):
            return None
        opened = open_function(func)
        if opened is None:
            return None
        sch, infos = opened
        if not all(info.is_injective for info in infos):
            return None
        sch = inline_injective(sch)
        for info in refresh(sch):
            schedule_elementwise(sch, info, target)
        return sch


class Fallback(ScheduleRule):
    """Every block on its own: outer spatial loops in parallel, reductions decomposed from their start values."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not _is_cpu(target):
            return None
        sch = Schedule(func)
        if not attempt(lambda: sch.get_block("root")):
            return None
        sch = inline_injective(sch)
        for info in refresh(sch):
            attempt(self._one, sch, info, target)
        return sch

    @staticmethod
    def _one(sch: Schedule, info: BlockInfo, target: Target) -> None:
        if info.is_injective:
            schedule_elementwise(sch, info, target)
            return
        vector = vector_axis(info) if info.reductions else None
        if vector is not None and vector.multiple >= 4:
            tile_block(sch, info, vector, None, target, best_hint(sch, info, target, may_pack=False))
            return
        spatial = [it.loop for it in info.spatial]
        if not spatial and all(it.kind == "R" for it in info.iters):
            decompose(sch, info)
        if spatial and all(it.kind in "SR" for it in info.iters) and info.reductions:
            sch.reorder(*spatial, *[it.loop for it in info.reductions])
            # The innermost axis stays a loop of its own: taking a fused index apart costs divisions.
            parallel_outer(sch, spatial[:-1] if len(spatial) > 1 else spatial, work_of(info), target.num_cores)
            decompose(sch, info)
