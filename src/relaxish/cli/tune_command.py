"""``relaxish tune``."""

from __future__ import annotations

import os
import tarfile
import time
from typing import TYPE_CHECKING, Any

import click

from ..ir.module import IRModule
from ..support.errors import RelaxishError
from ..target.target import Target
from .common import parse_shapes, resolve_target, trust_option, tuning_shape_option, writable_directory
from .compile_command import tell_unused
from .models import LoadedModel, load_model

if TYPE_CHECKING:
    from ..meta_schedule.cost_model import CostModel

_UNLIMITED = 1 << 30


def _tune(
    model: LoadedModel,
    target: Any,
    work_dir: str,
    trials: int | None,
    seconds: float | None,
    begin: float,
    options: dict[str, Any],
) -> Any:
    """Tune the kernels of a model, or the loop programs of a script; the database."""
    from ..meta_schedule import TaskScheduler, relax_integration, tune_tir
    from ..meta_schedule.resume.budget import TimeBudget
    from ..pipeline import kernel_pipeline
    from ..relax.expr import Function
    from ..meta_schedule.measure_callback import LiveProgress

    graph = any(isinstance(f, Function) for f in model.mod.functions.values())
    kernels = kernel_pipeline(target)(model.mod) if graph else model.mod
    if graph:
        _check_names(kernels, target, options.get("op_names") or [""])
    scheduler = TaskScheduler.create("gradient") if seconds is None else TimeBudget(seconds, started=begin)
    with LiveProgress(trials=trials, seconds=seconds, begin=begin) as progress:
        scheduler.watchers.append(progress.phase)
        common = {
            "work_dir": work_dir,
            "max_trials_global": trials or _UNLIMITED,
            "measure_callbacks": progress.callbacks(),
            "task_scheduler": scheduler,
            "baselines": True,
            **options,
        }
        if graph:
            return relax_integration.tune_relax(mod=kernels, params={}, target=target, **common)
        common.pop("op_names", None)
        return tune_tir(kernels, target, **common)


def _prior(path: str, target: Target) -> CostModel:
    """The cost model in a file, or the one that comes with the package."""
    from ..meta_schedule.cost_model import XGBModel
    from ..meta_schedule.cost_model.pretrain import shipped_prior

    if path == "shipped":
        return shipped_prior(target)
    model = XGBModel()
    try:
        model.load(path)
    except (OSError, ValueError, KeyError, tarfile.TarError) as err:
        raise RelaxishError(f"{path}: is no cost model of relaxish db train ({err})") from err
    return model


def _check_names(kernels: IRModule, target: Target, wanted: list[str]) -> None:
    from ..meta_schedule.relax_integration import extract_tasks

    names = [task.task_name for task in extract_tasks(kernels, target)]
    if not any(text in name for text in wanted for name in names):
        raise RelaxishError(
            f"No tasks to tune: no kernel is named like {', '.join(wanted)} (kernels: {', '.join(names)})"
        )


def _on_cluster(address: str, device_kind: str | None, weight: float, target: Target, folder: str) -> dict[str, Any]:
    """Builder and runner on a Ray cluster. A run that was killed comes back under its folder's name."""
    from ..meta_schedule.builder import Builder
    from ..meta_schedule.runner import Runner

    gpu = target.kind.name not in ("llvm", "c")
    name = f"{os.uname().nodename}:{os.path.abspath(folder)}"
    runner = Runner.create("ray", address, device_kind=device_kind, weight=weight, gpu=gpu, name=name)
    return {"builder": Builder.create("ray", address), "runner": runner}


@click.command("tune", help="Tune MODEL (.onnx, .pt2, .py); an interrupted run goes on where it stopped.")
@click.argument("model_path", metavar="MODEL")
@click.option("-w", "--work-dir", default="tuning_logs", show_default=True, help="Where the database is kept.")
@click.option("--db", default=None, metavar="WHERE", help="An SQL database (a file or an URL) for the records instead.")
@click.option("--prior", metavar="FILE", help="Begin with this cost model (of relaxish db train), or 'shipped'.")
@click.option("-n", "--trials", type=click.IntRange(1), help="Candidates to measure; default 512, or no limit.")
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), help="Be done after this time, final check included."
)
@click.option("--trials-per-task", type=click.IntRange(1), help="At most this many for one kernel.")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(1), help="Candidates measured in a round.")
@click.option("--target", "target_text", default="llvm", show_default=True)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D0,D1,...", help="Fix an input's shape.")
@trust_option
@tuning_shape_option
@click.option("--op", "op_names", multiple=True, help="Only kernels whose name contains this.")
@click.option("--seed", type=click.IntRange(0), help="Makes the search repeatable.")
@click.option("--cluster", metavar="ADDRESS", help="Build and measure on this Ray cluster (ray://host:10001, auto).")
@click.option("--device-kind", help="Measure on the cluster's nodes with this label (relaxish.device-kind) only.")
@click.option("--weight", default=1.0, show_default=True, help="This run's share of a cluster that others use, too.")
@click.option("--report/--no-report", default=True, show_default=True, help="Write report.html at the end.")
def command(
    model_path: str,
    work_dir: str,
    db: str | None,
    prior: str | None,
    trials: int | None,
    minutes: float | None,
    trials_per_task: int | None,
    batch: int,
    target_text: str,
    shapes: tuple[str, ...],
    trust_pickle: bool,
    tuning_shapes: tuple[str, ...],
    op_names: tuple[str, ...],
    seed: int | None,
    cluster: str | None,
    device_kind: str | None,
    weight: float,
    report: bool,
) -> None:
    """The command."""
    from ..meta_schedule.database.opening import open_database

    begin = time.monotonic()
    target = resolve_target(target_text)
    given = parse_shapes(shapes)
    folder = writable_directory(work_dir)
    model = load_model(model_path, given, trust_pickle).for_sizes(parse_shapes(tuning_shapes, "--tuning-shape"))
    if model.kind == "compiled":
        raise RelaxishError(f"{model_path}: is compiled; tuning needs the source model")
    if trials is None and minutes is None:
        trials = 512
    options: dict[str, Any] = {"seed": seed, "num_trials_per_iter": batch, "max_trials_per_task": trials_per_task}
    if op_names:
        options["op_names"] = list(op_names)
    if cluster is not None:
        options.update(_on_cluster(cluster, device_kind, weight, target, str(folder)))
    elif device_kind is not None:
        raise click.UsageError("--device-kind says which nodes of a cluster measure; give --cluster as well")
    if prior is not None:
        options["cost_model"] = _prior(prior, target)
    if db is not None:
        options["database"] = open_database(db, create=True)
    try:
        database = _tune(model, target, str(folder), trials, minutes * 60 if minutes else None, begin, options)
    finally:
        if cluster is not None:
            options["runner"].shutdown()
    if database.unwritten:
        raise RelaxishError(f"{folder}: {database.unwritten} records could not be written and are lost: disk full?")
    where = db or str(folder)
    tell_unused(where, database)
    click.echo(f"tuned {model.name} in {time.monotonic() - begin:.0f} s; {where} holds {len(database)} records")
    if report:
        from ..tools.report import write_report

        click.echo(f"report: {write_report(where, str(folder / 'report.html'), title=model.name)}")
    click.echo(f"next: relaxish compile {model_path} --db {where}")
