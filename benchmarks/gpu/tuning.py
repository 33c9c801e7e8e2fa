"""Section "tuning": the GEMM bars by search, each for its share of the time; the database is a result too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .cases import gemm
from .fit import rank_correlation
from .journal import Journal
from .kernels import build, into_output, on_device, relative_error, working
from .timing import Timer, add_times

# The section's time goes to 4096 cubed first; what that leaves is for 8192 cubed.
_SHARES = {"gemm f16 4096": 0.6, "gemm f16 8192": 1.0}
# A round that has begun is finished, and what was found is built, checked and timed.
_RESERVE_SEC = 30.0
# Measurements before the cost model is trained first: a search of two minutes has some hundreds, a rehearsal eight.
_WARMUP, _WARMUP_SMALL = 32, 4
# A kernel of a millisecond needs no 100 of them: three times as many candidates a minute.
_MIN_REPEAT_MS = 20
# So many of the fastest schedules are tried until one computes the right thing.
_FINALISTS = 5


def jobs(small: bool) -> list[str]:
    """A search each."""
    return ["gemm f16 64"] if small else list(_SHARES)


def run(job: str, options: Any, journal: Journal) -> None:
    """Search, then check and time the best schedule."""
    case = gemm("f16", int(job.split()[-1]))
    module = case.module()
    seconds = max(5.0, (options.until - time.time()) * _SHARES.get(job, 1.0) - _RESERVE_SEC)
    begin = time.perf_counter()
    database = _search(job, module, options, seconds)
    took = time.perf_counter() - begin
    row = journal.put(job, tuning_s=took)
    journal.update(job, course_of(database, module, took))
    tensors, arrays = on_device(case.inputs)
    expected = case.expected(case.inputs)
    best = None
    for schedule in _finalists(database, module):
        kernel = into_output(_compiled(schedule, options.target), module)
        row["error"] = relative_error(kernel(*arrays).numpy(), expected)
        journal.update(job, {"right": row["error"] <= case.tolerance, "trace": str(schedule.trace)})
        if row["right"] or best is None:
            best = kernel
        if row["right"]:
            break
        row["wrong records"] = row.get("wrong records", 0) + 1
    if best is None:
        journal.put(job, failed="the search found no schedule that runs")
        return
    timer = Timer()
    peers = working(case.peers(tensors), row) if timer.on_gpu else {}
    default = build(case.module(), options.target)
    ours: dict[str, Callable[[], Any]] = {"relaxish": lambda: best(*arrays), "default": lambda: default(*arrays)}
    journal.update(job, add_times(row, timer.compare(ours | peers), case.flop, case.nbytes))


def course_of(database: Any, module: Any, seconds: float) -> dict[str, Any]:
    """How a search went: trials a minute, failures by their reason, how well the model ordered what was measured."""
    from relaxish.meta_schedule.analysis.schedules import normalize_mod

    records = [
        r for r in database.get_all_tuning_records() if r.workload == database.commit_workload(normalize_mod(module))
    ]
    reasons: dict[str, int] = {}
    for record in records:
        if record.error_msg:
            reason = f"{record.stage}: {record.error_msg.strip().splitlines()[0][:80]}"
            reasons[reason] = reasons.get(reason, 0) + 1
    pairs = [(-r.predicted, min(r.run_secs)) for r in records if r.predicted is not None and r.run_secs]
    found: dict[str, Any] = {"records": len(records), "trials a minute": 60 * len(records) / max(seconds, 1e-9)}
    if reasons:
        found["failures"] = reasons
    if len(pairs) > 2:
        predicted, measured = (np.array(values) for values in zip(*pairs, strict=True))
        found["rank correlation of the model"] = rank_correlation(predicted, measured)
    return found


def _search(job: str, module: Any, options: Any, seconds: float) -> Any:
    """The records of a search of ``seconds``."""
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.resume.budget import TimeBudget

    # Winners are checked here, against torch: the search's own check computes the reference on the host's processor,
    # which takes minutes for such products.
    model = ms.cost_model.XGBModel(num_warmup_samples=_WARMUP_SMALL if options.small else _WARMUP)
    config = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=_MIN_REPEAT_MS)
    runner = ms.runner.LocalRunner(timeout_sec=15.0, evaluator_config=config)
    try:
        return ms.tune_tir(
            module, options.target, str(options.out / f"tuned_{job.replace(' ', '_')}"), runner=runner,
            cost_model=model, max_trials_global=8 if options.small else 2000, num_trials_per_iter=8 if options.small else 16,
            task_scheduler=TimeBudget(seconds), seed=7, validate=False,
        )  # fmt: skip
    finally:
        runner.shutdown()


def _finalists(database: Any, module: Any) -> list[Any]:
    """The schedules of the fastest records, fastest first."""
    from relaxish.meta_schedule.analysis.schedules import normalize_mod

    workload = database.commit_workload(normalize_mod(module))
    return [record.as_measure_candidate().sch for record in database.get_top_k(workload, _FINALISTS)]


def _compiled(schedule: Any, target: Any) -> Any:
    import relaxish

    return relaxish.compile(schedule.mod, target)
