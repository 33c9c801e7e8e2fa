"""The tables as a :class:`Database`: programs, traces and records are made from rows when they are asked for."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....ir import IRModule
from ....support import config
from ....support.errors import DatabaseError
from ....support.log import get_logger
from ....target import Target
from ....tir.schedule import Trace
from ..database import Database, Seconds, TuningRecord, Workload, hardware_fingerprint, mean_seconds, rank, top_of
from ..memory_database import MemoryDatabase
from .rows import Measurement, columns_of_program, digest_of
from .store import Store

__all__ = ["SQLDatabase"]

_log = get_logger("meta_schedule")
# Records made from rows, and instructions of their traces, that are kept in case they are asked for again.
_KEPT = 4096
# Pieces of a ranking: whoever asks wants the first few.
_FIRST, _MORE = 16, 256
# After a write that failed, the next record that need not be durable yet waits so long with all held back.
_PAUSE_SECONDS = 1.0


class SQLDatabase(Database):
    """A database in an SQLite file or on a PostgreSQL server, which several tuners write to at a time.

    ``where`` is a path or an URL (``postgresql://user@host/name``); with ``work_dir`` it is the file
    ``database.sqlite`` there. What is committed survives ``kill -9`` at any moment; opening reads no records. Several
    threads may use one object. Raises DatabaseError where the database cannot be opened, read or written, and
    MissingExtraError where SQLAlchemy or the driver is not installed.
    """

    thread_safe = True
    persistent = True

    def __init__(
        self,
        where: str | os.PathLike[str] | None = None,
        *,
        work_dir: str | None = None,
        module_equality: str = "structural",
        create: bool = True,
        readonly: bool = False,
    ) -> None:
        super().__init__(module_equality)
        if (where is None) == (work_dir is None):
            raise ValueError("give a path or an URL, or work_dir")
        if work_dir is not None:
            where = os.path.join(work_dir, "database.sqlite")
        assert where is not None
        self.store = Store(where, create=create, readonly=readonly)
        # The programs met so far, parsed once.
        self._programs = MemoryDatabase(module_equality)
        self._number: dict[int, int] = {}
        self._workload: dict[int, Workload | None] = {}
        self._made: weakref.WeakValueDictionary[int, TuningRecord] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[int, TuningRecord] = OrderedDict()
        self._sketches: dict[int, tuple[Any, Trace]] = {}
        self._held: list[TuningRecord] = []
        self._try_again = 0.0
        self._run: int | None = None
        self._guard = threading.RLock()

    @property
    def name(self) -> str:
        """Address of the database, without passwords."""
        return self.store.connections.name

    def close(self) -> None:
        """Close its connections; what is asked later opens new ones."""
        self.store.connections.close()

    # ---- workloads

    def _resolve(self, row: Mapping[str, Any]) -> Workload | None:
        """The workload of a row, None if it cannot be read."""
        number = row["id"]
        if number not in self._workload:
            try:
                made = Workload.from_json([row["hash"], row["graph"]])
            except Exception as err:  # whatever a damaged program does to the reader
                _log.warning("%s: a workload could not be read: %s", self.name, err)
                self._workload[number] = None
                return None
            found = self._programs._find(made.mod) or self._programs._insert_workload(made)
            self._workload[number] = found
            self._number.setdefault(id(found), number)
        return self._workload[number]

    def _find(self, mod: IRModule) -> Workload | None:
        with self._guard:
            found = self._programs._find(mod)
            if found is not None and id(found) in self._number:
                return found
            # Other equalities have other hashes: all programs are looked at.
            key = Workload(mod).key if self.module_equality.kind == "structural" else None
            for row in self.store.workloads(key):
                self._resolve(row)
            found = self._programs._find(mod)
            return found if found is not None and id(found) in self._number else None

    def has_workload(self, mod: IRModule) -> bool:
        return self._find(mod) is not None

    def commit_workload(self, mod: IRModule, name: str = "") -> Workload:
        with self._guard:
            found = self._find(mod)
            while found is None:
                made = Workload(mod)
                slots = [row["slot"] for row in self.store.workloads(made.key)]
                _, graph = made.as_json()
                values = {
                    "hash": made.key,
                    "name": name or _name_of(mod),
                    "graph": graph,
                    **columns_of_program(mod),
                }
                number = self.store.add_workload(values, max(slots, default=-1) + 1)
                if number is None:  # somebody else took the place: the same program, or another one of this hash
                    found = self._find(mod)
                    continue
                found = self._programs._find(mod) or self._programs._insert_workload(made)
                self._number[id(found)] = number
                self._workload[number] = found
            return found

    def commit_named(self, mod: IRModule, name: str) -> Workload:
        workload = self.commit_workload(mod, name)
        if name:
            self.store.describe_workload(self.number_of(workload), {"name": name})
        return workload

    def number_of(self, workload: Workload) -> int:
        """The row of a workload, which is stored if it is new."""
        return self._number[id(self.commit_workload(workload.mod))]

    def workloads(self) -> list[Workload]:
        with self._guard:
            found = (self._resolve(row) for row in self.store.workloads(with_records=True))
            return list({id(w): w for w in found if w is not None}.values())

    def similar(self, mod: IRModule, count: int = 8) -> list[Workload]:
        mine = Workload(mod)
        if not mine.shape.structure:
            return []
        rows = self.store.similar(digest_of(mine.shape.structure), mine.key)
        rows.sort(key=lambda row: mine.shape.distance(json.loads(row["sizes"])))
        with self._guard:
            found = (self._resolve(row) for row in rows)
            return list(itertools.islice((w for w in found if w is not None), count))

    # ---- records

    def _records(self, rows: Sequence[Mapping[str, Any]]) -> list[TuningRecord]:
        """The records of rows, in their order, made once; those that cannot be are left out."""
        with self._guard:
            known = {row["id"]: self._made.get(row["id"]) for row in rows}
            missing = [number for number, record in known.items() if record is None]
            for number, workload, item in self.store.measurements(missing):
                known[number] = self._make(number, workload, item)
            found = []
            for row in rows:
                record = known[row["id"]]
                if record is None:
                    continue
                _bring_up_to_date(record, row)
                self._keep(row["id"], record)
                found.append(record)
            return found

    def _keep(self, number: int, record: TuningRecord) -> None:
        self._made[number] = record
        self._kept[number] = record
        self._kept.move_to_end(number)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _make(self, number: int, workload: int, item: Measurement) -> TuningRecord | None:
        if workload not in self._workload:
            for row in self.store.workloads():
                self._resolve(row)
        owner = self._workload.get(workload)
        if owner is None:
            return None
        try:
            data = [self._trace(item.trace), item.run_secs, item.target, item.args_info]
            return TuningRecord.from_json(data, owner, item.notes)
        except Exception as err:  # one unreadable record (an older schedule primitive, say) must not lose the others
            _log.warning("%s: record %d could not be read: %s", self.name, number, err)
            return None

    def _trace(self, data: Sequence[Any]) -> Trace:
        """A trace from JSON; the instructions of a sketch are made once for all its records."""
        instructions, decisions = data
        known = self._sketches.get(id(instructions))
        if known is None or known[0] is not instructions:
            if len(self._sketches) >= _KEPT:
                self._sketches.clear()
            known = self._sketches[id(instructions)] = instructions, Trace.from_json([instructions, []])
        made = known[1].insts
        return Trace(made, {made[index]: decision for index, decision in decisions})

    def _numbers_of(self, workload: Workload) -> list[int]:
        """The rows of a workload: equal programs may have been written under several names."""
        with self._guard:
            found = self._find(workload.mod)
            return [] if found is None else [n for n, w in self._workload.items() if w is found]

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        numbers = self._numbers_of(workload)
        rows = [row for number in numbers for row in self.store.numbers(number)]
        rows.sort(key=lambda row: row["id"])
        return self._records(rows) + [r for r in self._held if r.workload is self._find(workload.mod)]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return self._records(self.store.numbers()) + list(self._held)

    def _ranked(self, workload: Workload, here: str | None, piece: int) -> Iterator[TuningRecord]:
        """The valid records, best first; only those asked for are made."""
        parts = [self._ranking(number, here, piece) for number in self._numbers_of(workload)]
        owner = self._find(workload.mod)
        held = ((mean_seconds(r.run_secs), r) for r in rank(r for r in self._held if r.workload is owner))
        for _, record in heapq.merge(*parts, held, key=lambda item: item[0]):
            yield record

    def _ranking(self, number: int, here: str | None, piece: int) -> Iterator[tuple[float, TuningRecord]]:
        after: tuple[float, int] | None = None
        seen: set[int] = set()
        while rows := self.store.ranking(number, piece, here=here, after=after):
            after = rows[-1]["seconds"], rows[-1]["id"]
            for record in self._records([row for row in rows if row["id"] not in seen]):
                if record.is_valid():
                    yield mean_seconds(record.run_secs), record
            seen.update(row["id"] for row in rows)  # a verdict may move a record while others are looked at
            if len(rows) < piece:
                return
            piece = max(piece, _MORE)

    def ranked(self, workload: Workload) -> Iterable[TuningRecord]:
        return self._ranked(workload, None, _FIRST)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        here = None if config.ANY_HARDWARE.value else hardware_fingerprint()
        return top_of(self._ranked(workload, here, min(max(top_k, 1), _MORE)), top_k)

    def __len__(self) -> int:
        return self.store.count() + len(self._held)

    def left_out(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, device, number in self.store.places():
            if not device and name != hardware_fingerprint():
                counts[name] = counts.get(name, 0) + number
        return counts

    # ---- writing

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self._append([record], durable=True)

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        self._append(records, durable=True)

    def commit_soon(self, record: TuningRecord) -> None:
        self._append([record], durable=False)

    def commit_verdict(self, record: TuningRecord) -> None:
        item = Measurement.of(record.as_json(), {**record.notes(), "again": True})
        if item.notes["valid"] is not None:
            self.store.judge(self.number_of(record.workload), item)

    def _append(self, records: Iterable[TuningRecord], durable: bool) -> None:
        with self._guard:
            wanted = [*self._held, *records]
            if self._held and not durable and time.monotonic() < self._try_again:
                raise DatabaseError(f"cannot write to database {self.name}: it could not take earlier records")
            items = [(self.number_of(r.workload), Measurement.of(r.as_json(), r.notes())) for r in wanted]
            if items:
                self.store.add(items, run=self._run, durable=durable)
            self._held.clear()

    def hold(self, record: TuningRecord) -> bool:
        with self._guard:
            # Its program may be new, and cannot be written either.
            found = self._programs._find(record.workload.mod)
            record.workload = found or self._programs._insert_workload(record.workload)
            self._held.append(record)
            self._try_again = time.monotonic() + _PAUSE_SECONDS
        return True

    @property
    def unwritten(self) -> int:
        return len(self._held)

    def flush(self) -> None:
        with self._guard:
            if self._held:
                self._append([], durable=True)
            self.store.connections.flush()

    # ---- beside the records

    def add_baseline(self, workload: Workload, seconds: Sequence[float], best: float | None) -> None:
        self.store.add_baseline(self.number_of(workload), hardware_fingerprint(), seconds, best)

    def baselines(self) -> dict[str, tuple[list[float], float | None]]:
        here = None if config.ANY_HARDWARE.value else hardware_fingerprint()
        found = self.store.baselines(here)
        keys = {row["id"]: row["hash"] for row in self.store.workloads()} if found else {}
        return {keys[number]: note for number, note in found.items()}

    def begin_run(
        self, target: Target | None, settings: Mapping[str, Any], weights: Mapping[Workload, float], model: str = ""
    ) -> None:
        numbers: dict[int, float] = {}
        for workload, weight in weights.items():
            number = self.number_of(workload)
            numbers[number] = numbers.get(number, 0.0) + weight
        exported = None if target is None else target.export()
        self._run = self.store.begin_run(hardware_fingerprint(), exported, settings, model, numbers)

    def end_run(self, status: str, costs: Iterable[tuple[Workload | None, str, float, int]] = ()) -> None:
        if self._run is None:
            return
        rows = [(None if w is None else self.number_of(w), phase, s, n) for w, phase, s, n in costs]
        self.store.end_run(self._run, status, rows)
        self._run = None


def _name_of(mod: IRModule) -> str:
    """What a program is called that nobody gave a name: as its function, best not ``main``."""
    names = sorted((var.name_hint for var in mod.functions), key=lambda name: name == "main")
    return names[0] if names else ""


def _bring_up_to_date(record: TuningRecord, row: Mapping[str, Any]) -> None:
    """Tell a record that was made earlier what has been found out of it since."""
    if row["valid"] is not None:  # a verdict that could not be written holds in this process
        record.numerically_valid = row["valid"]
    text = row["run_secs"]
    times = None if text is None else json.loads(text)
    if times != record.run_secs:
        record.run_secs = None if times is None else [Seconds(s) for s in times]
