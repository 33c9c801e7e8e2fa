"""Runners: from artifacts to seconds."""

from .local_runner import LocalRunner, LocalRunnerFuture
from .runner import (
    EvaluatorConfig, PyRunner, PyRunnerFuture, Runner, RunnerFuture, RunnerInput, RunnerResult,
)

create = Runner.create

__all__ = [
    "EvaluatorConfig", "LocalRunner", "LocalRunnerFuture", "PyRunner", "PyRunnerFuture", "Runner", "RunnerFuture",
    "RunnerInput", "RunnerResult", "create",
]
