"""Tuning in place: the fastest schedule of each kernel within the model, with caches as the model leaves them.

A kernel measured by itself finds its weights in cache; in a model they come from memory. The last word on a few
finalists for each kernel is therefore a profile of whole models built with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..driver import build
from ..ir import IRModule
from ..ir.module import functions_of
from ..meta_schedule.database import Database, MemoryDatabase, TuningRecord
from ..meta_schedule.analysis.schedules import normalize_mod
from ..meta_schedule.search_strategy.trace_key import trace_key
from ..meta_schedule.trust import verdict_on
from ..pipeline import kernel_pipeline
from ..runtime import VirtualMachine, cpu
from ..support.errors import RelaxishError
from ..target import Target
from ..tir import PrimFunc

__all__ = ["KernelTimes", "kernel_seconds", "settle"]

# Records of a kernel among which finalists are looked for.
_RANKED = 32


@dataclass
class KernelTimes:
    """Seconds one kernel takes in a run of the model, over all its calls: by default, and with each finalist."""

    name: str
    calls: int
    default: float
    tuned: list[float] = field(default_factory=list)

    @property
    def winner(self) -> int | None:
        """Finalist that is faster than the default schedule by more than noise; None if none is."""
        best = min(range(len(self.tuned)), key=self.tuned.__getitem__, default=None)
        return best if best is not None and self.tuned[best] < 0.99 * self.default else None


def _machine(mod: IRModule, target: Target, database: Database) -> VirtualMachine:
    with database:
        return VirtualMachine(build(mod, target), cpu(), profile=True)


def _profile(machines: Sequence[VirtualMachine], inputs: Sequence[Any], rounds: int) -> tuple[list[str], Any]:
    """The kernels in the order called, and for each machine the median seconds of each call; machines take turns."""
    times: list[list[list[float]]] = [[] for _ in machines]
    names: list[str] = []
    for turn in range(rounds):
        for index, machine in enumerate(machines):
            report = machine.profile("main", *inputs)
            calls = [c for c in report.calls if not c["Name"].startswith("vm.")]
            if not turn and not index:
                names = [c["Name"] for c in calls]
            if len(calls) != len(names):
                raise RelaxishError("models to compare call different numbers of kernels")
            times[index].append([c["Duration (us)"].microseconds / 1e6 for c in calls])
    return names, [np.median(t, axis=0) for t in times]


def kernel_seconds(mod: IRModule, target: Target, inputs: Sequence[Any], rounds: int = 5) -> dict[str, float]:
    """Seconds of each kernel of ``kernel_pipeline(target)(mod)`` in one run of the untuned model, over all its calls."""
    names, (seconds,) = _profile([_machine(mod, target, MemoryDatabase())], inputs, rounds)
    sums: dict[str, float] = {}
    for name, value in zip(names, seconds, strict=True):
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def settle(
    mod: IRModule,
    target: Target,
    database: Database,
    destination: Database,
    inputs: Sequence[Any],
    finalists: int = 4,
    rounds: int = 15,
) -> list[KernelTimes]:
    """Try the ``finalists`` best records of each kernel, and the default schedule, inside the model.

    The record that wins goes to ``destination``; kernels whose default schedule wins get none there, so that a build
    with ``destination`` is at least as fast as one without. Returns what was measured.
    """
    kernels = kernel_pipeline(target)(mod)
    programs = {v.name_hint: normalize_mod(f) for v, f in functions_of(kernels, PrimFunc)}
    ranked = {name: _records(database, program, finalists) for name, program in programs.items()}
    depth = max((len(r) for r in ranked.values()), default=0)
    machines = [_machine(mod, target, MemoryDatabase())]
    machines += [_machine(mod, target, _nth(ranked.values(), place)) for place in range(depth)]
    names, seconds = _profile(machines, inputs, rounds)
    times: dict[str, KernelTimes] = {}
    for call, name in enumerate(names):
        entry = times.setdefault(name, KernelTimes(name, 0, 0.0, [0.0] * len(ranked.get(name, ()))))
        entry.calls += 1
        entry.default += float(seconds[0][call])
        for place in range(len(entry.tuned)):
            entry.tuned[place] += float(seconds[place + 1][call])
    for entry in times.values():
        if entry.winner is not None:
            _commit(destination, ranked[entry.name][entry.winner], entry.tuned[entry.winner] / entry.calls)
    return list(times.values())


def _records(database: Database, program: IRModule, count: int) -> list[TuningRecord]:
    """The fastest records of a program, each trace once; half of them variants of the default schedule, if there are.

    Those are alike in how they share work between cores, and so in what they find in each core's cache.
    """
    if not database.has_workload(program):
        return []
    found: dict[str, TuningRecord] = {}
    for record in database.ranked(database.commit_workload(program)):
        if len(found) < _RANKED and verdict_on(database, record).valid is not False:
            found.setdefault(trace_key(record.trace), record)
    variants = [r for r in found.values() if r.trace.insts[0].kind.name == "ApplyRule"]
    searched = [r for r in found.values() if r not in variants]
    first = variants[: max(count // 2, count - len(searched))]
    return [*first, *searched[: count - len(first)]]


def _nth(ranked: Any, place: int) -> Database:
    """A database of the records at one place of each ranking, the last one where a ranking is shorter."""
    database = MemoryDatabase()
    for records in ranked:
        if records:
            record = records[min(place, len(records) - 1)]
            _commit(database, record, 1.0)
    return database


def _commit(database: Database, record: TuningRecord, seconds: float) -> None:
    workload = database.commit_workload(record.workload.mod)
    verdict = record.numerically_valid
    database.commit_tuning_record(
        TuningRecord(record.trace, workload, [seconds], record.target, record.args_info, valid=verdict)
    )
