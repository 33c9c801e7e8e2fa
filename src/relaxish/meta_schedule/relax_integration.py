"""Tuning whole models: find their loop programs, tune them, compile with what was found."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from logging import Logger
from typing import Any

from ..relax.expr import is_call_of
from ..ir import GlobalVar, IRModule
from ..ir.functor import post_order_visit
from ..ir.node import Node
from ..support.entry_points import load
from ..target import Target
from ..transform.kernel_origins import has_origins, KernelsToOperators, unlowered
from ..transform.placement import device_of
from .runner.pools import runner_of_target
from ..tir import PrimFunc
from .builder import Builder
from .cost_model import CostModel
from .database import Database
from .extracted_task import ExtractedTask
from .logging import get_loggers_from_work_dir
from .verdicts.module_equality import ModuleEquality
from .runner import Runner
from .analysis.schedules import normalize_mod
from .measure_callback.measure_callback import MeasureCallback
from .search_strategy import SearchStrategy
from .space_generator import SpaceGenerator
from .task_scheduler import TaskScheduler
from .tune import tune_tasks
from .tune_context import TuneContext
from .utils import fork_seed
from ..ir.prim import const_int
from ..support.sequences import of_kind

__all__ = ["compile_relax", "extract_tasks", "extracted_tasks_to_tune_contexts", "tune_relax"]


def _as_module(mod: IRModule | Any, params: Mapping[str, Any] | None) -> IRModule:
    """The module with ``params`` bound to parameters of ``main``; a lone function becomes ``main``."""
    from ..transform import BindParams

    module = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
    return BindParams("main", dict(params))(module) if params else module


def _callees(mod: IRModule) -> list[GlobalVar]:
    """The callee of every ``call_tir`` of the module's graph functions, in program order."""
    from ..relax.expr import Function

    found: list[GlobalVar] = []

    def visit(node: Node) -> None:
        if is_call_of(node, "relax.call_tir"):
            found.append(node.args[0])

    for func in mod.functions.values():
        if isinstance(func, Function):
            post_order_visit(func, visit)
    return found


def extract_tasks(
    mod: IRModule | Any,
    target: Target | str,
    params: Mapping[str, Any] | None = None,
    module_equality: str = "structural",
) -> list[ExtractedTask]:
    """The distinct loop programs a graph calls with ``call_tir``, each weighted by its number of call sites.

    Two programs are one task when ``module_equality`` ("structural", "ignore-ndarray" or "anchor-block") says so; with
    "anchor-block" the variant with the fewest blocks stands for the task. Of a composed target each task has the device
    that its program is for. Operators that still stand in the graph are
    no tasks: legalise, and best fuse, first.
    """
    target = target if isinstance(target, Target) else Target(target)
    module = _as_module(mod, params)
    equality = ModuleEquality(module_equality)
    buckets: dict[tuple[int, Target], list[ExtractedTask]] = {}
    tasks: list[ExtractedTask] = []
    normalized: dict[GlobalVar, IRModule] = {}
    for callee in _callees(module):
        if callee not in normalized:
            normalized[callee] = normalize_mod(module[callee])
        program = normalized[callee]
        where = device_of(module[callee], target)
        bucket = buckets.setdefault((equality.hash(program), where), [])
        task = next((t for t in bucket if equality.equal(t.dispatched[0], program)), None)
        if task is None:
            task = ExtractedTask(callee.name_hint, program, where, [program], 0)
            bucket.append(task)
            tasks.append(task)
        elif module_equality == "anchor-block" and _num_blocks(program) < _num_blocks(task.dispatched[0]):
            # The plainest variant is tuned; its trace serves the ones with more around the anchor.
            task.task_name, task.mod, task.dispatched = callee.name_hint, program, [program]
        task.weight += 1
    return tasks


def _num_blocks(mod: IRModule) -> int:
    from .analysis import blocks as ba

    return sum(len(ba.places(f)) for f in mod.functions.values() if isinstance(f, PrimFunc))


def _is_dynamic(mod: IRModule) -> bool:
    func = next(of_kind(mod.functions.values(), PrimFunc))
    return any(const_int(x) is None for b in func.buffer_map.values() for x in b.shape)


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask],
    work_dir: str,
    space: SpaceGenerator | str | Any = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    num_threads: int | str = "physical",
    seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """Tune contexts and weights; programs already scheduled, and those with unknown extents, are left out."""
    chosen = []
    for task in extracted_tasks:
        func = next(of_kind(task.dispatched[0].functions.values(), PrimFunc))
        if (func.attrs or {}).get("tir.is_scheduled"):
            warnings.warn(f"The task {task.task_name} is already scheduled, skipping it.", stacklevel=2)
        elif not _is_dynamic(task.dispatched[0]):
            chosen.append(task)
    loggers: list[Logger] = get_loggers_from_work_dir(work_dir, [t.task_name for t in chosen])
    contexts, weights = [], []
    for task, logger, task_seed in zip(chosen, loggers, fork_seed(seed, len(chosen)), strict=True):
        context = TuneContext(
            task.dispatched[0],
            target=task.target,
            space_generator=space.clone() if isinstance(space, SpaceGenerator) else space,
            search_strategy=strategy.clone() if isinstance(strategy, SearchStrategy) else strategy,
            task_name=task.task_name,
            logger=logger,
            rand_state=task_seed,
            num_threads=num_threads,
        )
        contexts.append(context)
        weights.append(float(task.weight))
    return contexts, weights


def _specialized(mod: IRModule, sizes: Mapping[str, Sequence[int]]) -> IRModule:
    """The operators of a model, in copies for known sizes."""
    from ..transform.specialize_sizes import SpecializeSizes

    source = unlowered(mod)
    return SpecializeSizes(sizes)(KernelsToOperators()(source) if has_origins(source) else source)


def _is_llvm(target: str | Target) -> bool:
    return bool((target if isinstance(target, Target) else Target(target)).kind.name == "llvm")


def tune_relax(
    mod: IRModule | Any,
    params: Mapping[str, Any] | None,
    target: str | Target,
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: CostModel | str = "xgb",
    measure_callbacks: str | Sequence[MeasureCallback] = "default",
    task_scheduler: TaskScheduler | str = "gradient",
    space: SpaceGenerator | str | Any = "post-order-apply",
    strategy: SearchStrategy | str = "evolutionary",
    seed: int | None = None,
    module_equality: str = "structural",
    num_tuning_cores: int | str = "physical",
    validate: bool = True,
    baselines: bool = False,
    tuning_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Database:
    """Tune every loop program a legalised (and best also fused) module calls.

    ``op_names`` keeps only the tasks whose name contains one of the given texts. ``relaxish.pipeline.kernel_pipeline``
    brings a model to the very kernels that ``relaxish.build`` will look up in the database. ``baselines`` times the
    default schedules too, so that applying the database is never slower than not tuning.

    On CPUs, kernels that a pipeline without a target made are tuned, with ``baselines``, as a build will lay them out.

    Kernels of unknown sizes have no record. ``tuning_shapes`` says for which sizes a model of symbolic ones is tuned, by
    the names of the symbols: ``{"seq": [16, 64, 128, 512]}``, or ranges. The model (not legalised, or by a pipeline
    without a target) is tuned as :class:`relaxish.relax.transform.SpecializeSizes` makes it; give :func:`compile_relax` the
    same, and calls of these sizes run their tuned copies, others the dynamic function.
    """
    module = _as_module(mod, params)
    if tuning_shapes:
        module = _specialized(module, tuning_shapes)
    if tuning_shapes or (_is_llvm(target) and has_origins(module)):
        module, baselines = load("kernel_pipeline")(target)(module), baselines or _is_llvm(target)
    tasks = extract_tasks(module, target, None, module_equality)
    if op_names:
        tasks = [t for t in tasks if any(name in t.task_name for name in op_names)]
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir, space, strategy, num_tuning_cores, seed)
    with runner_of_target(runner, Target(target)) as measuring:
        return tune_tasks(
            tasks=contexts,
            task_weights=weights,
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
            validate=validate,
            baselines=baselines,
        )


def compile_relax(
    database: Database,
    mod: IRModule | Any,
    target: Target | str,
    params: Mapping[str, Any] | None,
    enable_warning: bool = False,
    *,
    tuning_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Any:
    """Build a model with the schedules of a database; kernels it has no record of get their default schedule.

    With the ``tuning_shapes`` that :func:`tune_relax` was given, calls of these sizes run copies of the function for them.
    """
    from ..ir.transform import PassContext
    from .passes import ApplyFasterOfDatabaseAndDefault, MetaScheduleApplyDatabase

    target = target if isinstance(target, Target) else Target(target)
    module = _as_module(mod, params)
    if tuning_shapes:
        module = _specialized(module, tuning_shapes)
    build = load("build")
    with target, database, PassContext(opt_level=3):
        faster = ApplyFasterOfDatabaseAndDefault(enable_warning=enable_warning)
        applied = faster if _is_llvm(target) else MetaScheduleApplyDatabase(enable_warning=enable_warning)
        return build(applied(module), target)
