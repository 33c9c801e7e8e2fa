"""Whole-function rules as instructions: a default schedule with chosen options becomes one step of a trace.

Rules live in upper layers, which register them in :data:`RULES` when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...function import PrimFunc
from ..errors import PrimitiveError
from ..instruction import plain, Argument, Output, Step
from ..state import ScheduleState

if TYPE_CHECKING:
    from ..protocol import Schedule

__all__ = ["RULES"]

RULES: dict[str, Callable[[PrimFunc, Mapping[str, Any]], PrimFunc | None]] = {}
"""Name to ``rule(func, options)``, which gives the scheduled function, or None if it does not fit."""


class ApplyRule(Step):
    """Replace the function by what a registered rule makes of it; variables taken before are lost."""

    rule: str
    options: Mapping[str, Argument]

    def run(self, sch: Schedule) -> Sequence[Output]:
        rule, options = str(plain(self.rule)), plain(self.options)
        if rule not in RULES:
            known = ", ".join(sorted(RULES)) or "none"
            raise PrimitiveError(f"there is no schedule rule {rule!r} (registered: {known})", [])
        var = sch.func_working_on
        if var is None:
            raise PrimitiveError("a rule needs a function to work on: call work_on first", [])
        made = RULES[rule](sch.mod[var], options)
        if made is None:
            raise PrimitiveError(f"the rule {rule!r} does not fit this function", [])
        module = sch.mod.clone()
        module.update_func(var, made)
        sch.replace_state(ScheduleState(module, debug_mask="none", enable_check=sch.state.enable_check))
        return []
