"""How fast a kernel is without tuning, kept beside the records so that applying one never slows a model down.

A baseline belongs to a workload: the seconds of its default schedule, measured like any candidate. Databases in files
keep theirs in a journal next to the records (``database_baseline.json``), others in memory.
"""

from __future__ import annotations

import os
import weakref

from ...dlight import ApplyDefaultSchedule, default_cpu_rules, default_gpu_rules
from ...dlight.cpu import DotWords
from ...ir import IRModule
from ...support import config
from ...support.journal import Journal
from ...target import Target
from ..builder.device_artifact import is_device_target
from ..database import (
    Database,
    JSONDatabase,
    OrderedUnionDatabase,
    TuningRecord,
    UnionDatabase,
    hardware_fingerprint,
    mean_seconds,
)  # fmt: skip
from ..database.lines import companion

__all__ = [
    "baseline_seconds",
    "baseline_wins",
    "built_by_default",
    "commit_baseline",
    "default_schedule",
    "read_note",
]

_Notes = dict[str, tuple[list[float], float | None]]
_IN_MEMORY: weakref.WeakKeyDictionary[Database, _Notes] = weakref.WeakKeyDictionary()


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


# ---- storage


def baseline_path(database: JSONDatabase) -> str:
    """The journal that belongs to a database in files."""
    return companion(database.path_tuning_record, "baseline")


def _key(database: Database, mod: IRModule) -> str:
    return f"{database.commit_workload(mod).shash & 0xFFFFFFFFFFFFFFFF:016x}"


def _notes(database: Database) -> _Notes:
    """The default schedules' times and, if known, that of the best record measured in turns with them, by workload."""
    if not isinstance(database, JSONDatabase):
        return _IN_MEMORY.get(database, {})
    path = baseline_path(database)
    found: _Notes = {}
    if not os.path.exists(path):
        return found
    for line in Journal(path, readonly=True).read():
        note = read_note(line)
        if note is not None:
            found[note[0]] = note[1:]
    return found


def read_note(line: object, anywhere: bool = False) -> tuple[str, list[float], float | None] | None:
    """Workload, times and the best record's time of a line of the journal; None for a line that says nothing here.

    Times of other machines count only if ``anywhere``, or ``RELAXISH_ANY_HARDWARE``, asks for them.
    """
    if not isinstance(line, dict) or not isinstance(line.get("workload"), str):
        return None
    hardware, seconds, best = line.get("hardware", ""), line.get("run_secs"), line.get("best")
    if hardware and hardware != hardware_fingerprint() and not anywhere and not config.ANY_HARDWARE.value:
        return None
    if not isinstance(seconds, list) or not seconds or not all(map(_is_time, seconds)):
        return None
    return line["workload"], [float(s) for s in seconds], float(best) if best is not None and _is_time(best) else None


def _is_time(value: float | str) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e10


def commit_baseline(database: Database, mod: IRModule, seconds: list[float], best: float | None = None) -> None:
    """Note what the default schedule of a workload takes, and the best record in the same run; the last note counts."""
    key = _key(database, mod)
    if isinstance(database, JSONDatabase):
        note = {"workload": key, "run_secs": seconds, "hardware": hardware_fingerprint()}
        Journal(baseline_path(database)).append(note if best is None else {**note, "best": best})
    else:
        _IN_MEMORY.setdefault(database, {})[key] = (seconds, best)


def baseline_seconds(database: Database, mod: IRModule) -> float | None:
    """What the default schedule takes, None if it was never measured."""
    if isinstance(database, UnionDatabase | OrderedUnionDatabase):
        known = [s for d in database.databases if (s := baseline_seconds(d, mod)) is not None]
        return min(known, default=None)
    notes = _notes(database)
    if not notes or not database.has_workload(mod):
        return None
    note = notes.get(_key(database, mod))
    return mean_seconds(note[0]) if note else None


def baseline_wins(database: Database, mod: IRModule, record: TuningRecord) -> bool:
    """Whether the default schedule was measured to be faster than a record."""
    default = baseline_seconds(database, mod)
    return default is not None and default < mean_seconds(record.run_secs)
