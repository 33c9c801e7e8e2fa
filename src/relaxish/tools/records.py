"""Tuning journals as plain data, without rebuilding any program: enough for reports, and quick."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..meta_schedule.database.lines import record_fields, workload_fields
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
    """Everything recorded in a directory."""

    tasks: list[Task]
    target: str
    hardware: str
    orphans: int


def load_log(work_dir: str) -> TuningLog:
    """Read the journals of a tuning directory."""
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
            tasks.setdefault(line["hash"], Task(line["hash"], _task_name(line, script), script))
    lines = _lines(records_path, lambda line: record_fields(line, hashes))
    orphans = 0
    target = hardware = ""
    for index, line in enumerate(lines):
        task = None if line is None else tasks.get(line.get("workload", ""))
        if line is None or task is None:
            orphans += 1
            continue
        target = target or _target_text(line.get("target"))
        hardware = hardware or str(line.get("hardware") or "")
        task.records.append(_record(index, line))
    return TuningLog(list(tasks.values()), target, hardware, orphans)


def _lines(path: str, read: Callable[[Any], dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """The lines of a journal; RelaxishError when there are some but none is one of ours."""
    journal = Journal(path, readonly=True)
    lines = [read(line) for line in journal.read()]
    if lines and not any(line is not None for line in lines):
        raise RelaxishError(f"{path}: is not a file that relaxish wrote")
    if not lines and journal.skipped:
        raise RelaxishError(f"{path}: is damaged, or not a tuning database")
    return lines


def _record(index: int, line: Mapping[str, Any]) -> Record:
    times = [float(t) for t in line.get("run_secs") or []]
    valid = bool(times) and line.get("valid") is not False and not line.get("error") and max(times) < 1e9
    return Record(
        index, sum(times) / len(times) if valid else None, str(line.get("error") or ""), line.get("trace"),
        line.get("predicted"), line.get("time"),
    )  # fmt: skip


def _task_name(line: Mapping[str, Any], script: str) -> str:
    if line.get("name"):
        return str(line["name"])
    found = [a or b for a, b in _FUNC_NAME.findall(script)]
    return next((n for n in found if n != "main"), found[0] if found else str(line["hash"]))


def _target_text(target: Any) -> str:
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


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_plain(v) for v in value) + "]"
    return str(value)
