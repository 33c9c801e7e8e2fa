"""The interface of a rule that schedules a function without search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule


class ScheduleRule:
    """One way to schedule a PrimFunc: ``apply`` gives a schedule, several (when tunable), or None for "not mine"."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | list[Schedule] | None:
        """Schedule ``func`` for ``target``; None when the rule does not fit."""
        raise NotImplementedError

    @staticmethod
    def from_callable(name: str) -> Callable[[Callable[[PrimFunc, Target, bool], Any]], ScheduleRule]:
        """Decorator that turns ``f(func, target, tunable)`` into a rule called ``name``."""

        def make(function: Callable[[PrimFunc, Target, bool], Any]) -> ScheduleRule:
            class Rule(ScheduleRule):
                def apply(self, func: PrimFunc, target: Target, tunable: bool) -> None:
                    return function(func, target, tunable)

                def __reduce__(self) -> str:
                    return name

            Rule.__name__ = Rule.__qualname__ = name
            return Rule()

        return make
