"""A schedule from a handful of candidates, with no search: those carver recommends, then samples of the search space."""

from __future__ import annotations

from collections.abc import Sequence

from ...dlight.cpu import contraction_variants
from ...ir import IRModule
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...target import Target
from ...tir import PrimFunc
from ..arg_info import ArgInfo
from ..verdicts.judge import shared_judge
from ..measure.engine import MeasureEngine
from ..runner.simulated_time import simulated_seconds
from ..search_strategy import MeasureCandidate
from ..tune_context import TuneContext

__all__ = ["few_shot_tune"]

_log = get_logger("meta_schedule")


def few_shot_tune(
    func: PrimFunc, target: Target, valid_count: int, benchmark: bool, name: str = "main"
) -> PrimFunc | None:
    """The program under the first of ``valid_count`` candidates, or the fastest of them; None if none is valid."""
    context = TuneContext(
        func,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name=name,
        rand_state=1,
    )
    context.pre_tuning(max_trials=valid_count, num_trials_per_iter=valid_count)
    sampled = list(context.generate_measure_candidates() or [])
    context.post_tuning()
    candidates = (_recommended(func, target, valid_count) + _by_estimate(sampled, target))[:valid_count]
    if not candidates:
        _log.warning("few-shot tuning found no valid schedule of %s", name)
        return None
    assert context.mod is not None
    for candidate in _by_speed(candidates, target) if benchmark else candidates:
        verdict = shared_judge().compare(context.mod, candidate.sch.mod, target)
        if verdict.valid is not False:
            result: PrimFunc = candidate.sch.mod["main"]
            return result
        _log.error("a sampled schedule of %s computes something else and is discarded: %s", name, verdict.reason)
    return None


def _recommended(func: PrimFunc, target: Target, count: int) -> list[MeasureCandidate]:
    """Schedules of the tiles that carver recommends on CPUs; none for functions it has no tiles for."""
    if target.get_target_device_type() != 1:
        return []
    args = ArgInfo.from_entry_func(IRModule({"main": func}))
    try:
        schedules = contraction_variants(
            func, target, count, may_pack=not (func.attrs or {}).get("layout_free_buffers")
        )
    except RelaxishError as error:
        _log.debug("carver recommends nothing: %s", error)
        return []
    return [MeasureCandidate(schedule, args) for schedule in schedules]


def _by_estimate(candidates: Sequence[MeasureCandidate], target: Target) -> list[MeasureCandidate]:
    """Candidates for GPUs with the least time by the analytic model first; others as they are."""
    if target.kind.name != "cuda":
        return list(candidates)
    return sorted(candidates, key=lambda candidate: simulated_seconds(candidate.sch.mod, target))


def _by_speed(candidates: Sequence[MeasureCandidate], target: Target) -> list[MeasureCandidate]:
    """The candidates, the fastest by measurement first, those that do not run last."""
    with MeasureEngine(target) as engine:
        seconds = [measured.mean for measured in engine.measure(candidates)]
    return [candidates[i] for i in sorted(range(len(candidates)), key=seconds.__getitem__)]
