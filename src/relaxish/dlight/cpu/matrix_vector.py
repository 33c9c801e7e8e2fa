"""Products with one operand row: each output element is a dot product along contiguous memory."""

from __future__ import annotations

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from .facts import access_stride
from ..base import ScheduleRule
from .common import attempt, decompose, open_reduction, parallel_outer, work_of


class MatrixVector(ScheduleRule):
    """Reduction along the innermost axis of the larger operand: rows in parallel, vector sums inside."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        opened = open_reduction(func, target)
        if opened is None:
            return None
        sch, infos, anchor = opened
        if anchor.store is None or not anchor.spatial:
            return None
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
