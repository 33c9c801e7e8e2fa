"""Runners: from artifacts to seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...support.entry_points import load
from ...target import Target
from ..arg_info import ArgInfo
from ..measure.status import MeasureStatus
from ..utils import MethodNotDefinedError

__all__ = ["EvaluatorConfig", "PyRunner", "PyRunnerFuture", "Runner", "RunnerFuture", "RunnerInput", "RunnerResult"]


class EvaluatorConfig(NamedTuple):
    """Repetitions of a measurement: ``repeat`` results, each of ``number`` runs or as many as fill ``min_repeat_ms``."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False

    @staticmethod
    def _normalized(config: EvaluatorConfig | None) -> EvaluatorConfig:
        return EvaluatorConfig() if config is None else EvaluatorConfig(*config)


@dataclass
class RunnerInput:
    """An artifact, the device to run on, and its arguments."""

    artifact_path: str | bytes
    device_type: str
    args_info: list[ArgInfo]


@dataclass
class RunnerResult:
    """Seconds per run, one for each repeat, or the reason there are none.

    ``status`` is the kind of that reason, ``RUNTIME`` where only a text is given; ``seconds`` what measuring took in
    all.
    """

    run_secs: list[float] | None
    error_msg: str | None = None
    status: MeasureStatus | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        if self.status is None:
            self.status = MeasureStatus.RUNTIME if self.error_msg else MeasureStatus.OK


class RunnerFuture:
    """A result that will be there later; made from two functions, or by subclassing."""

    def __init__(
        self, f_done: Callable[[], bool] | None = None, f_result: Callable[[], RunnerResult] | None = None
    ) -> None:
        self._f_done = f_done
        self._f_result = f_result

    def done(self) -> bool:
        """Whether the result is there."""
        assert self._f_done is not None
        return self._f_done()

    def result(self) -> RunnerResult:
        """Wait for the result."""
        assert self._f_result is not None
        return self._f_result()

    def on_done(self, callback: Callable[[RunnerResult], None]) -> bool:
        """Have ``callback(result)`` called the moment the result is there, in any thread; False if that cannot be."""
        return False


PyRunnerFuture = RunnerFuture


class Runner:
    """Subclass and define ``run(inputs) -> futures``."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Start measuring a batch."""
        raise MethodNotDefinedError(self, "run")

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Runner:
        """``local`` (which takes no notice of ``max_workers``), ``rpc`` or ``ray``."""
        if kind == "local":
            from .local_runner import LocalRunner

            kwargs.pop("max_workers", None)
            return LocalRunner(*args, **kwargs)
        if kind == "rpc":
            from .rpc_runner import RPCRunner

            return RPCRunner(*args, **kwargs)
        if kind == "ray":
            made: Runner = load("runner.ray")(*args, **kwargs)
            return made
        raise ValueError(f"unknown runner {kind!r}; expected 'local', 'rpc' or 'ray'")

    @staticmethod
    def for_target(target: Target | str | dict[str, Any]) -> Runner:
        """The runner that the measuring pools of a target ask for; of several, candidates find theirs by their device."""
        from ...target import Target
        from .pools import runner_for_target

        return runner_for_target(Target(target))


PyRunner = Runner
