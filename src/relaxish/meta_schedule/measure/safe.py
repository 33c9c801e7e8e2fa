"""Builders and runners as the engine sees them: whatever they do wrong is the result of a candidate.

Builders and runners may be the user's own. One that raises, gives too few results, or claims times that no program can
take costs the candidates concerned and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...support.log import get_logger
from ..builder import Builder, BuilderFuture, BuilderInput, BuilderResult
from ..runner import Runner, RunnerFuture, RunnerInput, RunnerResult
from .status import MeasureStatus
from ...ir.plain import plain_float

__all__ = ["SafeFuture", "clean_result", "failed", "ready", "safe_build", "safe_run", "safe_start"]

_log = get_logger("meta_schedule")
_MOST_SECONDS = 1e10


def ready(result: RunnerResult) -> RunnerFuture:
    """A future whose result is there."""
    return RunnerFuture(lambda: True, lambda: result)


def failed(message: str, status: MeasureStatus | None = None) -> RunnerFuture:
    """The future of a candidate that never ran."""
    return ready(RunnerResult(None, message, status))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def safe_build(builder: Builder, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
    """One result for each input, whatever the builder does."""
    try:
        given = list(builder.build(list(inputs)))
    except Exception as err:  # a builder of the user's
        _log.error("the builder failed on a batch of %d candidates: %s", len(inputs), _first_line(err))
        given = [BuilderResult(None, f"the builder failed: {_first_line(err)}")] * len(inputs)
    if len(given) != len(inputs):
        _log.error("the builder gave %d results for %d candidates", len(given), len(inputs))
    results = [_clean_built(r) for r in given[: len(inputs)]]
    return results + [BuilderResult(None, "the builder gave no result") for _ in range(len(inputs) - len(results))]


def safe_start(builder: Builder, inputs: Sequence[BuilderInput]) -> list[BuilderFuture]:
    """One future for each input; builders that cannot be asked for futures build the batch now."""
    start = getattr(builder, "start", None) if getattr(builder, "streams", False) else None
    if start is None:
        return [BuilderFuture(lambda: True, lambda r=r: r) for r in safe_build(builder, inputs)]  # type: ignore[misc]
    return list(start(list(inputs)))


def _status(result: BuilderResult | RunnerResult, error: object) -> MeasureStatus | None:
    """The status a result claims, if it fits: failures have an error, and nothing else has."""
    found = getattr(result, "status", None)
    return found if isinstance(found, MeasureStatus) and found.ok == (error is None) else None


def _seconds(result: BuilderResult | RunnerResult) -> float:
    found = getattr(result, "seconds", 0.0)
    return float(found) if isinstance(found, (int, float)) and 0 <= found < _MOST_SECONDS else 0.0


def _clean_built(result: BuilderResult) -> BuilderResult:
    path, error = getattr(result, "artifact_path", None), getattr(result, "error_msg", None)
    if error is not None and str(error):
        return BuilderResult(None, str(error), _status(result, error), _seconds(result))
    if path is None or not isinstance(path, (str, bytes)):
        return BuilderResult(None, "the builder gave no artifact")
    return result if isinstance(result, BuilderResult) and result.status is not None else BuilderResult(path, None)


def clean_result(result: RunnerResult) -> RunnerResult:
    """A runner's result with times that can be believed to be times, or the reason why there are none."""
    error, given = getattr(result, "error_msg", None), getattr(result, "run_secs", None)
    took = _seconds(result)
    if error is not None and str(error):
        return RunnerResult(None, str(error), _status(result, error), took)
    try:
        seconds = [plain_float(x) for x in given] if given is not None else []
    except (TypeError, ValueError, OverflowError):
        return RunnerResult(None, f"the runner gave no times: {str(given)[:80]}", seconds=took)
    if not seconds:
        return RunnerResult(None, "the runner gave no times", seconds=took)
    if not all(math.isfinite(x) and 0 < x < _MOST_SECONDS for x in seconds):
        return RunnerResult(None, f"the runner gave impossible times: {str(seconds)[:80]}", seconds=took)
    return RunnerResult(seconds, None, MeasureStatus.OK, took)


class SafeFuture(RunnerFuture):
    """Another future, asked for its result once."""

    def __init__(self, future: RunnerFuture) -> None:
        super().__init__()
        self._future = future
        self._known: RunnerResult | None = None

    def done(self) -> bool:
        if self._known is not None:
            return True
        try:
            return bool(self._future.done())
        except Exception:  # its result says what is wrong
            return True

    def result(self) -> RunnerResult:
        if self._known is None:
            try:
                self._known = clean_result(self._future.result())
            except Exception as err:  # a runner of the user's
                self._known = RunnerResult(None, f"the runner failed: {_first_line(err)}")
        return self._known

    def on_done(self, callback: Callable[[RunnerResult], None]) -> bool:
        note = getattr(self._future, "on_done", None)
        return bool(note(lambda result: callback(clean_result(result)))) if callable(note) else False


def safe_run(runner: Runner, inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
    """One future for each input, whatever the runner does."""
    if not inputs:
        return []
    given: list[Any] = []
    message = "the runner gave no result"
    try:
        futures: Iterable[Any] = runner.run(list(inputs))
        given = list(futures)
    except Exception as err:  # a runner of the user's
        message = f"the runner failed: {_first_line(err)}"
        _log.error("the runner failed on a batch of %d candidates: %s", len(inputs), _first_line(err))
    made: list[RunnerFuture] = [SafeFuture(f) for f in given[: len(inputs)]]
    return made + [failed(message) for _ in range(len(inputs) - len(made))]
