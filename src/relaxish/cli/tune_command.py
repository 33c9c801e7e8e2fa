"""``relaxish tune``."""

from __future__ import annotations

import time
from typing import Any

import click

from ..support.errors import RelaxishError
from .common import human_time, parse_shapes, resolve_target, writable_directory
from .models import LoadedModel, load_model


def _progress(total: int) -> tuple[Any, Any]:
    """A progress bar with time left, and the measure callback that drives it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ..meta_schedule.measure_callback import PyMeasureCallback

    bar = Progress(
        TextColumn("[bold]tuning"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(), TextColumn("{task.fields[status]}"), console=Console(stderr=True),
    )  # fmt: skip
    row = bar.add_task("tuning", total=total, status="")

    class Advance(PyMeasureCallback):
        """Moves the bar by the number of candidates measured."""

        def __init__(self) -> None:
            self.best: dict[int, float] = {}
            self.failed = 0

        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            for result in runner_results:
                if result.run_secs and not result.error_msg:
                    mean = sum(float(s) for s in result.run_secs) / len(result.run_secs)
                    self.best[task_id] = min(mean, self.best.get(task_id, mean))
                else:
                    self.failed += 1
            name = (
                task_scheduler.tasks_[task_id].ctx.task_name if hasattr(task_scheduler, "tasks_") else f"task {task_id}"
            )
            best = human_time(self.best[task_id]) if task_id in self.best else "none yet"
            bar.update(row, advance=len(runner_results), status=f"{name[:36]}: best {best}, failed {self.failed}")

    return bar, Advance()


def _tune(
    model: LoadedModel, target: Any, work_dir: str, trials: int, per_task: int | None, options: dict[str, Any]
) -> Any:
    from ..meta_schedule import relax_integration, tune_tir
    from ..meta_schedule.measure_callback import MeasureCallback
    from ..relax.expr import Function

    bar, advance = _progress(trials)
    created = MeasureCallback.create("default")
    callbacks = [*(created if isinstance(created, list | tuple) else [created]), advance]
    common = {"work_dir": work_dir, "max_trials_global": trials, "measure_callbacks": callbacks, **options}
    if per_task is not None:
        common["max_trials_per_task"] = per_task
    with bar:
        if any(isinstance(f, Function) for f in model.mod.functions.values()):
            return relax_integration.tune_relax(mod=_kernels_of(model, target), params={}, target=target, **common)
        return tune_tir(model.mod, target, **common)


def _kernels_of(model: LoadedModel, target: Any) -> Any:
    """The module with the very kernels a later ``compile --db`` will look up."""
    from ..ir.transform import Sequential
    from ..pipeline import legalize_passes

    with target:
        return Sequential(legalize_passes(target))(model.mod)


@click.command("tune", help="Tune MODEL (.onnx, .pt2, .py); an interrupted run goes on where it stopped.")
@click.argument("model_path", metavar="MODEL")
@click.option("-w", "--work-dir", default="tuning_logs", show_default=True, help="Where the database is kept.")
@click.option("-n", "--trials", default=512, show_default=True, type=click.IntRange(1), help="Candidates to measure.")
@click.option("--trials-per-task", default=None, type=click.IntRange(1), help="At most this many for one kernel.")
@click.option("--target", "target_text", default="llvm", show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...", help="Fix an input's shape.")
@click.option("--op", "op_names", multiple=True, help="Only kernels whose name contains this.")
@click.option("--seed", default=None, type=int, help="Makes the search repeatable.")
@click.option("--report/--no-report", default=True, show_default=True, help="Write report.html at the end.")
def command(
    model_path: str,
    work_dir: str,
    trials: int,
    trials_per_task: int | None,
    target_text: str,
    shapes: tuple[str, ...],
    op_names: tuple[str, ...],
    seed: int | None,
    report: bool,
) -> None:
    """The command."""
    target = resolve_target(target_text)
    given = parse_shapes(shapes)
    folder = writable_directory(work_dir)
    model = load_model(model_path, given)
    if model.kind == "compiled":
        raise RelaxishError(f"{model_path}: is compiled; tuning needs the source model")
    options: dict[str, Any] = {"seed": seed}
    if op_names:
        options["op_names"] = list(op_names)
    begin = time.perf_counter()
    database = _tune(model, target, str(folder), trials, trials_per_task, options)
    click.echo(
        f"tuned {model.name} in {time.perf_counter() - begin:.0f} s; {folder} holds {len(database)} records"
    )
    if report:
        from ..tools.report import write_report

        click.echo(f"report: {write_report(str(folder), str(folder / 'report.html'), title=model.name)}")
    click.echo(f"next: relaxish compile {model_path} --db {folder}")
