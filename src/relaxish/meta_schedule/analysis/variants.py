"""Measuring the neighbours of default schedules: the cheapest tuning there is, done before any search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dlight.cpu import contraction_variants
from ...ir import IRModule
from ...tir import PrimFunc
from ..arg_info import ArgInfo
from ..builder import Builder
from ..database import Database, TuningRecord, mean_seconds
from ..measure.engine import MeasureEngine
from ..runner import Runner
from ..search_strategy import MeasureCandidate
from ..search_strategy.trace_key import trace_key
from ..tune_context import TuneContext
from ...support.sequences import of_kind

__all__ = ["measure_variants"]


def measure_variants(
    tasks: Sequence[TuneContext],
    database: Database,
    builder: Builder,
    runner: Runner,
    limit: int = 12,
    watch: Callable[[TuneContext, int, float], None] | None = None,
) -> int:
    """Measure up to ``limit`` variants of each task's default schedule; returns how many records that gave.

    ``watch(task, measured, best_seconds)`` is called after each task.
    """
    total = 0
    for task in tasks:
        count, best = _measure(task, database, builder, runner, limit)
        total += count
        if watch is not None:
            watch(task, count, best)
    return total


def _measure(task: TuneContext, database: Database, builder: Builder, runner: Runner, limit: int) -> tuple[int, float]:
    assert task.mod is not None and task.target is not None
    target = task.target
    func = next(of_kind(task.mod.functions.values(), PrimFunc))
    workload = database.commit_workload(task.mod)
    known = {trace_key(r.trace) for r in database.records_of(workload)}
    schedules = [
        s for s in contraction_variants(func, target, limit) if s.trace is not None and trace_key(s.trace) not in known
    ]
    args = ArgInfo.from_entry_func(IRModule({"main": func}))
    engine = MeasureEngine(target, builder, runner)
    records = []
    for schedule, measured in zip(
        schedules, engine.measure([MeasureCandidate(s, args) for s in schedules]), strict=True
    ):
        assert schedule.trace is not None
        seconds = measured.run_secs or [1e10]
        records.append(
            TuningRecord(
                schedule.trace, workload, seconds, target, args, error_msg=measured.error, status=measured.status
            )
        )
    database.commit_tuning_records(records)
    return len(records), min((mean_seconds(r.run_secs) for r in records), default=float("inf"))
