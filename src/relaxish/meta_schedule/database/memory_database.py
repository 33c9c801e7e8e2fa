"""A database that lives and dies with the process."""

from __future__ import annotations

from ...ir import IRModule
from .database import Database, TuningRecord, Workload, rank

__all__ = ["MemoryDatabase"]


class MemoryDatabase(Database):
    """Workloads and records in plain dictionaries."""

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self._workloads: dict[int, list[Workload]] = {}
        self._records: list[TuningRecord] = []
        self._by_workload: dict[int, list[TuningRecord]] = {}
        self._by_identity: dict[int, tuple[IRModule, Workload]] = {}

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
        if record.numerically_valid is not None:
            # A verdict counts for every earlier measurement of the same trace, after a reload as well.
            from ..search_strategy.trace_key import trace_key

            key = trace_key(record.trace)
            for earlier in mine:
                if earlier.numerically_valid is None and trace_key(earlier.trace) == key:
                    earlier.numerically_valid = record.numerically_valid
                    earlier.run_secs = record.run_secs
        self._records.append(record)
        mine.append(record)

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        found = self._find(workload.mod)
        return [] if found is None else list(self._by_workload.get(id(found), ()))

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        return rank(self.records_of(workload), top_k)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)
