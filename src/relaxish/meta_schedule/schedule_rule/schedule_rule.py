"""The base of schedule rules: a rule looks at one block and returns the schedules it makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.entry_points import load
from ...tir import Schedule
from ...tir.schedule import BlockRV
from ..utils import MethodNotDefinedError, Part

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["PyScheduleRule", "ScheduleRule"]


class ScheduleRule(Part["Task"]):
    """Subclass and define ``apply(sch, block) -> [schedules]``; returning ``[sch]`` leaves the block alone."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """The schedules this rule makes of one block."""
        raise MethodNotDefinedError(self, "apply")

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """The default rules of ``llvm``, ``cuda``, ``cuda-tensorcore``, ``hexagon``, ``vnni``, ``avx512``, ..."""
        made: list[ScheduleRule] = load("tuning.rules")(kind)
        return made

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({shown})"


PyScheduleRule = ScheduleRule


def target_cores(context: Task | None) -> int:
    """Cores of the context's target, else of this machine."""
    from ..utils import cpu_count

    attrs = context.target.attrs if context is not None and context.target is not None else {}
    cores = attrs.get("num-cores")
    return int(cores) if cores else cpu_count(logical=False)
