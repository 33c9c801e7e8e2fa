"""Thread count of the parallel loops in compiled code: one number for every library of this process.

Each library has a pool of its own and exports ``void rx_set_num_threads(int32_t)``; what has been loaded is told when the
number changes, and what is loaded later when it is loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ...support import config
from ...support.errors import RelaxishError
from ...support.threads import num_threads
from ..registry import register_func

__all__ = ["SETTER", "pool_loaded", "set_num_threads"]

SETTER = "rx_set_num_threads"
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_int32)
# By address: libraries are never unloaded, and one that is loaded again is the same.
_POOLS: dict[int, Callable[[int], None]] = {}


def pool_loaded(address: int) -> None:
    """Note a library's pool, by the address of its setter; it is told the number that has been asked for."""
    setter = _POOLS.setdefault(address, _PROTOTYPE(address))
    if config.NUM_THREADS.value is not None:
        setter(num_threads())


def set_num_threads(count: int | None) -> None:
    """Threads of parallel loops, from now on, in all compiled code of this process.

    ``None`` goes back to ``RELAXISH_NUM_THREADS``, or without it to the CPUs this process may run on. Raises
    RelaxishError for less than one thread.
    """
    if count is None:
        config.NUM_THREADS.reset()
    elif isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise RelaxishError(f"the number of threads is a positive integer, got {count!r}")
    else:
        config.NUM_THREADS.set(count)
    for setter in _POOLS.values():
        setter(num_threads())


@register_func("runtime.NumThreads")
def _num_threads() -> int:
    return num_threads()


@register_func("runtime.config_threadpool")
def _config_threadpool(mode: int = 1, nthreads: int = 0, *_: object) -> None:
    """Set the number of threads; 0 is the default. Where threads run is left to the system, whatever the mode."""
    set_num_threads(int(nthreads) or None)
