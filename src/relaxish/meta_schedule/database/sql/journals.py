"""Records carried from and to the files of JSONDatabase, and from one SQL database to another, without making programs
of their traces."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ....support import untrusted
from ....support.errors import DatabaseError, MalformedDataError
from ....support.journal import Journal
from ....support.log import get_logger
from ..database import Workload
from ..json_database import baseline_note
from ..lines import companion, record_fields, workload_fields
from .rows import Measurement, compact_text, key_of_trace
from .sql_database import SQLDatabase

__all__ = ["copy_records", "export_journals", "import_journals"]

_log = get_logger("meta_schedule")
_PIECE = 500
_FILES = ("database_workload.json", "database_tuning_record.json")


class _Arrivals:
    """Measurements on their way into a database; those that are there already are passed over.

    Two measurements are the same if their trace, target, machine and time are; a database that has one twice has it
    twice in the end.
    """

    def __init__(self, database: SQLDatabase) -> None:
        self.database = database
        self.added = 0
        self._present: dict[int, Counter[tuple[Any, ...]]] = {}
        self._waiting: list[tuple[int, Measurement]] = []

    def _key(self, item: Measurement) -> tuple[Any, ...]:
        notes = item.notes
        when = item.run_secs and tuple(item.run_secs) if notes["time"] is None else notes["time"]
        key = key_of_trace(item.instructions, item.decisions)
        return key, compact_text(item.target), notes["hardware"], when

    def take(self, workload: int, item: Measurement) -> None:
        """Store a measurement, soon, unless it is there."""
        if workload not in self._present:
            numbers = [row["id"] for row in self.database.store.numbers(workload)]
            known = self.database.store.measurements(numbers)
            self._present[workload] = Counter(self._key(found) for _, _, found in known)
        key = self._key(item)
        if self._present[workload][key] > 0:
            self._present[workload][key] -= 1
            return
        self._waiting.append((workload, item))
        if len(self._waiting) >= _PIECE:
            self.flush()

    def flush(self) -> None:
        """Store what waits."""
        self.database.store.add(self._waiting)
        self.added += len(self._waiting)
        self._waiting.clear()


def _lines(path: str) -> Iterator[tuple[int, Any]]:
    """The lines of a journal by number; None for one that is no JSON."""
    for number, (_, text) in enumerate(x for x in Journal(path, readonly=True).lines_new() if x[1].strip()):
        try:
            yield number, json.loads(text)
        except (ValueError, RecursionError):
            yield number, None


def _workloads(database: SQLDatabase, path: str) -> tuple[list[str], dict[str, int]]:
    """The hashes of a workload file's lines in order, and the rows of those that can be read."""
    hashes, numbers = [], {}
    for line, value in _lines(path):
        fields = workload_fields(value)
        hashes.append("" if fields is None else str(fields["hash"]))
        try:
            if fields is None:
                raise MalformedDataError("a damaged line")
            workload = Workload.from_json([fields["hash"], fields["graph"]])
            stored = database.commit_named(workload.mod, str(fields.get("name", "")))
        except Exception as err:  # whatever a damaged program does to the reader
            _log.warning("%s, line %d: is left out: %s", path, line + 1, err)
            continue
        numbers[hashes[-1]] = database.number_of(stored)
    return hashes, numbers


def import_journals(database: SQLDatabase, work_dir: str) -> int:
    """Add the records, verdicts and baselines of a tuning directory; how many records are new.

    What is there already is not added again. Lines that cannot be understood are passed over with a warning.
    """
    workloads, records = (os.path.join(work_dir, name) for name in _FILES)
    for path in (workloads, records):
        if not os.path.exists(path):
            raise DatabaseError(f"{work_dir}: no tuning database here ({os.path.basename(path)} is missing)")
    hashes, numbers = _workloads(database, workloads)
    arrivals = _Arrivals(database)
    verdicts: list[tuple[int, Measurement]] = []
    for path in (records, companion(records, "verdict")):
        for line, value in _lines(path) if os.path.exists(path) else ():
            try:
                with untrusted.malformed("a record"):
                    fields = record_fields(value, hashes) or {}
                    number = numbers[fields["workload"]]
                    data = [fields.get(name) for name in ("trace", "run_secs", "target", "args_info")]
                    item = Measurement.of(data, fields)
                    item.instructions, item.decisions, compact_text(item.target)
            except MalformedDataError as err:
                _log.warning("%s, line %d: is left out: %s", path, line + 1, err)
                continue
            if item.notes["again"]:
                verdicts.append((number, item))
            else:
                arrivals.take(number, item)
    arrivals.flush()
    for number, item in verdicts:
        if item.notes["valid"] is not None:
            database.store.judge(number, item)
    path = companion(records, "baseline")
    for _, value in _lines(path) if os.path.exists(path) else ():
        note = baseline_note(value, anywhere=True)
        if note is not None and note[0] in numbers:
            database.store.add_baseline(numbers[note[0]], str(value.get("hardware", "")), note[1], note[2])
    return arrivals.added


def copy_records(source: SQLDatabase, destination: SQLDatabase) -> int:
    """Add the records of one SQL database to another; how many are new."""
    arrivals = _Arrivals(destination)
    for row in source.store.workloads():
        workload = source._resolve(row)
        if workload is None:
            continue
        number = destination.number_of(destination.commit_named(workload.mod, row["name"]))
        for _, _, item in _in_order(source, [r["id"] for r in source.store.numbers(row["id"])]):
            arrivals.take(number, item)
    arrivals.flush()
    return arrivals.added


def _in_order(database: SQLDatabase, numbers: list[int]) -> Iterable[tuple[int, int, Measurement]]:
    for start in range(0, len(numbers), _PIECE):
        yield from sorted(database.store.measurements(numbers[start : start + _PIECE]), key=lambda found: found[0])


def export_journals(database: SQLDatabase, work_dir: str) -> int:
    """Write the files of JSONDatabase into a folder that has none; how many records were written."""
    paths = [os.path.join(work_dir, name) for name in _FILES]
    if any(map(os.path.exists, paths)):
        raise DatabaseError(f"{work_dir}: holds a database already")
    os.makedirs(work_dir, exist_ok=True)
    workloads, records = map(Journal, paths)
    baselines = Journal(companion(paths[1], "baseline"))
    lines: dict[int, tuple[int, str]] = {}
    for line, row in enumerate(database.store.workloads()):
        notes = {"name": row["name"]} if row["name"] else {}
        workloads.append([str(int(row["hash"], 16)), row["graph"], notes])
        lines[row["id"]] = line, row["hash"]
    written = 0
    numbers = [row["id"] for row in database.store.numbers()]
    for start in range(0, len(numbers), _PIECE):
        piece = []
        for _, workload, item in _in_order(database, numbers[start : start + _PIECE]):
            line, key = lines[workload]
            del item.notes["again"]
            notes = {name: value for name, value in item.notes.items() if value is not None and value != ""}
            piece.append([line, [item.trace, item.run_secs, item.target, item.args_info], {"workload": key, **notes}])
        records.extend(piece)
        written += len(piece)
    for number, machine, run_secs, best in database.store.all_baselines():
        note = {"workload": lines[number][1], "run_secs": run_secs, "hardware": machine}
        baselines.append(note if best is None else {**note, "best": best})
    return written
