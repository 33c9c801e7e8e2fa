"""Builder, runner and mutator that only pretend, so that search can be tested without a compiler."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ...tir.schedule.trace import Trace
from ..builder import Builder, BuilderInput, BuilderResult
from ..mutator import Mutator
from ..runner import Runner, RunnerFuture, RunnerInput, RunnerResult

__all__ = ["DummyBuilder", "DummyMutator", "DummyRunner", "DummyRunnerFuture"]


class DummyRunnerFuture(RunnerFuture):
    """Done at once, with a random time."""

    def done(self) -> bool:
        return True

    def result(self) -> RunnerResult:
        return RunnerResult([random.uniform(5, 30) for _ in range(random.randint(1, 10))], None)


class DummyBuilder(Builder):
    """Builds nothing, successfully."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult("test_path", None) for _ in build_inputs]


class DummyRunner(Runner):
    """Random times, or those ``cost`` gives for each input."""

    def __init__(self, cost: Callable[[RunnerInput], float] | None = None) -> None:
        self.cost = cost

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        if self.cost is None:
            return [DummyRunnerFuture() for _ in runner_inputs]
        cost = self.cost
        return [
            RunnerFuture(lambda: True, lambda x=x: RunnerResult([cost(x)], None))  # type: ignore[misc]
            for x in runner_inputs
        ]


class DummyMutator(Mutator):
    """Never finds anything to change."""

    def apply(self, trace: Trace, rand: random.Random | None = None) -> None:
        return None
