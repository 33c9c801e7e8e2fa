"""One tuning task as its parts see it: what is tuned, for which device, with how many threads and which seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from logging import Logger

from ..ir import IRModule
from ..target import Target
from .logging import get_logger
from .utils import cpu_count, fork_seed, rand_seed

__all__ = ["Task"]


@dataclass(eq=False)
class Task:
    """Rules, postprocs, mutators, cost models and feature extractors are told of it; it knows none of them.

    >>> task = Task(rand_state=42)
    >>> task.fork_seed() != task.fork_seed()
    True
    """

    mod: IRModule | None = None
    target: Target | None = None
    task_name: str = "main"
    rand_state: int = field(default_factory=lambda: rand_seed(-1))
    num_threads: int = field(default_factory=lambda: cpu_count(logical=False))
    logger: Logger = field(default_factory=lambda: get_logger("tune_context"))

    def fork_seed(self) -> int:
        """A seed for an independent stream; advances this task's own state."""
        seed, self.rand_state = fork_seed(self.rand_state, 2)
        return seed
