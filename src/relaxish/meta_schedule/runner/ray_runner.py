"""Measuring on the machines of a Ray cluster: each candidate is a task that measures it as the local runner does."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any
from types import ModuleType

from ...support.errors import MissingExtraError
from ..measure.status import MeasureStatus
from .local_runner import LocalRunner
from .runner import EvaluatorConfig, Runner, RunnerFuture, RunnerInput, RunnerResult

__all__ = ["RayRunner"]


def _ray() -> ModuleType:
    """The package. Raises MissingExtraError where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray", "a measuring pool of kind ray") from None


def _measure(item: RunnerInput, config: EvaluatorConfig, timeout_sec: float) -> RunnerResult:
    """What runs in the cluster."""
    runner = LocalRunner(timeout_sec, config)
    try:
        return runner.run([item])[0].result()
    finally:
        runner.shutdown()


class RayRunner(Runner):
    """Candidates go to a cluster with machines of this kind on which relaxish is installed.

    ``address`` is that of the cluster (by default the one that Ray finds, else one of this machine alone). A task asks for
    ``num_cpus`` processors, and for a GPU where the candidate runs on one, so that no two disturb each other.

    Raises MissingExtraError where Ray is not installed.
    """

    def __init__(
        self,
        address: str | None = None,
        evaluator_config: EvaluatorConfig | None = None,
        timeout_sec: float = 30.0,
        num_cpus: float = 1,
    ) -> None:
        self._ray = _ray()
        self.evaluator_config = EvaluatorConfig._normalized(evaluator_config)
        self.timeout_sec = timeout_sec
        self.num_cpus = num_cpus
        if not self._ray.is_initialized():
            self._ray.init(address=address, ignore_reinit_error=True)
        self._task = self._ray.remote(_measure)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        futures = []
        for item in runner_inputs:
            task = self._task.options(num_cpus=self.num_cpus, num_gpus=int(item.device_type == "cuda"))
            reference = task.remote(item, self.evaluator_config, self.timeout_sec)
            futures.append(RunnerFuture(partial(self._is_done, reference), partial(self._result, reference)))
        return futures

    def _is_done(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _result(self, reference: Any) -> RunnerResult:
        try:
            found: RunnerResult = self._ray.get(reference)
        # Whatever goes wrong elsewhere is this candidate's result.
        except Exception as error:
            return RunnerResult(None, f"RayRunner: An exception occurred\n{error}", MeasureStatus.RUNTIME)
        return found
