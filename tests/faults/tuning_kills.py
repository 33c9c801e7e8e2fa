"""Tuning runs killed with ``kill -9`` at random moments, and started again with the same command.

After each kill every line that was ever in the journal must still be there, and no worker may outlive its parent by more
than a second. At the end nothing was measured twice, exactly the trials asked for were made, each kernel got its share,
and what is applied is right.

``campaign(budget_s, seed)`` gives the figures: kills ``tried``, those ``survived``, records ``lost``, workers ``leaked``
(alive a second after their parent), and what went ``wrong``: programs that compute something else, candidates measured
twice, kernels without their share.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

SIZES = (32, 48, 64)
BATCH = 8
# How long workers may take to notice that their parent is gone.
GRACE_SEC = 1.0


def module() -> Any:
    """Three matrix products."""
    from relaxish import IRModule, te
    from relaxish.meta_schedule.testing import te_workload

    funcs = {f"matmul{n}": te.create_prim_func(te_workload.matmul(n, n, n)) for n in SIZES}
    return IRModule({name: f.with_attr("global_symbol", name) for name, f in funcs.items()})


def tune(work_dir: str, seed: int, trials: int) -> None:
    """The process under test."""
    from relaxish import Target
    from relaxish import meta_schedule as ms

    runner = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(1, 1, 1))
    ms.tune_tir(
        module(), Target("llvm -num-cores=2"), work_dir, trials, num_trials_per_iter=BATCH, runner=runner, seed=seed,
        builder=ms.builder.LocalBuilder(max_workers=2),
    )  # fmt: skip


def start(work_dir: str, seed: int, trials: int) -> subprocess.Popen[bytes]:
    """Start, or go on with, a run."""
    command = [sys.executable, __file__, "--tune", work_dir, str(seed), str(trials)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines_of(work_dir: str) -> list[str]:
    """The complete lines of the journal."""
    path = Path(work_dir) / "database_tuning_record.json"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def _below(pid: int) -> list[Any]:
    import psutil

    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _alive(processes: list[Any], seconds: float) -> int:
    import psutil

    _, left = psutil.wait_procs(processes, timeout=seconds)
    return sum(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in left)


def _measured(work_dir: str) -> Counter[tuple[str, str]]:
    """How often each candidate was measured, by workload and trace."""
    from relaxish.meta_schedule.database.lines import record_fields
    from relaxish.meta_schedule.search_strategy.trace_key import trace_key
    from relaxish.tir.schedule import Trace

    counts: Counter[tuple[str, str]] = Counter()
    for line in lines_of(work_dir):
        fields = record_fields(json.loads(line))
        assert fields is not None
        if not fields.get("again"):
            counts[fields["workload"], trace_key(Trace.from_json(fields["trace"]))] += 1
    return counts


def _wrong(work_dir: str) -> int:
    """Applied programs that compute something else."""
    import numpy as np

    from relaxish import Target, nd
    from relaxish import meta_schedule as ms
    from relaxish.driver import build_tir

    database, target = ms.database.JSONDatabase(work_dir=work_dir), Target("llvm -num-cores=2")
    wrong, rng = 0, np.random.default_rng(0)
    for func in module().functions.values():
        sch = ms.tir_integration.compile_tir(database, func, target)
        if sch is None:
            wrong += 1
            continue
        n = int(func.buffer_map[func.params[0]].shape[0])
        a, b = (rng.standard_normal((n, n)).astype("float32") for _ in range(2))
        out = nd.array(np.full((n, n), np.nan, "float32"))
        build_tir(sch.mod, target)[str(func.attrs["global_symbol"])](nd.array(a), nd.array(b), out)
        wrong += not np.allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)
    return wrong


def one_run(seed: int, kills: int, longest: float, trials: int) -> dict[str, int]:
    """One run, killed up to ``kills`` times, each time at most ``longest`` seconds after its start."""
    rng = random.Random(seed)
    figures = dict.fromkeys(("tried", "survived", "lost", "leaked", "wrong"), 0)
    with tempfile.TemporaryDirectory() as work_dir:
        seen: list[str] = []
        finished = False
        for _ in range(kills):
            process = start(work_dir, seed, trials)
            try:
                process.wait(rng.uniform(0.2, longest))
                finished = True
                break
            except subprocess.TimeoutExpired:
                pass
            below = _below(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            figures["tried"] += 1
            figures["leaked"] += _alive(below, GRACE_SEC)
            now = lines_of(work_dir)
            intact = now[: len(seen)] == seen
            figures["survived"] += intact
            figures["lost"] += not intact
            seen = now
        if not finished:
            start(work_dir, seed, trials).wait()
        now = lines_of(work_dir)
        figures["lost"] += now[: len(seen)] != seen
        counts = _measured(work_dir)
        figures["lost"] += abs(sum(counts.values()) - trials)
        repeated = sum(n > 1 for n in counts.values())
        shares = Counter(key for key, _ in counts)
        starved = len(SIZES) - sum(n >= BATCH for n in shares.values())
        figures["wrong"] = repeated + starved + _wrong(work_dir)
    return figures


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Runs until the time is up, at least one."""
    end = time.monotonic() + budget_s
    total: dict[str, int] = {}
    number = 0
    while not number or time.monotonic() < end:
        kills, longest, trials = (5, 12.0, 48) if budget_s >= 60 else (1, 5.0, 24)
        for key, value in one_run(seed + number, kills, longest, trials).items():
            total[key] = total.get(key, 0) + value
        number += 1
    return {**total, "runs": number}


def main(budget_s: float = 60.0, seed: int = 0) -> dict[str, int]:
    """The campaign's figures."""
    return campaign(budget_s, seed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tune"]:
        tune(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        print(main())
