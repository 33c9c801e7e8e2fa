"""Measuring a space once and for all: every program of a sketch, or a sample of them."""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..ir import IRModule
from ..meta_schedule import TuneContext
from ..meta_schedule.arg_info import ArgInfo
from ..meta_schedule.builder import Builder, LocalBuilder
from ..meta_schedule.database.database import hardware_fingerprint
from ..meta_schedule.measure import Candidate, MeasureEngine, Prebuilt
from ..meta_schedule.measure.status import MeasureStatus
from ..meta_schedule.runner import EvaluatorConfig, LocalRunner, Runner
from ..meta_schedule.search_strategy.replay import apply_trace
from ..meta_schedule.space_generator import SpaceGenerator
from ..support.errors import RelaxishError
from ..target import Target
from ..tir import PrimFunc, Schedule
from .space import RecordedSpace
from .workloads import WORKLOADS

__all__ = ["record", "record_workload"]

Array = np.ndarray[Any, Any]
_BATCH = 128
# Repeats of each round, of at least so many milliseconds: enough for the least of them to be an undisturbed one.
_EVALUATOR = EvaluatorConfig(number=1, repeat=4, min_repeat_ms=1)


class _Recording:
    """Builds a batch of points once and times it in several rounds, each in an order of its own."""

    def __init__(self, space: RecordedSpace, builder: Builder, runner: Runner, rounds: int, seed: int) -> None:
        self.space, self.rounds = space, rounds
        self.engine = MeasureEngine(space.target, builder, runner, overlap=False)
        self.rng = np.random.default_rng(seed)
        generator = SpaceGenerator.create("post-order-apply")
        self.context = TuneContext(space.mod, target=space.target, space_generator=generator, rand_state=1)

    def _program(self, point: int) -> Schedule:
        failures: dict[str, int] = {}
        sch = apply_trace(self.context, self.space.trace_of(point), 1, failures)
        if sch is None:
            raise RelaxishError(f"refused by {', '.join(failures) or 'a primitive'}")
        return sch

    def measure(self, points: Sequence[int]) -> Iterator[tuple[MeasureStatus, list[float]]]:
        """Status of each point, and its times."""
        info = ArgInfo.from_entry_func(self.space.mod, remove_preproc=True)
        built = self.engine.build([Candidate(functools.partial(self._program, int(p)), info) for p in points])
        statuses = [m.status for m in built]
        times: list[list[float]] = [[] for _ in points]
        for _ in range(self.rounds):
            order = [i for i in self.rng.permutation(len(points)) if statuses[i].ok]
            ready = [Prebuilt(artifact, info) for i in order if (artifact := built[i].artifact) is not None]
            for i, measured in zip(order, self.engine.measure(ready), strict=True):
                statuses[i] = measured.status
                times[i] += measured.run_secs
        yield from zip(statuses, times, strict=True)


def record(
    mod: IRModule | PrimFunc,
    space: Callable[[Schedule], Any] | SpaceGenerator | str,
    target: Target | str,
    *,
    name: str = "space",
    sketch: int = 0,
    sample: int | None = 10_000,
    rounds: int = 2,
    builder: Builder | None = None,
    runner: Runner | None = None,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
) -> RecordedSpace:
    """Measure the programs of one sketch of a space: all of them, or ``sample`` random ones where there are more.

    ``space`` is a scheduling function, a space generator or its name, ``sketch`` the number of the sketch that is meant.
    Each program is built once and timed in ``rounds`` rounds, so that a busy moment of the machine does not meet all of
    its repeats. ``watch(done, total)`` is told how far it is. Builder and runner are local ones by default, a builder
    process for each core but one running program at a time.

    Raises UnsupportedSpaceError for sketches that sample something else than tiles and choices, RelaxishError where there
    is no such sketch.
    """
    target = Target(target)
    context = TuneContext(mod, target=target, space_generator=space, rand_state=seed + 1)
    assert context.mod is not None
    sketches = context.generate_design_space()
    if not 0 <= sketch < len(sketches) or sketches[sketch].trace is None:
        raise RelaxishError(f"the space has {len(sketches)} sketches; there is no number {sketch}")
    trace = sketches[sketch].trace.simplified(remove_postproc=True)
    nothing = np.zeros((0, 1))
    empty = RecordedSpace(name, context.mod, trace, target, np.zeros(0), nothing, [])
    points = _points(empty.size, sample, seed)
    before, began = os.getloadavg()[0], datetime.datetime.now(datetime.timezone.utc)
    build = builder or LocalBuilder()
    run = runner or LocalRunner(evaluator_config=_EVALUATOR, num_threads=1)
    recording = _Recording(empty, build, run, rounds, seed)
    found: list[tuple[MeasureStatus, list[float]]] = []
    loads = [before]
    try:
        for start in range(0, len(points), _BATCH):
            found += recording.measure(points[start : start + _BATCH].tolist())
            loads.append(os.getloadavg()[0])
            if watch is not None:
                watch(len(found), len(points))
    finally:
        for given, used in ((builder, build), (runner, run)):
            if given is None and hasattr(used, "shutdown"):
                used.shutdown()
    about = {
        "hardware": hardware_fingerprint(),
        "began": began.isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_before": round(before, 2),
        "load_mean": round(float(np.mean(loads)), 2),
        "rounds": rounds,
    }
    return RecordedSpace(
        name, empty.mod, trace, target, points, _table([t for _, t in found]), [s for s, _ in found], about
    )


def _points(size: int, sample: int | None, seed: int) -> Array:
    if sample is None or sample >= size:
        return np.arange(size)
    return np.sort(np.random.default_rng(seed).choice(size, sample, replace=False))


def _table(times: Sequence[Sequence[float]]) -> Array:
    """``[points, repeats]``, NaN where there is no time."""
    out = np.full((len(times), max((len(t) for t in times), default=1) or 1), np.nan, dtype=np.float32)
    for i, row in enumerate(times):
        out[i, : len(row)] = row
    return out


def record_workload(name: str, target: Target | str = "llvm -num-cores=1", **options: Any) -> RecordedSpace:
    """Measure one of the spaces that come with the package (``gemm``, ``conv2d``, ``softmax``) on this machine."""
    if name not in WORKLOADS:
        raise RelaxishError(f"there is no workload {name!r}; known are {', '.join(WORKLOADS)}")
    program, sketch = WORKLOADS[name]
    return record(program(), sketch, target, name=name, **options)
