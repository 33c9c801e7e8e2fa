"""Measure options as users write them, and batches of configurations measured so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from ...target import Target
from .measure import Builder, MeasureInput, MeasureResult, Runner
from .measure_methods import EngineBuilder, EngineRunner, LocalBuilder, LocalRunner, begin_on_engine, is_overlapping

__all__ = ["MeasureBatch", "MeasureOption", "create_measure_batch", "measure_option"]


class MeasureOption(TypedDict):
    """Result of :func:`measure_option`."""

    builder: Builder
    runner: Runner


def measure_option(builder: Builder | str, runner: Runner | str) -> MeasureOption:
    """Builder and runner for ``tuner.tune(measure_option=...)``. ``"local"`` stands for LocalBuilder() and
    LocalRunner().

    Raises ValueError for another word.
    """
    if isinstance(builder, str):
        if builder != "local":
            raise ValueError(f"Invalid builder: {builder}; write 'local' or give a LocalBuilder(...)")
        builder = LocalBuilder()
    if isinstance(runner, str):
        if runner != "local":
            raise ValueError(f"Invalid runner: {runner}; write 'local', or give a LocalRunner(...) or RPCRunner(...)")
        runner = LocalRunner()
    return {"builder": builder, "runner": runner}


class MeasureBatch:
    """A function from a list of MeasureInput to a list of MeasureResult.

    ``n_parallel`` is how many inputs are best given at a time; ``attach_objects`` is kept alive by it. Builders and
    runners of this package share one measuring engine, others are asked in turn. ``overlaps`` says that a batch may be
    built while the one before it is timed, since something else than this machine's processor runs it.
    """

    def __init__(self, task: Any, builder: Builder, runner: Runner) -> None:
        self.attach_objects = runner.set_task(task)
        builder.set_task(task, runner.get_build_kwargs())
        for part in (builder, runner):
            if isinstance(part, (EngineBuilder, EngineRunner)):
                part.prepare()
        self.builder, self.runner = builder, runner
        self.n_parallel = builder.n_parallel
        # Neither class was given another way to build or run by somebody else.
        self._on_engine = type(builder).build is EngineBuilder.build and type(runner).run is EngineRunner.run
        target = getattr(task, "target", None)
        self.overlaps = (
            isinstance(builder, EngineBuilder)
            and isinstance(runner, EngineRunner)
            and isinstance(target, Target)
            and self._on_engine
            and is_overlapping(builder, runner, target)
        )

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        return self.begin(measure_inputs)()

    def begin(self, measure_inputs: Sequence[MeasureInput]) -> Callable[[], list[MeasureResult]]:
        """Build a batch and have it run; what is given waits for the results."""
        if self._on_engine and isinstance(self.builder, EngineBuilder) and isinstance(self.runner, EngineRunner):
            return begin_on_engine(self.builder, self.runner, measure_inputs)
        results = list(self.runner.run(measure_inputs, self.builder.build(measure_inputs)))
        return lambda: results


def create_measure_batch(task: Any, option: MeasureOption) -> MeasureBatch:
    """Measures configurations of a task as :func:`measure_option` said."""
    return MeasureBatch(task, option["builder"], option["runner"])
