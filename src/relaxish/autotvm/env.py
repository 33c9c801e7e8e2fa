"""Switches that all of AutoTVM shares."""

from __future__ import annotations

__all__ = ["GLOBAL_SCOPE", "AutotvmGlobalScope"]


class AutotvmGlobalScope:
    """``in_tuning``: templates are instantiated to be measured; ``silent``: no warnings about missing records."""

    current: AutotvmGlobalScope | None = None

    def __init__(self) -> None:
        self.in_tuning = False
        self.silent = False
        AutotvmGlobalScope.current = self

    def deep_copy(self, global_scope: AutotvmGlobalScope) -> None:
        """Take over the switches of another scope (a worker takes those of the process that started it)."""
        self.in_tuning = global_scope.in_tuning
        self.silent = global_scope.silent


GLOBAL_SCOPE = AutotvmGlobalScope()
