"""Candidate, build, check, run, journal: the one way in which programs are measured."""

from __future__ import annotations

import functools
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ...ir import IRModule
from ...support.errors import JournalError
from ...support.log import get_logger
from ...target import Target
from ..arg_info import ArgInfo, entry_func
from ..builder import Builder, BuilderFuture, BuilderInput, BuilderResult
from ..builder.device_artifact import is_device_target
from ..profiler import Profiler
from ..runner import LocalRunner, Runner, RunnerFuture, RunnerInput, RunnerResult
from .candidate import Prebuilt, Skipped, program_of
from .safe import failed, ready, safe_run, safe_start
from .status import MeasureStatus

if TYPE_CHECKING:
    from .journal import MeasureJournal
    from .validators import Validator

__all__ = ["Batch", "MeasureEngine", "Measured"]

_T = TypeVar("_T")

_log = get_logger("meta_schedule")
# Of a traceback, the end says where something went wrong.
_TRACE_LINES = 40


@dataclass(eq=False)
class Measured:
    """Result of one candidate.

    ``run_secs`` holds the seconds of one run, a value for each repeat; it is empty unless ``status`` is ``OK``, and
    ``error`` then says why. ``build_seconds`` and ``run_seconds`` are what building and measuring took in all,
    ``timestamp`` is when it ended (seconds since the epoch), ``remembered`` marks what a journal knew already.
    """

    candidate: Any
    status: MeasureStatus
    run_secs: list[float] = field(default_factory=list)
    error: str | None = None
    exception: BaseException | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    timestamp: float = 0.0
    program: IRModule | None = None
    artifact: str | bytes | None = None
    remembered: bool = False

    @property
    def ok(self) -> bool:
        """Whether there are times, or what was only to be built is built."""
        return self.status.ok

    @property
    def mean(self) -> float:
        """The mean of the times in seconds; infinite where there are none."""
        return math.fsum(self.run_secs) / len(self.run_secs) if self.run_secs else math.inf


class _Trial:
    """One candidate on its way."""

    def __init__(self, candidate: Any, target: Target) -> None:
        self.candidate = candidate
        self.target: Target = getattr(candidate, "target", None) or target
        self.program: IRModule | None = None
        self.args_info: Sequence[ArgInfo] = ()
        self.building: BuilderFuture | None = None
        self.built: BuilderResult | None = None
        self.running: RunnerFuture | None = None
        self.exception: BaseException | None = None
        self.verdict: str | None = None

    def fail(self, status: MeasureStatus, message: str, exception: BaseException | None = None) -> None:
        """End before it was built."""
        self.built = BuilderResult(None, message, status)
        self.exception = exception

    def instantiate(self, verify: Callable[[IRModule, Target], str | None] | None) -> None:
        """Make the program, and ask whether it is worth building."""
        if isinstance(self.candidate, Prebuilt):
            self.built, self.args_info = BuilderResult(self.candidate.artifact), self.candidate.args_info
            return
        try:
            with self.target:
                self.program = program_of(self.candidate)
            given = getattr(self.candidate, "args_info", None)
            self.args_info = given if given is not None else ArgInfo.from_prim_func(entry_func(self.program))
            refused = verify(self.program, self.target) if verify is not None else None
        except Skipped as err:
            self.fail(MeasureStatus.SKIPPED, str(err) or "skipped", err)
        except Exception as err:  # templates, kernels and schedules may be the user's
            self.fail(MeasureStatus.INSTANTIATION, _trace_of(err), err)
        else:
            if refused:
                self.fail(MeasureStatus.SKIPPED, refused)

    def build_input(self) -> BuilderInput:
        """Input of the builder."""
        assert self.program is not None
        return BuilderInput(self.program, self.target, getattr(self.candidate, "params", None))

    def join_build(self) -> BuilderResult:
        """Wait for the build."""
        if self.built is None:
            assert self.building is not None
            self.built = self.building.result()
        return self.built

    def runnable(self) -> bool:
        """Whether it was built, found right, and does not run yet."""
        return self.running is None and self.join_build().artifact_path is not None

    def run_input(self) -> RunnerInput:
        """Input of the runner."""
        artifact = self.join_build().artifact_path
        assert artifact is not None
        return RunnerInput(artifact, str(self.target.kind.name), list(self.args_info))


class Batch:
    """Candidates that are being measured: ``built`` is there, ``futures`` give the times, both in the order given."""

    def __init__(self, trials: Sequence[_Trial]) -> None:
        self._trials = list(trials)

    def __len__(self) -> int:
        return len(self._trials)

    @property
    def built(self) -> list[BuilderResult]:
        """Result of the builder for each candidate, or the reason for not asking it."""
        return [trial.join_build() for trial in self._trials]

    @property
    def futures(self) -> list[RunnerFuture]:
        """The runs; those of candidates that did not come so far are over."""
        return [
            trial.running or failed(built.error_msg or "the builder gave no artifact", built.status)
            for trial, built in zip(self._trials, self.built, strict=True)
        ]

    def started(self) -> list[int]:
        """The places of the candidates that a runner was given."""
        return [i for i, trial in enumerate(self._trials) if trial.running is not None]

    def result(self, index: int) -> Measured:
        """Wait for one candidate."""
        trial = self._trials[index]
        built = trial.join_build()
        ran = trial.running.result() if trial.running is not None else None
        ended = ran if ran is not None else built
        assert ended.status is not None
        return Measured(
            trial.candidate,
            ended.status,
            list((ran.run_secs if ran is not None else None) or []),
            ended.error_msg,
            trial.exception,
            built.seconds,
            ran.seconds if ran is not None else 0.0,
            time.time(),
            trial.program,
            built.artifact_path,
        )


class MeasureEngine:
    """Measures batches of candidates for a target.

    ``builder`` and ``runner`` are those of ``meta_schedule`` (or ``"local"``, ``"rpc"``; the engine ends what it made
    itself). Candidates are objects with ``make()`` (see :class:`Candidate`) or with a schedule ``sch``; programs are
    made in this process, in order, and are built in the builder's workers meanwhile. ``verify(module, target)`` may
    refuse a program with a reason, ``validator`` looks at what was built before it is timed, ``journal`` knows what was
    measured before and keeps what is measured now.

    ``overlap`` says whether candidates are timed while others are being built. By default they are where something
    else than this machine's processor runs them; on the processor that builds, times would suffer.

    Nothing a candidate does raises here: it is the candidate's status. A context manager; :meth:`shutdown` otherwise.
    """

    def __init__(
        self,
        target: Target | str,
        builder: Builder | str = "local",
        runner: Runner | str = "local",
        journal: MeasureJournal | None = None,
        validator: Validator | None = None,
        *,
        verify: Callable[[IRModule, Target], str | None] | None = None,
        overlap: bool | None = None,
    ) -> None:
        self.target = target if isinstance(target, Target) else Target(target)
        self._own: list[Any] = []
        self.builder: Builder = builder if not isinstance(builder, str) else self._owned(Builder.create(builder))
        self.runner: Runner = runner if not isinstance(runner, str) else self._owned(Runner.create(runner))
        self.journal = journal
        self.validator = validator
        self.verify = verify
        self.overlap = overlap
        self._warned = False

    def _owned(self, part: _T) -> _T:
        self._own.append(part)
        return part

    def __enter__(self) -> MeasureEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End the processes of the builder and runner that were made here."""
        for part in self._own:
            if hasattr(part, "shutdown"):
                part.shutdown()

    # ---- measuring

    def measure(self, candidates: Sequence[Any], watch: Callable[[Measured], None] | None = None) -> list[Measured]:
        """Measure candidates; one result for each, in their order.

        ``watch(measured)`` is called for each as soon as it is known, after it went into the journal.
        """
        results: dict[int, Measured] = {}
        for index, candidate in enumerate(candidates):
            known = self.journal.known(candidate) if self.journal is not None else None
            if known is not None:
                results[index] = known
                if watch is not None:
                    watch(known)
        new = [i for i in range(len(candidates)) if i not in results]
        batch = self.begin([candidates[i] for i in new])
        for place, index in enumerate(new):
            measured = results[index] = batch.result(place)
            self._keep(measured)
            if watch is not None:
                watch(measured)
        return [results[i] for i in range(len(candidates))]

    def build(self, candidates: Sequence[Any]) -> list[Measured]:
        """Build candidates without running them: ``OK`` means that there is an ``artifact``. No journal is asked."""
        trials = [_Trial(candidate, self.target) for candidate in candidates]
        self._build(trials)
        batch = Batch(trials)
        return [batch.result(i) for i in range(len(batch))]

    def _keep(self, measured: Measured) -> None:
        """Write to the journal; a disk without room costs the possibility to go on, not the run."""
        if self.journal is None:
            return
        try:
            self.journal.write(measured)
        except JournalError as err:
            if not self._warned:
                _log.warning("%s; a run that is stopped now could not go on where it was", err)
            self._warned = True

    def begin(
        self,
        candidates: Sequence[Any],
        known: Mapping[int, tuple[BuilderResult, RunnerResult]] | None = None,
        target: Target | None = None,
    ) -> Batch:
        """Build candidates and have them run, without waiting for the times.

        ``known`` holds the results of some, by their place. The journal is not asked, nor written.
        """
        known = known or {}
        trials = [_Trial(candidate, target or self.target) for candidate in candidates]
        with Profiler.timeit("SendToBuilder"):
            for index, (built, ran) in known.items():
                trials[index].built, trials[index].running = built, ready(ran)
            self._build([t for i, t in enumerate(trials) if i not in known])
            overlapping = self.overlapping([trial.target for trial in trials])
            if not overlapping:
                for trial in trials:
                    trial.join_build()
        with Profiler.timeit("SendToRunner"):
            if overlapping:
                for trial in trials:
                    self._run([trial])
            else:
                self._run(trials)
        return Batch(trials)

    def _build(self, trials: Sequence[_Trial]) -> None:
        streams = bool(getattr(self.builder, "streams", False))
        waiting: list[_Trial] = []
        for trial in trials:
            trial.instantiate(self.verify)
            if trial.built is None:
                waiting.append(trial)
            if streams and waiting:
                self._submit(waiting)
                waiting = []
        if waiting:
            self._submit(waiting)

    def _submit(self, trials: Sequence[_Trial]) -> None:
        futures = safe_start(self.builder, [t.build_input() for t in trials])
        for trial, future in zip(trials, futures, strict=True):
            trial.building = future

    def overlapping(self, targets: Sequence[Target]) -> bool:
        """Whether candidates for these targets are timed while others are being built."""
        if self.overlap is not None:
            return self.overlap
        elsewhere = not isinstance(self.runner, LocalRunner) or all(is_device_target(t) for t in targets)
        return elsewhere and bool(getattr(self.builder, "streams", False)) and type(self.runner) in _own_runners()

    def _run(self, trials: Sequence[_Trial]) -> None:
        ready_ones = [t for t in trials if t.runnable() and self._is_right(t)]
        for trial, future in zip(ready_ones, safe_run(self.runner, [t.run_input() for t in ready_ones]), strict=True):
            trial.running = future

    def _is_right(self, trial: _Trial) -> bool:
        if self.validator is None or isinstance(trial.candidate, Prebuilt):
            return True
        artifact = trial.join_build().artifact_path
        assert artifact is not None
        from .validators import CheckFailedError

        with Profiler.timeit("Check"):
            try:
                verdict = self.validator.check(trial.candidate, trial.program, artifact, trial.target)
                valid, reason = verdict.valid, f"wrong answer: {verdict.reason}"
                status = MeasureStatus.WRONG_ANSWER
            except CheckFailedError as err:
                valid, reason, status = False, str(err), err.status
            except Exception as err:  # a check of the user's
                valid, reason, status = False, f"wrong answer: {_trace_of(err)}", MeasureStatus.WRONG_ANSWER
        if valid is False:
            trial.running = failed(reason, status)
            return False
        return True


@functools.lru_cache(maxsize=1)
def _own_runners() -> tuple[type, ...]:
    """Runners that take one candidate at a time as well as many; others are given whole batches."""
    from ..distributed import RayRunner
    from ..runner import RPCRunner

    return (LocalRunner, RPCRunner, RayRunner)


def _trace_of(error: BaseException) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-_TRACE_LINES:])
