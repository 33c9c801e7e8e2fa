"""``relaxish db``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..support.errors import RelaxishError
from ..support.units import human_time
from ..tools.records import TuningLog, load_log
from .common import format_table, writable_directory
from .compile_command import open_database, tell_left_out


@click.group("db", help="Look into and tidy a tuning database.")
def command() -> None:
    """The command group."""


def _summary(log: TuningLog) -> list[dict[str, Any]]:
    rows = []
    for task in log.tasks:
        failed = sum(1 for r in task.records if r.seconds is None)
        rows.append(
            {
                "name": task.name,
                "hash": task.key,
                "records": len(task.records),
                "failed": failed,
                "best": task.best_seconds,
                "default": task.default,
                "gain": task.gain,
            }
        )
    return rows


@command.command("show", help="List the kernels in WORK_DIR with their best times.")
@click.argument("work_dir")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(work_dir: str, as_json: bool) -> None:
    """One line for each kernel."""
    log = load_log(work_dir)
    if log.left_out:
        tell_left_out(work_dir, log.left_out)
    rows = _summary(log)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [
        [
            r["name"], r["hash"], r["records"], r["failed"], "-" if r["best"] is None else human_time(r["best"]),
            "-" if r["gain"] is None else f"{r['gain']:.2f}x",
        ]
        for r in rows
    ]  # fmt: skip
    click.echo(format_table(["kernel", "hash", "records", "failed", "best", "gain"], cells))


@command.command("best", help="Print the best schedule of kernel KEY (a name or the start of its hash).")
@click.argument("work_dir")
@click.argument("key")
def best(work_dir: str, key: str) -> None:
    """The trace of the winner."""
    log = load_log(work_dir)
    if log.left_out:
        tell_left_out(work_dir, log.left_out)
    matches = [t for t in log.tasks if t.name == key or t.key.startswith(key)]
    if len(matches) != 1:
        known = ", ".join(t.name for t in log.tasks) or "none"
        problem = "no kernel" if not matches else f"{len(matches)} kernels"
        raise RelaxishError(f"{work_dir}: {problem} named {key!r} (kernels: {known})")
    winner = matches[0].best
    if winner is None:
        raise RelaxishError(f"{work_dir}: no successful record of {key!r}")
    click.echo(f"{matches[0].name}: {human_time(winner.seconds or 0.0)}")
    click.echo(winner.trace_text())


@command.command("prune", help="Copy only the best records of WORK_DIR to DESTINATION.")
@click.argument("work_dir")
@click.argument("destination")
def prune(work_dir: str, destination: str) -> None:
    """Keep one record for each kernel."""
    from ..meta_schedule.database import JSONDatabase

    source = open_database(work_dir, whole=True)
    folder = writable_directory(destination)
    if any(Path(folder).glob("database_*.json")):
        raise RelaxishError(f"{destination}: holds a database already")
    target = JSONDatabase(work_dir=str(folder))
    source.dump_pruned(target)
    click.echo(f"{len(target)} of {len(source)} records: {folder}")


@command.command("merge", help="Copy the records of all SOURCES into DESTINATION.")
@click.argument("destination")
@click.argument("sources", nargs=-1, required=True)
def merge(destination: str, sources: tuple[str, ...]) -> None:
    """One database of several."""
    from ..meta_schedule.database import JSONDatabase

    opened = [open_database(s, whole=True) for s in sources]
    target = JSONDatabase(work_dir=str(writable_directory(destination)))
    for source in opened:
        for record in source.get_all_tuning_records():
            target.commit_tuning_record(record)
    click.echo(f"{len(target)} records: {destination}")
