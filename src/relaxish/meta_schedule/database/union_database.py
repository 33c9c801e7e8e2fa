"""Several databases asked as one; writing to them is an error."""

from __future__ import annotations

from typing import NoReturn

from ...ir import IRModule
from ...target import Target
from .database import Database, TuningRecord, Workload, mean_seconds

__all__ = ["OrderedUnionDatabase", "UnionDatabase"]


class _ReadOnly(Database):
    def __init__(self, *databases: Database) -> None:
        super().__init__("structural")
        for database in databases:
            if not isinstance(database, Database):
                raise TypeError(f"expected a Database, got {type(database).__name__}")
        self.databases = list(databases)

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} only answers queries; {what} one of its members instead")

    def has_workload(self, mod: IRModule) -> bool:
        self._refuse("ask")

    def commit_workload(self, mod: IRModule) -> Workload:
        self._refuse("commit to")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self._refuse("commit to")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        self._refuse("ask")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        self._refuse("ask")

    def __len__(self) -> int:
        self._refuse("ask")


class UnionDatabase(_ReadOnly):
    """The best record any member has."""

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str = "main") -> TuningRecord | None:
        found = [r for d in self.databases if (r := d.query_tuning_record(mod, target, workload_name)) is not None]
        return min(found, key=lambda r: mean_seconds(r.run_secs), default=None)


class OrderedUnionDatabase(_ReadOnly):
    """The record of the first member that has one."""

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str = "main") -> TuningRecord | None:
        for database in self.databases:
            record = database.query_tuning_record(mod, target, workload_name)
            if record is not None:
                return record
        return None
