"""Measurements of tasks as records of ``meta_schedule``: one journal, whichever search measured."""

from __future__ import annotations

from typing import Any

from ...meta_schedule.arg_info import ArgInfo
from ...meta_schedule.database import Database, TuningRecord
from ...support.log import get_logger
from ...te import Schedule as StageSchedule
from ...te.prim_func import create_schedulable
from ...tir import Schedule
from ...ir import IRModule
from ..measure.measure import MeasureInput, MeasureResult

__all__ = ["commit", "workload_of"]

_log = get_logger("autotvm")


def workload_of(sch: Any) -> IRModule:
    """The program of a schedule before anything was done to it."""
    if isinstance(sch, StageSchedule):
        outputs = [op.output(i) for op in sch.outputs for i in range(op.num_outputs)]
        return IRModule({"main": create_schedulable([*sch.inputs, *outputs])[0]})
    raise TypeError(f"expected a schedule by stages, got {type(sch).__name__}")


def commit(database: Database, inp: MeasureInput, res: MeasureResult) -> None:
    """Store one measurement: its program, what was done to it, and its times (none if it failed)."""
    task = inp.task
    try:
        with inp.target:
            sch, _ = task.instantiate(inp.config)
        staged = isinstance(sch, StageSchedule)
        made = sch.block_schedule() if staged else sch
        before: IRModule | None = workload_of(sch) if staged else getattr(task, "mod", None)
        if not isinstance(made, Schedule) or made.trace is None or before is None:
            return
        workload = database.commit_workload(before)
        times = [float(c) for c in res.costs] if int(res.error_no) == 0 else None
        args_info = ArgInfo.from_entry_func(before, remove_preproc=True)
        database.commit_tuning_record(TuningRecord(made.trace, workload, times, inp.target, args_info))
    except Exception as error:  # what cannot be made again has no trace to be stored
        _log.debug("a measurement has no record in the database: %s", error)
