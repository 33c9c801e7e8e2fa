"""Tuning whole models: find their loop programs, tune them, compile with what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger
from typing import Any

from ..ir import GlobalVar, IRModule
from ..ir.functor import post_order_visit
from ..target import Target
from ..tir import PrimFunc
from .builder import Builder
from .cost_model import CostModel
from .database import Database
from .extracted_task import ExtractedTask
from .logging import get_loggers_from_work_dir
from .module_equality import ModuleEquality
from .runner import Runner
from .schedule_util import normalize_mod
from .search_strategy import SearchStrategy
from .space_generator import SpaceGenerator
from .task_scheduler import TaskScheduler
from .tune import tune_tasks
from .tune_context import TuneContext
from .utils import fork_seed

__all__ = ["compile_relax", "extract_tasks", "extracted_tasks_to_tune_contexts", "tune_relax"]

_CALLS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad")


def _bound(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    if not params:
        return mod
    from ..transform import BindParams

    result: IRModule = BindParams("main", dict(params))(mod)
    return result


def _call_counts(mod: IRModule) -> dict[str, int]:
    """How often each loop program is called, in order of first call."""
    from ..relax.expr import Call, Function

    counts: dict[str, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Call) and getattr(node.op, "name", "") in _CALLS and isinstance(node.args[0], GlobalVar):
            counts[node.args[0].name_hint] = counts.get(node.args[0].name_hint, 0) + 1

    for func in mod.functions.values():
        if isinstance(func, Function):
            post_order_visit(func, visit)
    return counts


def extract_tasks(
    mod: IRModule | Any, target: Target | str, params: Mapping[str, Any] | None = None,
    module_equality: str = "structural",
) -> list[ExtractedTask]:
    """The distinct loop programs a graph calls, each with its number of call sites.

    The module must be legalised; operators that still stand in the graph are not tasks.
    """
    if isinstance(target, str):
        target = Target(target)
    if not isinstance(mod, IRModule):
        mod = IRModule({"main": mod})
    mod = _bound(mod, params)
    equality = ModuleEquality(module_equality)
    by_name = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc)}
    buckets: dict[int, list[ExtractedTask]] = {}
    tasks: list[ExtractedTask] = []
    for name, count in _call_counts(mod).items():
        func = by_name.get(name)
        if func is None:
            continue
        module = normalize_mod(func)
        bucket = buckets.setdefault(equality.hash(module), [])
        task = next((t for t in bucket if equality.equal(t.dispatched[0], module)), None)
        if task is None:
            task = ExtractedTask(name, IRModule({"main": func}), target, [module], 0)
            bucket.append(task)
            tasks.append(task)
        elif module_equality == "anchor-block" and _num_blocks(module) < _num_blocks(task.dispatched[0]):
            # The plainest variant is tuned; its trace serves the ones with more around the anchor.
            task.task_name, task.mod, task.dispatched = name, IRModule({"main": func}), [module]
        task.weight += count
    return tasks


def _num_blocks(mod: IRModule) -> int:
    from . import block_analysis as ba

    return sum(len(ba.places(f)) for f in mod.functions.values() if isinstance(f, PrimFunc))


def _is_dynamic(mod: IRModule) -> bool:
    func = next(f for f in mod.functions.values() if isinstance(f, PrimFunc))
    return any(not isinstance(getattr(x, "value", None), int) for b in func.buffer_map.values() for x in b.shape)


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask], work_dir: str, space: SpaceGenerator | str | Any = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary", num_threads: int | str = "physical", seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """Tune contexts and weights; programs already scheduled, and those with unknown extents, are left out."""
    chosen = []
    for task in extracted_tasks:
        func = next(f for f in task.dispatched[0].functions.values() if isinstance(f, PrimFunc))
        if (func.attrs is not None and func.attrs.get("tir.is_scheduled")) or _is_dynamic(task.dispatched[0]):
            continue
        chosen.append(task)
    loggers: list[Logger] = get_loggers_from_work_dir(work_dir, [t.task_name for t in chosen])
    contexts, weights = [], []
    for task, logger, task_seed in zip(chosen, loggers, fork_seed(seed, len(chosen)), strict=True):
        contexts.append(TuneContext(
            task.dispatched[0], target=task.target,
            space_generator=space.clone() if isinstance(space, SpaceGenerator) else space,
            search_strategy=strategy.clone() if isinstance(strategy, SearchStrategy) else strategy,
            task_name=task.task_name, logger=logger, rand_state=task_seed, num_threads=num_threads))
        weights.append(float(task.weight))
    return contexts, weights


def tune_relax(
    mod: IRModule | Any, params: Mapping[str, Any] | None, target: str | Target, work_dir: str,
    max_trials_global: int, max_trials_per_task: int | None = None, op_names: Sequence[str] | None = None, *,
    num_trials_per_iter: int = 64, builder: Builder | str = "local", runner: Runner | str = "local",
    database: Database | str = "json", cost_model: CostModel | str = "xgb", measure_callbacks: Any = "default",
    task_scheduler: TaskScheduler | str = "gradient", space: SpaceGenerator | str | Any = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary", seed: int | None = None, module_equality: str = "structural",
    num_tuning_cores: int | str = "physical", validate: bool = True,
) -> Database:
    """Tune every loop program a legalised (and best also fused) module calls.

    ``op_names`` keeps only the tasks whose name contains one of the given texts.
    """
    tasks = extract_tasks(mod, target, params, module_equality)
    if op_names is not None:
        tasks = [t for t in tasks if any(name in t.task_name for name in op_names)]
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir, space, strategy, num_tuning_cores, seed)
    if not contexts:
        raise ValueError("No tasks to tune: the module calls no static loop programs"
                         + (f" named like {list(op_names)}" if op_names else "; run LegalizeOps first"))
    return tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=work_dir, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task, num_trials_per_iter=num_trials_per_iter, builder=builder,
        runner=runner, database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler, module_equality=module_equality, validate=validate)


# Filled by the layer that owns builds.
BUILD_HOOK: dict[str, Any] = {}


def compile_relax(
    database: Database, mod: IRModule | Any, target: Target | str, params: Mapping[str, Any] | None,
    enable_warning: bool = False,
) -> Any:
    """Build a model with the schedules of a database."""
    from ..ir.transform import PassContext
    from .passes import MetaScheduleApplyDatabase

    if isinstance(target, str):
        target = Target(target)
    if not isinstance(mod, IRModule):
        mod = IRModule({"main": mod})
    mod = _bound(mod, params)
    if "build" not in BUILD_HOOK:
        import importlib

        BUILD_HOOK["build"] = importlib.import_module("relaxish.driver").build
    with target, database, PassContext(opt_level=3):
        return BUILD_HOOK["build"](MetaScheduleApplyDatabase(enable_warning=enable_warning)(mod), target)
