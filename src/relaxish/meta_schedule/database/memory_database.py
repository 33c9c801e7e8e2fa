"""A database that lives and dies with the process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ir import IRModule
from .database import Database, TuningRecord, Workload, nearest, rank, top_of, verdict_key

__all__ = ["MemoryDatabase"]


@dataclass
class _Judged:
    """Verdicts on the traces of a workload, and by trace the first ``seen`` of its records."""

    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict)
    records: dict[tuple[int, int], list[TuningRecord]] = field(default_factory=dict)
    seen: int = 0

    def of_trace(self, key: tuple[int, int], records: list[TuningRecord]) -> list[TuningRecord]:
        """Those of a workload's records that measured a trace; each record's trace is looked at once."""
        for record in records[self.seen :]:
            self.records.setdefault(verdict_key(record), []).append(record)
        self.seen = len(records)
        return self.records.get(key, [])


class MemoryDatabase(Database):
    """Workloads and records in plain dictionaries."""

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self._workloads: dict[int, list[Workload]] = {}
        self._records: list[TuningRecord] = []
        self._by_workload: dict[int, list[TuningRecord]] = {}
        self._by_identity: dict[int, tuple[IRModule, Workload]] = {}
        self._judged: dict[int, _Judged] = {}

    def _find(self, mod: IRModule) -> Workload | None:
        known = self._by_identity.get(id(mod))
        if known is not None and known[0] is mod:
            return known[1]
        for workload in self._workloads.get(self.module_equality.hash(mod), ()):
            if self.module_equality.equal(workload.mod, mod):
                self._by_identity[id(mod)] = (mod, workload)
                return workload
        return None

    def has_workload(self, mod: IRModule) -> bool:
        return self._find(mod) is not None

    def commit_workload(self, mod: IRModule) -> Workload:
        found = self._find(mod)
        if found is None:
            found = self._insert_workload(Workload(mod))
        return found

    def _insert_workload(self, workload: Workload) -> Workload:
        self._workloads.setdefault(self.module_equality.hash(workload.mod), []).append(workload)
        self._by_identity[id(workload.mod)] = (workload.mod, workload)
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        owner = self.commit_workload(record.workload.mod)
        mine = self._by_workload.setdefault(id(owner), [])
        if record.numerically_valid is not None and (record.again or not record.error_msg):
            known = self._judge(owner, record)
            if record.again and known:
                return
        elif record.numerically_valid is None and id(owner) in self._judged:
            # What was found out about one measurement of a trace holds for every other.
            record.numerically_valid = self._judged[id(owner)].verdicts.get(verdict_key(record))
        self._records.append(record)
        mine.append(record)

    def commit_verdict(self, record: TuningRecord) -> None:
        self._judge(self.commit_workload(record.workload.mod), record)

    def _judge(self, owner: Workload, record: TuningRecord) -> bool:
        """Apply a verdict to the earlier measurements of its trace; whether there are some.

        A program that was wrong once stays wrong, even if another check saw nothing.
        """
        key = verdict_key(record)
        judged = self._judged.setdefault(id(owner), _Judged())
        valid = bool(record.numerically_valid) and judged.verdicts.get(key, True)
        judged.verdicts[key] = valid
        found = False
        for earlier in judged.of_trace(key, self._by_workload.get(id(owner), [])):
            if earlier.numerically_valid is None or not earlier.error_msg:
                earlier.numerically_valid = valid
                earlier.run_secs = record.run_secs
                found = True
        return found

    def workloads(self) -> list[Workload]:
        return [w for same in self._workloads.values() for w in same if self._by_workload.get(id(w))]

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        found = self._find(workload.mod)
        return [] if found is None else list(self._by_workload.get(id(found), ()))

    def similar(self, mod: IRModule, count: int = 8) -> list[Workload]:
        return nearest(mod, self.workloads(), count)

    def ranked(self, workload: Workload) -> Iterable[TuningRecord]:
        return rank(self.records_of(workload))

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        return top_of(self.ranked(workload), top_k)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)
