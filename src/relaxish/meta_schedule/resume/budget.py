"""Tuning against the clock: which tasks are worth it, and a scheduler that stops in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from ..task_scheduler import GradientBased

__all__ = ["TimeBudget", "worthwhile"]

T = TypeVar("T")


class TimeBudget(GradientBased):
    """The gradient scheduler, which starts no further round once ``seconds`` have passed since the first one."""

    def __init__(self, seconds: float, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        super().__init__(alpha=alpha, window_size=window_size, seed=seed)
        self.seconds = seconds
        self.started: float | None = None

    def next_task_id(self) -> int:
        """The next task by expected gain, -1 when the time is up."""
        now = time.monotonic()
        if self.started is None:
            self.started = now
        return -1 if now - self.started >= self.seconds else super().next_task_id()


def worthwhile(tasks: Sequence[T], costs: Sequence[float], share: float = 0.95) -> list[T]:
    """The costliest tasks that together make up ``share`` of the total cost, costliest first.

    >>> worthwhile(["conv", "softmax", "dense"], [80.0, 1.0, 19.0])
    ['conv', 'dense']
    """
    total = sum(costs)
    chosen: list[T] = []
    spent = 0.0
    for cost, index in sorted(((c, i) for i, c in enumerate(costs)), key=lambda x: (-x[0], x[1])):
        if chosen and spent >= share * total:
            break
        chosen.append(tasks[index])
        spent += cost
    return chosen
