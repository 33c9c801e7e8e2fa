"""Tuning journals as plain data, without rebuilding any program: enough for reports, and quick."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..meta_schedule.database import hardware_fingerprint
from ..meta_schedule.database.json_database import baseline_note
from ..meta_schedule.database.opening import is_sql, open_database
from ..meta_schedule.database.lines import companion, record_fields, workload_fields
from ..support import config
from ..support.errors import RelaxishError
from ..support.journal import Journal

_FUNC_NAME = re.compile(r"def (\w+)\(|\"global_symbol\"\s*:\s*\"(\w+)\"")


@dataclass
class Record:
    """One measured candidate; ``seconds`` is ``None`` for a failure."""

    index: int
    seconds: float | None
    error: str
    trace: Any
    predicted: float | None = None
    time: float | None = None
    hardware: str = ""

    @property
    def key(self) -> int:
        """The same for measurements of the same trace."""
        return hash(json.dumps(self.trace))

    def trace_text(self) -> str:
        """The schedule, one instruction a line."""
        return trace_text(self.trace)


@dataclass
class Task:
    """One kernel with its records in order of measurement."""

    key: str
    name: str
    script: str
    records: list[Record] = field(default_factory=list)
    weight: int = 1
    # Seconds of the default schedule and of the best record, measured in turns.
    default: float | None = None
    tuned: float | None = None

    @property
    def gain(self) -> float | None:
        """Speed-up of the best schedule over the default one; None if they were not measured together."""
        return self.default / self.tuned if self.default and self.tuned else None

    @property
    def best(self) -> Record | None:
        """The fastest successful record."""
        good = [r for r in self.records if r.seconds is not None]
        return min(good, key=lambda r: r.seconds or 0.0) if good else None

    @property
    def best_seconds(self) -> float | None:
        """Its time."""
        best = self.best
        return None if best is None else best.seconds

    def curve(self) -> list[tuple[int, float]]:
        """(number of trials, best time so far) at each improvement and at the end."""
        points: list[tuple[int, float]] = []
        for i, record in enumerate(self.records, 1):
            if record.seconds is not None and (not points or record.seconds < points[-1][1]):
                points.append((i, record.seconds))
        if points and points[-1][0] < len(self.records):
            points.append((len(self.records), points[-1][1]))
        return points


@dataclass
class TuningLog:
    """Everything recorded in a directory on one machine, ``hardware``; ``left_out`` counts what others recorded."""

    tasks: list[Task]
    target: str
    hardware: str
    orphans: int
    left_out: dict[str, int] = field(default_factory=dict)


def load_log(work_dir: str) -> TuningLog:
    """Read the journals of a tuning directory.

    Times of several machines are not mixed, unless ``RELAXISH_ANY_HARDWARE`` asks for it: where this machine has
    records, they are the log, else those of the machine that has most. ``work_dir`` may be an SQL database as well.
    """
    if is_sql(work_dir):
        return _sql_log(work_dir)
    records_path = os.path.join(work_dir, "database_tuning_record.json")
    workloads_path = os.path.join(work_dir, "database_workload.json")
    for path in (records_path, workloads_path):
        if not os.path.exists(path):
            raise RelaxishError(f"{work_dir}: no tuning database here ({os.path.basename(path)} is missing)")
    tasks: dict[str, Task] = {}
    hashes = []
    for line in _lines(workloads_path, workload_fields):
        hashes.append("" if line is None else str(line["hash"]))
        if line is not None:
            script = str(line.get("script", ""))
            tasks.setdefault(str(line["hash"]), Task(str(line["hash"]), _task_name(line, script), script))
    orphans = 0
    target = ""
    verdicts: dict[tuple[str, int], tuple[bool, float | None]] = {}
    lines = list(_lines(records_path, lambda line: record_fields(line, hashes)))
    if os.path.exists(verdicts_path := companion(records_path, "verdict")):
        lines += _lines(verdicts_path, lambda line: record_fields(line, hashes))
    for index, line in enumerate(lines):
        task = None if line is None else tasks.get(str(line.get("workload", "")))
        if line is None or task is None:
            orphans += 1
            continue
        target = target or _target_text(line.get("target"))
        record = _record(index, line)
        if line.get("again"):
            # Not a measurement of its own: a verdict on an earlier one, with a newer time.
            verdicts[task.key, record.key] = line.get("valid") is not False, record.seconds
        else:
            task.records.append(record)
    _apply(tasks.values(), verdicts)
    hardware, left_out = _one_machine(tasks.values())
    _read_baselines(work_dir, tasks, hardware)
    return TuningLog(list(tasks.values()), target, hardware, orphans, left_out)


def _sql_log(where: str) -> TuningLog:
    """The records of an SQL database; verdicts are in them already."""
    database = open_database(where, readonly=True)
    store = database.store  # type: ignore[attr-defined]
    tasks: dict[int, Task] = {}
    for row in store.workloads(with_records=True):
        tasks[row["id"]] = Task(row["hash"], row["name"] or row["hash"], "")
    target = ""
    for _, workload, item in sorted(store.measurements([r["id"] for r in store.numbers()]), key=lambda found: found[0]):
        target = target or _target_text(item.target)
        records = tasks[workload].records
        line = {**item.notes, "trace": item.trace, "run_secs": item.run_secs}
        records.append(_record(len(records), line))
    hardware, left_out = _one_machine(tasks.values())
    for number, (seconds, best) in store.baselines(hardware).items():
        if number in tasks:
            tasks[number].default, tasks[number].tuned = sum(seconds) / len(seconds), best
    return TuningLog(list(tasks.values()), target, hardware, 0, left_out)


def left_out_text(left_out: Mapping[str, int]) -> str:
    """Text on the records left out, for people."""
    places = ", ".join(f"{n} of {name}" for name, n in sorted(left_out.items()))
    return f"{sum(left_out.values())} records of other machines ({places})"


def _apply(tasks: Iterable[Task], verdicts: Mapping[tuple[str, int], tuple[bool, float | None]]) -> None:
    for task in tasks:
        for record in task.records:
            right, seconds = verdicts.get((task.key, record.key), (True, None))
            if record.seconds is not None and not right:
                record.seconds, record.error = None, record.error or "wrong result"
            elif record.seconds is not None and seconds is not None:
                record.seconds = seconds


def _one_machine(tasks: Iterable[Task]) -> tuple[str, dict[str, int]]:
    """Keep the records of one machine; its name, and how many records of others were left out."""
    tasks = list(tasks)
    counts: dict[str, int] = {}
    for task in tasks:
        for record in task.records:
            counts[record.hardware] = counts.get(record.hardware, 0) + 1
    known = {name: n for name, n in counts.items() if name}
    if not known:
        return "", {}
    here = hardware_fingerprint()
    chosen = here if here in known else max(known, key=known.__getitem__)
    left_out = {name: n for name, n in known.items() if name != chosen}
    if config.ANY_HARDWARE.value:
        return ", ".join([chosen, *left_out]), {}
    for task in tasks:
        task.records = [r for r in task.records if r.hardware in ("", chosen)]
    return chosen, left_out


def _read_baselines(work_dir: str, tasks: Mapping[str, Task], hardware: str) -> None:
    """What default schedules took, and the best records measured in turns with them."""
    path = os.path.join(work_dir, "database_baseline.json")
    for line in Journal(path, readonly=True).read() if os.path.exists(path) else ():
        note = baseline_note(line, anywhere=True)
        if note is not None and note[0] in tasks and line.get("hardware", hardware) == hardware:
            tasks[note[0]].default, tasks[note[0]].tuned = sum(note[1]) / len(note[1]), note[2]


def _lines(path: str, read: Callable[[Any], dict[str, Any] | None]) -> Iterator[dict[str, Any] | None]:
    """The lines of a journal, None for each that cannot be read; RelaxishError when there are some but none is ours."""
    found = damaged = 0
    journal = Journal(path, readonly=True)
    for _, text in journal.lines_new():
        if not text.strip():
            continue
        try:
            line = read(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            line = None
            damaged += 1
        found += line is not None
        yield line
        if line is None:
            damaged += 1
    if damaged and not found:
        raise RelaxishError(f"{path}: is damaged, or not a file that relaxish wrote")


def _record(index: int, line: Mapping[str, Any]) -> Record:
    given = line.get("run_secs")
    times = given if isinstance(given, list) and all(isinstance(t, (int, float)) for t in given) else []
    valid = bool(times) and all(0 <= t < 1e9 for t in times)
    valid = valid and line.get("valid") is not False and not line.get("error")
    hardware = line.get("hardware")
    return Record(
        index, sum(times) / len(times) if valid else None, str(line.get("error") or ""), line.get("trace"),
        _number(line.get("predicted")), _number(line.get("time")), hardware if isinstance(hardware, str) else "",
    )  # fmt: skip


def _number(value: float | None) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None


def _task_name(line: Mapping[str, Any], script: str) -> str:
    if line.get("name"):
        return str(line["name"])
    found = [a or b for a, b in _FUNC_NAME.findall(script)]
    return next((n for n in found if n != "main"), found[0] if found else str(line["hash"]))


def _target_text(target: Mapping[str, str | Sequence[str]] | None) -> str:
    if isinstance(target, Mapping):
        parts = [
            f"-{k}={v}" for k, v in target.items() if k not in ("kind", "tag", "keys") and isinstance(v, str | int)
        ]
        return " ".join([str(target.get("kind", "")), *parts])
    return str(target or "")


def trace_text(trace: Any) -> str:
    """A trace in JSON form as readable lines: ``l1, l2 = split(l0, 4, None)  # decision``."""
    if not isinstance(trace, Sequence) or len(trace) < 2:
        return str(trace)
    decisions = {d[0]: d[1] for d in trace[1] if isinstance(d, Sequence) and len(d) == 2}
    lines = []
    for index, inst in enumerate(trace[0]):
        name, inputs, attrs, outputs = (list(inst) + [[], [], []])[:4]
        args = [_plain(a) for a in [*(inputs or []), *(attrs or [])]]
        left = ", ".join(str(o) for o in outputs or [])
        note = f"  # {_plain(decisions[index])}" if index in decisions else ""
        lines.append(f"{left + ' = ' if left else ''}{name}({', '.join(args)}){note}")
    return "\n".join(lines)


def _plain(value: float | str | Sequence[float] | None) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_plain(v) for v in value) + "]"
    return str(value)
