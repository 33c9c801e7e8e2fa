"""Database of pass-level tuning: modules, their run times, and the traces that led to them.

>>> import tempfile
>>> database = JSONDatabase(work_dir=tempfile.mkdtemp())
>>> workload = database.commit_workload(IRModule())
>>> database.has_workload(IRModule()), database.has_measurement_record(workload, Target("llvm"))
(True, False)
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ...ir import IRModule
from ...support.journal import Journal
from ...support.untrusted import malformed
from ...target import Target
from ...transform.tuning_api.primitives import Trace
from ..database.database import Workload
from ...ir.plain import plain_float

__all__ = ["Database", "JSONDatabase", "TuningRecord"]

_log = logging.getLogger("TuningAPI")
_UNMEASURED = 1e10


class TuningRecord:
    """A trace and the seconds its module took."""

    def __init__(self, trace: Trace, run_secs: Sequence[float] | None = None) -> None:
        self.trace = trace
        self.run_secs = None if run_secs is None else [plain_float(s) for s in run_secs]

    @property
    def mean(self) -> float:
        """The mean of the seconds; a huge number if there are none."""
        return sum(self.run_secs) / len(self.run_secs) if self.run_secs else _UNMEASURED

    def as_json(self, include_irmod: bool = False) -> list[Any]:
        """As plain lists and strings."""
        return [self.trace.as_json(include_irmod), self.run_secs]

    @staticmethod
    def from_json(json_obj: Sequence[Any], in_mod: IRModule | None = None) -> TuningRecord:
        """The inverse of :meth:`as_json`; a trace that was saved without its module needs the module.

        Raises MalformedDataError for anything else.
        """
        with malformed("a record of pass-level tuning"):
            trace, run_secs = json_obj
            return TuningRecord(Trace.from_json(trace, in_mod), run_secs)


class Database(ABC):
    """The interface of a database of pass-level tuning."""

    @abstractmethod
    def has_workload(self, mod: IRModule) -> bool:
        """Whether the module is known."""

    @abstractmethod
    def has_measurement_record(self, workload: Workload, target: Target) -> bool:
        """Whether the module was measured on the target."""

    @abstractmethod
    def has_tuning_record(self, workload: Workload, target: Target) -> bool:
        """Whether there are traces for the module and the target."""

    @abstractmethod
    def commit_workload(self, mod: IRModule) -> Workload:
        """Remember a module."""

    @abstractmethod
    def commit_measurement_record(self, workload: Workload, target: Target, run_secs: Sequence[float]) -> None:
        """Remember a measurement; the first one of a module on a target stays."""

    @abstractmethod
    def commit_tuning_record(self, workload: Workload, target: Target, record: TuningRecord) -> None:
        """Remember a trace."""

    @abstractmethod
    def get_measurement_record(self, workload: Workload, target: Target) -> list[float] | None:
        """The measurement of a module on a target."""

    @abstractmethod
    def get_top_k(self, workload: Workload, target: Target, top_k: int) -> list[TuningRecord]:
        """The ``top_k`` fastest traces."""


class JSONDatabase(Database):
    """A database in three files of one JSON line an entry."""

    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        path_measurement_record: str | None = None,
        work_dir: str | None = None,
        allow_missing: bool = True,
    ) -> None:
        def place(path: str | None, name: str) -> str:
            if path is not None:
                return path
            if work_dir is None:
                raise ValueError(f"`{name}` or `work_dir` must be given")
            return os.path.join(work_dir, f"database_{name.removeprefix('path_')}.json")

        self.path_workload = place(path_workload, "path_workload")
        self.path_tuning_record = place(path_tuning_record, "path_tuning_record")
        self.path_measurement_record = place(path_measurement_record, "path_measurement_record")
        self._workloads: list[Workload | None] = []
        self._by_hash: dict[str, int] = {}
        self._records: dict[str, list[TuningRecord]] = {}
        self._measured: dict[str, list[float]] = {}
        # A line that cannot be read costs itself only; that of a workload keeps its number.
        for line in _lines(self.path_workload, allow_missing):
            if not _try(self.path_workload, self._read_workload, line):
                self._workloads.append(None)
        for line in _lines(self.path_tuning_record, allow_missing):
            _try(self.path_tuning_record, self._read_record, line)
        for line in _lines(self.path_measurement_record, allow_missing):
            _try(self.path_measurement_record, self._read_measurement, line)

    def _read_workload(self, line: bytes) -> None:
        self._remember(Workload.from_json(json.loads(line)))

    def _read_record(self, line: bytes) -> None:
        index, target, data = json.loads(line)
        record = TuningRecord.from_json(data, self._at(index).mod)
        _check_times(record.run_secs or ())
        self._insert(_key(index, Target(target)), record)

    def _read_measurement(self, line: bytes) -> None:
        index, target, run_secs = json.loads(line)
        self._at(index)
        seconds = [float(s) for s in run_secs]
        _check_times(seconds)
        self._measured[_key(index, Target(target))] = seconds

    def _at(self, index: int) -> Workload:
        workload = self._workloads[index] if isinstance(index, int) and index >= 0 else None
        if workload is None:
            raise ValueError(f"there is no workload {index}")
        return workload

    def _remember(self, workload: Workload) -> None:
        self._by_hash[workload.key] = len(self._workloads)
        self._workloads.append(workload)

    def _insert(self, key: str, record: TuningRecord) -> None:
        records = self._records.setdefault(key, [])
        records.append(record)
        records.sort(key=lambda r: r.mean)

    def _place(self, workload: Workload, target: Target) -> tuple[int, str]:
        index = self._by_hash[workload.key]
        return index, _key(index, target)

    def has_workload(self, mod: IRModule) -> bool:
        return Workload(mod).key in self._by_hash

    def has_measurement_record(self, workload: Workload, target: Target) -> bool:
        return self._place(workload, target)[1] in self._measured

    def has_tuning_record(self, workload: Workload, target: Target) -> bool:
        return self._place(workload, target)[1] in self._records

    def commit_workload(self, mod: IRModule) -> Workload:
        workload = Workload(mod)
        known = self._by_hash.get(workload.key)
        if known is not None:
            return self._at(known)
        self._remember(workload)
        _append(self.path_workload, workload.as_json())
        return workload

    def commit_measurement_record(self, workload: Workload, target: Target, run_secs: Sequence[float]) -> None:
        index, key = self._place(workload, target)
        if self._measured.get(key):
            _log.warning("Measurement record for %s already exists. Use the existing one instead.", key)
            return
        self._measured[key] = [plain_float(s) for s in run_secs]
        _append(self.path_measurement_record, [index, target.export(), self._measured[key]])

    def commit_tuning_record(self, workload: Workload, target: Target, record: TuningRecord) -> None:
        index, key = self._place(workload, target)
        self._insert(key, record)
        _append(self.path_tuning_record, [index, target.export(), record.as_json()])

    def get_measurement_record(self, workload: Workload, target: Target) -> list[float] | None:
        return self._measured.get(self._place(workload, target)[1])

    def get_top_k(self, workload: Workload, target: Target, top_k: int) -> list[TuningRecord]:
        if top_k < 0:
            raise ValueError("top_k must be non-negative")
        return self._records.get(self._place(workload, target)[1], [])[:top_k]


def _key(index: int, target: Target) -> str:
    return f"{index}/{target}"


def _lines(path: str, allow_missing: bool) -> list[bytes]:
    if not os.path.exists(path):
        if not allow_missing:
            raise ValueError(f"File doesn't exist: {path}")
        return []
    with Journal(path, readonly=True) as journal:
        return [text for _, text in journal.lines_new() if text.strip()]


def _check_times(seconds: Sequence[float]) -> None:
    if not all(0 <= s <= _UNMEASURED for s in seconds):
        raise ValueError(f"{list(seconds)} are no times")


def _try(path: str, read: Callable[[bytes], None], line: bytes) -> bool:
    try:
        read(line)
    except Exception as err:  # whatever a damaged line does to its reader
        _log.warning("%s: skipping a line that cannot be read: %s", path, err)
        return False
    return True


def _append(path: str, entry: object) -> None:
    with Journal(path) as journal:
        journal.append(entry)
