"""Inputs and results of measurements."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...meta_schedule.measure import MeasureStatus

__all__ = [
    "BuildResult", "Builder", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Runner", "error_number",
]  # fmt: skip


class MeasureInput(NamedTuple):
    """A configuration of a task for a target."""

    target: Any
    task: Any
    config: Any


class MeasureErrorNo(enum.IntEnum):
    """Outcome of a measurement in records."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


_NUMBERS = {
    MeasureStatus.OK: MeasureErrorNo.NO_ERROR,
    MeasureStatus.INSTANTIATION: MeasureErrorNo.INSTANTIATION_ERROR,
    MeasureStatus.SKIPPED: MeasureErrorNo.INSTANTIATION_ERROR,
    MeasureStatus.BUILD_TIMEOUT: MeasureErrorNo.BUILD_TIMEOUT,
    MeasureStatus.RUN_TIMEOUT: MeasureErrorNo.RUN_TIMEOUT,
    MeasureStatus.RUNTIME: MeasureErrorNo.RUNTIME_DEVICE,
    MeasureStatus.CRASH: MeasureErrorNo.RUNTIME_DEVICE,
    MeasureStatus.OUT_OF_MEMORY: MeasureErrorNo.RUNTIME_DEVICE,
    MeasureStatus.WRONG_ANSWER: MeasureErrorNo.WRONG_ANSWER,
}


def error_number(status: MeasureStatus, on_device: bool = False) -> MeasureErrorNo:
    """The number of a status; what a compiler refuses is told apart by where the code was to run.

    >>> error_number(MeasureStatus.COMPILE), error_number(MeasureStatus.COMPILE, on_device=True)
    (<MeasureErrorNo.COMPILE_HOST: 2>, <MeasureErrorNo.COMPILE_DEVICE: 3>)
    """
    if status is MeasureStatus.COMPILE:
        return MeasureErrorNo.COMPILE_DEVICE if on_device else MeasureErrorNo.COMPILE_HOST
    return _NUMBERS.get(status, MeasureErrorNo.UNKNOWN_ERROR)


class _Result(NamedTuple):
    costs: Any
    error_no: int
    all_cost: float
    timestamp: float


class MeasureResult(_Result):
    """``costs``: seconds of one run, a value for each repeat; where ``error_no`` is not 0, a text and the exception.

    ``all_cost`` is what building and measuring took in seconds, ``timestamp`` when it ended (seconds since the epoch).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        number: Any = self.error_no
        if isinstance(number, int) and number in set(MeasureErrorNo):
            number = f"MeasureErrorNo.{MeasureErrorNo(number).name}"
        return (
            f"{type(self).__name__}(costs={self.costs!r}, error_no={number}, all_cost={self.all_cost}, "
            f"timestamp={self.timestamp!r})"
        )


class BuildResult(NamedTuple):
    """Result of a builder: the file of the code (or the code as bytes), the arguments as ``(shape, dtype)``, or
    ``error``, a text and an exception; and the seconds it took."""

    filename: Any
    arg_info: Any
    error: Any
    time_cost: float


class Builder:
    """Builds configurations, ``n_parallel`` at a time, each for at most ``timeout`` seconds; define :meth:`build`."""

    def __init__(
        self, timeout: float = 10, n_parallel: int | None = None, build_kwargs: dict[str, Any] | None = None
    ) -> None:
        from ...meta_schedule.utils import cpu_count

        self.timeout = timeout
        self.n_parallel = n_parallel or cpu_count()
        self.user_build_kwargs = dict(build_kwargs or {})
        self.build_kwargs: dict[str, Any] = {}
        self.task: Any = None

    def set_task(self, task: Any, build_kwargs: dict[str, Any] | None = None) -> None:
        """The task whose configurations follow, and what the runner wants them built with."""
        self.task = task
        self.build_kwargs = {**(build_kwargs or {}), **self.user_build_kwargs}

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """One BuildResult for each input, or a MeasureResult where it failed."""
        raise NotImplementedError


class Runner:
    """Runs what was built, ``n_parallel`` at a time, each for at most ``timeout`` seconds; define :meth:`run`."""

    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        from ...meta_schedule.utils import cpu_count

        self.timeout = timeout
        self.n_parallel = n_parallel or cpu_count()
        self.task: Any = None

    def set_task(self, task: Any) -> Any:
        """The task whose configurations follow; gives objects that must live as long as it is measured."""
        self.task = task

    def get_build_kwargs(self) -> dict[str, Any]:
        """Facts of the device for the builder."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """One MeasureResult for each input."""
        raise NotImplementedError
