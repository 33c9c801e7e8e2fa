"""Worker processes that stay warm between compilations and tunings of this process."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from ...meta_schedule.builder import LocalBuilder
from ...meta_schedule.runner import LocalRunner
from ...meta_schedule.utils import PRELOAD, cpu_count
from ...support import config
from ...support.workers import WorkerPool

__all__ = ["end_workers", "warm_builder", "warm_runner", "worker_count"]

_MEMORY = 8 << 30
_LOCK = threading.Lock()
_POOLS: dict[Any, WorkerPool] = {}
_DEVICES: dict[tuple[str, int], Any] = {}


def worker_count(count: int) -> int:
    """Number of kernels compiled at a time, of ``count``."""
    wanted = config.TILE_AUTO_TUNING_CPU_COUNTS.value
    if wanted <= 0:
        wanted = max(1, round(cpu_count() * config.TILE_AUTO_TUNING_CPU_UTILITIES.value))
    most = config.TILE_AUTO_TUNING_MAX_CPU_COUNT.value
    return max(1, min(wanted, count, most if most > 0 else wanted))


def _pool(workers: int, memory_limit: int | None) -> WorkerPool:
    key = os.getpid(), workers, memory_limit
    with _LOCK:
        if key not in _POOLS:
            _POOLS[key] = WorkerPool(workers, preload=PRELOAD, memory_limit=memory_limit)
            _POOLS[key].prepare()
        return _POOLS[key]


def warm_builder(f_build: Any, timeout_sec: float, workers: int) -> LocalBuilder:
    """A builder on processes that others use as well; it is not to be shut down."""
    made = LocalBuilder(max_workers=workers, timeout_sec=timeout_sec, f_build=f_build)
    made._pool = _pool(workers, None)
    return made


def warm_runner(on_device: bool, **settings: Any) -> LocalRunner:
    """A runner on processes that others use as well; it is not to be shut down."""
    made = LocalRunner(memory_limit=_MEMORY, **settings)
    if not on_device:
        made._pool = _pool(1, _MEMORY)
    made._device_pools = _DEVICES
    return made


@atexit.register
def end_workers() -> None:
    """End the processes, with whatever they are doing."""
    with _LOCK:
        pools = [*[p for key, p in _POOLS.items() if key[0] == os.getpid()], *_DEVICES.values()]
        _POOLS.clear()
        _DEVICES.clear()
    for pool in pools:
        if isinstance(pool, WorkerPool):
            pool.shutdown(kill=True)
        else:
            pool.shutdown()
