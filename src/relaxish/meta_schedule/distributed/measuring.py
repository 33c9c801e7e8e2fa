"""Worker processes on the machines of a cluster: they measure on one device, or build."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ir import IRModule
from ...support.workers import WorkerPool
from ...target import Target
from ..arg_info import ArgInfo
from ..builder.builder import BuilderResult
from ..builder.local_builder import _build_in_worker, result_of_build
from ..database.database import hardware_fingerprint
from ..runner.local_runner import LocalRunner
from ..runner.runner import EvaluatorConfig, RunnerInput
from ..utils import PRELOAD
from .dispatcher import Measurement

__all__ = ["MeasuringProcess", "ReferenceKernel", "build_candidate", "pin"]

_RUNS = 5
_START = 300.0


def pin(number: int, count: int) -> list[int]:
    """Keep this process, and those it starts, on the ``number``-th group of ``count`` cores, counted from the last; the
    cores it may use now. Where there are not so many it may use all that it could."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    there = sorted(os.sched_getaffinity(0))
    mine = there[max(0, len(there) - (number + 1) * count) : len(there) - number * count]
    if len(mine) == count:
        os.sched_setaffinity(0, mine)
    return sorted(os.sched_getaffinity(0))


class ReferenceKernel:
    """A piece of work whose time is known: what it takes now over the least it ever took says how quiet the machine is."""

    def __init__(self) -> None:
        self._data = np.linspace(1.0, 2.0, 1 << 14)
        self._out = np.empty_like(self._data)
        self.best = float("inf")
        for _ in range(20):
            self.ratio()

    def ratio(self) -> float:
        """At least 1; 1.25 says that it took a quarter longer than ever before. About half a millisecond."""
        began = time.perf_counter()
        for _ in range(_RUNS):
            np.sqrt(self._data, out=self._out)
            np.multiply(self._out, self._data, out=self._out)
            np.divide(self._out, self._data, out=self._out)
        took = time.perf_counter() - began
        self.best = min(self.best, took)
        return took / self.best


class MeasuringProcess:
    """The actor of one device: pinned, measuring one program at a time in a child process that may crash.

    It is the ``number``-th of its machine, with so many ``cores``; programs for GPUs run on the one that Ray gave it.
    """

    def __init__(self, number: int, cores: int, timeout_sec: float) -> None:
        self.cores = pin(number, cores)
        self.timeout_sec = timeout_sec
        self.reference = ReferenceKernel()
        self.runner = LocalRunner(timeout_sec, num_threads=cores)
        # Started now: the time limit of the first candidate is not for that.
        self.runner.pool.submit(os.getpid, timeout_sec=_START).result()

    def describe(self) -> dict[str, Any]:
        """Description of the device for the pool."""
        return {"fingerprint": hardware_fingerprint(), "cores": self.cores, "pid": os.getpid()}

    def measure(
        self, artifact: bytes, device_type: str, args_info: list[ArgInfo], config: tuple[Any, ...]
    ) -> Measurement:
        """Time a program, with the reference kernel before and after it."""
        before = self.reference.ratio()
        self.runner.evaluator_config = EvaluatorConfig(*config)
        result = self.runner.run([RunnerInput(artifact, device_type, args_info)])[0].result()
        return Measurement(result, max(before, self.reference.ratio()))


_BUILDERS: list[WorkerPool] = []


def build_candidate(
    mod: IRModule, target: Target, params: Mapping[str, Any] | None, timeout_sec: float, provider: str
) -> tuple[BuilderResult, str | bytes | None]:
    """Build in a child process of this worker, which is kept for the next program: the result without its artifact, and
    the artifact. A crash or hang of the compiler is a result, too."""
    if not _BUILDERS:
        _BUILDERS.append(WorkerPool(1, preload=PRELOAD))
    built = result_of_build(
        _BUILDERS[0].submit(_build_in_worker, mod, target, params, None, None, provider, False, timeout_sec=timeout_sec)
    )
    artifact, built.artifact_path = built.artifact_path, None
    return built, artifact
