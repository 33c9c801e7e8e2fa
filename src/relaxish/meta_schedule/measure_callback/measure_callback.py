"""What happens with each batch of results: records, artifacts, the cost model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..database import TuningRecord
from ..profiler import Profiler

if TYPE_CHECKING:
    from ..builder import BuilderResult
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task_scheduler import TaskScheduler

__all__ = ["AddToDatabase", "MeasureCallback", "PyMeasureCallback", "RemoveBuildArtifact", "UpdateCostModel"]


class MeasureCallback:
    """Called once per measured batch; subclass and define ``apply``."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        """Look at, store or learn from one batch."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "default") -> list[MeasureCallback] | MeasureCallback:
        """``default`` gives all three; else ``add-to-database``, ``remove-build-artifact``, ``update-cost-model``."""
        table: dict[str, Any] = {
            "add-to-database": AddToDatabase, "remove-build-artifact": RemoveBuildArtifact,
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
    """Commit every result, failures included, before anything else looks at it."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        database = task_scheduler.database_
        if database is None:
            return
        task = task_scheduler.tasks_[task_id]
        assert task.ctx.mod is not None
        workload = database.commit_workload(task.ctx.mod)
        records = []
        for candidate, built, ran in zip(measure_candidates, builder_results, runner_results, strict=True):
            error = built.error_msg or ran.error_msg
            seconds = [float(x) for x in ran.run_secs] if ran.run_secs else [1e10]
            records.append(TuningRecord(
                candidate.sch.trace, workload, seconds, task.ctx.target, candidate.args_info,
                error_msg=error, valid=candidate.valid if not error else False))
        with Profiler.timeit("MeasureCallback/AddToDatabase"):
            database.commit_tuning_records(records)


class RemoveBuildArtifact(MeasureCallback):
    """Delete what the builder left on disk; candidates kept in memory need nothing."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        with Profiler.timeit("MeasureCallback/RemoveBuildArtifact"):
            for result in builder_results:
                path = result.artifact_path
                if isinstance(path, str) and os.path.isfile(path):
                    os.unlink(path)
                    folder = os.path.dirname(path)
                    if not os.listdir(folder):
                        os.rmdir(folder)


class UpdateCostModel(MeasureCallback):
    """Teach the cost model from every candidate that built."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        model = task_scheduler.cost_model_
        if model is None:
            return
        keep = [i for i, b in enumerate(builder_results) if b.error_msg is None]
        if not keep:
            return
        with Profiler.timeit("MeasureCallback/UpdateCostModel"):
            model.update(task_scheduler.tasks_[task_id].ctx, [measure_candidates[i] for i in keep],
                         [runner_results[i] for i in keep])
