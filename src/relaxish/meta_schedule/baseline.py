"""How fast a kernel is without tuning, kept beside the records so that applying one never slows a model down.

A baseline belongs to a workload: the seconds of its default schedule, measured like any candidate. Databases in files
keep theirs in a journal next to the records (``database_baseline.json``), others in memory.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

from ..dlight import ApplyDefaultSchedule, default_cpu_rules, default_gpu_rules
from ..ir import IRModule
from ..support.journal import Journal
from ..target import Target
from .arg_info import ArgInfo
from .builder import Builder, BuilderInput
from .builder.device_artifact import is_device_target
from .database import Database, JSONDatabase, OrderedUnionDatabase, TuningRecord, UnionDatabase, mean_seconds
from .runner import LocalRunner, Runner, RunnerInput
from .tune_context import TuneContext

__all__ = [
    "baseline_seconds",
    "baseline_wins",
    "commit_baseline",
    "default_schedule",
    "measure_baseline",
    "measure_baselines",
]

_IN_MEMORY: weakref.WeakKeyDictionary[Database, dict[str, list[float]]] = weakref.WeakKeyDictionary()


def default_schedule(mod: IRModule, target: Target) -> IRModule:
    """The program as an untuned build schedules it."""
    rules = default_gpu_rules(target) if is_device_target(target) else default_cpu_rules(target)
    with target:
        scheduled: IRModule = ApplyDefaultSchedule(*rules)(mod)
    return scheduled


# ---- storage


def baseline_path(database: JSONDatabase) -> str:
    """The journal that belongs to a database in files."""
    folder, name = os.path.split(database.path_tuning_record)
    return os.path.join(
        folder, name.replace("tuning_record", "baseline") if "tuning_record" in name else name + ".baseline"
    )


def _key(database: Database, mod: IRModule) -> str:
    return f"{database.commit_workload(mod).shash & 0xFFFFFFFFFFFFFFFF:016x}"


def _notes(database: Database) -> dict[str, list[float]]:
    if not isinstance(database, JSONDatabase):
        return _IN_MEMORY.get(database, {})
    path = baseline_path(database)
    lines: list[Any] = Journal(path, readonly=True).read() if os.path.exists(path) else []
    return {line["workload"]: line["run_secs"] for line in lines}


def commit_baseline(database: Database, mod: IRModule, seconds: list[float]) -> None:
    """Note what the default schedule of a workload takes; the last note counts."""
    key = _key(database, mod)
    if isinstance(database, JSONDatabase):
        Journal(baseline_path(database)).append({"workload": key, "run_secs": seconds})
    else:
        _IN_MEMORY.setdefault(database, {})[key] = seconds


def baseline_seconds(database: Database, mod: IRModule) -> float | None:
    """What the default schedule takes, None if it was never measured."""
    if isinstance(database, UnionDatabase | OrderedUnionDatabase):
        known = [s for d in database.databases if (s := baseline_seconds(d, mod)) is not None]
        return min(known, default=None)
    notes = _notes(database)
    if not notes or not database.has_workload(mod):
        return None
    note = notes.get(_key(database, mod))
    return mean_seconds(note) if note else None


def baseline_wins(database: Database, mod: IRModule, record: TuningRecord) -> bool:
    """Whether the default schedule was measured to be faster than a record."""
    default = baseline_seconds(database, mod)
    return default is not None and default < mean_seconds(record.run_secs)


# ---- measuring


def measure_baseline(task: TuneContext, database: Database, builder: Builder, runner: Runner) -> float | None:
    """Measure the default schedule of a task and note it; None where the runner cannot, or it does not run."""
    target = task.target
    if not isinstance(runner, LocalRunner) or task.mod is None or target is None:
        return None
    built = builder.build([BuilderInput(default_schedule(task.mod, target), target)])[0]
    if built.artifact_path is None:
        task.logger.warning("the default schedule cannot be built: %s", built.error_msg)
        return None
    args = ArgInfo.from_entry_func(task.mod, remove_preproc=True)
    result = runner.run([RunnerInput(built.artifact_path, target.kind.name, args)])[0].result()
    if not result.run_secs:
        task.logger.warning("the default schedule does not run: %s", result.error_msg)
        return None
    commit_baseline(database, task.mod, result.run_secs)
    return mean_seconds(result.run_secs)


def measure_baselines(tasks: Iterable[TuneContext], database: Database, builder: Builder, runner: Runner) -> None:
    """Measure the default schedule of each task that has none noted yet."""
    for task in tasks:
        assert task.mod is not None
        if baseline_seconds(database, task.mod) is None:
            measure_baseline(task, database, builder, runner)
