"""Passes that tune, or apply what was tuned."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..ir import IRModule
from ..ir.transform import Pass, PassContext, module_pass
from ..support.log import get_logger
from ..target import Target
from ..tir import PrimFunc, Schedule
from .builder.device_artifact import is_device_target
from .verdicts.baseline import baseline_wins, default_schedule
from .database import Database, JSONDatabase
from .application.few_shot import few_shot_tune
from .verdicts.module_equality import ModuleEquality
from .analysis.schedules import normalize_mod
from .trace_apply import schedule_using_anchor_trace
from .trust import is_trusted, may_apply

__all__ = ["FewShotTuning", "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR"]

_log = get_logger("meta_schedule")


def _map_prim_funcs(mod: IRModule, change: Callable[[str, PrimFunc], PrimFunc | None]) -> IRModule:
    """The module with each loop program replaced by ``change(name, func)``, None leaving it."""
    changed = {}
    for var, func in mod.functions.items():
        made = change(var.name_hint, func) if isinstance(func, PrimFunc) else None
        if made is not None:
            changed[var] = made
    if not changed:
        return mod
    functions = {var: changed.get(var, func) for var, func in mod.functions.items()}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _scheduled(original: PrimFunc, scheduled: PrimFunc) -> PrimFunc:
    """What a schedule made of a function: its own attributes, and the mark that it carries its schedule."""
    made = PrimFunc(scheduled.params, scheduled.body, scheduled.ret_type, scheduled.buffer_map, original.attrs)
    return made.with_attr("tir.is_scheduled", True)


def _database(work_dir: str | None) -> Database:
    current = Database.current()
    if current is not None:
        return current
    if work_dir is None:
        raise ValueError("MetaScheduleApplyDatabase needs a database in scope ('with database:') or a work_dir")
    _log.warning(
        "Creating JSONDatabase. Workload at: %s, Tuning records at: %s",
        os.path.join(work_dir, "database_workload.json"),
        os.path.join(work_dir, "database_tuning_record.json"),
    )
    return JSONDatabase(work_dir=work_dir, allow_missing=True)


def apply_record(
    database: Database, func: PrimFunc, target: Target, name: str, respect_baselines: bool = False
) -> PrimFunc | None:
    """The function with its best record applied; None if there is no record that is known to compute the right thing.

    With ``respect_baselines`` the default schedule takes the record's place where it was measured to be faster.
    """
    module = normalize_mod(func)
    record = database.query_tuning_record(module, target, name)
    if record is None and "layout_free_buffers" in (func.attrs or {}):
        # Tuned before anyone knew that its weights are constants.
        module = normalize_mod(func.without_attr("layout_free_buffers"))
        record = database.query_tuning_record(module, target, name)
    # Whoever defines the query may not have checked.
    if record is None or not is_trusted(database, record, target):
        return None
    sch = Schedule(module)
    if ModuleEquality("ignore-ndarray").equal(record.workload.mod, module):
        if respect_baselines and baseline_wins(database, module, record):
            # The build packs weights for the default schedules that it makes itself.
            return None if not is_device_target(target) else _scheduled(func, default_schedule(module, target)["main"])
        if ModuleEquality("structural").equal(record.workload.mod, module):
            sch = Schedule(record.workload.mod)  # the trace names its blocks, which may have other names in the module
        record.trace.apply_to_schedule(sch, remove_postproc=False)
    else:  # found by its anchor block: the trace belongs to another fused variant
        schedule_using_anchor_trace(sch, record.trace, target)
        if not may_apply(module, sch.mod, target, name):
            return None
    return _scheduled(func, sch.mod["main"])


def MetaScheduleApplyDatabase(work_dir: str | None = None, enable_warning: bool = False) -> Pass:
    """Replace loop programs by their best schedules from the database in scope, or from ``work_dir``.

    Before: ``@T.prim_func def matmul(...)`` as a plain loop nest. After: the tuned nest, marked ``tir.is_scheduled``.
    Programs without a record stay as they are, with a warning if ``enable_warning``. The target is the one in scope
    where the pass is made, else where it runs. A record that nobody has checked is compared with the unscheduled
    program first, and passed over if it computes something else (see ``trust``).
    """
    return _apply_database(work_dir, enable_warning, respect_baselines=False)


def ApplyFasterOfDatabaseAndDefault(
    only: Callable[[PrimFunc], bool] | None = None, work_dir: str | None = None, enable_warning: bool = False
) -> Pass:
    """:func:`MetaScheduleApplyDatabase` for a build that is to be fast, not to repeat a search.

    A kernel whose default schedule was measured (``tune_relax(..., baselines=True)``) to beat its best record gets
    that schedule instead: on CPUs when it is built, with the other default schedules. With ``only``, kernels that it
    does not hold for are passed over.
    """
    return _apply_database(work_dir, enable_warning, respect_baselines=True, only=only)


def _place_of(func: PrimFunc, target: Target) -> Target:
    """The device that a function is for in a program for several: another kind or architecture than the current one."""
    own: Any = (func.attrs or {}).get("target")
    elsewhere = own is not None and (own.kind, own.attrs.get("arch")) != (target.kind, target.attrs.get("arch"))
    return own if elsewhere else target


def _apply_database(
    work_dir: str | None,
    enable_warning: bool,
    respect_baselines: bool,
    only: Callable[[PrimFunc], bool] | None = None,
) -> Pass:
    given = Target.current()

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        target = given or Target.current(allow_none=False)
        database = _database(work_dir)

        def change(name: str, func: PrimFunc) -> PrimFunc | None:
            if only is not None and not only(func):
                return None
            made = apply_record(database, func, _place_of(func, target), name, respect_baselines)
            if made is None and enable_warning:
                _log.warning("Tuning record is not found for primfunc: %s", name)
            return made

        return _map_prim_funcs(mod, change)

    return _named(run, "MetaScheduleApplyDatabase")


def _named(run: Callable[[IRModule, Any], IRModule], name: str) -> Pass:
    made: Pass = module_pass(run, opt_level=0, name=name)
    return made


def MetaScheduleTuneIRMod(
    params: Mapping[str, Any],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: list[str] | None = None,
    **options: Any,
) -> Pass:
    """Tune every loop program the module's graph calls; the module itself stays as it is.

    The records go to ``work_dir``, for :func:`MetaScheduleApplyDatabase` to apply. ``options`` are further keywords of
    ``tune_relax``.
    """
    given = Target.current()

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        from .relax_integration import tune_relax

        target = given or Target.current(allow_none=False)
        tune_relax(mod, params, target, work_dir, max_trials_global, max_trials_per_task, op_names, **options)
        return mod

    return _named(run, "MetaScheduleTuneIRMod")


def MetaScheduleTuneTIR(work_dir: str, max_trials_global: int, **options: Any) -> Pass:
    """Tune every loop program of the module by itself, each with ``max_trials_global`` trials.

    The module stays as it is; ``options`` are further keywords of ``tune_tir``.
    """
    given = Target.current()

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        from .tir_integration import tune_tir

        target = given or Target.current(allow_none=False)
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc) and not (func.attrs or {}).get("tir.is_scheduled"):
                tune_tir(IRModule({var: func}), target, work_dir, max_trials_global, **options)
        return mod

    return _named(run, "MetaScheduleTuneTIR")


def FewShotTuning(valid_count: int = 1, benchmark: bool = False) -> Pass:
    """Give every unscheduled loop program a schedule sampled from its space: the first valid one, or with
    ``benchmark`` the fastest of ``valid_count`` measured ones.

    Raises ValueError, when the pass runs, if ``valid_count`` is not positive or ``benchmark`` has nothing to compare.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        if valid_count <= 0:
            raise ValueError("Valid_count must be positive.")
        if benchmark and valid_count <= 1:
            raise ValueError("Benchmarking requires at least two valid trials.")
        target = Target.current(allow_none=False)

        def change(name: str, func: PrimFunc) -> PrimFunc | None:
            if (func.attrs or {}).get("tir.is_scheduled"):
                return None
            made = few_shot_tune(func, target, valid_count, benchmark, name)
            return None if made is None else _scheduled(func, made)

        return _map_prim_funcs(mod, change)

    return _named(run, "FewShotTuning")
