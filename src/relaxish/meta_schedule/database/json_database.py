"""A database of journals: workloads as readable program text, records as one JSON line each, verdicts on them.

Opening one finds out where each line is and how fast its record was; programs and traces are parsed when they are asked
for (see ``record_index``), so that a hundred thousand records open in seconds. A line that cannot be understood costs
itself only.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir import IRModule
from ...support import config
from ...support.errors import JournalError
from ...support.journal import Journal
from ...support.log import get_logger
from .database import Seconds, TuningRecord, Workload, hardware_fingerprint, mean_seconds, rank, top_of
from .lines import companion, record_fields, workload_fields
from .memory_database import MemoryDatabase
from .record_index import RIGHT, UNKNOWN, WRONG, Entry, RecordIndex, entry_of

__all__ = ["JSONDatabase", "baseline_note"]

_log = get_logger("meta_schedule")


class _Line:
    """One line of the workload file: parsed on first use, ``workload`` None if it cannot be."""

    __slots__ = ("fields", "judged", "number", "parsed", "records", "unsettled", "workload")

    def __init__(self, number: int, fields: dict[str, Any] | None) -> None:
        self.number = number
        self.fields = fields
        self.workload: Workload | None = None
        self.parsed = fields is None
        self.records = array("l")
        self.judged = False
        self.unsettled = False

    @property
    def hash(self) -> str:
        return "" if self.fields is None else str(self.fields["hash"])


class JSONDatabase(MemoryDatabase):
    """Survives ``kill -9`` at any moment; several processes may write to the same files.

    Without paths, ``work_dir`` holds ``database_workload.json`` and ``database_tuning_record.json``, and from the first
    verdict on ``database_verdict.json``. Files that may not be written are opened for reading; committing to them
    raises JournalError.
    """

    thread_safe = True
    persistent = True

    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        *,
        work_dir: str | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        if work_dir is not None:
            path_workload = path_workload or os.path.join(work_dir, "database_workload.json")
            path_tuning_record = path_tuning_record or os.path.join(work_dir, "database_tuning_record.json")
        if path_workload is None or path_tuning_record is None:
            raise ValueError("give both path_workload and path_tuning_record, or work_dir")
        for path in (path_workload, path_tuning_record):
            if not allow_missing and not os.path.exists(path):
                raise ValueError(f"database file {path} does not exist")
        self.path_workload = path_workload
        self.path_tuning_record = path_tuning_record
        self._workload_file = Journal(path_workload, or_readonly=True)
        self._record_file = Journal(path_tuning_record, or_readonly=True)
        self._verdict_path = companion(path_tuning_record, "verdict")
        self._verdict_file: Journal | None = None
        self._index = RecordIndex()
        self._lines: list[_Line] = []
        self._by_hash: dict[str, list[_Line]] = {}
        self._owned: dict[int, list[_Line]] = {}
        self._made: dict[int, TuningRecord | None] = {}
        self._verdicts_at: dict[int, bool] = {}
        self._again: set[int] = set()
        self._times_from: dict[int, int] = {}
        self._keys: dict[int, int] = {}
        # Lines that only say something about an earlier one.
        self._hidden: set[int] = set()
        # Measurements the disk had no room for.
        self._held: list[TuningRecord] = []
        # Results are recorded by whichever thread sees them first.
        self._guard = threading.RLock()
        self.refresh()

    # ---- reading the files

    def refresh(self) -> int:
        """Read what other processes added; returns how many records are new."""
        with self._guard:
            # Found before the workloads are read: a record's workload is always written first.
            end = self._record_file.complete_end()
            for _, text in self._workload_file.lines_new():
                if text.strip():
                    self._add_workload(text)
            lines = self._record_file.lines_new(end)
            added = sum(self._add_entry(offset, len(text), entry_of(text)) for offset, text in lines if text.strip())
            if self._verdict_file is None and os.path.exists(self._verdict_path):
                self._verdict_file = Journal(self._verdict_path, or_readonly=True)
            for offset, text in self._verdict_file.lines_new() if self._verdict_file is not None else ():
                if text.strip():
                    self._add_entry(offset, len(text), entry_of(text), 1)
            return added

    def _add_workload(self, text: bytes) -> None:
        try:
            fields = workload_fields(json.loads(text))
        except (ValueError, RecursionError):
            fields = None
        if fields is None or not isinstance(fields.get("hash"), str):
            _log.warning("%s: skipping a damaged line of %d bytes", self.path_workload, len(text))
            fields = None
        # Lines that say nothing count all the same: records name their workload by its line.
        line = _Line(len(self._lines), fields)
        self._lines.append(line)
        if fields is not None:
            self._by_hash.setdefault(line.hash, []).append(line)

    def _add_entry(self, offset: int, length: int, entry: Entry | None, file: int = 0) -> int:
        path = self._verdict_path if file else self.path_tuning_record
        if entry is None or (file and not entry.again):
            _log.warning("%s: skipping a damaged line of %d bytes", path, length)
            return 0
        line = self._line_of(entry.line, entry.workload)
        if line is None:
            _log.warning("%s: skipping a record of an unknown workload", path)
            return 0
        number = self._index.add(entry, line.number, offset, length, file)
        if file:
            self._hidden.add(number)
        line.records.append(number)
        if entry.shared:
            self._verdicts_at[number] = entry.verdict == RIGHT
        if entry.again:
            self._again.add(number)
        # A later measurement of a trace inherits the verdict on it.
        line.judged = line.judged or entry.shared or entry.again
        line.unsettled = line.judged
        return 1

    def _line_of(self, number: int, name: str) -> _Line | None:
        """The workload line that a record names by number, or by hash where the number is not to be believed."""
        if 0 <= number < len(self._lines):
            line = self._lines[number]
            if line.fields is not None and (not name or line.hash == name):
                return line
        return next(iter(self._by_hash.get(name, ())), None) if name else None

    # ---- workloads

    def _resolve(self, line: _Line) -> Workload | None:
        """The workload of a line, None if it cannot be read."""
        if not line.parsed:
            line.parsed = True
            assert line.fields is not None
            try:
                workload = Workload.from_json([line.fields["hash"], line.fields["graph"]])
                line.workload = super()._find(workload.mod) or self._insert_workload(workload)
            except Exception as err:  # whatever a damaged program does to the reader
                _log.warning("%s: a workload could not be read: %s", self.path_workload, err)
                return None
            line.fields.pop("graph", None)
            line.fields.pop("script", None)
            self._owned.setdefault(id(line.workload), []).append(line)
        return line.workload

    def _find(self, mod: IRModule) -> Workload | None:
        with self._guard:
            found = super()._find(mod)
            if found is not None:
                return found
            likely = self._by_hash.get(Workload(mod).key, []) if self.module_equality.kind == "structural" else []
            for lines in (likely, self._lines):
                for line in lines:
                    if not line.parsed:
                        self._resolve(line)
                found = super()._find(mod)
                if found is not None:
                    return found
            return None

    def commit_named(self, mod: IRModule, name: str) -> Workload:
        return self.commit_workload(mod, name)

    def commit_workload(self, mod: IRModule, name: str = "") -> Workload:
        with self._guard:
            found = self._find(mod)
            if found is None:
                self.refresh()
                found = self._find(mod)
            if found is None:
                made = Workload(mod)
                notes = {"name": name} if name else {}
                self._workload_file.append([*made.as_json(), {**notes, "script": mod.script()}])
                found = self._insert_workload(made)
                self._adopt(found)
            return found

    def _adopt(self, workload: Workload) -> None:
        """Find the line just written, which need not be parsed."""
        self.refresh()
        for line in self._by_hash.get(workload.key, ()):
            if not line.parsed:
                line.parsed, line.workload = True, workload
                self._owned.setdefault(id(workload), []).append(line)

    def workloads(self) -> list[Workload]:
        with self._guard:
            for line in self._lines:
                self._resolve(line)
            return [w for same in self._workloads.values() for w in same if self._numbers(w)]

    # ---- records

    def _numbers(self, workload: Workload) -> list[int]:
        """The records of a workload in the order of the file, after what later lines say of them."""
        lines = self._owned.get(id(workload), ())
        for line in lines:
            self._settle(line)
        merged = heapq.merge(*(line.records for line in lines))
        return [n for n in merged if n not in self._hidden and self._made.get(n, True) is not None]

    def _settle(self, line: _Line) -> None:
        """Apply the verdicts among a line's records to every measurement of the same trace for the same target."""
        if not line.unsettled:
            return
        line.unsettled = False
        same: dict[int, list[int]] = {}
        for number in line.records:
            if number not in self._keys:
                entry = entry_of(self._text(number), with_key=True)
                self._keys[number] = hash((number,) if entry is None else entry.key)
            same.setdefault(self._keys[number], []).append(number)
        for numbers in same.values():
            verdicts = [n for n in numbers if n in self._verdicts_at]
            if verdicts:
                self._apply(numbers, verdicts)

    def _apply(self, numbers: list[int], verdicts: list[int]) -> None:
        """Tell the measurements of one trace what the verdicts among them say."""
        measured = [n for n in numbers if n not in self._again]
        if not measured:  # the measurement they speak of is not in this file
            measured = [n for n in verdicts if not self._index.files[n]][-1:]
        self._hidden.update(n for n in numbers if n not in measured)
        self._hidden.difference_update(measured)
        # A program that was wrong once stays wrong, even if another check saw nothing.
        valid = all(self._verdicts_at[n] for n in verdicts)
        position = self._index.positions
        latest = max((n for n in verdicts if n in self._again), key=lambda n: (position[n], n), default=None)
        for number in measured:
            if self._index.verdicts[number] == WRONG and number not in self._verdicts_at:
                continue  # a failure of its own, a crash say
            self._index.verdicts[number] = RIGHT if valid else WRONG
            if latest is not None and (position[number], number) < (position[latest], latest):
                self._index.seconds[number] = self._index.seconds[latest]
                self._times_from[number] = latest
            if self._made.get(number) is not None:
                self._overrule(number)

    def _overrule(self, number: int) -> None:
        """Bring a record that was made to what later lines say of it."""
        record = self._made[number]
        if record is None or self._index.verdicts[number] == UNKNOWN:
            return
        record.numerically_valid = self._index.verdicts[number] == RIGHT
        latest = self._times_from.get(number)
        if latest is not None:
            fields = record_fields(json.loads(self._text(latest)))
            if fields is not None and fields.get("run_secs"):
                record.run_secs = [Seconds(t) for t in fields["run_secs"]]

    def _text(self, number: int) -> bytes:
        file = self._verdict_file if self._index.files[number] else self._record_file
        assert file is not None
        return file.read_at(self._index.offsets[number], self._index.lengths[number])

    def _record(self, number: int) -> TuningRecord | None:
        """The record of a line, made on first use; None if it cannot be."""
        if number not in self._made:
            line = self._lines[self._index.owners[number]]
            workload = self._resolve(line)
            made = None
            try:
                fields = record_fields(json.loads(self._text(number)))
                if fields is not None and workload is not None:
                    data = [fields.get(key) for key in ("trace", "run_secs", "target", "args_info")]
                    made = TuningRecord.from_json(data, workload, fields)
            except (
                Exception
            ) as err:  # one unreadable record (an older schedule primitive, say) must not lose the others
                _log.warning("%s: a record could not be read: %s", self.path_tuning_record, err)
            self._made[number] = made
            self._overrule(number)
        return self._made[number]

    def _all(self, numbers: Iterable[int]) -> list[TuningRecord]:
        found = (self._record(n) for n in numbers)
        return [r for r in found if r is not None]

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        with self._guard:
            found = self._find(workload.mod)
            if found is None:
                return []
            return self._all(self._numbers(found)) + [r for r in self._held if r.workload is found]

    def _ranked(self, workload: Workload) -> Iterator[TuningRecord]:
        """The valid records of a workload, best first; only those asked for are made."""
        with self._guard:
            found = self._find(workload.mod)
            numbers = [] if found is None else self._numbers(found)
            held = rank(r for r in self._held if r.workload is found)
        seconds = self._index.seconds
        good = sorted((n for n in numbers if seconds[n] < math.inf), key=seconds.__getitem__)
        made = ((seconds[n], r) for n in good if (r := self._make(n)) is not None and r.is_valid())
        for _, record in heapq.merge(made, ((mean_seconds(r.run_secs), r) for r in held), key=lambda item: item[0]):
            yield record

    def _make(self, number: int) -> TuningRecord | None:
        with self._guard:
            return self._record(number)

    def ranked(self, workload: Workload) -> Iterable[TuningRecord]:
        return self._ranked(workload)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        return top_of(self._ranked(workload), top_k)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        with self._guard:
            owned = {n for w in self.workloads() for n in self._numbers(w)}
            return self._all(sorted(owned)) + self._held

    def __len__(self) -> int:
        with self._guard:
            for line in self._lines:
                self._settle(line)
            dead = sum(1 for n, r in self._made.items() if r is None and n not in self._hidden)
            return len(self._index) - len(self._hidden) - dead + len(self._held)

    def left_out(self) -> dict[str, int]:
        with self._guard:
            counts: dict[str, int] = {}
            for number in range(len(self._index)):
                name = self._index.hardware(number)
                if name and name != hardware_fingerprint() and number not in self._hidden:
                    counts[name] = counts.get(name, 0) + 1
            return counts

    # ---- writing

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self.commit_tuning_records([record])

    def commit_verdict(self, record: TuningRecord) -> None:
        with self._guard:
            if self._record_file.readonly:
                raise JournalError(f"journal {self._record_file.path} was opened read-only")
            if self._verdict_file is None:
                self._verdict_file = Journal(self._verdict_path, or_readonly=True)
            line = self._line(record)
            self._verdict_file.append(
                [*line[:2], {**line[2], "again": True, "after": self._record_file.complete_end()}]
            )
            self.refresh()

    def commit_soon(self, record: TuningRecord) -> None:
        self._append([record], sync=False)

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        self._append(records, sync=True)

    def hold(self, record: TuningRecord) -> bool:
        with self._guard:
            record.workload = self.commit_workload(record.workload.mod)
            self._held.append(record)
        return True

    @property
    def readable(self) -> bool:
        """Whether any line of the record file could be understood."""
        return len(self._index) > 0

    @property
    def unwritten(self) -> int:
        return len(self._held)

    def flush(self) -> None:
        """Make everything durable, what was held back included. Raises JournalError if that cannot be done."""
        with self._guard:
            if self._held:
                self._append([], sync=True)
            self._record_file.flush()

    # ---- baselines

    def add_baseline(self, workload: Workload, seconds: Sequence[float], best: float | None) -> None:
        note = {"workload": workload.key, "run_secs": list(seconds), "hardware": hardware_fingerprint()}
        Journal(companion(self.path_tuning_record, "baseline")).append(note if best is None else {**note, "best": best})

    def baselines(self) -> dict[str, tuple[list[float], float | None]]:
        path = companion(self.path_tuning_record, "baseline")
        lines = Journal(path, readonly=True).read() if os.path.exists(path) else []
        return {note[0]: note[1:] for line in lines if (note := baseline_note(line)) is not None}

    def _append(self, records: Iterable[TuningRecord], sync: bool) -> None:
        with self._guard:
            wanted = [*self._held, *records]
            self._record_file.extend([self._line(record) for record in wanted], sync=sync)
            self._held.clear()
            # Reading back our own lines keeps memory and file in the same order as every other process sees.
            self.refresh()

    def _line(self, record: TuningRecord) -> list[Any]:
        """A record as a line of a file; its workload is written first if it is new."""
        line = self._owned[id(self.commit_workload(record.workload.mod))][0]
        return [line.number, record.as_json(), {"workload": line.hash, **record.notes()}]


def baseline_note(line: object, anywhere: bool = False) -> tuple[str, list[float], float | None] | None:
    """Workload, times and the best record's time of a line about a default schedule; None for a line that says nothing.

    Times of other machines count only if ``anywhere``, or ``RELAXISH_ANY_HARDWARE``, asks for them.
    """
    if not isinstance(line, dict) or not isinstance(line.get("workload"), str):
        return None
    hardware, seconds, best = line.get("hardware", ""), line.get("run_secs"), line.get("best")
    if hardware and hardware != hardware_fingerprint() and not anywhere and not config.ANY_HARDWARE.value:
        return None
    if not isinstance(seconds, list) or not seconds or not all(map(_is_time, seconds)):
        return None
    return line["workload"], [float(s) for s in seconds], float(best) if best is not None and _is_time(best) else None


def _is_time(value: float | str) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e10
