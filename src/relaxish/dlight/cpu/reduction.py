"""Rows reduced along their contiguous axis: softmax, layer norm, sums, means; also chains of them."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from .facts import BlockInfo
from ..base import ScheduleRule
from .common import attempt, blocks_of, decompose, inline_injective, open_function, parallel_outer, refresh, work_of


class RowReduction(ScheduleRule):
    """All stages of a chain in one parallel loop over rows, so that a row stays in the first cache.

    The loops over the row itself stay serial: code generation makes vectors of them, whatever their extent.
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if target.get_target_device_type() != 1:
            return None
        opened = open_function(func)
        if opened is None:
            return None
        sch, _ = opened
        sch = inline_injective(sch, keep_conditional_for_reductions=False)
        infos = refresh(sch)
        if len(infos) != len(blocks_of(sch)) or not any(info.is_reduction for info in infos):
            return None
        last = infos[-1]
        shared = _shared_rows(infos)
        if not shared:
            return None
        if len({info.rv for info in infos}) > 1 and not last.spatial:
            return None
        for info in infos:
            if info.reductions and not all(it.kind in "SR" for it in info.iters):
                return None
        loops = [it.loop for it in last.spatial[:shared]]
        if last.is_reduction:
            sch.reorder(*[it.loop for it in last.spatial], *[it.loop for it in last.reductions])
        works = [work_of(info) for info in infos]
        work = None if any(w is None for w in works) else sum(w or 0 for w in works)
        row = parallel_outer(sch, loops, work, target.num_cores)
        for info in reversed(infos[:-1]):
            if not attempt(sch.compute_at, info.rv, row, True):
                return None
        for info in infos:
            decompose(sch, info)
        return sch


def _shared_rows(infos: list[BlockInfo]) -> int:
    """How many leading spatial axes all stages agree on."""
    count = 0
    while True:
        extents: list[Any] = []
        for info in infos:
            spatial = info.spatial
            if count >= len(spatial):
                return count
            extents.append(spatial[count].dom if spatial[count].dom is not None else str(spatial[count].extent))
        reducing = [info for info in infos if info.is_reduction]
        # The axis along which an elementwise stage runs inside a row is not one of the rows.
        if len(set(extents)) != 1 or any(count >= len(info.spatial) for info in reducing):
            return count
        count += 1
        if count >= min(len(info.spatial) for info in reducing):
            return count
