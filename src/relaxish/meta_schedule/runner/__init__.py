"""Runners: from artifacts to seconds."""

from .local_runner import LocalRunner, LocalRunnerFuture
from .ray_runner import RayRunner
from .rpc_runner import RPCConfig, RPCRunner, RPCRunnerFuture
from .runner import (
    EvaluatorConfig,
    PyRunner,
    PyRunnerFuture,
    Runner,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)

create = Runner.create

__all__ = [
    "EvaluatorConfig",
    "LocalRunner",
    "LocalRunnerFuture",
    "PyRunner",
    "PyRunnerFuture",
    "RPCConfig",
    "RPCRunner",
    "RPCRunnerFuture",
    "RayRunner",
    "Runner",
    "RunnerFuture",
    "RunnerInput",
    "RunnerResult",
    "create",
]
