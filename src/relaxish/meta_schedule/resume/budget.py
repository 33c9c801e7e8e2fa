"""Tuning against the clock: which tasks are worth it, and a scheduler that ends in time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..builder import LocalBuilder
from ..measure.candidate import Prebuilt
from ..profiler import Profiler
from ..runner import LocalRunner
from ..task_scheduler import GradientBased

if TYPE_CHECKING:
    from ..task_scheduler import TaskRecord

__all__ = ["TimeBudget", "worthwhile"]

T = TypeVar("T")
# Of the time: at most so much for timing default schedules before the search, and for the final check.
_BASELINE_SHARE, _CHECK_SHARE = 0.1, 0.25
# What a candidate and the check of a task's winners take, until it was measured.
_TRIAL_SECONDS, _CHECK_SECONDS = 0.5, 2.0
# A batch takes at most this share of what is left, so that batches get smaller towards the end.
_BATCH_SHARE = 0.2
# Candidates so many times slower than the best of their task are not timed in full.
_CLEARLY_WORSE = 3.0
# A task is over when so many trials in a row have not made it faster by this share of all tasks' time.
_PATIENCE, _LEAST_GAIN = 128, 0.005


class TimeBudget(GradientBased):
    """The gradient scheduler with ``seconds`` for everything: search, measurements, and the final check.

    The time begins at ``started`` (of ``time.monotonic()``; now, unless it is given). Default schedules are timed
    first, if they are compared with; then every task gets a batch, those first that take most of the model's time, and
    none a second one before. Batches are as large as there is time for. A candidate that is clearly slower than the best
    is not timed in full, a task that improves no more ends. What is set aside for the final check is as much as
    the checks are expected to take.
    """

    def __init__(
        self,
        seconds: float,
        *,
        alpha: float = 0.2,
        window_size: int = 3,
        seed: int = -1,
        started: float | None = None,
    ) -> None:
        super().__init__(alpha=alpha, window_size=window_size, seed=seed)
        self.seconds = seconds
        self.started = started
        self._searching_since: float | None = None
        self._checks: list[float] = []
        self._timeouts: list[tuple[Any, float]] = []

    # ---- how much time there is

    def time_left(self) -> float:
        """Seconds until the end, negative after it."""
        now = time.monotonic()
        if self.started is None:
            self.started = now
        return self.started + self.seconds - now

    def _trial_seconds(self) -> float:
        """What a candidate takes: search, building, measuring."""
        done = sum(t.trials for t in self.tasks_)
        if self._searching_since is None or not done:
            return _TRIAL_SECONDS if self.tasks_ else 0.0
        return (time.monotonic() - self._searching_since) / done

    def _check_seconds(self) -> float:
        """What checking the winners of a task takes: the worst seen so far."""
        return max(self._checks, default=_CHECK_SECONDS)

    def _search_left(self) -> float:
        """Seconds left for the search, with what is under way and the final check taken off."""
        tried = sum(bool(t.trials or t.runner_futures) for t in self.tasks_)
        reserved = min(_CHECK_SHARE * self.seconds, tried * self._check_seconds()) if self.will_check else 0.0
        under_way = sum(len(t.runner_futures or ()) for t in self.tasks_)
        return self.time_left() - reserved - under_way * self._trial_seconds() / 2

    # ---- the search

    def before_search(self) -> None:
        """Time the default schedules, so that the costliest tasks come first."""
        self._note_timeouts()
        if self.with_baselines:
            self._time_defaults()
        self._searching_since = time.monotonic()

    def _time_defaults(self) -> None:
        end = self.time_left() * (1 - _BASELINE_SHARE)
        order = sorted(range(len(self.tasks_)), key=lambda i: -self.tasks_[i].flop * self.tasks_[i].task_weight)
        for done, index in enumerate(order):
            if self.time_left() < end:
                break
            self.tell_phase("default schedules", done, len(order))
            task = self.tasks_[index]
            self._build_default(task)
            if task.default_artifact is None or task.ctx.mod is None:
                continue
            with Profiler.timeit("TimeDefaults"):
                (found,) = self._engine.measure([Prebuilt(task.default_artifact, self._arguments(task))])
            if found.ok:
                task.default_seconds = found.mean

    @staticmethod
    def _arguments(task: TaskRecord) -> list[Any]:
        from ..arg_info import ArgInfo

        assert task.ctx.mod is not None
        return list(ArgInfo.from_entry_func(task.ctx.mod, remove_preproc=True))

    def after_search(self) -> None:
        """Leave builder and runner as they were."""
        for part, seconds in self._timeouts:
            part.timeout_sec = seconds
            if isinstance(part, LocalRunner):
                part.worst_seconds = None
        self._timeouts.clear()

    def _note_timeouts(self) -> None:
        parts = (self._engine.builder, self._engine.runner)
        self._timeouts = [(p, p.timeout_sec) for p in parts if isinstance(p, (LocalBuilder, LocalRunner))]

    def next_task_id(self) -> int:
        """The next task, -1 when the time is up."""
        left = self.time_left() if not self.tasks_ else self._search_left()
        if left <= 0 or left < self._trial_seconds():
            return -1
        for task_id in range(len(self.tasks_)):
            self.touch_task(task_id)
        self._end_what_improves_no_more()
        untried = [i for i, t in enumerate(self.tasks_) if not (t.is_terminated or t.trials or t.runner_futures)]
        if untried:
            return max(untried, key=lambda i: (self._cost(self.tasks_[i]), -i))
        return super().next_task_id()

    def measure(self, task_id: int, known: dict[int, Any]) -> None:
        """Build and run a batch; no candidate may take longer than the rest of the time."""
        for part, seconds in self._timeouts:
            part.timeout_sec = max(1.0, min(seconds, self.time_left()))
            if isinstance(part, LocalRunner):
                best = self.tasks_[task_id].best_ms / 1000
                part.worst_seconds = _CLEARLY_WORSE * best if math.isfinite(best) else None
        super().measure(task_id, known)

    def most_candidates(self, task_id: int) -> int:
        """As many as there is time for, so that tasks without a trial get theirs."""
        left, each = self._search_left(), max(self._trial_seconds(), 1e-6)
        untried = sum(not (t.is_terminated or t.trials or t.runner_futures) for t in self.tasks_)
        share = left / (2 * untried) if untried else _BATCH_SHARE * left
        return max(1, int(share / each))

    def _cost(self, task: TaskRecord) -> float:
        """The task's part of the model's time, by what was measured of it."""
        known = [(t.flop, t.default_seconds) for t in self.tasks_ if t.default_seconds is not None]
        if task.default_seconds is not None:
            return task.task_weight * task.default_seconds
        rate = sum(s for _, s in known) / sum(f for f, _ in known) if known else 1.0
        return task.task_weight * task.flop * rate

    def _end_what_improves_no_more(self) -> None:
        """End tasks whose last trials were in vain, measured by what all tasks take."""
        best = [t.best_ms * t.task_weight for t in self.tasks_]
        total = sum(b for b in best if math.isfinite(b))
        for index, task in enumerate(self.tasks_):
            if task.is_terminated or task.runner_futures is not None or task.trials < 2 * _PATIENCE:
                continue
            before = min(task.latency_ms[:-_PATIENCE]) * task.task_weight
            if before - best[index] < _LEAST_GAIN * total:
                task.ctx.logger.info("The last %d trials made the model faster by less than 0.5 %%", _PATIENCE)
                self.terminate_task(index)

    # ---- the final check

    def check_order(self) -> list[int]:
        """Those first whose tuning has gained most."""

        def gain(index: int) -> float:
            task = self.tasks_[index]
            if not math.isfinite(task.best_ms):
                return 0.0
            default = task.default_seconds
            saved = task.best_ms if default is None else default * 1000 - task.best_ms
            return task.task_weight * saved

        return sorted(range(len(self.tasks_)), key=lambda i: -gain(i))

    def may_check(self) -> bool:
        """Whether one more check ends in time, going by those before."""
        return self.time_left() > (self._check_seconds() if self._checks else 0.0)

    def note_check(self, task_id: int, seconds: float) -> None:
        super().note_check(task_id, seconds)
        self._checks.append(seconds)


def worthwhile(tasks: Sequence[T], costs: Sequence[float], share: float = 0.95) -> list[T]:
    """The costliest tasks that together make up ``share`` of the total cost, costliest first.

    >>> worthwhile(["conv", "softmax", "dense"], [80.0, 1.0, 19.0])
    ['conv', 'dense']
    """
    total = sum(costs)
    chosen: list[T] = []
    spent = 0.0
    for cost, index in sorted(((c, i) for i, c in enumerate(costs)), key=lambda x: (-x[0], x[1])):
        if chosen and spent >= share * total:
            break
        chosen.append(tasks[index])
        spent += cost
    return chosen
