"""Thread count of parallel loops."""

from __future__ import annotations

import os

from . import config


def available_cores() -> int:
    """CPUs this process may run on (its affinity mask, not what the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def num_threads(target_cores: int | None = None) -> int:
    """``RELAXISH_NUM_THREADS``, else the target's ``num-cores``, else the CPU affinity."""
    wanted = config.NUM_THREADS.value
    if wanted is not None:
        return wanted
    if target_cores is not None and target_cores > 0:
        return int(target_cores)
    return available_cores()
