"""The progress bar of a tuning run: candidates or seconds, with time left and the best of the current kernel."""

from __future__ import annotations

import html
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...support.units import human_time
from .measure_callback import MeasureCallback, PyMeasureCallback

if TYPE_CHECKING:
    from ..builder import BuilderResult
    from ..runner import RunnerResult
    from ..search_strategy import MeasureCandidate

__all__ = ["LiveProgress"]


class WidgetBar:
    """The bar of a notebook, in the place of rich's: ipywidgets, whose values any thread may set."""

    def __init__(self) -> None:
        widgets: Any = importlib.import_module("ipywidgets")
        self.bar = widgets.FloatProgress(value=0.0, min=0.0, max=1.0, description="tuning")
        self.text = widgets.HTML()
        self.box = widgets.HBox([self.bar, self.text])
        self.total: float | None = None

    def add_task(self, description: str, total: float | None, status: str) -> int:
        """As rich's; there is one task."""
        self.total, self.bar.description = total, description
        return 0

    def start(self) -> None:
        """Show it below the cell."""
        importlib.import_module("IPython.display").display(self.box)

    def stop(self) -> None:
        """Say that it is over."""
        self.bar.bar_style = "success"

    def update(self, row: int, status: str, completed: float | None = None) -> None:
        """Show how far it is."""
        self.text.value = html.escape(status)
        if completed is not None and self.total:
            self.bar.value = min(1.0, completed / self.total)


def in_notebook() -> bool:
    """Whether this is a notebook's kernel that can show widgets."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell" and importlib.util.find_spec("ipywidgets") is not None


def _terminal_bar() -> Progress:
    return Progress(
        TextColumn("   [bold]tuning"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=Console(stderr=True),
    )


class LiveProgress:
    """Shows how far tuning is, by ``trials`` or by ``seconds`` since ``begin``; a context manager. In a notebook these are
    widgets where ipywidgets is installed.

    >>> with LiveProgress(trials=64) as progress:  # doctest: +SKIP
    ...     tune_tir(func, "llvm", "logs", 64, measure_callbacks=progress.callbacks())
    """

    def __init__(self, *, trials: int | None = None, seconds: float | None = None, begin: float | None = None) -> None:
        self.seconds = seconds
        self.begin = begin
        total = float(trials) if seconds is None and trials is not None else seconds
        self.bar: Any = WidgetBar() if in_notebook() else _terminal_bar()
        self.row = self.bar.add_task("tuning", total=total, status="")
        self.measured = 0
        self.failed = 0
        self.best: dict[int, float] = {}
        self.gains: dict[int, float] = {}

    def __enter__(self) -> LiveProgress:
        self.begin = time.monotonic() if self.begin is None else self.begin
        self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bar.stop()

    def callbacks(self) -> list[MeasureCallback]:
        """The default measure callbacks and the one that drives the bar."""
        created = MeasureCallback.create("default")
        return [*(created if isinstance(created, list) else [created]), _Advance(self)]

    def phase(self, name: str, done: int, total: int) -> None:
        """Show what the run is at beside the search: ``done`` of ``total`` of a phase."""
        passed = (
            {} if self.seconds is None else {"completed": min(self.seconds, time.monotonic() - (self.begin or 0.0))}
        )
        self.bar.update(self.row, status=f"{name}: {done} of {total} kernels", **passed)

    def advance(self, task_id: int, name: str, results: Sequence[Any], gain: float | None = None) -> None:
        """Take in a batch of results; ``gain`` is the default schedule's time over the best one's, of one batch."""
        if gain is not None:
            self.gains[task_id] = gain
        for result in results:
            if result.run_secs and not result.error_msg:
                mean = sum(float(s) for s in result.run_secs) / len(result.run_secs)
                self.best[task_id] = min(mean, self.best.get(task_id, mean))
            else:
                self.failed += 1
        self.measured += len(results)
        best = human_time(self.best[task_id]) if task_id in self.best else "none yet"
        faster = f" ({self.gains[task_id]:.2f}x the default)" if task_id in self.gains else ""
        status = f"{self.measured} measured, {self.failed} failed; {name[:32]}: {best}{faster}"
        done = self.measured if self.seconds is None else min(self.seconds, time.monotonic() - (self.begin or 0.0))
        self.bar.update(self.row, completed=done, status=status)


class _Advance(PyMeasureCallback):
    """Tells the bar about each measured batch."""

    def __init__(self, progress: LiveProgress) -> None:
        self.progress = progress

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        task = task_scheduler.tasks_[task_id]
        self.progress.advance(task_id, task.ctx.task_name or f"task {task_id}", runner_results, task.gain)
