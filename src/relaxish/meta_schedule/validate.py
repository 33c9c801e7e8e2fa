"""Winners are checked numerically against the program they were made from and timed again before they are trusted."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from ..target import Target
from ..tir.analysis import estimate_tir_flops
from .arg_info import ArgInfo
from .baseline import default_schedule
from .builder import Builder, BuilderInput
from .builder.device_artifact import is_device_target
from .builder.local_builder import build_whole
from .database import Database, TuningRecord
from .runner import LocalRunner, Runner, RunnerInput
from .schedule_util import remove_weight_layout_rewrite
from .tune_context import TuneContext

__all__ = ["trusted_winners"]

# Naive loops do this much in about a second.
_NAIVE_FLOPS = 5e8


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
            reference = _reference(task, runner)
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
        database.commit_tuning_record(
            TuningRecord(
                record.trace,
                workload,
                seconds or record.run_secs,
                record.target,
                record.args_info,
                valid=valid,
                error_msg=None if valid else f"wrong result: {reason}",
                again=True,
            )
        )
    best = database.get_top_k(workload, 1)
    return best[0] if best else None


def _reference(task: TuneContext, runner: LocalRunner) -> bytes:
    """What winners are compared with: the program by its default schedule, since naive loops may run for minutes.

    Where they take less, the default schedule is held to the unscheduled program first, and gives way to it if wrong.
    """
    assert task.mod is not None
    target: Any = task.target
    if target is not None and is_device_target(target):
        # What a device computes is held to the host.
        target = target.host if target.host is not None and not is_device_target(target.host) else Target("llvm")
    default = task.mod if target is None else default_schedule(task.mod, target)
    # Whole: default schedules, too, may pack weights.
    reference = build_whole(default, target)
    if default is task.mod or not _is_quick(task.mod):
        return reference
    plain = build_whole(task.mod, target)
    valid, reason = runner.check(reference, plain, ArgInfo.from_entry_func(task.mod, remove_preproc=True))
    if valid is False:
        task.logger.error("the default schedule computes something else than the program: %s", reason)
        return plain
    return reference


def _is_quick(mod: IRModule) -> bool:
    try:
        return estimate_tir_flops(mod) <= _NAIVE_FLOPS
    except ValueError:  # the extent of a loop is known only at run time
        return False


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
