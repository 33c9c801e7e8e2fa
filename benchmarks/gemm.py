"""Tuned GEMM 1024 cubed fp32 against torch (MKL) and NumPy, with weights packed ahead.

    python benchmarks/gemm.py [--cores 1] [--trials 64] [--size 1024]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import common
import numpy as np


def tune(size: int, trials: int, cores: int) -> dict[str, Any]:
    """Tune, build the best schedule, and time it against the peers in one run."""
    import torch

    import relaxish
    from relaxish import meta_schedule as ms
    from relaxish import te
    from relaxish.driver import build_tir
    from relaxish.meta_schedule.testing import te_workload

    torch.set_num_threads(cores)
    func = te.create_prim_func(te_workload.matmul(size, size, size)).with_attr("layout_free_buffers", [1])
    target = relaxish.Target(f"llvm -num-cores {cores}")
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        database = ms.tune_tir(func, target, work, trials, num_trials_per_iter=16, seed=0)
        wall = time.perf_counter() - start
        record = database.query_tuning_record(relaxish.IRModule({"main": func}), target, "main")
    a = np.random.rand(size, size).astype("float32")
    b = np.random.rand(size, size).astype("float32")
    row: dict[str, Any] = {"gemm": size, "cores": cores, "trials": trials, "tuning s": wall}
    if record is None:
        return row
    sch = relaxish.tir.Schedule(relaxish.IRModule({"main": func}))
    record.trace.apply_to_schedule(sch, remove_postproc=False)
    kernel = build_tir(sch.mod, target)["main"]
    x, y, out = relaxish.nd.array(a), relaxish.nd.array(b), relaxish.nd.empty((size, size), "float32")
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    to = torch.empty(size, size)
    times = common.interleaved({"relaxish": lambda: kernel(x, y, out), "torch": lambda: torch.mm(ta, tb, out=to)})
    flop = 2.0 * size**3
    row.update({f"{k} GFLOP/s": flop / v / 1e9 for k, v in times.items()})
    row["ratio to torch"] = times["relaxish"] / times["torch"]
    return row


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    common.pin(options.cores)
    common.save(f"gemm_{options.cores}core", [tune(options.size, options.trials, options.cores)])


if __name__ == "__main__":
    main()
