"""What the GPU rules share: when they apply, and the request to unroll."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir import ForKind, PrimFunc
from ...tir.schedule import Schedule
from ..base import ScheduleRule

__all__ = ["GPUScheduleRule", "bind_plainly", "compute_capability", "unroll_explicitly"]


class GPUScheduleRule(ScheduleRule):
    """A rule for targets with GPU threads."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the target is a GPU."""
        return "gpu" in target.keys

    def fits(self, func: Any, target: Target) -> bool:
        """Whether ``func`` is a tensor program and the target a GPU."""
        return isinstance(func, PrimFunc) and self.is_target_available(target)


def compute_capability(target: Target) -> int:
    """80 for ``sm_80``; 0 for a target that does not say."""
    digits = "".join(ch for ch in str(target.attrs.get("arch", "")) if ch.isdigit())
    return int(digits or 0)


def unroll_explicitly(sch: Schedule, loop: Any, depth: int) -> None:
    """Ask the code generator to unroll what is inside ``loop`` up to ``depth`` steps."""
    sch.annotate(loop, ann_key="pragma_auto_unroll_max_step", ann_val=depth)
    sch.annotate(loop, ann_key="pragma_unroll_explicit", ann_val=1)


def bind_plainly(sch: Schedule, rv: Any, threads: int) -> None:
    """Give a block that stayed outside the product one thread a point."""
    loops = sch.get_loops(rv)
    if not loops or any(sch.get(loop).kind != ForKind.SERIAL for loop in loops):
        return
    bx, tx = sch.split(sch.fuse(*loops), factors=[None, threads])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
