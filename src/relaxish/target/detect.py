"""Detection of this machine: triple, CPU features by their LLVM names, permission to use AMX, core count.

Nothing here loads LLVM: a ``Target`` must be cheap to make, also in a process that never compiles.
"""

from __future__ import annotations

import ctypes
import functools

from ..support.host_cpu import host_features, host_triple, request_amx_permission

__all__ = [
    "cache_sizes", "host_cuda_arch", "host_features", "host_triple", "num_threads", "request_amx_permission",
]  # fmt: skip


def num_threads(num_cores: int | None = None) -> int:
    """Threads of parallel loops: RELAXISH_NUM_THREADS, else the target's ``num-cores``, else the CPU affinity."""
    from ..support.threads import num_threads as configured

    return configured(num_cores)


@functools.lru_cache(maxsize=1)
def host_cuda_arch() -> str | None:
    """``sm_XX`` of the first NVIDIA GPU, asked of the driver; None where there is no driver or device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    # Attributes 75 and 76: compute capability major and minor.
    if cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device) != 0:
        return None
    if cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) != 0:
        return None
    suffix = "a" if major.value == 9 else ""
    return f"sm_{major.value}{minor.value}{suffix}"


@functools.lru_cache(maxsize=1)
def cache_sizes() -> tuple[int, int, int]:
    """Bytes of the first, second and third data cache seen by CPU 0, with usual sizes where the system does not say."""
    sizes = [32 * 1024, 1024 * 1024, 16 * 1024 * 1024]
    base = "/sys/devices/system/cpu/cpu0/cache"
    for index in range(6):
        try:
            with open(f"{base}/index{index}/type", encoding="ascii") as file:
                if file.read().strip() == "Instruction":
                    continue
            with open(f"{base}/index{index}/level", encoding="ascii") as file:
                level = int(file.read())
            with open(f"{base}/index{index}/size", encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, ValueError):
            continue
        factor = {"K": 1024, "M": 1024 * 1024}.get(text[-1:], 1)
        if 1 <= level <= 3:
            sizes[level - 1] = int(text.rstrip("KM")) * factor
    return sizes[0], sizes[1], sizes[2]
