"""Runners: from artifacts to seconds."""

from typing import TYPE_CHECKING

from ...support.entry_points import lazy_package
from .local_runner import LocalRunner, LocalRunnerFuture
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

if TYPE_CHECKING:
    from ..distributed import RayRunner

create = Runner.create
__getattr__, __dir__ = lazy_package(globals())  # what stands on runners loads on first use

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
