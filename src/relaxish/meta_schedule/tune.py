"""The core driver: tune a list of tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ..support.errors import JournalError
from ..support.log import get_logger
from ..target import Target
from .builder import Builder, LocalBuilder
from .cost_model import CostModel
from .database import Database
from .logging import get_scheduler_log
from .measure_callback import MeasureCallback
from .profiler import Profiler
from .resume.run_state import RunState
from .runner import LocalRunner, Runner
from .runner.presence import require_devices
from .task_scheduler import TaskScheduler
from .tune_context import TuneContext
from .verdicts.validate import race, trusted_winners

__all__ = ["tune_tasks"]

_log = get_logger("meta_schedule")


def _callbacks(value: str | Sequence[MeasureCallback]) -> list[MeasureCallback]:
    if isinstance(value, str):
        made = MeasureCallback.create(value)
        return made if isinstance(made, list) else [made]
    return [value] if isinstance(value, MeasureCallback) else list(value)


def _workers(builder: Builder | str, runner: Runner | str) -> tuple[Any, Any, list[Any]]:
    """Builder and runner, and which of them were made here and are to be shut down; their processes start right away."""
    own: list[Any] = []
    if isinstance(builder, str):
        builder = Builder.create(builder)
        own.append(builder)
    if isinstance(runner, str):
        runner = Runner.create(runner, max_workers=None)
        own.append(runner)
    for part in own:
        if isinstance(part, (LocalBuilder, LocalRunner)):
            part.pool.prepare()
    return builder, runner, own


def _write_what_is_left(database: Database) -> None:
    """Try once more to write what the disk had no room for; say how much is in memory only if that fails."""
    if database.unwritten:
        try:
            database.flush()
        except JournalError as err:
            _log.error("%d records are in memory only and end with this process: %s", database.unwritten, err)


def _check_winners(
    scheduler: TaskScheduler,
    tasks: Sequence[TuneContext],
    database: Database,
    build: Builder,
    measure: Runner,
    validate: bool,
    baselines: bool,
) -> None:
    """The last phase: the fastest records are checked and timed once more, while the scheduler's time lasts."""
    order = scheduler.check_order()
    for done, index in enumerate(order):
        if not scheduler.may_check():
            left = len(order) - done
            _log.warning("no time is left to check the winners of %d kernels: they are when they are applied", left)
            break
        scheduler.tell_phase("final check", done, len(order))
        begin = time.monotonic()
        with Profiler.timeit("Validate"):
            if validate:
                trusted_winners(tasks[index], database, build, measure, baseline=baselines)
            else:
                race(tasks[index], database, build, measure, (), baseline=True)
        scheduler.note_check(index, time.monotonic() - begin)
    scheduler.tell_phase("final check", len(order), len(order))


def _begin_run(
    database: Database, tasks: Sequence[TuneContext], task_weights: Sequence[float], settings: dict[str, Any]
) -> None:
    weights = {
        database.commit_workload(t.mod): w for t, w in zip(tasks, task_weights, strict=True) if t.mod is not None
    }
    database.begin_run(tasks[0].target, {**settings, "tasks": [t.task_name for t in tasks]}, weights)


def _end_run(database: Database, status: str, scheduler: TaskScheduler) -> None:
    try:
        database.end_run(status, scheduler.costs(database))
    except JournalError as err:
        _log.error("where the time of this run went could not be written: %s", err)


def _improve(
    work_dir: str, target: Target | str | None, trials: int, database: Database, build: Builder, measure: Runner
) -> None:
    """Go on from the best records by coordinate descent."""
    from .post_optimization import PostOpt

    PostOpt(work_dir, target or "llvm", trials, database).run(build, measure)


def _database(database: Database | str, work_dir: str, module_equality: str) -> Database:
    """The database given, or the one of that name; those in files are kept in ``work_dir``."""
    if not isinstance(database, str):
        return database
    where = {"work_dir": work_dir} if database in ("json", "sql") else {}
    return Database.create(database, module_equality=module_equality, **where)


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: str | Sequence[MeasureCallback] = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    module_equality: str = "structural",
    post_optimization: bool = False,
    validate: bool = True,
    baselines: bool = False,
) -> Database:
    """Tune several tasks into one database, which is returned.

    ``work_dir`` receives logs and, with ``database="json"``, the database; run again with the same directory, tuning
    goes on from what is there. With ``validate`` the fastest records are compared numerically with the unscheduled
    program and timed again, and wrong ones can no longer win; without, that is done when a record is applied. With
    ``baselines`` the default schedule of each task is timed as well, with every batch and in turns with the winners,
    so that a record slower than it is never applied. ``post_optimization`` goes on from each winner by coordinate
    descent, with up to ``max_trials_per_task`` further measurements (see ``post_optimization.PostOpt``). Builders,
    runners, cost models and callbacks of the caller's own may fail: what they get wrong costs the candidates
    concerned.
    """
    if not tasks:
        raise ValueError("No tasks to tune")
    if len(tasks) != len(task_weights):
        raise ValueError(f"Length of tasks ({len(tasks)}) and task_weights ({len(task_weights)}) do not match")
    os.makedirs(work_dir, exist_ok=True)
    build, measure, own = _workers(builder, runner)
    database = _database(database, work_dir, module_equality)
    cores = tasks[0].num_threads
    model: Any = CostModel.create(cost_model, num_tuning_cores=cores) if isinstance(cost_model, str) else cost_model
    scheduler = TaskScheduler.create(task_scheduler) if isinstance(task_scheduler, str) else task_scheduler
    scheduler.logger = get_scheduler_log(work_dir)
    max_trials_per_task = max_trials_global if max_trials_per_task is None else max_trials_per_task
    settings = {"trials": [max_trials_global, max_trials_per_task, num_trials_per_iter]}
    # A model of the caller's own is the caller's to keep.
    state = RunState(work_dir, database, tasks, settings, model if isinstance(cost_model, str) else None)
    scheduler.run_state = state
    scheduler.with_baselines = baselines and isinstance(measure, LocalRunner)
    scheduler.will_check = validate or scheduler.with_baselines
    try:
        _begin_run(database, tasks, task_weights, settings)
        require_devices(measure, [task.target for task in tasks])
        scheduler.tune(
            tasks=tasks,
            task_weights=list(task_weights),
            max_trials_global=max_trials_global,
            max_trials_per_task=max_trials_per_task,
            num_trials_per_iter=num_trials_per_iter,
            builder=build,
            runner=measure,
            measure_callbacks=_callbacks(measure_callbacks),
            database=database,
            cost_model=model,
        )
        if scheduler.will_check:
            _check_winners(scheduler, tasks, database, build, measure, validate, baselines)
        if post_optimization:
            _improve(work_dir, tasks[0].target, max_trials_per_task, database, build, measure)
        state.finish()
        _write_what_is_left(database)
        _end_run(database, "finished", scheduler)
    except BaseException:
        _end_run(database, "failed", scheduler)
        raise
    finally:
        for part in own:
            if hasattr(part, "shutdown"):
                part.shutdown()
    return database
