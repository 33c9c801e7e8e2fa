"""Products with one operand row: each output element is a dot product along contiguous memory."""

from __future__ import annotations

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from .facts import access_stride
from ..base import ScheduleRule
from .common import attempt, blocks_of, decompose, inline_injective, open_function, parallel_outer, refresh, work_of


class MatrixVector(ScheduleRule):
    """Reduction along the innermost axis of the larger operand: rows in parallel, vector sums inside."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if target.get_target_device_type() != 1:
            return None
        opened = open_function(func)
        if opened is None:
            return None
        sch, _ = opened
        sch = inline_injective(sch)
        infos = refresh(sch)
        if len(infos) != len(blocks_of(sch)):
            return None
        anchors = [info for info in infos if info.is_reduction]
        if len(anchors) != 1 or anchors[0].store is None or not anchors[0].spatial:
            return None
        anchor = anchors[0]
        inner = anchor.reductions[-1]
        loads = anchor.loads()
        if not loads or any(access_stride(load.indices, inner.var) == "other" for load in loads):
            return None
        if not any(access_stride(load.indices, inner.var) == "unit" for load in loads):
            return None
        at = infos.index(anchor)
        after = infos[at + 1 :]
        if len(after) > 1 or any(not info.is_injective for info in infos if info is not anchor):
            return None
        spatial = [it.loop for it in anchor.spatial]
        sch.reorder(*spatial, *[it.loop for it in anchor.reductions])
        fused = parallel_outer(sch, spatial, work_of(anchor), target.num_cores)
        if after and fused is not None:
            attempt(sch.reverse_compute_at, after[0].rv, fused, True)
        decompose(sch, anchor)
        return sch
