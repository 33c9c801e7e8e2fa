"""Timing on a GPU: events around each run, a cold L2, medians; peers take turns so that clock drift hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_FLUSH_BYTES = 256 << 20
_WARM_UP = 3
# The device waits so many cycles (a quarter of a millisecond) before each timed run, while the host issues it: what is
# measured is the device's time, and not that of whose Python is slower.
_HEAD_START = 500_000


@lru_cache(maxsize=1)
def torch_has_gpu() -> bool:
    """Whether torch sees a GPU; without one only the flow is exercised and no peer runs."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


class Timer:
    """Median milliseconds of runs on the current stream."""

    def __init__(self, rounds: int = 25, budget_sec: float = 2.0) -> None:
        self.rounds = rounds
        self.budget_sec = budget_sec
        self.on_gpu = torch_has_gpu()
        self._flush: Any = None
        if self.on_gpu:
            import torch

            self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def compare(self, runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
        """Median milliseconds of each run, measured in turns."""
        for run in runs.values():
            for _ in range(_WARM_UP):
                run()
        self._wait()
        times: dict[str, list[float]] = {name: [] for name in runs}
        deadline = time.monotonic() + self.budget_sec
        for count in range(self.rounds):
            for name, run in runs.items():
                times[name].append(self._once(run))
            if count >= 2 and time.monotonic() > deadline:
                break
        return {name: statistics.median(values) for name, values in times.items()}

    def _once(self, run: Callable[[], Any]) -> float:
        if not self.on_gpu:
            begin = time.perf_counter()
            run()
            return (time.perf_counter() - begin) * 1e3
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        torch.cuda._sleep(_HEAD_START)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def _wait(self) -> None:
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()


def add_times(row: dict[str, Any], times: dict[str, float], flop: float = 0.0, nbytes: float = 0.0) -> dict[str, Any]:
    """Add milliseconds, the rate reached, and our speed against each peer (above 1: we are faster) to a row."""
    ours = times["relaxish"]
    for name, value in times.items():
        if name != "relaxish":
            row[f"{name} ms"] = value
            row[f"speed vs {name}"] = value / ours
    # Peers that come later are compared with a timing of ours beside theirs; the row shows the first.
    row.setdefault("relaxish ms", ours)
    if flop:
        row["TFLOP/s"] = flop / row["relaxish ms"] / 1e9
    if nbytes:
        row["GB/s"] = nbytes / row["relaxish ms"] / 1e6
    return row
