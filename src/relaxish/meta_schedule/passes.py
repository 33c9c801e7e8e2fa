"""Passes that tune, or apply what was tuned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import IRModule
from ..ir.transform import PassContext, module_pass
from ..support.log import get_logger
from ..target import Target
from ..tir import PrimFunc, Schedule
from .database import Database, JSONDatabase
from .module_equality import ModuleEquality
from .schedule_util import normalize_mod
from .trace_apply import schedule_using_anchor_trace

__all__ = ["FewShotTuning", "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR"]

_log = get_logger("meta_schedule")


def _target_of(func: PrimFunc | None = None) -> Target:
    found = func.attrs.get("target") if func is not None and func.attrs is not None else None
    target = found or Target.current(allow_none=True)
    if target is None:
        raise ValueError("tuning needs a target: enter one with 'with target:', or bind it to the functions")
    return target if isinstance(target, Target) else Target(target)


def _with_attrs_of(func: PrimFunc, scheduled: PrimFunc) -> PrimFunc:
    result = scheduled
    for key, value in (func.attrs or {}).items():
        result = result.with_attr(key, value)
    if not (func.attrs or {}).get("global_symbol"):
        result = result.without_attr("global_symbol")
    return result.with_attr("tir.is_scheduled", True)


@module_pass(opt_level=0, name="MetaScheduleApplyDatabase")
class _Apply:
    def __init__(self, work_dir: str | None, enable_warning: bool) -> None:
        self.work_dir = work_dir
        self.enable_warning = enable_warning

    def _database(self) -> Database:
        current = Database.current()
        if current is not None:
            return current
        if self.work_dir is None:
            raise ValueError("MetaScheduleApplyDatabase needs a database in scope ('with database:') or a work_dir")
        return JSONDatabase(work_dir=self.work_dir, allow_missing=True, module_equality="structural")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        database = self._database()
        changed = {}
        for gv, func in mod.functions.items():
            if not isinstance(func, PrimFunc) or (func.attrs or {}).get("tir.is_scheduled"):
                continue
            made = apply_record(database, func, _target_of(func), gv.name_hint)
            if made is not None:
                changed[gv] = made
            elif self.enable_warning:
                _log.warning("no tuning record for %s", gv.name_hint)
        if not changed:
            return mod
        functions = {gv: changed.get(gv, f) for gv, f in mod.functions.items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def apply_record(database: Database, func: PrimFunc, target: Target, name: str) -> PrimFunc | None:
    """The function with its best record applied, None if there is none."""
    module = normalize_mod(func)
    record = database.query_tuning_record(module, target, name)
    if record is None:
        return None
    sch = Schedule(module)
    if ModuleEquality("ignore-ndarray").equal(record.workload.mod, module):
        record.trace.apply_to_schedule(sch, remove_postproc=False)
    else:
        schedule_using_anchor_trace(sch, record.trace, target)
    return _with_attrs_of(func, sch.mod["main"])


def MetaScheduleApplyDatabase(work_dir: str | None = None, enable_warning: bool = False) -> Any:  # noqa: N802
    """Replace loop programs by their best schedules from the database in scope, or from ``work_dir``.

    Before: ``@T.prim_func def matmul(...)`` as a plain loop nest. After: the tuned nest, marked ``tir.is_scheduled``.
    """
    return _Apply(work_dir, enable_warning)


@module_pass(opt_level=0, name="MetaScheduleTuneIRMod")
class _TuneIRMod:
    def __init__(self, params: Any, work_dir: str, max_trials_global: int, max_trials_per_task: int | None,
                 op_names: Any, options: Mapping[str, Any]) -> None:
        self.arguments = (params, work_dir, max_trials_global, max_trials_per_task, op_names)
        self.options = dict(options)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        from .relax_integration import tune_relax

        params, work_dir, trials, per_task, op_names = self.arguments
        try:
            tune_relax(mod, params, _target_of(), work_dir, trials, per_task, op_names, **self.options)
        except ValueError as err:
            if "No tasks to tune" not in str(err):
                raise
            _log.warning("%s", err)
        return mod


def MetaScheduleTuneIRMod(  # noqa: N802
    params: Mapping[str, Any], work_dir: str, max_trials_global: int, max_trials_per_task: int | None = None,
    op_names: list[str] | None = None, **options: Any,
) -> Any:
    """Tune every loop program the module's graph calls; the module itself stays as it is.

    The records go to ``work_dir``, for :func:`MetaScheduleApplyDatabase` to apply.
    """
    return _TuneIRMod(params, work_dir, max_trials_global, max_trials_per_task, op_names, options)


@module_pass(opt_level=0, name="MetaScheduleTuneTIR")
class _TuneTIR:
    def __init__(self, work_dir: str, max_trials_global: int, options: Mapping[str, Any]) -> None:
        self.work_dir = work_dir
        self.max_trials_global = max_trials_global
        self.options = dict(options)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        from .tir_integration import tune_tir

        if any(isinstance(f, PrimFunc) for f in mod.functions.values()):
            tune_tir(mod, _target_of(), self.work_dir, self.max_trials_global, **self.options)
        return mod


def MetaScheduleTuneTIR(work_dir: str, max_trials_global: int, **options: Any) -> Any:  # noqa: N802
    """Tune every loop program of the module by itself; the module stays as it is."""
    return _TuneTIR(work_dir, max_trials_global, options)


@module_pass(opt_level=0, name="FewShotTuning")
class _FewShot:
    def __init__(self, valid_count: int, benchmark: bool) -> None:
        self.valid_count = valid_count
        self.benchmark = benchmark

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        changed = {}
        for gv, func in mod.functions.items():
            if isinstance(func, PrimFunc) and not (func.attrs or {}).get("tir.is_scheduled"):
                changed[gv] = self._tune(func, _target_of(func), gv.name_hint)
        if not changed:
            return mod
        functions = {gv: changed.get(gv, f) for gv, f in mod.functions.items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _tune(self, func: PrimFunc, target: Target, name: str) -> PrimFunc:
        from .tune_context import TuneContext

        context = TuneContext(func, target=target, space_generator="post-order-apply",
                              search_strategy="replay-trace", task_name=name, rand_state=1)
        context.pre_tuning(max_trials=max(1, self.valid_count) * 2, num_trials_per_iter=max(1, self.valid_count))
        candidates = (context.generate_measure_candidates() or [])[:max(1, self.valid_count)]
        if not candidates:
            _log.warning("few-shot tuning found no valid schedule of %s", name)
            return func
        best = self._fastest(candidates, target) if self.benchmark and len(candidates) > 1 else candidates[0]
        return _with_attrs_of(func, best.sch.mod["main"])

    @staticmethod
    def _fastest(candidates: list[Any], target: Target) -> Any:
        from .builder import BuilderInput, LocalBuilder
        from .runner import EvaluatorConfig, LocalRunner, RunnerInput

        builder = LocalBuilder(max_workers=1)
        runner = LocalRunner(evaluator_config=EvaluatorConfig(3, 1, 20))
        try:
            built = builder.build([BuilderInput(c.sch.mod, target) for c in candidates])
            best, least = candidates[0], float("inf")
            for candidate, result in zip(candidates, built, strict=True):
                if result.artifact_path is None:
                    continue
                item = RunnerInput(result.artifact_path, target.kind.name, candidate.args_info)
                seconds = runner.run([item])[0].result().run_secs
                if seconds and min(seconds) < least:
                    best, least = candidate, min(seconds)
            return best
        finally:
            builder.shutdown()
            runner.shutdown()


def FewShotTuning(valid_count: int = 1, benchmark: bool = False) -> Any:  # noqa: N802
    """Give every loop program one of a few sampled schedules; with ``benchmark`` the fastest of ``valid_count``."""
    return _FewShot(valid_count, benchmark)


