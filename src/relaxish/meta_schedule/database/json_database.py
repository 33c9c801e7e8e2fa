"""A database of two journals: workloads as readable program text, records as one JSON line each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ...ir import IRModule
from ...support.errors import RelaxishError
from ...support.journal import Journal
from ...support.log import get_logger
from .database import TuningRecord, Workload
from .lines import record_fields, workload_fields
from .memory_database import MemoryDatabase

__all__ = ["JSONDatabase"]

_log = get_logger("meta_schedule")


class JSONDatabase(MemoryDatabase):
    """Survives ``kill -9`` at any moment; several processes may write to the same files.

    Without paths, ``work_dir`` holds ``database_workload.json`` and ``database_tuning_record.json``.
    """

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
        self._workload_file = Journal(path_workload)
        self._record_file = Journal(path_tuning_record)
        self._by_hash: dict[str, Workload] = {}
        self._hashes: list[str] = []
        self.refresh()

    def refresh(self) -> int:
        """Read what other processes added; returns how many records are new."""
        new_records = self._record_file.read_new()
        # Read after the records: a record's workload is always written first.
        for line in self._workload_file.read_new():
            fields = workload_fields(line)
            self._hashes.append("" if fields is None else fields["hash"])
            if fields is None or fields["hash"] in self._by_hash:
                continue
            try:
                workload = Workload.from_json([fields["hash"], fields["graph"]])
            except (KeyError, ValueError, TypeError, RelaxishError) as err:
                _log.warning("%s: a workload could not be read: %s", self.path_workload, err)
                continue
            found = super()._find(workload.mod)
            self._by_hash[fields["hash"]] = found or self._insert_workload(workload)
        return sum(self._load_record(line) for line in new_records)

    def _load_record(self, line: Any) -> int:
        fields = record_fields(line, self._hashes)
        workload = None if fields is None else self._by_hash.get(fields.get("workload", ""))
        if fields is None or workload is None:
            _log.warning("%s: skipping a record of an unknown workload", self.path_tuning_record)
            return 0
        data = [fields.get(key) for key in ("trace", "run_secs", "target", "args_info")]
        try:
            super().commit_tuning_record(TuningRecord.from_json(data, workload, fields))
        except (KeyError, ValueError, TypeError, RelaxishError) as err:
            # One unreadable record (an older schedule primitive, say) must not lose the others.
            _log.warning("%s: a record could not be read: %s", self.path_tuning_record, err)
            return 0
        return 1

    def commit_workload(self, mod: IRModule, name: str = "") -> Workload:
        found = self._find(mod)
        if found is None:
            self.refresh()
            found = self._find(mod)
        if found is None:
            found = self._insert_workload(Workload(mod))
            self._by_hash[found.key] = found
            notes = {"name": name} if name else {}
            self._workload_file.append([*found.as_json(), {**notes, "script": mod.script()}])
            self.refresh()
        return found

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self.commit_tuning_records([record])

    def commit_soon(self, record: TuningRecord) -> None:
        self._append([record], sync=False)

    def flush(self) -> None:
        self._record_file.flush()

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        self._append(records, sync=True)

    def _append(self, records: Iterable[TuningRecord], sync: bool) -> None:
        lines = []
        for record in records:
            owner = self.commit_workload(record.workload.mod)
            key = next(key for key, workload in self._by_hash.items() if workload is owner)
            notes = {"workload": key, **record.notes()}
            lines.append([self._hashes.index(key), record.as_json(), notes])
        self._record_file.extend(lines, sync=sync)
        # Reading back our own lines keeps memory and file in the same order as every other process sees.
        self.refresh()
