"""Fair timing of several runners in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Call = Callable[[], Any]
_REST_SECONDS = 0.03


def interleaved(runs: Mapping[str, Call], seconds: float = 3.0, least: int = 5) -> dict[str, list[float]]:
    """Seconds of calls, for each runner; they take turns, so that drift of the machine hits all alike.

    Before each turn there is a short rest, in which the threads of the runner before stop spinning, and one call that
    is not counted. At least ``least`` turns are made, and about ``seconds`` spent for each runner.
    """
    once = {name: _seconds(run) for name, run in runs.items()}
    batch = {name: max(1, min(1000, int(0.05 / max(s, 1e-7)))) for name, s in once.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    limit = time.perf_counter() + seconds * len(runs)
    turns = 0
    while turns < least or (time.perf_counter() < limit and turns < 10_000):
        for name, run in runs.items():
            time.sleep(_REST_SECONDS)
            run()
            begin = time.perf_counter()
            for _ in range(batch[name]):
                run()
            times[name].append((time.perf_counter() - begin) / batch[name])
        turns += 1
    return times


def _seconds(run: Call) -> float:
    run()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def median(values: list[float]) -> float:
    """The middle value."""
    return float(np.median(values))


def paired_ratio(ours: list[float], theirs: list[float]) -> float:
    """Ratio of our time to theirs: the median of the ratios of turns side by side.

    >>> paired_ratio([1.0, 9.0, 3.0], [2.0, 18.0, 4.0])
    0.5
    """
    return float(np.median(np.asarray(ours) / np.asarray(theirs)))


def largest_error(ours: list[Any], reference: list[Any]) -> float:
    """Largest difference relative to each output's largest magnitude; infinite if shapes differ or a value is no number.

    >>> largest_error([np.array([1.0, np.nan])], [np.array([1.0, 2.0])])
    inf
    """
    if len(ours) < len(reference):
        return float("inf")
    worst = 0.0
    for a, b in zip(ours, reference, strict=False):
        if a.shape != b.shape:
            return float("inf")
        scale = float(np.abs(b.astype("float64")).max(initial=0.0)) or 1.0
        error = float(np.abs(a.astype("float64") - b.astype("float64")).max(initial=0.0)) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
