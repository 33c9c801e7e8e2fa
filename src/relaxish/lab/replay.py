"""Builder and runner that look up what was measured: searches replayed without compiling or running anything.

Candidates are known by their number, which the space's own generator writes into each program (a postproc of its last
step), so that a look-up costs microseconds.
"""

from __future__ import annotations

import collections
import functools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..ir import IRModule
from ..meta_schedule.analysis.schedules import schedule_for_tuning
from ..meta_schedule.builder import Builder, BuilderInput, BuilderResult
from ..meta_schedule.measure.status import MeasureStatus
from ..meta_schedule.mutator import Mutator
from ..meta_schedule.postproc import Postproc
from ..meta_schedule.runner import Runner, RunnerFuture, RunnerInput, RunnerResult
from ..meta_schedule.space_generator import SpaceGenerator
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from ..tir import PrimFunc
from ..tir.schedule import Schedule, Trace
from .space import RecordedSpace

__all__ = ["Noise", "RecordedGenerator", "ReplayBuilder", "ReplayRunner"]

_MARK = "relaxish.lab.point"


class _NamePoint(Postproc):
    """Writes a program's number on it; refuses programs that were not recorded."""

    def __init__(self, space: RecordedSpace) -> None:
        self.space = space

    def apply(self, sch: Schedule) -> bool:
        point = None if sch.trace is None else self.space.point_of(sch.trace)
        if point is None or point not in self.space:
            return False
        sch.annotate(sch.get_block("root"), _MARK, f"{self.space.name}:{point}")
        return True

    def clone(self) -> _NamePoint:
        return _NamePoint(self.space)


class _Unmade(Schedule):
    """A candidate of a recorded space: its trace is known, the rest is made when somebody asks for it."""

    def __init__(self, trace: Trace, make: Callable[[], Schedule]) -> None:
        self._trace, self._make = trace, make

    def __getattr__(self, name: str) -> Any:
        make = self.__dict__.pop("_make", None)
        if make is None:
            raise AttributeError(f"a schedule has no attribute {name!r}")
        self.__dict__.update(make().__dict__)
        return getattr(self, name)


class RecordedGenerator(SpaceGenerator):
    """The one sketch of a recorded space, for tasks of ``meta_schedule``.

    Mutators (``mutator_probs``) and postprocs are those of the target's kind unless others are given; a program that was
    not recorded is refused like one that a postproc does not like. With ``lazy`` the programs of candidates that ran when
    they were recorded are made when somebody looks at them, which strategies do not.
    """

    def __init__(
        self,
        space: RecordedSpace,
        postprocs: Sequence[Postproc] | str = "from-target",
        mutator_probs: dict[Mutator, float] | str = "from-target",
        lazy: bool = False,
    ) -> None:
        super().__init__((), postprocs, mutator_probs)
        self.space, self.lazy = space, lazy

    def _initialize_with_tune_context(self, context: object) -> None:
        self.postprocs.append(_NamePoint(self.space))

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        sch = Schedule(mod, seed=None if self._context is None else self._context.fork_seed())
        self.space.trace.apply_to_schedule(sch, remove_postproc=True)
        return [sch]

    def known_candidate(self, trace: Trace, seed: int) -> Schedule | None:
        if not self.lazy or self._context is None or self._context.mod is None:
            return None
        decided = self.space.decided(trace, random.Random(seed))
        point = None if decided is None else self.space.point_of(decided)
        if decided is None or point is None or point not in self.space:
            return None
        status = self.space.statuses[self.space.row(point)]
        return _Unmade(decided, functools.partial(self._program, decided)) if status.ok else None

    def _program(self, trace: Trace) -> Schedule:
        """The candidate of a trace, made now. Raises RelaxishError where it cannot be."""
        assert self._context is not None and self._context.mod is not None
        sch = schedule_for_tuning(self._context.mod, 1)
        trace.apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        for postproc in self.postprocs:
            if not postproc.apply(sch):
                raise RelaxishError(
                    f"{self.space.name}: {type(postproc).__name__} refuses a program that was recorded; record it again"
                )
        return sch


def _mark_of(mod: IRModule) -> str | None:
    for func in of_kind(mod.functions.values(), PrimFunc):
        block = getattr(getattr(func.body, "block", None), "annotations", None)
        if block and _MARK in block:
            return str(block[_MARK])
    return None


class ReplayBuilder(Builder):
    """ "Builds" programs of recorded spaces by their numbers; those that failed to build fail as they did."""

    def __init__(self, spaces: RecordedSpace | Iterable[RecordedSpace]) -> None:
        self.spaces = _by_name(spaces)

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [self._built(_mark_of(x.mod)) for x in build_inputs]

    def _built(self, mark: str | None) -> BuilderResult:
        name, _, point = (mark or "").rpartition(":")
        space = self.spaces.get(name)
        if space is None:
            reason = "ReplayBuilder: the program is of no recorded space; tune with space=RecordedGenerator(recorded)"
            return BuilderResult(None, reason)
        status = space.statuses[space.row(int(point))]
        if status in (MeasureStatus.COMPILE, MeasureStatus.BUILD_TIMEOUT, MeasureStatus.INSTANTIATION):
            return BuilderResult(None, f"ReplayBuilder: recorded as {status.value}", status)
        return BuilderResult(f"{name}:{point}".encode())


class Noise:
    """Model of measurement noise on recorded times.

    ``"none"``: always the undisturbed time. ``"recorded"``: one of the repeats that were recorded. A number: that relative
    standard deviation, log-normal. The same seed gives the same times, whatever the order in which they are asked for.
    """

    def __init__(self, kind: str | float = "none", seed: int = 0) -> None:
        if isinstance(kind, str) and kind not in ("none", "recorded"):
            raise RelaxishError(f"noise is 'none', 'recorded' or a relative deviation, not {kind!r}")
        if not isinstance(kind, str) and not 0 <= kind < 10:
            raise RelaxishError(f"a relative deviation is a small positive number, not {kind}")
        self.kind, self.seed = kind, seed
        self._asked: collections.Counter[tuple[str, int]] = collections.Counter()

    def seconds(self, space: RecordedSpace, point: int) -> float:
        """The next time of a point; infinite if it failed."""
        true = space.time(point)
        if self.kind == "none" or not math.isfinite(true):
            return true
        count = self._asked[space.name, point]
        self._asked[space.name, point] += 1
        rng = np.random.default_rng([self.seed, point, count])
        if self.kind == "recorded":
            row = space.seconds[space.row(point)]
            return float(rng.choice(row[np.isfinite(row)]))
        return float(true * math.exp(rng.normal(0.0, float(self.kind))))


class ReplayRunner(Runner):
    """Answers with recorded times; see :class:`Noise`."""

    def __init__(self, spaces: RecordedSpace | Iterable[RecordedSpace], noise: Noise | str | float = "none") -> None:
        self.spaces = _by_name(spaces)
        self.noise = noise if isinstance(noise, Noise) else Noise(noise)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [_known(self._result(x)) for x in runner_inputs]

    def _result(self, item: RunnerInput) -> RunnerResult:
        artifact = item.artifact_path
        name, _, point = (artifact.decode(errors="replace") if isinstance(artifact, bytes) else artifact).rpartition(
            ":"
        )
        space = self.spaces.get(name)
        if space is None or not point.isdigit() or int(point) not in space:
            return RunnerResult(
                None, "ReplayRunner: not built by a ReplayBuilder of these spaces", MeasureStatus.RUNTIME
            )
        status = space.statuses[space.row(int(point))]
        if not status.ok:
            return RunnerResult(None, f"ReplayRunner: recorded as {status.value}", status)
        return RunnerResult([self.noise.seconds(space, int(point))])


def _known(result: RunnerResult) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: result)


def _by_name(spaces: RecordedSpace | Iterable[RecordedSpace]) -> dict[str, RecordedSpace]:
    listed = [spaces] if isinstance(spaces, RecordedSpace) else list(spaces)
    return {space.name: space for space in listed}
