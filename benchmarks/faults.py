"""Bars 7 and 8: a tuning run killed ten times loses nothing, and a bad kernel costs one record.

The run is a process of its own; ``kill -9`` hits it at random moments, and it is started again with the same command.
At the end: every record line that was ever in the file is still there, no candidate was measured twice, exactly the
trials asked for were made, no worker survived its parent, and the best kernel is as good as that of an unbroken run.

    python benchmarks/faults.py [--kills 10] [--trials 192] [--size 256] [--seed 0] [--no-bar-8] [--no-save]
"""

from __future__ import annotations

import argparse
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

import common

# Final times of two short runs on a shared machine differ by this much without any kill.
TOLERANCE = 1.25


def run_tuning(work_dir: str, size: int, trials: int, seed: int) -> None:
    """The process under test."""
    from relaxish import Target, te
    from relaxish import meta_schedule as ms
    from relaxish.meta_schedule.testing import te_workload

    func = te.create_prim_func(te_workload.matmul(size, size, size))
    runner = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(3, 1, 20))
    ms.tune_tir(func, Target("llvm -num-cores 1"), work_dir, trials, num_trials_per_iter=8, runner=runner, seed=seed)


def start(work_dir: str, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start, or go on with, the run."""
    command = [
        sys.executable,
        __file__,
        "--tune",
        work_dir,
        "--size",
        str(options.size),
        "--trials",
        str(options.trials),
        "--seed",
        str(options.seed),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines_of(work_dir: str) -> list[str]:
    """The complete lines of the record file."""
    path = Path(work_dir) / "database_tuning_record.json"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def read_records(work_dir: str) -> list[dict[str, Any]]:
    """The measurements in the record file, second looks at winners left out."""
    from relaxish.meta_schedule.database.lines import record_fields

    fields = [record_fields(json.loads(line)) for line in lines_of(work_dir)]
    return [f for f in fields if f is not None and not f.get("again")]


def final_ratio(broken: str, whole: str, size: int) -> float:
    """Time of one run's winner over the other's, measured in turns in this process."""
    import numpy as np

    import relaxish
    from relaxish import meta_schedule as ms
    from relaxish import te
    from relaxish.driver import build_tir
    from relaxish.meta_schedule.testing import te_workload

    target = relaxish.Target("llvm -num-cores 1")
    mod = ms.TuneContext(te.create_prim_func(te_workload.matmul(size, size, size))).mod
    arrays = [relaxish.nd.array(np.random.rand(size, size).astype("float32")) for _ in range(3)]
    runs: dict[str, Any] = {}
    for name, folder in (("broken", broken), ("whole", whole)):
        sch = ms.database.JSONDatabase(work_dir=folder).query_schedule(mod, target)
        kernel = build_tir(sch.mod, target)["main"]
        runs[name] = lambda kernel=kernel: kernel(*arrays)
    times = common.interleaved(runs, min_sec=0.02)
    return times["broken"] / times["whole"]


def descendants(pid: int) -> list[Any]:
    """Processes below one."""
    import psutil

    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def survivors(processes: list[Any], seconds: float = 5.0) -> int:
    """How many processes are still alive after some seconds."""
    import psutil

    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return sum(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in alive)


def broken_run(work_dir: str, options: argparse.Namespace, longest: float) -> dict[str, Any]:
    """Kill at random moments, at most ``longest`` seconds after each start; what was found after each."""
    rng = random.Random(options.seed)
    lost = orphans = kills = 0
    at_kill = []
    seen: list[str] = []
    while kills < options.kills:
        process = start(work_dir, options)
        try:
            process.wait(rng.uniform(0.2, longest))
            print("the run ended before it could be killed again", flush=True)
            break
        except subprocess.TimeoutExpired:
            pass
        below = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        orphans += survivors(below)
        now = lines_of(work_dir)
        lost += now[: len(seen)] != seen
        seen = now
        at_kill.append(len(now))
        print(f"kill {kills}: {len(now)} records, {len(below)} workers", flush=True)
    # A run that has ended is not started again: it would be a new one.
    code = start(work_dir, options).wait() if kills == options.kills else process.returncode
    final = lines_of(work_dir)
    lost += final[: len(seen)] != seen
    return {"exit": code, "kills": kills, "lost": lost, "orphans": orphans, "at kill": at_kill}


def kill_bar(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Bar 7."""
    from relaxish import tir

    with tempfile.TemporaryDirectory() as broken, tempfile.TemporaryDirectory() as whole:
        begin = time.monotonic()
        assert start(whole, options).wait() == 0
        wall = time.monotonic() - begin
        print(f"unbroken run: {wall:.1f} s", flush=True)
        result = broken_run(broken, options, 0.3 * wall)
        records = read_records(broken)
        keys = Counter(
            json.dumps(tir.schedule.Trace.from_json(r["trace"]).simplified(True).as_json(True)) for r in records
        )
        ratio = final_ratio(broken, whole, options.size)
        rows = [
            ("kills", result["kills"], f"{options.kills}", result["kills"] == options.kills),
            ("exit code of the last start", result["exit"], "0", result["exit"] == 0),
            ("starts after which a record was missing", result["lost"], "0", result["lost"] == 0),
            ("candidates measured twice", sum(n > 1 for n in keys.values()), "0", max(keys.values()) == 1),
            ("measurements", len(records), f"{options.trials}", len(records) == options.trials),
            ("workers that outlived their parent", result["orphans"], "0", result["orphans"] == 0),
            ("final time over an unbroken run's", ratio, f"<= {TOLERANCE}", ratio <= TOLERANCE),
            ("unbroken run, s", wall, "", True),
        ]
    return [{"bar": 7, "what": w, "value": v, "wanted": b, "verdict": "pass" if ok else "FAIL"} for w, v, b, ok in rows]


def faulty_bar() -> list[dict[str, Any]]:
    """Bar 8: the tests with real crashing, hanging and memory-eating kernels and builds."""
    tests = Path(__file__).parent.parent / "tests" / "meta_schedule" / "test_faulty_candidates.py"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", str(tests)], capture_output=True, text=True)
    print(done.stdout[-2000:] if done.returncode else "", end="")
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
    return [
        {
            "bar": 8,
            "what": "kernels and builds that crash, hang or eat memory cost one record each",
            "value": last,
            "wanted": "all pass",
            "verdict": "pass" if done.returncode == 0 else "FAIL",
        }
    ]


def main() -> int:
    """Measure and save; the exit code counts verdicts that failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--trials", type=int, default=192)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bar-8", action="store_true", dest="skip_kernels")
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    if options.tune:
        run_tuning(options.tune, options.size, options.trials, options.seed)
        return 0
    rows = kill_bar(options) + ([] if options.skip_kernels else faulty_bar())
    if options.no_save:
        common.table(rows)
    else:
        common.save("faults", rows)
    return sum(row["verdict"] == "FAIL" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
