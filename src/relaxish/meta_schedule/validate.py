"""Winners are checked numerically against the unscheduled program and timed again before they are trusted."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from .builder import Builder, BuilderInput
from .builder.local_builder import build_whole
from .database import Database, TuningRecord
from .runner import LocalRunner, Runner, RunnerInput
from .schedule_util import remove_weight_layout_rewrite
from .tune_context import TuneContext

__all__ = ["trusted_winners"]


def trusted_winners(
    task: TuneContext, database: Database, builder: Builder, runner: Runner, finalists: int = 3
) -> TuningRecord | None:
    """The fastest record that computes the right thing; the verdicts and new times go into the database.

    Runners that cannot compare outputs leave the ranking as it is.
    """
    if not isinstance(runner, LocalRunner) or task.mod is None or not database.has_workload(task.mod):
        return None
    workload = database.commit_workload(task.mod)
    target: Any = task.target
    reference = None
    confirmed = 0
    for record in database.get_top_k(workload, 4 * finalists):
        if confirmed >= finalists:
            break
        if record.numerically_valid is not None:
            confirmed += record.numerically_valid
            continue
        if reference is None:
            # Whole: rule-based schedules, too, may pack weights.
            reference = build_whole(_plain_program(task.mod, target), target)
        valid, reason, seconds = _check(record, builder, runner, reference, target)
        if valid is None:
            task.logger.warning("a winner could not be checked: %s", reason)
            continue
        confirmed += valid
        if not valid:
            task.logger.error("a fast candidate computes something else and is discarded: %s", reason)
        record.numerically_valid = valid
        if seconds:
            record.run_secs = seconds
        database.commit_tuning_record(TuningRecord(
            record.trace, workload, seconds or record.run_secs, record.target, record.args_info, valid=valid,
            error_msg=None if valid else f"wrong result: {reason}", again=True))
    best = database.get_top_k(workload, 1)
    return best[0] if best else None


def _plain_program(mod: IRModule, target: Any) -> IRModule:
    """The program winners are compared with: by rule-based schedules, since naive loops may run for minutes."""
    from ..dlight import ApplyDefaultSchedule, default_cpu_rules

    if target is None or target.get_target_device_type() != 1:
        return mod
    with target:
        plain: IRModule = ApplyDefaultSchedule(*default_cpu_rules(target))(mod)
    return plain


def _check(
    record: TuningRecord, builder: Builder, runner: LocalRunner, reference: bytes, target: Any
) -> tuple[bool | None, str, list[float] | None]:
    candidate = record.as_measure_candidate()
    mod = candidate.sch.mod
    built = builder.build([BuilderInput(mod, target)])[0]
    if not isinstance(built.artifact_path, bytes):
        return None, built.error_msg or "no code in memory", None
    args = record.args_info or []
    repacked = remove_weight_layout_rewrite(mod) is not mod
    if repacked:
        # Candidates run on weights packed ahead; the packing itself is part of what must be right.
        whole = build_whole(mod, target)
        valid, reason = runner.check(whole, reference, args)
    else:
        valid, reason = runner.check(built.artifact_path, reference, args)
    if not valid:
        return valid, reason, None
    again = runner.run([RunnerInput(built.artifact_path, target.kind.name, args)])[0].result()
    return True, "", again.run_secs
