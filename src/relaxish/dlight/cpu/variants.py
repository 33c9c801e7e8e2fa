"""The neighbours of a default schedule: other register tiles and loop orders, as traces that a database can keep.

A default schedule is a good guess; which of its neighbours is fastest on a machine takes a dozen measurements to find
out, where a search of the full space takes hundreds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...carver import Hint, recommend
from ...carver.cpu_hints import CpuTile
from ...ir.structural import structural_hash
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule, ScheduleError
from ...tir.schedule.primitives.rule import RULES
from .common import open_reduction
from .contraction import Contraction, group_axis, open_contraction

__all__ = ["apply_tile", "contraction_variants", "schedule_with_hint"]

RULE = "cpu.contraction"
_NUMBERS = ("lanes", "rows", "vectors", "order", "depth", "packed", "row_task", "lines")


def _apply(func: PrimFunc, options: Mapping[str, Any]) -> PrimFunc | None:
    numbers = {k: options[k] for k in _NUMBERS if k in options}
    schedule = Contraction(numbers, groups="together" not in options).apply(
        func, Target(dict(options["target"])), False
    )
    return None if schedule is None else schedule.mod["main"]


RULES[RULE] = _apply


def schedule_with_hint(func: PrimFunc, hint: Hint, target: Target) -> Schedule:
    """A matmul- or convolution-like function tiled as a hint for CPUs says, with a trace of one step.

    Raises ScheduleError where the hint is for a function of another kind.

    >>> from relaxish import carver, dlight, Target
    >>> target = Target("llvm")
    >>> product = carver.MatmulTemplate(M=64, N=64, K=64, trans_B=False, in_dtype="float32", out_dtype="float32", accum_dtype="float32")
    >>> func = product.equivalent_function()
    >>> sch = dlight.cpu.schedule_with_hint(func, carver.recommend(func, target, 1)[0], target)
    """
    opened = open_reduction(func, target)
    if opened is None:
        raise ScheduleError("hints for CPUs are for functions with one reduction, before they are scheduled")
    together = {"together": 1} if group_axis(opened[2]) is not None else {}
    return _tiled(func, CpuTile.of(hint, opened[2]), target, together)


def _tiled(func: PrimFunc, tile: CpuTile, target: Target, more: Mapping[str, Any] | None = None) -> Schedule:
    schedule = Schedule(func, error_render_level="none")
    apply_tile(schedule, {**{k: v for k, v in vars(tile).items() if k != "lanes"}, **(more or {})}, target)
    return schedule


def apply_tile(schedule: Schedule, numbers: Mapping[str, Any], target: Target) -> None:
    """Tile the matmul- or convolution-like function of a schedule by the numbers of a ``CpuTile``, in one step.

    Without ``lanes`` they are those that fit best. Raises ScheduleError where the function is of another kind.
    """
    given = {k: list(v) if k == "packed" else v for k, v in numbers.items() if v not in (0, ())}
    if given.get("lines") == 1:
        del given["lines"]
    schedule.apply_rule(RULE, {**given, "target": target.export()})


def contraction_variants(func: PrimFunc, target: Target, limit: int = 12, may_pack: bool = False) -> list[Schedule]:
    """Schedules of a matmul- or convolution-like function, the most promising first, each with a trace of one step.

    None are given for functions of another kind. ``may_pack``: operands may be copied into strips in the kernel; in
    models that is for constants only what is done anyway when the model is compiled.
    """
    opened = open_contraction(func, target)
    made: list[Schedule] = []
    seen: set[int] = set()
    if opened is None:
        return made
    for hint in recommend(opened[2], target, 4 * limit, may_pack=may_pack):
        try:
            schedule = _tiled(func, CpuTile.of(hint, opened[2]), target)
        except (ScheduleError, ValueError):
            continue
        # Orders are alike where there are few loops.
        key = structural_hash(schedule.mod)
        if key not in seen:
            seen.add(key)
            made.append(schedule)
        if len(made) == limit:
            break
    return made
