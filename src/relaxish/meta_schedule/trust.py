"""Records are applied only after a check of what they compute.

A tuning run that was killed leaves records that nobody checked, and so do other programs that write databases. Whoever
applies a record therefore asks here: one without a verdict is compared with its unscheduled program on the spot, the
verdict goes into the database, and where it is bad the next record of the ranking gets its turn.

What becomes of records that cannot be checked (for a GPU that is not there, say, and too large to emulate) is a policy,
the knob ``RELAXISH_UNCHECKED_RECORDS``: ``refuse`` (the default) leaves them out with a warning, ``warn`` applies them
with one, ``trust`` applies every record as it is and checks none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from ..ir import IRModule
from ..ir.structural import structural_hash
from ..support import config
from ..support.errors import RelaxishError
from ..support.log import get_logger
from ..target import Target
from ..tir import Schedule
from .database.database import Database, Seconds, TuningRecord, Workload, is_for, verdict_key
from .verdicts.judge import Judge, Verdict, shared_judge

__all__ = ["check_record", "commit_verdict", "first_trusted", "is_trusted", "may_apply", "scheduled", "verdict_on"]

_log = get_logger("meta_schedule")
_REMEMBERED = 4096
# Verdicts on records whose database keeps none, and on programs that are no records.
_VERDICTS: OrderedDict[Any, Verdict] = OrderedDict()


def scheduled(record: TuningRecord) -> IRModule:
    """The program of a record under its trace."""
    sch = Schedule(record.workload.mod, debug_mask="none", error_render_level="none")
    record.trace.apply_to_schedule(sch, remove_postproc=False)
    return sch.mod


def check_record(record: TuningRecord, target: Target, judge: Judge | None = None) -> Verdict:
    """Compare what a record's trace makes of its program with the program itself."""
    try:
        made = scheduled(record)
    except Exception as err:  # a trace of another version, or a damaged one: this record's misfortune only
        return Verdict(False, f"its trace cannot be applied: {type(err).__name__}: {err}")
    return (judge or shared_judge()).compare(record.workload.mod, made, target)


def commit_verdict(
    database: Database, record: TuningRecord, verdict: Verdict, seconds: list[float] | None = None
) -> None:
    """Write a verdict, and new times if there are some, to record and database."""
    if verdict.valid is None:
        return
    record.numerically_valid = verdict.valid
    if seconds:
        record.run_secs = [Seconds(t) for t in seconds]
    try:
        database.commit_verdict(
            TuningRecord(
                record.trace,
                record.workload,
                record.run_secs,
                record.target,
                record.args_info,
                error_msg=None if verdict.valid else f"wrong result: {verdict.reason}",
                valid=verdict.valid,
                hardware=record.hardware,
                again=True,
            )
        )
    except (RelaxishError, OSError, NotImplementedError) as err:
        # Of a file that may only be read, say: the verdict holds in this process.
        _log.debug("a verdict could not be written: %s", err)


def _remember(key: Sequence[int | str], verdict: Verdict) -> None:
    _VERDICTS[key] = verdict
    while len(_VERDICTS) > _REMEMBERED:
        _VERDICTS.popitem(last=False)


def verdict_on(database: Database, record: TuningRecord, target: Target | None = None) -> Verdict:
    """Verdict on a record, found out now if there is none; a new verdict goes into the database."""
    if record.numerically_valid is not None:
        return Verdict(record.numerically_valid)
    if config.UNCHECKED_RECORDS.value == "trust":
        return Verdict(None, "no record is to be checked")
    where = target or record.target or Target("llvm")
    key = (record.workload.shash, *verdict_key(record), str(where))
    verdict = _VERDICTS.get(key)
    if verdict is None:
        verdict = check_record(record, where)
        _remember(key, verdict)
        if verdict.valid is False:
            _log.error("a record of %s is wrong and is left out: %s", _name_of(record.workload), verdict.reason)
    commit_verdict(database, record, verdict)
    return verdict


def is_trusted(database: Database, record: TuningRecord, target: Target | None) -> bool:
    """Whether a record may be applied: it passed a check, now or before, or the policy lets it through."""
    policy = config.UNCHECKED_RECORDS.value
    if policy == "trust":
        return record.numerically_valid is not False
    return _allowed(verdict_on(database, record, target), _name_of(record.workload), policy)


def may_apply(before: IRModule, after: IRModule, target: Target, name: str) -> bool:
    """Whether a program scheduled with another one's trace may take the place of ``before``."""
    policy = config.UNCHECKED_RECORDS.value
    if policy == "trust":
        return True
    key = structural_hash(before), structural_hash(after), str(target)
    verdict = _VERDICTS.get(key)
    if verdict is None:
        verdict = shared_judge().compare(before, after, target)
        _remember(key, verdict)
        if verdict.valid is False:
            _log.error("what a record makes of %s is wrong and is left out: %s", name, verdict.reason)
    return _allowed(verdict, name, policy)


def _allowed(verdict: Verdict, name: str, policy: str) -> bool:
    if verdict.valid is None:
        _log.warning(
            "a record of %s could not be checked (%s) and is %s; RELAXISH_UNCHECKED_RECORDS says what to do with such",
            name,
            verdict.reason,
            "applied all the same" if policy == "warn" else "left out",
        )
        return policy == "warn"
    return verdict.valid


def _name_of(workload: Workload) -> str:
    names = [var.name_hint for var in workload.mod.functions]
    return f"{', '.join(names)} [{workload.key[:8]}]"


def first_trusted(database: Database, records: Iterable[TuningRecord], target: Target | None) -> TuningRecord | None:
    """The first of a ranking of records that is for this machine and target and computes the right thing."""
    for record in records:
        if is_for(record, target) and is_trusted(database, record, target):
            return record
    return None
