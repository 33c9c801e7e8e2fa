"""Task schedulers: which task gets the next batch of trials, and the loop around it all."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Sequence, Callable
from dataclasses import dataclass, field
from logging import Logger
from typing import TYPE_CHECKING, Any

from ...target import Target
from ..arg_info import ArgInfo
from ..builder import BuilderResult
from ..database import mean_seconds
from ..logging import get_logger
from ..measure.candidate import Candidate, Prebuilt
from ..measure.engine import MeasureEngine
from ..measure_callback import AddToDatabase, MeasureCallback
from ..profiler import Profiler
from ..runner import RunnerFuture, RunnerResult
from ..utils import MethodNotDefinedError
from ...support.sequences import of_kind

if TYPE_CHECKING:
    from ..builder import Builder
    from ..cost_model import CostModel
    from ..database import Database, Workload
    from ..resume.run_state import RunState
    from ..runner import Runner
    from ..search_strategy import MeasureCandidate
    from ..tune_context import TuneContext

__all__ = ["GradientBased", "PyTaskScheduler", "RoundRobin", "TaskRecord", "TaskScheduler"]


@dataclass
class TaskRecord:
    """One task and what has been spent on it."""

    ctx: TuneContext
    task_weight: float = 1.0
    flop: float = 1.0
    is_terminated: bool = False
    build_error_count: int = 0
    run_error_count: int = 0
    latency_ms: list[float] = field(default_factory=list)
    measure_candidates: list[MeasureCandidate] | None = None
    builder_results: list[BuilderResult] | None = None
    runner_futures: list[RunnerFuture] | None = None
    runner_results: list[RunnerResult | None] = field(default_factory=list)
    best_time_cost_history: list[float] = field(default_factory=list)
    latest_result: float = math.inf
    # The default schedule, timed with each batch, and how many times slower it is than the best of its batch.
    default_artifact: str | bytes | None = None
    default_args: Sequence[ArgInfo] = ()
    default_future: RunnerFuture | None = None
    gain: float | None = None
    # What the default schedule takes in seconds, if that was measured before the search.
    default_seconds: float | None = None
    # Where the time went: seconds and how often, by phase.
    spent: dict[str, tuple[float, int]] = field(default_factory=dict)

    def spend(self, phase: str, seconds: float, count: int = 1) -> None:
        """Note time spent on this task: ``search``, ``build``, ``run``, ``check``."""
        total, times = self.spent.get(phase, (0.0, 0))
        self.spent[phase] = total + seconds, times + count

    @property
    def trials(self) -> int:
        """Measured candidates, failures included."""
        return len(self.latency_ms)

    @property
    def best_ms(self) -> float:
        """Best latency so far."""
        return min(self.latency_ms, default=math.inf)


class TaskScheduler:
    """Subclass and define ``next_task_id``; everything else is here."""

    def __init__(self) -> None:
        self.tasks_: list[TaskRecord] = []
        self.measure_callbacks_: list[MeasureCallback] = []
        self.database_: Database | None = None
        self.cost_model_: CostModel | None = None
        self.remaining_tasks_ = 0
        self.run_state: RunState | None = None
        self.with_baselines = False
        # Whether winners are checked after the search.
        self.will_check = False
        self._errors: dict[int, Exception] = {}
        self.logger: Logger = get_logger("task_scheduler")
        # Who wants to know what a run is at: ``phase, done, of how many``.
        self.watchers: list[Callable[[str, int, int], None]] = []

    def next_task_id(self) -> int:
        """The task to work on next, -1 when all are done."""
        raise MethodNotDefinedError(self, "next_task_id")

    def save_state(self) -> dict[str, Any]:
        """State of :meth:`next_task_id`, for another process, as plain data."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where the run that saved ``state`` was stopped."""

    # ---- budgets other than trials

    def before_search(self) -> None:
        """Called once when the tasks are set up."""

    def after_search(self) -> None:
        """Called when the search has ended, however it did."""

    def most_candidates(self, task_id: int) -> int | None:
        """Largest size of a task's next batch; None where only trials limit it."""
        return None

    def check_order(self) -> list[int]:
        """The tasks whose winners are checked in the end, in order."""
        return list(range(len(self.tasks_)))

    def may_check(self) -> bool:
        """Whether the winners of one more task may be checked."""
        return True

    def note_check(self, task_id: int, seconds: float) -> None:
        """Record the cost of checking the winners of a task."""
        self.tasks_[task_id].spend("check", seconds)

    def tell_phase(self, phase: str, done: int, total: int) -> None:
        """Tell watchers what a run is at."""
        for watch in self.watchers:
            self._call(watch, phase, done, total)

    # ---- the loop

    def tune(
        self,
        tasks: Sequence[TuneContext],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: Builder,
        runner: Runner,
        measure_callbacks: Sequence[MeasureCallback],
        database: Database | None,
        cost_model: CostModel | None,
    ) -> None:
        """Tune until the trials are spent or every task is done."""
        if len(tasks) != len(task_weights):
            raise ValueError(f"{len(tasks)} tasks but {len(task_weights)} weights")
        self.measure_callbacks_ = list(measure_callbacks)
        self.database_, self.cost_model_ = database, cost_model
        self._builder = builder
        self._engine = MeasureEngine(_target_of(tasks), builder, runner)
        self.tasks_ = []
        for index, (ctx, weight) in enumerate(zip(tasks, task_weights, strict=True)):
            self._start_task(index, ctx, weight, max_trials_per_task, num_trials_per_iter)
        self.remaining_tasks_ = sum(not t.is_terminated for t in self.tasks_)
        if self.run_state is not None:
            self.run_state.restore(self)
        self._max_trials, self._max_task_trials = max_trials_global, max_trials_per_task
        try:
            self.before_search()
            self._search()
        finally:
            self.after_search()
        for task_id, task in enumerate(self.tasks_):
            if task.runner_futures is not None:
                self.join_running_task(task_id)
            if not task.is_terminated:
                self.terminate_task(task_id)
            task.ctx.post_tuning()
        if self._errors and len(self._errors) == len(self.tasks_):
            raise next(iter(self._errors.values()))  # nothing was searched at all
        self.print_tuning_statistics()

    def _search(self) -> None:
        while self.trials_used() < self._max_trials:
            task_id = self.next_task_id()
            if task_id == -1:
                break
            self._one_round(task_id)

    def trials_used(self) -> int:
        """Trials measured or under way, over all tasks."""
        return sum(t.trials + len(t.runner_futures or ()) for t in self.tasks_)

    def _start_task(self, index: int, ctx: TuneContext, weight: float, trials: int, batch: int) -> None:
        with Profiler.timeit("InitializeTask"):
            task = TaskRecord(ctx, float(weight), _flops(ctx))
            self.tasks_.append(task)
            ctx.logger.info("Initializing Task #%d: %s", index, ctx.task_name)
            spaces = ctx.generate_design_space()
            if not spaces:
                task.is_terminated = True
                return
            ctx.logger.info("Total %d design space(s) generated", len(spaces))
            for number, space in enumerate(spaces):
                ctx.logger.info("Design space #%d:\n%s", number, space.trace)
            if self.database_ is not None and self.database_.persistent and ctx.mod is not None:
                self.database_.commit_named(ctx.mod, ctx.task_name)
            ctx.pre_tuning(trials, batch, spaces, self.database_, self.cost_model_)

    def _one_round(self, task_id: int) -> None:
        task = self.tasks_[task_id]
        if task.runner_futures is not None:
            self.join_running_task(task_id)
        self._take_results()
        candidates = None if task.is_terminated else self._candidates(task_id)
        if not candidates:
            if not task.is_terminated:
                self.terminate_task(task_id)
            return
        task.measure_candidates = candidates
        if self.run_state is not None:
            self.run_state.save_candidates(self, task_id)
        self.measure(task_id, {})

    def _candidates(self, task_id: int) -> list[MeasureCandidate] | None:
        """The next batch of a task; a search that fails ends its task, not the others."""
        task = self.tasks_[task_id]
        # Strategies may be the user's and count for themselves; a batch may be the last one that all tasks may have.
        left = min(self._max_trials - self.trials_used(), self._max_task_trials - task.trials)
        if left <= 0:
            return None
        most = self.most_candidates(task_id)
        left = left if most is None else min(left, most)
        strategy = task.ctx.search_strategy
        assert strategy is not None
        strategy.batch_limit = most
        begin = time.monotonic()
        try:
            return list(strategy.next_candidates())[:left] or None
        except Exception as err:  # strategies, rules and cost models may be the user's
            task.ctx.logger.exception("the search failed and ends here")
            self.logger.error("the search of task #%d (%s) failed and ends here: %s", task_id, task.ctx.task_name, err)
            self._errors[task_id] = err
            return None
        finally:
            task.spend("search", time.monotonic() - begin)

    def measure(self, task_id: int, known: dict[int, tuple[BuilderResult, RunnerResult]]) -> None:
        """Build and run a task's candidates, but for those whose results are ``known``, by their place in the batch."""
        task = self.tasks_[task_id]
        candidates = task.measure_candidates or []
        self._build_default(task)
        # The default schedule in their midst, so that it meets the machine as they do.
        middle = len(candidates) // 2 if task.default_artifact is not None and len(known) < len(candidates) else None
        batch: list[Any] = list(candidates)
        if middle is not None and task.default_artifact is not None:
            batch.insert(middle, Prebuilt(task.default_artifact, task.default_args))
        places = [i if middle is None or i < middle else i + 1 for i in range(len(candidates))]
        begun = self._engine.begin(batch, {places[i]: result for i, result in known.items()}, task.ctx.target)
        built, futures = begun.built, begun.futures
        task.builder_results = [built[p] for p in places]
        task.runner_futures = [futures[p] for p in places]
        task.runner_results = [known[i][1] if i in known else None for i in range(len(candidates))]
        running = set(begun.started())
        task.default_future = futures[middle] if middle is not None and len(running) > len(known) + 1 else None
        for index, place in enumerate(places):
            if place in running and index not in known:
                arrived = functools.partial(self._arrived, task_id, candidates[index], built[place])
                futures[place].on_done(arrived)
        self._take_results()

    def _build_default(self, task: TaskRecord) -> None:
        """The default schedule of a task, once."""
        if not self.with_baselines or task.default_artifact is not None or task.ctx.mod is None:
            return
        from ..verdicts.baseline import built_by_default

        mod, target = task.ctx.mod, task.ctx.target
        assert target is not None
        program = functools.cache(functools.partial(built_by_default, mod, target))
        candidate = Candidate(program, (), target=target)
        (built,) = self._engine.build([candidate])
        if not built.ok:  # a program the rules cannot schedule is tuned all the same
            task.ctx.logger.warning("there is no default schedule to compare with: %s", built.error)
        else:
            task.default_args = ArgInfo.from_entry_func(program())
        task.default_artifact = built.artifact

    def _arrived(self, task_id: int, candidate: MeasureCandidate, built: BuilderResult, ran: RunnerResult) -> None:
        """A measurement has ended, whatever this scheduler's own thread is doing: have it recorded."""
        for callback in self.measure_callbacks_:
            if type(callback).on_arrival is not MeasureCallback.on_arrival:
                callback.on_arrival(self, task_id, candidate, built, ran)

    def _take_results(self) -> None:
        """Hand on every result that is there already, of any task, so that it is recorded."""
        for task_id, task in enumerate(self.tasks_):
            for index, future in enumerate(task.runner_futures or ()):
                if task.runner_results[index] is None and future.done():
                    self._take(task_id, index)

    def _take(self, task_id: int, index: int) -> None:
        task = self.tasks_[task_id]
        assert task.runner_futures is not None and task.measure_candidates is not None
        with Profiler.timeit("JoinRunnerFutures"):
            result = task.runner_futures[index].result()
        task.runner_results[index] = result
        built = (task.builder_results or [])[index]
        for callback in self.measure_callbacks_:
            self._call(callback.on_result, self, task_id, task.measure_candidates[index], built, result)

    def _call(self, method: Callable[..., None], *args: Any) -> None:
        """Call a callback; what one of the user's raises costs its own work only."""
        callback = type(getattr(method, "__self__", None))
        if callback is AddToDatabase:
            method(*args)  # a database that cannot take records is an error
            return
        try:
            method(*args)
        except Exception:
            self.logger.exception("the callback %s failed", callback.__name__)

    def join_running_task(self, task_id: int) -> list[RunnerResult]:
        """Wait for a task's measurements and hand them to callbacks and strategy."""
        task = self.tasks_[task_id]
        assert task.runner_futures is not None and task.measure_candidates is not None
        for index, known in enumerate(task.runner_results):
            if known is None:
                self._take(task_id, index)
        results = [r for r in task.runner_results if r is not None]
        candidates, built = task.measure_candidates, task.builder_results or []
        for b, r in zip(built, results, strict=True):
            task.spend("build", b.seconds)
            task.spend("run", r.seconds)
            if b.error_msg:
                task.build_error_count += 1
            elif r.error_msg:
                task.run_error_count += 1
            cost = mean_seconds(r.run_secs) if r.run_secs else math.inf
            task.latency_ms.append(cost * 1000)
            error = b.error_msg or r.error_msg
            if error:
                task.ctx.logger.warning("[trial %d] %s", task.trials, error)
            else:
                task.ctx.logger.info(
                    "[trial %d] %.4f us, %.4f GFLOP/s, best %.4f us",
                    task.trials,
                    cost * 1e6,
                    task.flop / cost / 1e9,
                    task.best_ms * 1000,
                )
        self._compare_with_default(task, results)
        for callback in self.measure_callbacks_:
            self._call(callback.apply, self, task_id, candidates, built, results)
        try:
            task.ctx.notify_runner_results(candidates, results)
        except Exception as err:  # a strategy of the user's
            task.ctx.logger.exception("the search cannot take its results and ends here")
            self._errors[task_id] = err
            self.terminate_task(task_id)
        task.best_time_cost_history.append(task.best_ms)
        task.measure_candidates = task.builder_results = task.runner_futures = task.default_future = None
        task.runner_results = []
        if self.run_state is not None:
            self.run_state.save_round(self)
        return results

    def _compare_with_default(self, task: TaskRecord, results: Sequence[RunnerResult]) -> None:
        """How much faster than the default schedule the best candidate is, if it is of this batch."""
        if task.default_future is None:
            return
        default = task.default_future.result()
        best = min((mean_seconds(r.run_secs) for r in results if r.run_secs), default=math.inf)
        if default.run_secs and best * 1000 <= task.best_ms:
            task.gain = mean_seconds(default.run_secs) / best

    def touch_task(self, task_id: int) -> None:
        """Take in a task's results if they are there already; never waits."""
        task = self.tasks_[task_id]
        if not task.is_terminated and task.runner_futures is not None and all(f.done() for f in task.runner_futures):
            self.join_running_task(task_id)

    def terminate_task(self, task_id: int) -> None:
        """Mark a task as done."""
        task = self.tasks_[task_id]
        if not task.is_terminated:
            task.is_terminated = True
            self.remaining_tasks_ -= 1
            self.logger.info(
                "Task #%d (%s) has finished; %d remain", task_id, task.ctx.task_name, self.remaining_tasks_
            )

    # ---- reporting

    def costs(self, database: Database) -> list[tuple[Workload | None, str, float, int]]:
        """Tuning time by workload and phase: seconds and counts. Builds run side by side: theirs add up to more."""
        found: list[tuple[Workload | None, str, float, int]] = []
        for task in self.tasks_:
            workload = None if task.ctx.mod is None else database.commit_workload(task.ctx.mod)
            found += [(workload, phase, seconds, count) for phase, (seconds, count) in task.spent.items()]
        return found

    def tuning_statistics(self) -> str:
        """The table of tasks as text."""
        head = (
            "ID",
            "Name",
            "FLOP",
            "Weight",
            "Speed (GFLOPS)",
            "Latency (us)",
            "Weighted Latency (us)",
            "Trials",
            "Done",
        )
        rows, total_trials, total_latency = [head], 0, 0.0
        for index, task in enumerate(self.tasks_):
            best = task.best_ms
            known = math.isfinite(best)
            total_trials += task.trials
            total_latency += best * 1000 * task.task_weight if known else 0.0
            rows.append(
                (
                    str(index),
                    task.ctx.task_name,
                    f"{task.flop:.0f}",
                    f"{task.task_weight:g}",
                    f"{task.flop / best / 1e6:.4f}" if known else "N/A",
                    f"{best * 1000:.4f}" if known else "N/A",
                    f"{best * 1000 * task.task_weight:.4f}" if known else "N/A",
                    str(task.trials),
                    "Y" if task.is_terminated else "",
                )
            )
        widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
        lines = [" | ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join([*lines, f"Total trials: {total_trials}", f"Total latency (us): {total_latency:.6g}"])

    def print_tuning_statistics(self) -> None:
        """Write the table to the log."""
        self.logger.info("\n%s", self.tuning_statistics())

    @staticmethod
    def create(kind: str = "gradient", *args: Any, **kwargs: Any) -> TaskScheduler:
        """``gradient`` | ``round-robin``."""
        if kind == "gradient":
            return GradientBased(*args, **kwargs)
        if kind == "round-robin":
            return RoundRobin(*args, **kwargs)
        raise ValueError(f"unknown task scheduler {kind!r}; expected 'gradient' or 'round-robin'")


PyTaskScheduler = TaskScheduler


def _target_of(tasks: Sequence[TuneContext]) -> Target | str:
    """The target of the first task; every batch names its own."""
    return next((t.target for t in tasks if t.target is not None), "llvm")


def _flops(ctx: TuneContext) -> float:
    """Floating-point operations of the task, counted from its stores."""
    from ...tir import PrimFunc
    from ..feature_extractor.program import extract_program

    assert ctx.mod is not None
    program = extract_program(of_kind(ctx.mod.functions.values(), PrimFunc))
    total = 0.0
    for store in program.stores:
        total += sum(store.ops[:7]) * math.prod(program.loops[i].extent for i in store.loops)
    return max(1.0, total)


class RoundRobin(TaskScheduler):
    """One task after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def save_state(self) -> dict[str, Any]:
        return {"last": self._last}

    def load_state(self, state: dict[str, Any]) -> None:
        self._last = int(state.get("last", -1))

    def next_task_id(self) -> int:
        n = len(self.tasks_)
        for step in range(1, n + 1):
            task_id = (self._last + step) % n
            task = self.tasks_[task_id]
            if task.is_terminated:
                continue
            if task.runner_futures is not None:
                self.join_running_task(task_id)
            self._last = task_id
            return task_id
        return -1


class GradientBased(TaskScheduler):
    """After one round for each task, the task whose weighted latency is expected to fall most."""

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        super().__init__()
        self.alpha = alpha
        self.window_size = window_size
        self._seed = seed

    def next_task_id(self) -> int:
        n = len(self.tasks_)
        for task_id in range(n):
            self.touch_task(task_id)
        # Read from the tasks, so that a run that was stopped while warming up goes on with the same one.
        for task_id, task in enumerate(self.tasks_):
            if not task.is_terminated and not task.best_time_cost_history and task.runner_futures is None:
                return task_id
        alive = [i for i in range(n) if not self.tasks_[i].is_terminated]
        if not alive:
            return -1
        for i in alive:  # gradients need at least one result of each task
            if not self.tasks_[i].best_time_cost_history and self.tasks_[i].runner_futures is not None:
                self.join_running_task(i)
        gains = [self._gain(self.tasks_[i]) for i in alive]
        top = max(gains)
        rounds = sum(len(t.best_time_cost_history) for t in self.tasks_)
        # A stream of its own for each decision: a run that was stopped decides like one that was not.
        tie = random.Random(None if self._seed == -1 else f"{self._seed}:{rounds}")
        return tie.choice([i for i, g in zip(alive, gains, strict=True) if g == top])

    def _gain(self, task: TaskRecord) -> float:
        history = task.best_time_cost_history
        if not history or not math.isfinite(history[-1]):
            return -1e9
        best, rounds, window = history[-1], len(history), self.window_size
        drop = 0.0
        if rounds > window and math.isfinite(history[rounds - 1 - window]):
            drop = (history[rounds - 1 - window] - best) / window
        return task.task_weight * (self.alpha * drop + (1 - self.alpha) * best / rounds)
