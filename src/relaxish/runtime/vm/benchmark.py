"""Timing calls: repeats of averaged runs, as ``time_evaluator`` reports them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from ..device import Clock, Device
from ..registry import get_global_func

if TYPE_CHECKING:
    pass


class BenchmarkResult:
    """Seconds per call: one number for each repeat, and their statistics."""

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(float(r) for r in results)
        self.mean = float(np.mean(self.results))
        self.std = float(np.std(self.results))
        self.median = float(np.median(self.results))
        self.min = float(np.min(self.results))
        self.max = float(np.max(self.results))

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, "
            f"std={self.std}, results={self.results})"
        )

    def __str__(self) -> str:
        head = "  ".join(f"{n + ' (ms)':^12}" for n in ("mean", "median", "max", "min", "std"))
        values = (self.mean, self.median, self.max, self.min, self.std)
        return f"Execution time summary:\n {head}\n " + "  ".join(f"{v * 1e3:^12.4f}" for v in values)


class HostTimer:
    """The clock of this process."""

    def start(self) -> None:
        """Mark the beginning."""
        self._begin = time.perf_counter()

    def stop(self) -> float:
        """Seconds since :meth:`start`."""
        return time.perf_counter() - self._begin

    def close(self) -> None:
        """Nothing is to be given back."""


def measure(
    call: Callable[[], Any],
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    f_preproc: Callable[[], Any] | None = None,
    timer: Clock | None = None,
) -> BenchmarkResult:
    """Run once to warm up, then ``repeat`` times ``number`` calls (more, until ``min_repeat_ms`` have passed).

    ``timer`` measures in place of the host's clock: ``start()``, and ``stop()`` that gives seconds.
    """
    call()
    results = []
    clock = timer or HostTimer()
    count = max(1, number)
    for index in range(repeat):
        if f_preproc is not None:
            f_preproc()
        while True:
            clock.start()
            for _ in range(count):
                call()
            elapsed = clock.stop()
            if elapsed * 1000.0 >= min_repeat_ms:
                break
            # Aim 20 % past the goal so that the next attempt usually is the last.
            scale = min_repeat_ms / 1000.0 / max(elapsed, 1e-9) * 1.2
            count = max(count + 1, int(count * min(scale, 100.0)) + 1)
        results.append(elapsed / count)
        if cooldown_interval_ms > 0 and index % max(1, repeats_to_cooldown) == 0:
            time.sleep(cooldown_interval_ms / 1000.0)
    return BenchmarkResult(results)


def time_evaluator(
    call: Callable[..., Any],
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    f_preproc: str = "",
    dev: Device | None = None,
) -> Callable[..., BenchmarkResult]:
    """A function that times ``call`` on the arguments it is given, by the clock of the device where it has one."""
    prepare = get_global_func(f_preproc) if f_preproc else None

    def evaluate(*args: Any) -> BenchmarkResult:
        before = None if prepare is None else lambda: prepare(*args)
        timer = dev.api.timer(dev.device_id) if dev is not None and dev.device_type != Device.kDLCPU else None
        try:
            return measure(
                lambda: call(*args),
                number, repeat, min_repeat_ms, cooldown_interval_ms, repeats_to_cooldown, before, timer,
            )  # fmt: skip
        finally:
            if timer is not None:
                timer.close()

    return evaluate
