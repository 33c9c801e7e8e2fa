"""Measuring the candidates of pass-level tuning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import driver, transform
from ..ir import IRModule
from ..ir.transform import PassContext
from ..meta_schedule.arg_info import TensorInfo
from ..meta_schedule.builder import Builder
from ..meta_schedule.measure import Candidate, MeasureEngine
from ..meta_schedule.runner import Runner
from ..runtime import VirtualMachine, device
from ..runtime.arrays import ndarray
from ..runtime.registry import register_func
from ..support.errors import RelaxishError
from ..target import Target
from ..transform.tuning_api.primitives import Trace
from ..ir.plain import plain_float

__all__ = ["default_evaluate"]

_log = logging.getLogger("TuningAPI")
_FAILED = [1e100]


def _infos(mod: IRModule) -> list[TensorInfo]:
    return [TensorInfo(p.struct_info.dtype, [int(d) for d in p.struct_info.shape]) for p in mod["main"].params]


def _measure_here(mod: IRModule, target: Target, params: Mapping[str, Any] | None) -> Sequence[float]:
    """Build and time the function ``main`` in this process."""
    if params:
        mod = transform.BindParams("main", dict(params))(mod)
    try:
        place = device(str(target.kind.name), 0)
        machine = VirtualMachine(driver.build(mod, target), place)
        rng = np.random.default_rng(0)
        args = [ndarray.array(rng.random(info.shape).astype(info.dtype), place) for info in _infos(mod)]
        timed = machine.time_evaluator("main", place, number=3, repeat=5)(*args)
    except RelaxishError as error:
        _log.warning("%s", error)
        return _FAILED
    return list(timed.results)


def _measure(
    mod: IRModule, target: Target, params: Mapping[str, Any] | None, builder: Builder, runner: Runner
) -> Sequence[float]:
    """Build and time with a builder and a runner of the search."""
    candidate = Candidate(lambda: mod, _infos(mod), params=None if params is None else dict(params))
    (measured,) = MeasureEngine(target, builder, runner).measure([candidate])
    if not measured.ok:
        _log.warning("%s", measured.error)
        return _FAILED
    return measured.run_secs


@register_func("relax.tuning_api.default_evaluate", override=True)
def default_evaluate(
    candidates: Sequence[Trace],
    target_str: str,
    params: Mapping[str, Any] | None = None,
    builder: Builder | None = None,
    runner: Runner | None = None,
) -> None:
    """Measure candidates that have no time yet, and note the mean seconds in them.

    Modules that the PassContext's ``tuning_api_database`` knows are not measured again.
    """
    context = PassContext.current()
    database, target = context.get_tuning_api_database(), Target(target_str)
    count = 0
    for candidate in candidates:
        if candidate.perf != -1:
            continue
        count += 1
        mod = candidate.out_mod
        workload = None if database is None else database.commit_workload(mod)
        if database is not None and database.has_measurement_record(workload, target):
            run_secs = database.get_measurement_record(workload, target)
        else:
            if builder is not None and runner is not None:
                run_secs = _measure(mod, target, params, builder, runner)
            else:
                run_secs = _measure_here(mod, target, params)
            if database is not None and run_secs is not _FAILED:
                database.commit_measurement_record(workload, target, run_secs)
        candidate.set_perf(float(np.mean([plain_float(s) for s in run_secs])))
    context.inc_num_evals(count)
