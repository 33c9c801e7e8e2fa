"""A schedule from a handful of samples of the search space, with no search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..support.log import get_logger
from ..target import Target
from ..tir import PrimFunc
from .builder import BuilderInput, LocalBuilder
from .database import mean_seconds
from .runner import LocalRunner, RunnerInput
from .search_strategy import MeasureCandidate
from .tune_context import TuneContext

__all__ = ["few_shot_tune"]

_log = get_logger("meta_schedule")


def few_shot_tune(
    func: PrimFunc, target: Target, valid_count: int, benchmark: bool, name: str = "main"
) -> PrimFunc | None:
    """The program under the first of ``valid_count`` sampled schedules, or the fastest of them; None if none is valid."""
    context = TuneContext(
        func,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name=name,
        rand_state=1,
    )
    context.pre_tuning(max_trials=valid_count, num_trials_per_iter=valid_count)
    candidates = context.generate_measure_candidates() or []
    context.post_tuning()
    if not candidates:
        _log.warning("few-shot tuning found no valid schedule of %s", name)
        return None
    best = _fastest(candidates, target) if benchmark else candidates[0]
    result: PrimFunc = best.sch.mod["main"]
    return result


def _fastest(candidates: Sequence[MeasureCandidate], target: Target) -> MeasureCandidate:
    """The fastest candidate by measurement; the first one if none of them runs."""
    builder, runner = LocalBuilder(), LocalRunner()
    try:
        built = builder.build([BuilderInput(c.sch.mod, target) for c in candidates])
        seconds = []
        for candidate, result in zip(candidates, built, strict=True):
            if result.artifact_path is None:
                seconds.append(math.inf)
                continue
            future = runner.run([RunnerInput(result.artifact_path, target.kind.name, candidate.args_info)])[0]
            seconds.append(mean_seconds(future.result().run_secs))
    finally:
        builder.shutdown()
        runner.shutdown()
    return candidates[seconds.index(min(seconds))]
