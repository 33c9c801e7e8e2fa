"""Winners are checked numerically against the program they were made from and timed again before they are trusted."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from ...ir import IRModule
from ..arg_info import ArgInfo
from .baseline import built_by_default, commit_baseline
from ..builder import Builder
from ..database import Database, TuningRecord, Workload
from ..database.database import is_for
from .judge import Judge, Verdict, shared_judge
from ..measure.candidate import Candidate, Prebuilt
from ..measure.engine import MeasureEngine
from ..runner import LocalRunner, Runner
from ..trust import check_record, commit_verdict, scheduled
from ..tune_context import TuneContext

__all__ = ["race", "trusted_winners"]

# As often finalists and default schedule take turns.
_TURNS = 3
# So many records in a row that cannot be checked, and no other can.
_HOPELESS = 8


def trusted_winners(
    task: TuneContext,
    database: Database,
    builder: Builder,
    runner: Runner,
    finalists: int = 3,
    *,
    baseline: bool = False,
    judge: Judge | None = None,
) -> TuningRecord | None:
    """The fastest record that computes the right thing; the verdicts and new times go into the database.

    Records are checked down the ranking until ``finalists`` of them are right, however many are not. These are then
    timed again in turns, with ``baseline`` together with the default schedule, whose time is noted beside them.
    Runners of others leave the ranking as it is: their records are checked when they are applied.
    """
    if not isinstance(runner, LocalRunner) or task.mod is None or not database.has_workload(task.mod):
        return None
    workload = database.commit_workload(task.mod)
    right = _checked(task, database, workload, finalists, judge or shared_judge())
    race(task, database, builder, runner, right, baseline)
    best = _top(database, workload, task, 1, ())
    return best[0] if best else None


def _checked(
    task: TuneContext, database: Database, workload: Workload, finalists: int, judge: Judge
) -> list[TuningRecord]:
    """The fastest records that passed a check, unchecked ones before them checked now."""
    unknown: list[TuningRecord] = []
    while True:
        top = _top(database, workload, task, finalists, unknown)
        record = next((r for r in top if r.numerically_valid is None), None)
        if record is None or task.target is None:
            return top
        verdict = check_record(record, task.target, judge)
        if verdict.valid is None:
            task.logger.warning("a winner could not be checked: %s", verdict.reason)
            unknown.append(record)
            if len(unknown) >= _HOPELESS:
                return [r for r in top if r.numerically_valid]
        else:
            if not verdict.valid:
                task.logger.error("a fast candidate computes something else and is discarded: %s", verdict.reason)
            commit_verdict(database, record, verdict)


def _top(
    database: Database, workload: Workload, task: TuneContext, count: int, unknown: Sequence[TuningRecord]
) -> list[TuningRecord]:
    left_out = {id(r) for r in unknown}
    ranking = (r for r in database.ranked(workload) if id(r) not in left_out and is_for(r, task.target))
    return list(itertools.islice(ranking, count))


def race(
    task: TuneContext,
    database: Database,
    builder: Builder,
    runner: Runner,
    records: Sequence[TuningRecord],
    baseline: bool,
) -> None:
    """Time records, with ``baseline`` the default schedule as well, in turns; their times go into the database."""
    target = task.target
    if target is None or task.mod is None or not (records or baseline):
        return
    programs: list[IRModule] = [built_by_default(task.mod, target)] if baseline else []
    # Of the default schedule's own parameters: weights may be packed for it.
    given = [ArgInfo.from_entry_func(program, remove_preproc=True) for program in programs]
    programs += [scheduled(r) for r in records]
    given += [ArgInfo.from_entry_func(task.mod, remove_preproc=True)] * len(records)
    engine = MeasureEngine(target, builder, runner)
    built = engine.build([Candidate(lambda p=p: p, args) for p, args in zip(programs, given, strict=True)])  # type: ignore[misc]
    running = [(i, Prebuilt(b.artifact, given[i])) for i, b in enumerate(built) if b.artifact is not None] * _TURNS
    times: dict[int, list[float]] = {}
    for (index, _), measured in zip(running, engine.measure([b for _, b in running]), strict=True):
        if measured.ok:
            times.setdefault(index, []).append(measured.mean)
        elif index < baseline:
            task.logger.warning("the default schedule does not run: %s", measured.error)
    for index, record in enumerate(records, start=int(baseline)):
        seconds = times.get(index)
        if seconds is not None and record.numerically_valid:
            commit_verdict(database, record, Verdict(True), [statistics.median(seconds)])
    if baseline and 0 in times:
        tuned = [statistics.median(t) for index, t in times.items() if index]
        commit_baseline(database, task.mod, [statistics.median(times[0])], min(tuned, default=None))
