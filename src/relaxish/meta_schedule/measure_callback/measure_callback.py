"""Callbacks after each batch of results: records, artifacts, the cost model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...support.errors import JournalError
from ...support.log import get_logger
from ..builder.artifact import remove_build_dir
from ..database import Database, TuningRecord
from ..profiler import Profiler
from ..utils import MethodNotDefinedError

if TYPE_CHECKING:
    from ..builder import BuilderResult
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task_scheduler import TaskScheduler
    from ..tune_context import TuneContext

__all__ = ["AddToDatabase", "MeasureCallback", "PyMeasureCallback", "RemoveBuildArtifact", "UpdateCostModel"]


_log = get_logger("meta_schedule")


class MeasureCallback:
    """Called once per measured batch; subclass and define ``apply``."""

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Look at, store or learn from one batch."""
        raise MethodNotDefinedError(self, "apply")

    def on_result(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        candidate: MeasureCandidate,
        built: BuilderResult,
        ran: RunnerResult,
    ) -> None:
        """Called for each measurement as soon as the scheduler sees it, before its batch is complete."""

    def on_arrival(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        candidate: MeasureCandidate,
        built: BuilderResult,
        ran: RunnerResult,
    ) -> None:
        """Called for each measurement the moment it is there, in whatever thread sees it; :meth:`on_result` follows.

        Runners that cannot tell leave this out.
        """

    @staticmethod
    def create(kind: str = "default") -> list[MeasureCallback] | MeasureCallback:
        """``default`` gives all three; else ``add-to-database``, ``remove-build-artifact``, ``update-cost-model``."""
        table: dict[str, Any] = {
            "add-to-database": AddToDatabase,
            "remove-build-artifact": RemoveBuildArtifact,
            "update-cost-model": UpdateCostModel,
        }
        if kind == "default":
            return [cls() for cls in table.values()]
        if kind not in table:
            raise ValueError(f"unknown measure callback {kind!r}; expected 'default' or one of {sorted(table)}")
        callback: MeasureCallback = table[kind]()
        return callback


PyMeasureCallback = MeasureCallback


class AddToDatabase(MeasureCallback):
    """Commit every result, failures included, as soon as it is there.

    What a database in files has no room for is kept in memory, with a warning, and written when there is room again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warned = False

    def on_arrival(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        candidate: MeasureCandidate,
        built: BuilderResult,
        ran: RunnerResult,
    ) -> None:
        database = task_scheduler.database_
        if database is not None and database.thread_safe:
            self.on_result(task_scheduler, task_id, candidate, built, ran)

    def on_result(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        candidate: MeasureCandidate,
        built: BuilderResult,
        ran: RunnerResult,
    ) -> None:
        database = task_scheduler.database_
        if database is None:
            return
        with self._lock, Profiler.timeit("MeasureCallback/AddToDatabase"):
            if not candidate.recorded:
                self._commit(database, _record(task_scheduler.tasks_[task_id].ctx, database, candidate, built, ran))
                candidate.recorded = True

    def _commit(self, database: Database, record: TuningRecord) -> None:
        try:
            database.commit_soon(record)
        except JournalError as err:
            if not database.hold(record):
                raise
            self._warn(err)

    def _warn(self, err: JournalError) -> None:
        if not self._warned:
            _log.warning("%s; results are kept in memory until they can be written", err)
        self._warned = True

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        database = task_scheduler.database_
        if database is None:
            return
        for item in zip(measure_candidates, builder_results, runner_results, strict=True):
            self.on_result(task_scheduler, task_id, *item)
        with Profiler.timeit("MeasureCallback/AddToDatabase"):
            try:
                database.flush()
            except JournalError as err:
                self._warn(err)


def _record(
    ctx: TuneContext, database: Database, candidate: MeasureCandidate, built: BuilderResult, ran: RunnerResult
) -> TuningRecord:
    assert ctx.mod is not None
    error = built.error_msg or ran.error_msg
    seconds = [float(x) for x in ran.run_secs] if ran.run_secs else [1e10]
    trace = candidate.sch.trace
    if trace is None:
        raise ValueError("a candidate without a trace cannot be recorded")
    return TuningRecord(
        trace,
        database.commit_workload(ctx.mod),
        seconds,
        ctx.target,
        candidate.args_info,
        error_msg=error,
        stage=None if not error else "build" if built.error_msg else "run",
        valid=False if error else candidate.valid,
        predicted=candidate.predicted,
        time=time.time(),
        status=built.status if built.error_msg else ran.status,
    )


class RemoveBuildArtifact(MeasureCallback):
    """Delete what the builder left on disk; candidates kept in memory need nothing."""

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        with Profiler.timeit("MeasureCallback/RemoveBuildArtifact"):
            for result in builder_results:
                if isinstance(result.artifact_path, str):
                    remove_build_dir(result.artifact_path)


class UpdateCostModel(MeasureCallback):
    """Teach the cost model from every candidate that built."""

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        model = task_scheduler.cost_model_
        if model is None:
            return
        keep = [i for i, b in enumerate(builder_results) if b.error_msg is None]
        if not keep:
            return
        with Profiler.timeit("MeasureCallback/UpdateCostModel"):
            model.update(
                task_scheduler.tasks_[task_id].ctx,
                [measure_candidates[i] for i in keep],
                [runner_results[i] for i in keep],
            )
