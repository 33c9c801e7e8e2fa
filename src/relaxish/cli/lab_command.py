"""``relaxish lab``."""

from __future__ import annotations

from pathlib import Path

import click

from ..lab import Comparison, Run
from ..support.errors import RelaxishError
from .common import resolve_target, writable_directory, writable_file


@click.group("lab", help="Record spaces of schedules once, and compare searches on them without measuring.")
def command() -> None:
    """The group."""


@command.command("record", help="Measure every program of WORKLOAD (gemm, conv2d, softmax) on this machine.")
@click.argument("workload")
@click.option("-o", "--output", default=None, help="File to write; default: WORKLOAD.npz.")
@click.option("--sample", type=click.IntRange(1), default=10_000, show_default=True, help="At most so many programs.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Rounds of four repeats each.")
@click.option("--target", "target_text", default="llvm -num-cores=1", show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def record_command(workload: str, output: str | None, sample: int, rounds: int, target_text: str, seed: int) -> None:
    """Record one of the spaces that come with the package, here."""
    from .. import lab

    path = writable_file(output or f"{workload}.npz")

    def watch(done: int, total: int) -> None:
        click.echo(f"{done} of {total} programs", err=True)

    space = lab.record_workload(
        workload, resolve_target(target_text), sample=sample, rounds=rounds, seed=seed, watch=watch
    )
    space.save(path)
    failed = sum(not status.ok for status in space.statuses)
    click.echo(f"{path}: {len(space)} of {space.size} programs, {failed} failed, best {space.best * 1e6:.1f} us")


@command.command("compare", help="Search recorded spaces with several strategies, and say which is better.")
@click.option("-t", "--task", "tasks", multiple=True, help="A bundled space or a file; default: all bundled ones.")
@click.option("-s", "--strategy", "strategies", multiple=True, help="A strategy's name; default: random, ga, xgb-sa.")
@click.option("-n", "--trials", type=click.IntRange(1), default=500, show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True)
@click.option("--noise", default="none", show_default=True, help="none, recorded, or a relative deviation.")
@click.option(
    "-o", "--output", default=None, help="Folder for runs.csv, metrics.csv, table.txt and a chart for each task."
)
def compare_command(
    tasks: tuple[str, ...],
    strategies: tuple[str, ...],
    trials: int,
    seeds: int,
    batch: int,
    noise: str,
    output: str | None,
) -> None:
    """Compare strategies."""
    from .. import lab

    folder = writable_directory(output) if output else None
    result = lab.compare(
        list(strategies) or ["random", "ga", "xgb-sa"],
        list(tasks) or lab.bundled_spaces(),
        seeds,
        trials=trials,
        batch=batch,
        noise=_noise(noise),
        watch=_tell,
    )
    click.echo(result.table())
    if folder is not None:
        _write(result, folder)


@command.command("ablate", help="Run the ablation that a YAML file describes.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", default=None, help="Folder for runs.csv, metrics.csv, table.txt and a chart for each task."
)
def ablate_command(file: str, output: str | None) -> None:
    """Run an ablation."""
    from .. import lab

    folder = writable_directory(output) if output else None
    result = lab.ablate(file, watch=_tell)
    click.echo(result.table())
    if folder is not None:
        _write(result, folder)


def _tell(run: Run) -> None:
    click.echo(f"{run.task} {run.strategy} seed {run.seed}: {len(run.points)} trials, {run.wall:.1f} s", err=True)


def _noise(text: str) -> str | float:
    if text in ("none", "recorded"):
        return text
    try:
        return float(text)
    except ValueError:
        raise RelaxishError(f"--noise is none, recorded or a number, not {text!r}") from None


def _write(result: Comparison, folder: Path) -> None:
    from ..lab.table import write_rows

    result.save(folder / "runs.csv")
    write_rows(result.metric_rows(), folder / "metrics.csv")
    (folder / "table.txt").write_text(result.table() + "\n")
    for task in result.tasks:
        (folder / f"{task}.svg").write_text(result.svg(task))
    click.echo(f"written to {folder}")
