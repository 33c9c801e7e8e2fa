"""Baselines: untuned times of kernels, kept beside the records so that applying a record never slows a model down.

A baseline belongs to a workload: the seconds of its default schedule, measured like any candidate. Databases in files
keep theirs in a journal next to the records (``database_baseline.json``), others in memory.
"""

from __future__ import annotations

from ...dlight import ApplyDefaultSchedule, default_cpu_rules, default_gpu_rules
from ...dlight.cpu import DotWords
from ...ir import IRModule
from ...target import Target
from ..builder.device_artifact import is_device_target
from ..database import (
    Database,
    OrderedUnionDatabase,
    TuningRecord,
    UnionDatabase,
    mean_seconds,
)  # fmt: skip

__all__ = [
    "baseline_seconds",
    "baseline_wins",
    "built_by_default",
    "commit_baseline",
    "default_schedule",
]


def default_schedule(mod: IRModule, target: Target) -> IRModule:
    """The program as an untuned build schedules it."""
    rules = default_gpu_rules(target) if is_device_target(target) else default_cpu_rules(target)
    with target:
        scheduled: IRModule = ApplyDefaultSchedule(*rules)(mod)
    return scheduled


def built_by_default(mod: IRModule, target: Target) -> IRModule:
    """The program as an untuned build runs it, for its time: like :func:`default_schedule`, but on CPUs weights (the buffers
    of ``layout_free_buffers``) come as dot-product instructions want them, so that parameters may be others.
    """
    if is_device_target(target):
        return default_schedule(mod, target)
    with target:
        words: IRModule = DotWords(free_weights=True)(mod)
    return default_schedule(words, target)


def commit_baseline(database: Database, mod: IRModule, seconds: list[float], best: float | None = None) -> None:
    """Note what the default schedule of a workload takes, and the best record in the same run; the last note counts."""
    database.add_baseline(database.commit_workload(mod), seconds, best)


def baseline_seconds(database: Database, mod: IRModule) -> float | None:
    """Seconds of the default schedule, None if it was never measured."""
    if isinstance(database, UnionDatabase | OrderedUnionDatabase):
        known = [s for d in database.databases if (s := baseline_seconds(d, mod)) is not None]
        return min(known, default=None)
    notes = database.baselines()
    if not notes or not database.has_workload(mod):
        return None
    note = notes.get(database.commit_workload(mod).key)
    return mean_seconds(note[0]) if note else None


def baseline_wins(database: Database, mod: IRModule, record: TuningRecord) -> bool:
    """Whether the default schedule was measured to be faster than a record."""
    default = baseline_seconds(database, mod)
    return default is not None and default < mean_seconds(record.run_secs)
