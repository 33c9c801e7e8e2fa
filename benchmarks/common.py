"""Shared by all benchmarks: interleaved timing, pinned cores, peers, tables and JSON results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
_REST_SECONDS = 0.03


def pin(cores: int) -> None:
    """Restrict the process to the first ``cores`` CPUs and tell every peer; call before importing them."""
    if hasattr(os, "sched_setaffinity"):
        available = sorted(os.sched_getaffinity(0))[:cores]
        os.sched_setaffinity(0, available)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RELAXISH_NUM_THREADS"):
        os.environ[name] = str(cores)


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int = 15, min_sec: float = 0.05) -> dict[str, float]:
    """Median seconds of each run, measured in turns so that drift hits all alike."""
    return {name: statistics.median(values) for name, values in rounds_of(runs, rounds, min_sec).items()}


def rounds_of(
    runs: dict[str, Callable[[], Any]],
    rounds: int = 15,
    min_sec: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each run in each round; a round takes them in turns and repeats each for ``min_sec``.

    Of one thread, ``time.process_time`` is a clock that others on the machine disturb less.

    Before each turn there is a short rest, in which the threads of the run before stop spinning, and one call that is
    not counted.
    """
    repeats: dict[str, int] = {}
    for name, run in runs.items():
        run()
        start = clock()
        run()
        repeats[name] = max(1, int(min_sec / max(clock() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(_REST_SECONDS)
            run()
            start = clock()
            for _ in range(repeats[name]):
                run()
            times[name].append((clock() - start) / repeats[name])
    return times


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest absolute difference over the largest magnitude expected; infinite if anything is not a number."""
    if actual.shape != expected.shape:
        raise SystemExit(f"an output has shape {actual.shape}, not {expected.shape}")
    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(actual.astype("float64") - expected.astype("float64")).max()) / scale
    return error if np.isfinite(error) else float("inf")


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    name = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    versions = {}
    for package in ("torch", "onnxruntime", "openvino", "numpy", "llvmlite"):
        try:
            from importlib.metadata import version

            versions[package] = version(package)
        except Exception:  # a peer that is not installed has no version
            continue
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "versions": versions,
            "date": time.strftime("%Y-%m-%d")}  # fmt: skip


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a result file under ``benchmarks/results`` and print the table."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    table(rows)


def table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    from rich.console import Console
    from rich.table import Table

    out = Table()
    keys = list(dict.fromkeys(k for row in rows for k in row))
    for key in keys:
        out.add_column(key)
    for row in rows:
        out.add_row(*[f"{row.get(k):.4g}" if isinstance(row.get(k), float) else str(row.get(k, "")) for k in keys])
    Console(width=160).print(out)
