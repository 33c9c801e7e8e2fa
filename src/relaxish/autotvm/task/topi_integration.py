"""Templates of two parts: what is computed, and how it is scheduled, registered under one name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ... import te
from ...target import Target
from ...te.schedule import Schedule
from ...te.tensor import Tensor
from .dispatcher import DispatchContext
from .task import args_to_workload, entry, taken

__all__ = ["TaskExtractEnv", "get_workload", "register_topi_compute", "register_topi_schedule"]


class TaskExtractEnv:
    """Remembers the tasks of all computations that are made in its scope."""

    current: ClassVar[Any] = None

    def __init__(self, allow_duplicate: bool = False) -> None:
        self.allow_duplicate = allow_duplicate
        self.task_collection: list[tuple[str, tuple[Any, ...]]] = []
        self.wanted_relay_ops: list[Any] | None = None
        self.tracing = False

    def __enter__(self) -> TaskExtractEnv:
        self.task_collection = []
        self.tracing = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.tracing = False

    def reset(self, wanted_relay_ops: Sequence[Any] | None = None) -> None:
        """Forget what was found; say which operators are wanted."""
        self.task_collection = []
        self.wanted_relay_ops = None if wanted_relay_ops is None else list(wanted_relay_ops)

    def add_task(self, task_name: str, args: Sequence[Any]) -> None:
        """Note a task, once unless duplicates are allowed."""
        from .task import serialize_args

        key = (task_name, serialize_args(args))
        if self.allow_duplicate or key not in self.task_collection:
            self.task_collection.append(key)

    def get_tasks(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Names and plain arguments of the tasks found."""
        return self.task_collection

    @staticmethod
    def get(allow_duplicate: bool = False) -> TaskExtractEnv:
        """The environment of this process."""
        if TaskExtractEnv.current is None:
            TaskExtractEnv.current = TaskExtractEnv(allow_duplicate)
        TaskExtractEnv.current.allow_duplicate = allow_duplicate
        found: TaskExtractEnv = TaskExtractEnv.current
        return found


def register_topi_compute(task_name: str, func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorate ``f(cfg, *args) -> tensor``; the wrapper takes only ``args`` and finds the configuration itself."""

    def decorate(compute: Callable[..., Any]) -> Callable[..., Any]:
        known = entry(task_name)
        if known.fcompute is not None or known.fcustomized is not None:
            raise taken(task_name, "the computation")

        @functools.wraps(compute)
        def wrapper(*args: Any, **kwargs: Any) -> Tensor:
            if kwargs:
                raise TypeError("Do not support kwargs in template function call; pass all arguments by position")
            env = TaskExtractEnv.current
            if env is not None and env.tracing:
                env.add_task(task_name, args)
            workload = args_to_workload(args, task_name)
            cfg = DispatchContext.current.query(Target.current(allow_none=True), workload)
            made = compute(cfg, *args)
            first = made[0] if isinstance(made, (list, tuple)) else made
            first.op.attrs["workload"] = workload  # where the schedule finds it
            return made

        known.fcompute = wrapper
        return wrapper

    return decorate(func) if func is not None else decorate


def register_topi_schedule(task_name: str, func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorate ``f(cfg, outs) -> schedule``; the wrapper takes only ``outs``."""

    def decorate(schedule: Callable[..., Any]) -> Callable[..., Any]:
        known = entry(task_name)
        if known.fschedule is not None or known.fcustomized is not None:
            raise taken(task_name, "the schedule")

        @functools.wraps(schedule)
        def wrapper(outs: Sequence[Tensor], *args: Any, **kwargs: Any) -> Schedule:
            workload = get_workload(outs, task_name)
            if workload is None:
                raise RuntimeError(f"Cannot find workload in attribute of this schedule: {task_name}")
            cfg = DispatchContext.current.query(Target.current(allow_none=True), workload)
            return schedule(cfg, outs, *args, **kwargs)

        known.fschedule = wrapper
        return wrapper

    return decorate(func) if func is not None else decorate


def get_workload(outs: Sequence[Tensor], task_name: str | None = None) -> tuple[Any, ...] | None:
    """The workload of the tuned computation that outputs come from; None if there is none (of that name)."""
    from ...te.graph import post_order

    tensors = [outs] if isinstance(outs, te.Tensor) else list(outs)
    for op in post_order([t.op for t in tensors]):
        workload = op.attrs.get("workload")
        if workload is not None and task_name in (None, workload[0]):
            return workload
    return None
