"""A task found in a model."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import IRModule
from ..target import Target

__all__ = ["ExtractedTask"]


class ExtractedTask:
    """``dispatched`` are the modules to tune for ``mod``; ``weight`` counts its call sites."""

    def __init__(
        self, task_name: str, mod: IRModule, target: Target, dispatched: Sequence[IRModule], weight: int
    ) -> None:
        self.task_name = task_name
        self.mod = mod
        self.target = target
        self.dispatched = list(dispatched)
        self.weight = weight

    def __repr__(self) -> str:
        return f"ExtractedTask({self.task_name!r}, weight={self.weight}, target={self.target})"
