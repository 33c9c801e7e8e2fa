"""What is measured and what comes out, and batches of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...meta_schedule.measure import MeasureStatus

__all__ = [
    "BuildResult", "Builder", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Runner", "create_measure_batch",
    "error_number", "measure_option",
]  # fmt: skip


class MeasureInput(NamedTuple):
    """A configuration of a task for a target."""

    target: Any
    task: Any
    config: Any


class MeasureErrorNo(enum.IntEnum):
    """How a measurement ended, as records say it."""

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
    """What a builder made: the file of the code (or the code as bytes), the arguments as ``(shape, dtype)``, or
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
        """What the builder has to know of the device."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """One MeasureResult for each input."""
        raise NotImplementedError


def measure_option(builder: Builder | str, runner: Runner | str) -> dict[str, Any]:
    """How to measure: ``tuner.tune(measure_option=...)``. ``"local"`` stands for LocalBuilder() and LocalRunner().

    Raises ValueError for another word.
    """
    from .measure_methods import LocalBuilder, LocalRunner

    if isinstance(builder, str):
        if builder != "local":
            raise ValueError(f"Invalid builder: {builder}; write 'local' or give a LocalBuilder(...)")
        builder = LocalBuilder()
    if isinstance(runner, str):
        if runner != "local":
            raise ValueError(f"Invalid runner: {runner}; write 'local', or give a LocalRunner(...) or RPCRunner(...)")
        runner = LocalRunner()
    return {"builder": builder, "runner": runner}


def create_measure_batch(task: Any, option: dict[str, Any]) -> Callable[[Sequence[MeasureInput]], list[MeasureResult]]:
    """A function from a list of MeasureInput to a list of MeasureResult.

    Its ``n_parallel`` is how many inputs are best given at a time; ``attach_objects`` is kept alive by it. Builders and
    runners of this package share one measuring engine, others are asked in turn.
    """
    from .measure_methods import EngineBuilder, EngineRunner, measure_with_engine

    builder, runner = option["builder"], option["runner"]
    attach_objects = runner.set_task(task)
    builder.set_task(task, runner.get_build_kwargs())
    for part in (builder, runner):
        if isinstance(part, (EngineBuilder, EngineRunner)):
            part.prepare()

    def measure_batch(measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        if isinstance(builder, EngineBuilder) and isinstance(runner, EngineRunner) and _untouched(builder, runner):
            return measure_with_engine(builder, runner, measure_inputs)
        return list(runner.run(measure_inputs, builder.build(measure_inputs)))

    measure_batch.n_parallel = builder.n_parallel  # type: ignore[attr-defined]
    measure_batch.attach_objects = attach_objects  # type: ignore[attr-defined]
    return measure_batch


def _untouched(builder: Any, runner: Any) -> bool:
    """Whether neither class was given another way to build or run by somebody else."""
    from .measure_methods import EngineBuilder, EngineRunner

    return type(builder).build is EngineBuilder.build and type(runner).run is EngineRunner.run
