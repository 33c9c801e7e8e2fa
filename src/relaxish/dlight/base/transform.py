"""The pass that gives every function the schedule of the first rule that fits."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule, functions_of
from ...ir.transform import Pass, PassContext, PassInfo
from ...support.errors import ScheduleError
from ...support.log import get_logger
from ...target import Target
from ...tir import BlockRealize, PrimFunc
from ...tir.transform.numerics.empty_reductions import fill_empty_reductions, has_empty_loop
from ...tir.transform.numerics.exact_extremes import exact_extremes
from ...tir.transform.simplify.shape_arithmetic import simplify_shape_arithmetic
from ...tir.transform.simplify.named_sizes import name_sizes
from .schedule_rule import ScheduleRule

_LOG = get_logger("dlight")


def is_scheduled(func: PrimFunc) -> bool:
    """Whether a function already carries its schedule."""
    return bool((func.attrs or {}).get("tir.is_scheduled", False))


def schedulable(func: PrimFunc) -> bool:
    """Whether there are blocks to schedule; host helpers such as shape functions are plain statements."""
    body = func.body
    rooted = isinstance(body, BlockRealize) and body.block.name_hint == "root"
    return rooted and not (func.attrs or {}).get("tir.is_host_func", False)


class ApplyDefaultSchedule(Pass):
    """Schedule every PrimFunc that has no schedule yet with the first rule that fits.

    The target is the function's own ``target`` attribute or the current one. A function that gets a schedule is
    marked ``tir.is_scheduled``; one that no rule takes stays as it is, and so does one whose loops have no steps.
    Reductions over nothing become what they leave, their start, before.

    With ``simplify_shapes`` the rules see offsets in arrays of unknown shape in their simplest form, so that what a
    reshape made can be inlined like any other copy.
    """

    def __init__(self, *rules: ScheduleRule, simplify_shapes: bool = False) -> None:
        super().__init__(PassInfo(0, "ApplyDefaultSchedule"))
        self.rules = rules
        self.simplify_shapes = simplify_shapes

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Schedule the functions of ``mod``."""
        updates: dict[Any, Any] = {}
        for gvar, func in functions_of(mod, PrimFunc):
            if is_scheduled(func) or not schedulable(func):
                continue
            if has_empty_loop(func):
                func = fill_empty_reductions(exact_extremes(func))
                if has_empty_loop(func):
                    continue  # there is nothing to do, hence nothing to schedule
            attrs = func.attrs or {}
            target: Any = attrs.get("target") or Target.current(allow_none=False)
            scheduled = self._apply(gvar.name_hint, func, Target(target))
            if scheduled is not None:
                updates[gvar] = scheduled
        if not updates:
            return mod
        result = mod.clone() if hasattr(mod, "clone") else IRModule(dict(mod.functions), mod.attrs, mod.global_infos)
        for gvar, func in updates.items():
            result.update_func(gvar, func)
        return result

    def _apply(self, name: str, func: PrimFunc, target: Target) -> PrimFunc | None:
        if self.simplify_shapes:
            func = simplify_shape_arithmetic(func)
        # Rules for other devices keep the sizes as they are written.
        sizes = name_sizes(func) if self.simplify_shapes and target.get_target_device_type() == 1 else None
        func = func if sizes is None else sizes.func
        for rule in self.rules:
            try:
                space = rule.apply(func, target, False)
            except ScheduleError as error:
                # Another rule, at the latest the fallback, makes a slower kernel; none would leave the model unbuilt.
                _LOG.warning("%s does not fit %s after all: %s", type(rule).__name__, name, error)
                continue
            if space is None:
                continue
            schedule = space[0] if isinstance(space, list) else space
            _LOG.debug("%s: %s", name, type(rule).__name__)
            made = schedule.mod["main"]
            if sizes is not None:
                made = sizes.restore(made)
            return made.with_attr("tir.is_scheduled", True)
        return None
