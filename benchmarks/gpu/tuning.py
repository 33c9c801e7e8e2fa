"""Section "tuning": the GEMM bars by search, each for its share of the time; the database is a result too."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cases import gemm
from .kernels import finish, into_output, on_device, relative_error, working
from .timing import Timer


def tune_case(case: Any, target: Any, seconds: float, trials: int, folder: Path) -> dict[str, Any]:
    """Search for ``seconds`` (at most ``trials``), build the best schedule, check and time it."""
    import relaxish
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.budget import TimeBudget

    module = case.module()
    begin = time.perf_counter()
    database = ms.tune_tir(
        module, target, str(folder), max_trials_global=trials, num_trials_per_iter=min(trials, 32),
        task_scheduler=TimeBudget(seconds), seed=7,
    )  # fmt: skip
    row: dict[str, Any] = {"case": case.name, "tuning s": time.perf_counter() - begin, "records": len(database)}
    schedule = ms.tir_integration.compile_tir(database, module, target)
    if schedule is None:
        return row | {"failed": "the search found no schedule that runs"}
    row["trace"] = str(schedule.trace)
    run = into_output(relaxish.compile(schedule.mod, target), module)
    tensors, arrays = on_device(case.inputs)
    row["error"] = relative_error(run(*arrays).numpy(), case.expected(case.inputs))
    row["right"] = row["error"] <= case.tolerance
    timer = Timer()
    peers = working(case.peers(tensors), row) if timer.on_gpu else {}
    return finish(row, timer.compare({"relaxish": lambda: run(*arrays), **peers}), case)


def run(options: Any, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """4096 cubed gets most of the time, 8192 cubed the rest."""
    sizes = [64] if options.small else [4096, 8192]
    shares = [1.0] if options.small else [0.6, 0.4]
    rows: list[dict[str, Any]] = []
    for size, share in zip(sizes, shares, strict=True):
        case = gemm("f16", size)
        folder = options.out / f"tuned_gemm_f16_{size}"
        # Building the peers and the timing at the end need some of the section's time.
        seconds = max(5.0, options.seconds * share - 15.0)
        try:
            rows.append(tune_case(case, options.target, seconds, 8 if options.small else 2000, folder))
        except Exception as error:  # noqa: BLE001  (the other size may still work)
            rows.append({"case": case.name, "failed": f"{type(error).__name__}: {error}"[:2000],
                         "where": traceback.format_exc()[-3000:]})  # fmt: skip
        save(rows)
