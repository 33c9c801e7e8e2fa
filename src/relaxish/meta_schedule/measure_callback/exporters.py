"""Tuning runs in TensorBoard and MLflow: the best time of each task, failures, and how good predictions are."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...support.errors import MissingExtraError
from .measure_callback import MeasureCallback

if TYPE_CHECKING:
    from ..builder import BuilderResult
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate
    from ..task_scheduler import TaskScheduler

__all__ = ["MLflowCallback", "ScalarCallback", "TensorBoardCallback"]


class ScalarCallback(MeasureCallback):
    """Subclass and define ``write(step, scalars)``: it is given each batch's figures, named by the task.

    ``step`` is the number of candidates measured so far, of all tasks.
    """

    def __init__(self) -> None:
        self.step = 0
        self.failed = 0

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Keep the figures."""
        raise NotImplementedError

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        task = task_scheduler.tasks_[task_id]
        times = [sum(r.run_secs) / len(r.run_secs) for r in runner_results if r.run_secs and not r.error_msg]
        self.step += len(runner_results)
        self.failed += len(runner_results) - len(times)
        name = task.ctx.task_name or f"task {task_id}"
        figures = {"failed": float(self.failed)}
        best = min([*times, task.best_ms / 1000])
        if math.isfinite(best):
            figures[f"{name}/best_us"] = best * 1e6
        if times:
            figures[f"{name}/batch_best_us"] = min(times) * 1e6
        self.write(self.step, figures)


class TensorBoardCallback(ScalarCallback):
    """Figures to a folder that ``tensorboard --logdir`` shows. Raises MissingExtraError where it is not installed."""

    def __init__(self, log_dir: str) -> None:
        super().__init__()
        try:
            summary: Any = importlib.import_module("tensorboard.summary")
        except ImportError:
            raise MissingExtraError("tensorboard", "tensorboard", "the callback for TensorBoard") from None
        self._writer = summary.Writer(log_dir)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class MLflowCallback(ScalarCallback):
    """Figures to the active run of MLflow, or to a new one. Raises MissingExtraError where it is not installed."""

    def __init__(self) -> None:
        super().__init__()
        try:
            self._mlflow: Any = importlib.import_module("mlflow")
        except ImportError:
            raise MissingExtraError("mlflow", "mlflow", "the callback for MLflow") from None

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        # Names may hold letters, digits and "_-. /" only.
        clean = {"".join(c if c.isalnum() or c in "_-. /" else "_" for c in k): v for k, v in scalars.items()}
        self._mlflow.log_metrics(clean, step=step)
