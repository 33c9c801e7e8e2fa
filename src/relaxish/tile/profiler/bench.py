"""Timing of calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime import Device, nd

__all__ = ["do_bench", "summary"]

# What empties the second-level cache of a device between runs.
_FLUSHED_BYTES = 256 << 20
_ESTIMATED = 5
_MOST_RUNS = 1_000_000
_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda t: math.fsum(t) / len(t),
    "min": min,
    "max": max,
    "median": lambda t: float(np.median(t)),
}


class _Clock:
    """Seconds of calls: by the events of a device where it has some, else by the host's clock."""

    def __init__(self, place: Device | None) -> None:
        self.place = place if place is not None and place.device_type != Device.kDLCPU else None
        self._timer = self.place.api.timer(self.place.device_id) if self.place is not None else None
        self._flush = nd.empty((_FLUSHED_BYTES,), "int8", self.place) if self._timer is not None else None
        self._zeros = np.zeros(_FLUSHED_BYTES, np.int8) if self._flush is not None else None

    def time(self, call: Callable[[], Any], number: int = 1) -> float:
        """Seconds of one of ``number`` calls in a row."""
        if self._flush is not None and self._zeros is not None:
            self._flush.copyfrom(self._zeros)
        if self._timer is not None:
            self._timer.start()
            for _ in range(number):
                call()
            return float(self._timer.stop()) / number
        begin = time.perf_counter()
        for _ in range(number):
            call()
        if self.place is not None:
            self.place.sync()
        return (time.perf_counter() - begin) / number

    def close(self) -> None:
        """Give back what it holds on the device."""
        if self._timer is not None:
            self._timer.close()
        self._flush = None


def summary(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """One figure of some times, or one for each quantile. Raises ValueError for an unknown ``return_mode``."""
    if return_mode not in _MODES:
        raise ValueError(f"return_mode {return_mode!r} is not one of {', '.join(_MODES)}")
    if quantiles is not None:
        found = [float(q) for q in np.quantile(np.asarray(times), list(quantiles))]
        return found[0] if len(found) == 1 else found
    return _MODES[return_mode](times)


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    backend: str = "event",
    return_mode: str = "mean",
    *,
    device: Device | None = None,
) -> Any:
    """Milliseconds of a call, after ``warmup`` milliseconds of calls, over ``rep`` milliseconds of them.

    ``_n_warmup`` and ``_n_repeat`` say how many calls instead. With a ``device`` its own clock counts, and its
    second-level cache is emptied between calls; a processor's caches are left as they are. ``quantiles`` gives those in
    place of what ``return_mode`` (mean, min, max, median) says. Raises ValueError for an unknown word.
    """
    if backend not in ("event", "cupti", "cudagraph"):
        raise ValueError(f"backend {backend!r} is not one of event, cupti, cudagraph")
    summary([1.0], None, return_mode)
    clock = _Clock(device)
    try:
        fn()
        estimate = max(clock.time(fn, _ESTIMATED) * 1e3, 1e-6)
        for _ in range(_n_warmup or min(_MOST_RUNS, max(1, int(warmup / estimate)))):
            fn()
        count = _n_repeat or min(_MOST_RUNS, max(1, int(rep / estimate)))
        return summary([clock.time(fn) * 1e3 for _ in range(count)], quantiles, return_mode)
    finally:
        clock.close()
