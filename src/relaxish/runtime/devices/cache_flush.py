"""Functions for ``time_evaluator(f_preproc=...)`` that empty caches before a timed run."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..device import Device
from ..arrays.ndarray import NDArray
from ..registry import register_func

__all__ = ["cache_flush_cpu_non_first_arg", "l2_cache_flush_cuda"]

_HOST_CACHE = 64 << 20


@lru_cache(maxsize=1)
def _host_scratch() -> np.ndarray[Any, Any]:
    return np.zeros(_HOST_CACHE, np.uint8)


def cache_flush_cpu_non_first_arg(*args: Any) -> None:
    """Displace what the host's caches hold, and read the first argument again."""
    _host_scratch().fill(1)
    if args and isinstance(args[0], NDArray) and args[0].device.device_type == Device.kDLCPU:
        args[0]._host().reshape(-1).view(np.uint8).max(initial=0)


def l2_cache_flush_cuda(*args: Any) -> None:
    """Overwrite as much memory as the device's L2 cache holds twice, on the current stream."""
    from ..nvidia import providers

    device = next((a.device.device_id for a in args if isinstance(a, NDArray)), 0)
    state = providers.current()
    nbytes = 2 * int(state.driver.attribute(device, "l2_cache_size_bytes") or 0)
    if nbytes:
        state.driver.fill(device, state.scratch(device, nbytes), 0, nbytes, state.stream(device))


register_func("cache_flush_cpu_non_first_arg", cache_flush_cpu_non_first_arg, override=True)
register_func("l2_cache_flush_cuda", l2_cache_flush_cuda, override=True)
