"""Tuning loop programs by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import IRModule
from ..target import Target
from ..transform.placement import device_of
from .runner.pools import runner_of_target
from ..tir import PrimFunc, Schedule
from .builder import Builder
from .cost_model import CostModel
from .database import Database
from .logging import get_loggers_from_work_dir
from .runner import Runner
from .search_strategy import SearchStrategy
from .space_generator import SpaceGenerator
from .task_scheduler import TaskScheduler
from .tune import tune_tasks
from .tune_context import TuneContext
from .utils import fork_seed

__all__ = ["compile_tir", "tune_tir"]


def tune_tir(
    mod: IRModule | PrimFunc,
    target: str | Target,
    work_dir: str,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: str = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    space: SpaceGenerator | str | Any = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    num_tuning_cores: int | str = "physical",
    seed: int | None = None,
    module_equality: str = "structural",
    special_space: Mapping[str, Any] | None = None,
    post_optimization: bool = False,
    validate: bool = True,
    baselines: bool = False,
) -> Database:
    """Tune every PrimFunc of a module, each a task of weight 1.

    ``special_space`` maps a function's name to another space, or to None to leave it out.
    """
    if isinstance(mod, PrimFunc):
        symbol = (mod.attrs or {}).get("global_symbol") or "main"
        mod = IRModule({str(symbol): mod})
    if not isinstance(mod, IRModule):
        raise TypeError(f"expected an IRModule or a PrimFunc, got {type(mod).__name__}")
    target = Target(target)
    special = dict(special_space or {})
    named = []
    for gv, func in mod.functions.items():
        if not isinstance(func, PrimFunc) or (func.attrs is not None and func.attrs.get("tir.is_scheduled")):
            continue
        chosen = special.get(gv.name_hint, space)
        if chosen is not None:
            named.append((gv.name_hint, func, chosen))
    if not named:
        raise ValueError("No tasks to tune")
    loggers = get_loggers_from_work_dir(work_dir, [name for name, _, _ in named])
    seeds = fork_seed(seed, len(named))
    tasks = [
        TuneContext(
            func,
            target=device_of(func, target),
            space_generator=made.clone() if isinstance(made, SpaceGenerator) else made,
            search_strategy=strategy.clone() if isinstance(strategy, SearchStrategy) else strategy,
            task_name=name,
            rand_state=task_seed,
            num_threads=num_tuning_cores,
            logger=logger,
        )
        for (name, func, made), task_seed, logger in zip(named, seeds, loggers, strict=True)
    ]
    with runner_of_target(runner, target) as measuring:
        return tune_tasks(
            tasks=tasks,
            task_weights=[1.0] * len(tasks),
            work_dir=work_dir,
            max_trials_global=max_trials_global,
            max_trials_per_task=max_trials_per_task,
            num_trials_per_iter=num_trials_per_iter,
            builder=builder,
            runner=measuring,
            database=database,
            cost_model=cost_model,
            measure_callbacks=measure_callbacks,
            task_scheduler=task_scheduler,
            module_equality=module_equality,
            post_optimization=post_optimization,
            validate=validate,
            baselines=baselines,
        )


def compile_tir(database: Database, mod: IRModule | PrimFunc, target: Target | str) -> Schedule | None:
    """The best schedule of a program, None if there is no record of it."""
    from .analysis.schedules import normalize_mod

    if isinstance(target, str):
        target = Target(target)
    mod = normalize_mod(mod)
    return database.query_schedule(mod, target, "main")
