"""A database that lives and dies with the process."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import IRModule
from .database import Database, TuningRecord, Workload, rank, top_of, verdict_key

__all__ = ["MemoryDatabase"]


class MemoryDatabase(Database):
    """Workloads and records in plain dictionaries."""

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self._workloads: dict[int, list[Workload]] = {}
        self._records: list[TuningRecord] = []
        self._by_workload: dict[int, list[TuningRecord]] = {}
        self._by_identity: dict[int, tuple[IRModule, Workload]] = {}
        self._verdicts: dict[int, dict[tuple[int, int], bool]] = {}

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
        elif record.numerically_valid is None and id(owner) in self._verdicts:
            # What was found out about one measurement of a trace holds for every other.
            record.numerically_valid = self._verdicts[id(owner)].get(verdict_key(record))
        self._records.append(record)
        mine.append(record)

    def commit_verdict(self, record: TuningRecord) -> None:
        self._judge(self.commit_workload(record.workload.mod), record)

    def _judge(self, owner: Workload, record: TuningRecord) -> bool:
        """Apply a verdict to the earlier measurements of its trace; whether there are some.

        A program that was wrong once stays wrong, even if another check saw nothing.
        """
        key = verdict_key(record)
        verdicts = self._verdicts.setdefault(id(owner), {})
        valid = bool(record.numerically_valid) and verdicts.get(key, True)
        verdicts[key] = valid
        found = False
        for earlier in self._by_workload.get(id(owner), ()):
            if (earlier.numerically_valid is None or not earlier.error_msg) and verdict_key(earlier) == key:
                earlier.numerically_valid = valid
                earlier.run_secs = record.run_secs
                found = True
        return found

    def workloads(self) -> list[Workload]:
        return [w for same in self._workloads.values() for w in same if self._by_workload.get(id(w))]

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        found = self._find(workload.mod)
        return [] if found is None else list(self._by_workload.get(id(found), ()))

    def ranked(self, workload: Workload) -> Iterable[TuningRecord]:
        return rank(self.records_of(workload))

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        return top_of(self.ranked(workload), top_k)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)
