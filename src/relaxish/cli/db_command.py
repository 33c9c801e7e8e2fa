"""``relaxish db``: directories of journals and SQL databases alike."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..support.errors import RelaxishError
from ..support.units import human_time
from ..tools.records import Task, TuningLog, load_log, trace_text
from .common import format_table, writable_directory, writable_file
from .compile_command import opened, tell_left_out

if TYPE_CHECKING:
    from ..meta_schedule.database import Database, SQLDatabase

_WHERE = "WHERE is a tuning directory, an SQLite file or postgresql://..."


@click.group("db", help="Look into and tidy tuning databases.", epilog=_WHERE)
def command() -> None:
    """The command group."""


def _sql(where: str, create: bool = False) -> SQLDatabase:
    """The SQL database at ``where``; RelaxishError for a directory."""
    from ..meta_schedule.database.opening import is_sql, open_database

    if not is_sql(where):
        raise RelaxishError(f"{where}: is a tuning directory; this needs an SQL database (a .sqlite file or an URL)")
    found: Any = open_database(where, create=create)
    return found


def _log(where: str) -> TuningLog:
    log = load_log(where)
    if log.left_out:
        tell_left_out(where, log.left_out)
    return log


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


def _sql_summary(where: str) -> list[dict[str, Any]]:
    """As :func:`_summary`, counted by the database."""
    from ..meta_schedule.database import hardware_fingerprint
    from ..support import config

    database = _sql(where)
    here = None if config.ANY_HARDWARE.value else hardware_fingerprint()
    if here is not None and database.left_out():
        tell_left_out(where, database.left_out())
    races = database.store.baselines(here)
    rows = []
    for row in database.store.summary(here):
        seconds, tuned = races.get(row.pop("id"), (None, None))
        default = None if seconds is None else sum(seconds) / len(seconds)
        gain = default / tuned if default is not None and tuned else None
        rows.append({**row, "name": row["name"] or row["hash"], "default": default, "gain": gain})
    return rows


def _rows(where: str) -> list[dict[str, Any]]:
    from ..meta_schedule.database.opening import is_sql

    return _sql_summary(where) if is_sql(where) else _summary(_log(where))


@command.command("show", help="List the kernels in WHERE with their best times.")
@click.argument("where")
@click.option("--runs", is_flag=True, help="List the tuning runs instead (SQL databases).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(where: str, runs: bool, as_json: bool) -> None:
    """One line for each kernel, or for each run."""
    if runs:
        _show_runs(_sql(where).store.runs(), as_json)
        return
    rows = _rows(where)
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


def _show_runs(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [
        [
            r["id"], r["model"] or "-", r["status"], r["records"], r["machine"] or "-",
            "-" if r["ended"] is None else human_time(r["ended"] - r["started"]),
        ]
        for r in rows
    ]  # fmt: skip
    click.echo(format_table(["run", "model", "status", "records", "machine", "time"], cells))


def _chosen(where: str, rows: Sequence[Any], key: str, name: Callable[[Any], tuple[str, str]]) -> Any:
    """The one kernel of that name, or whose hash begins so."""
    matches = [r for r in rows if name(r)[0] == key or name(r)[1].startswith(key)]
    if len(matches) != 1:
        known = ", ".join(name(r)[0] for r in rows) or "none"
        problem = "no kernel" if not matches else f"{len(matches)} kernels"
        raise RelaxishError(f"{where}: {problem} named {key!r} (kernels: {known})")
    return matches[0]


def _fastest(where: str, key: str, count: int) -> tuple[str, list[tuple[float, Any]]]:
    """A kernel's name, and the times and traces of its fastest records."""
    from ..meta_schedule.database import hardware_fingerprint
    from ..meta_schedule.database.opening import is_sql
    from ..support import config

    if not is_sql(where):
        task: Task = _chosen(where, _log(where).tasks, key, lambda t: (t.name, t.key))
        good = sorted((r for r in task.records if r.seconds is not None), key=lambda r: r.seconds or 0.0)
        return task.name, [(r.seconds or 0.0, r.trace) for r in good[:count]]
    store = _sql(where).store
    row = _chosen(where, store.workloads(with_records=True), key, lambda w: (w["name"] or w["hash"], w["hash"]))
    here = None if config.ANY_HARDWARE.value else hardware_fingerprint()
    ranking = store.ranking(row["id"], count, here=here)
    made = {number: item for number, _, item in store.measurements([r["id"] for r in ranking])}
    return row["name"] or row["hash"], [(r["seconds"], made[r["id"]].trace) for r in ranking]


@command.command("best", help="Print the best schedule of kernel KEY (a name or the start of its hash).")
@click.argument("where")
@click.argument("key")
def best(where: str, key: str) -> None:
    """The trace of the winner."""
    name, fastest = _fastest(where, key, 1)
    if not fastest:
        raise RelaxishError(f"{where}: no successful record of {key!r}")
    click.echo(f"{name}: {human_time(fastest[0][0])}")
    click.echo(trace_text(fastest[0][1]))


@command.command("top", help="List the fastest records of kernel KEY.")
@click.argument("where")
@click.argument("key")
@click.option("-k", "count", default=10, show_default=True, type=click.IntRange(1))
def top(where: str, key: str, count: int) -> None:
    """Times, and the decisions that tell the records apart."""
    name, fastest = _fastest(where, key, count)
    click.echo(f"{name}: {len(fastest)} records")
    decided = [json.dumps([d[1] for d in trace[1]]) for _, trace in fastest]
    cells = [[n + 1, human_time(t), d] for n, ((t, _), d) in enumerate(zip(fastest, decided, strict=True))]
    click.echo(format_table(["", "time", "decisions"], cells))


@command.command("diff", help="Compare the best times of the kernels in two databases.")
@click.argument("before")
@click.argument("after")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(before: str, after: str, as_json: bool) -> None:
    """One line for each kernel, the largest change first, and the mean of those in both."""
    old, new = ({r["hash"]: r for r in _rows(where)} for where in (before, after))
    rows = []
    for key in {**old, **new}:
        times = [side.get(key, {}).get("best") for side in (old, new)]
        ratio = times[0] / times[1] if times[0] and times[1] else None
        rows.append(
            {
                "name": (new.get(key) or old[key])["name"],
                "hash": key,
                "before": times[0],
                "after": times[1],
                "gain": ratio,
            }
        )
    rows.sort(key=lambda r: -abs(math.log(r["gain"])) if r["gain"] else math.inf)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [
        [r["name"], r["hash"], *("-" if r[c] is None else human_time(r[c]) for c in ("before", "after")),
         "-" if r["gain"] is None else f"{r['gain']:.3f}x"]
        for r in rows
    ]  # fmt: skip
    click.echo(format_table(["kernel", "hash", "before", "after", "gain"], cells))
    gains = [math.log(r["gain"]) for r in rows if r["gain"]]
    if gains:
        mean = math.exp(math.fsum(gains) / len(gains))
        click.echo(f"{len(gains)} kernels in both: {mean:.3f}x (geometric mean)")


def _new(where: str) -> Database:
    """A database where none is yet."""
    from ..meta_schedule.database.opening import is_sql, open_database

    if is_sql(where):
        if Path(where).exists():
            raise RelaxishError(f"{where}: holds a database already")
    elif any(writable_directory(where).glob("database_*.json")):
        raise RelaxishError(f"{where}: holds a database already")
    return open_database(where, create=True)


@command.command("prune", help="Copy only the best record of each kernel of WHERE to DESTINATION.")
@click.argument("where")
@click.argument("destination", required=False)
@click.option(
    "--keep", type=click.IntRange(1), help="Instead, remove all but so many of each kernel from WHERE itself."
)
def prune(where: str, destination: str | None, keep: int | None) -> None:
    """Keep one record for each kernel, or a few."""
    if (destination is None) == (keep is None):
        raise click.UsageError("give DESTINATION or --keep")
    if keep is not None:
        store = _sql(where).store
        before = store.count()
        store.prune(keep)
        click.echo(f"{store.count()} of {before} records: {where}")
        return
    assert destination is not None
    source = opened(where, whole=True)
    target = _new(destination)
    source.dump_pruned(target)
    click.echo(f"{len(target)} of {len(source)} records: {destination}")


@command.command("merge", help="Copy the records of all SOURCES into DESTINATION.")
@click.argument("destination")
@click.argument("sources", nargs=-1, required=True)
def merge(destination: str, sources: tuple[str, ...]) -> None:
    """One database of several. An SQL database takes no record twice."""
    from ..meta_schedule.database.opening import is_sql, open_database

    databases = [opened(s, whole=True) for s in sources]
    if is_sql(destination):
        _into_sql(destination, sources)
        return
    writable_directory(destination)
    target = open_database(destination, create=True)
    for source in databases:
        target.commit_tuning_records(source.get_all_tuning_records())
    click.echo(f"{len(target)} records: {destination}")


def _into_sql(destination: str, sources: Sequence[str]) -> None:
    from ..meta_schedule.database.opening import is_sql
    from ..meta_schedule.database.sql.journals import copy_records, import_journals

    target = _sql(destination, create=True)
    added = 0
    for source in sources:
        added += copy_records(_sql(source), target) if is_sql(source) else import_journals(target, source)
    click.echo(f"{added} new of {len(target)} records: {destination}")


@command.command("import", help="Take the records of tuning directories into the SQL database WHERE.")
@click.argument("where")
@click.argument("directories", nargs=-1, required=True)
def import_(where: str, directories: tuple[str, ...]) -> None:
    """Records that the database has already are not taken again."""
    _sql_only(where)
    _into_sql(where, directories)


@command.command("export", help="Write the records of the SQL database WHERE into DIRECTORY, as journals.")
@click.argument("where")
@click.argument("directory")
def export(where: str, directory: str) -> None:
    """The files of a tuning directory."""
    from ..meta_schedule.database.sql.journals import export_journals

    count = export_journals(_sql(where), str(writable_directory(directory)))
    click.echo(f"{count} records: {directory}")


def _sql_only(where: str) -> None:
    from ..meta_schedule.database.opening import is_sql

    if not is_sql(where):
        raise RelaxishError(f"{where}: is no address of an SQL database (a .sqlite file or an URL)")


@command.command("upgrade", help="Bring the SQL database WHERE to this version's schema.")
@click.argument("where")
def upgrade(where: str) -> None:
    """All or nothing; a copy of a file first is wise all the same."""
    _sql_only(where)
    from ..meta_schedule.database.sql.engine import Connections
    from ..meta_schedule.database.sql.migrations import upgrade as migrate

    before, after = migrate(Connections(where))
    click.echo(f"{where}: schema version {before} is now {after}" if before != after else f"{where}: is up to date")


@command.command("train", help="Teach a cost model the records of WHERE and write it to OUTPUT, for tune --prior.")
@click.argument("where")
@click.argument("output")
@click.option("--most", default=256, show_default=True, type=click.IntRange(1), help="Records of one kernel.")
def train(where: str, output: str, most: int) -> None:
    """A file of features, times and trees."""
    from ..meta_schedule.cost_model import XGBModel
    from ..meta_schedule.cost_model.pretrain import learn_database

    model = XGBModel()
    learnt = learn_database(model, opened(where), most)
    if not model.trained:
        raise RelaxishError(f"{where}: {learnt} records are too few; {model.num_warmup_samples} teach a cost model")
    model.save(str(writable_file(output)))
    click.echo(f"learnt {learnt} records of {len(model.data)} kernels: {output}")


@command.command("serve", help="Show the SQL database WHERE to others by HTTP: JSON, read only.")
@click.argument("where")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; others can reach 0.0.0.0.")
@click.option("--port", default=8791, show_default=True, type=click.IntRange(0, 65535))
def serve(where: str, host: str, port: int) -> None:
    """Until it is interrupted."""
    from ..tools.database_server import DatabaseServer

    with DatabaseServer(_sql(where).store, host, port) as server:
        click.echo(f"{where}: {server.address} (Ctrl-C ends)")
        server.serve_forever()
