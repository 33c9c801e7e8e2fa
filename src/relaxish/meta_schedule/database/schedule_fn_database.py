"""A database whose records are computed by a function instead of measured."""

from __future__ import annotations

from collections.abc import Callable

from ...ir import IRModule
from ...target import Target
from ...tir import Schedule
from .database import Database, TuningRecord, Workload

__all__ = ["ScheduleFnDatabase"]


class ScheduleFnDatabase(Database):
    """``schedule_fn(sch) -> bool`` schedules in place; True means the schedule is to be used."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def query_schedule(self, mod: IRModule, target: Target, workload_name: str = "main") -> Schedule | None:
        sch = Schedule(mod, debug_mask="all")
        return sch if self.schedule_fn(sch) else None

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str = "main") -> TuningRecord | None:
        sch = self.query_schedule(mod, target, workload_name)
        if sch is None:
            return None
        assert sch.trace is not None
        # A schedule written by the user is the user's word, not something that was found.
        return TuningRecord(sch.trace, Workload(mod, 0), [0.0], target, [], valid=True)

    def has_workload(self, mod: IRModule) -> bool:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no workloads")

    def commit_workload(self, mod: IRModule) -> Workload:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no workloads")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no records")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no records")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no records")

    def __len__(self) -> int:
        raise NotImplementedError("ScheduleFnDatabase computes its answers; it stores no records")
