"""Memory of run-time tensors: 64-byte-aligned blocks and pools of them.

A pool hands a block out again once its :class:`Storage` is gone *and* no NumPy or DLPack view of it is alive. Views
refer to the block's byte array, so its reference count tells. What a pool holds in all, used or waiting, is at most twice
what was in use at one time; it is brought down to that when a block is made that no waiting one would do for.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ..device import _CPU0, Attribute, Device, DeviceAPI, register_device_api

ALIGNMENT = 64
_ByteArray = Any  # a one-dimensional uint8 array


class AllocationError(RelaxishError, MemoryError):
    """There is no memory of the size asked for."""


def aligned_bytes(nbytes: int, alignment: int = ALIGNMENT) -> tuple[_ByteArray, int]:
    """Uninitialised memory: the byte array owning it, and the aligned address of ``nbytes`` bytes inside."""
    # The owner itself is returned, not a slice: every NumPy view refers to the owner, and pools count on that.
    try:
        raw = np.empty(nbytes + alignment, np.uint8)
    except (MemoryError, OverflowError, ValueError):
        raise AllocationError(f"cannot allocate {nbytes:,} bytes") from None
    address = raw.__array_interface__["data"][0]
    return raw, address + -address % alignment


class Storage:
    """A block of memory tensors are placed in; it goes back to its pool when nobody uses it."""

    __slots__ = ("device", "mem", "nbytes", "pool", "ptr", "__weakref__")

    def __init__(self, mem: Any, ptr: int, nbytes: int, device: Device = _CPU0, pool: FreeList | None = None) -> None:
        self.mem = mem
        self.ptr = ptr
        self.nbytes = nbytes
        self.device = device
        self.pool = pool

    def __del__(self) -> None:
        pool = self.pool
        if pool is None:
            return
        # 2: our slot and getrefcount's argument. More means a view outlives us.
        if _refcount(self.mem) == 2:
            pool.append((self.mem, self.ptr))
        else:
            pool.owner.forget(pool.block_bytes)


_refcount = sys.getrefcount


class FreeList(list[Any]):
    """The blocks of one size that wait in a pool."""

    __slots__ = ("block_bytes", "owner")

    def __init__(self, owner: Allocator, block_bytes: int) -> None:
        super().__init__()
        self.owner = owner
        self.block_bytes = block_bytes


class Allocator:
    """Hands out :class:`Storage` on one device; ``pooled`` keeps freed blocks for reuse by size."""

    def __init__(self, device: Device = _CPU0, kind: str = "pooled") -> None:
        if kind not in ("pooled", "naive"):
            raise ValueError(f"unknown allocator kind {kind!r}; use 'pooled' or 'naive'")
        self.device = device
        self.kind = kind
        self._free: dict[int, FreeList] = {}
        # Of the blocks that this pool made and that are not gone: all, and how much was in use at one time. The lock is
        # one that a garbage collection inside of it may take again.
        self._lock = threading.RLock()
        self._held = 0
        self._peak = 0

    def free_list(self, nbytes: int) -> FreeList | None:
        """The free blocks of the size class of ``nbytes``; ``None`` when this allocator does not pool."""
        if self.kind == "naive":
            return None
        size = size_class(nbytes)
        found = self._free.get(size)
        return self._free.setdefault(size, FreeList(self, size)) if found is None else found

    def allocate(self, nbytes: int, mem_scope: str | None = None) -> Storage:
        """Memory for ``nbytes`` bytes."""
        if self.device.device_type != Device.kDLCPU:
            return self._on_device(nbytes, mem_scope)
        size = size_class(nbytes)
        free = self.free_list(nbytes)
        try:
            mem, ptr = free.pop()  # type: ignore[union-attr]
        except (IndexError, AttributeError):
            mem, ptr = self.fresh(size)
        return Storage(mem, ptr, size, self.device, free)

    def fresh(self, size: int) -> tuple[_ByteArray, int]:
        """A block that was not there before, for which waiting ones may have to go; as :func:`aligned_bytes`."""
        if self.kind == "naive":
            return aligned_bytes(size)
        with self._lock:
            waiting = self.used_bytes()
            in_use = self._held - waiting + size
            # What was in use once counts less with every new block: a working set may shrink, too.
            self._peak = max(in_use, self._peak - self._peak // _PEAK_DECAY)
            self._trim(waiting, 2 * self._peak - in_use)
            made = aligned_bytes(size)
            self._held += size
        return made

    def _trim(self, waiting: int, allowed: int) -> None:
        """Give waiting blocks back until no more than ``allowed`` bytes are left, those of long known sizes first."""
        for blocks in list(self._free.values()) if waiting > allowed else ():
            while blocks and waiting > allowed:
                try:
                    blocks.pop(0)
                except IndexError:  # another thread has taken it
                    break
                waiting -= blocks.block_bytes
                self._held -= blocks.block_bytes
        if len(self._free) > _MANY_SIZES:
            # Whoever uses blocks of a size has its list; 2: the variable here, and getrefcount's argument.
            for size in [size for size, blocks in self._free.items() if not blocks]:
                blocks = self._free.pop(size)
                if _refcount(blocks) > 2 or blocks:
                    self._free[size] = blocks

    def forget(self, size: int) -> None:
        """A block will not come back: something else refers to it."""
        with self._lock:
            self._held -= size

    def _on_device(self, nbytes: int, mem_scope: str | None) -> Storage:
        api, index = self.device.api, self.device.device_id
        if self.kind == "pooled" and mem_scope in (None, "global"):
            pooled = api.allocate_pooled(index, nbytes)
            if pooled is not None:
                size, ptr, owner = pooled
                return Storage(owner, ptr, size, self.device)
        ptr, owner = api.allocate(index, nbytes, ALIGNMENT, mem_scope)
        return Storage(owner, ptr, nbytes, self.device)

    def clear(self) -> None:
        """Give free blocks back to the system."""
        # A provider can have been taken away since: its memory went with it.
        if self.device.device_type != Device.kDLCPU and self.device.exist:
            self.device.api.trim()
        with self._lock:
            self._trim(self.used_bytes(), 0)
            self._peak = 0

    def used_bytes(self) -> int:
        """Bytes waiting in the pool."""
        return sum([blocks.block_bytes * len(blocks) for blocks in list(self._free.values())])


def size_class(nbytes: int) -> int:
    """Round a size up so that nearly equal requests share blocks: 64 bytes below 4 KiB, pages above."""
    unit = ALIGNMENT if nbytes <= 4096 else 4096
    return max(unit, (nbytes + unit - 1) // unit * unit)


_PEAK_DECAY = 64
_MANY_SIZES = 1024

_ALLOCATORS: dict[tuple[Device, str], Allocator] = {}


def get_allocator(device: Device = _CPU0, kind: str = "pooled") -> Allocator:
    """The process-wide allocator of a device."""
    key = (device, kind)
    found = _ALLOCATORS.get(key)
    if found is None:
        found = _ALLOCATORS[key] = Allocator(device, kind)
    return found


def clear_memory_pools() -> None:
    """Empty every pool (``vm.builtin.memory_manager.clear``)."""
    for allocator in _ALLOCATORS.values():
        allocator.clear()


class _CPUAPI(DeviceAPI):
    def exists(self, index: int) -> bool:
        return True

    def attribute(self, index: int, name: str) -> Attribute:
        if name == "device_name":
            return _cpu_name()
        if name == "multi_processor_count":
            from ...support.threads import available_cores

            return available_cores()
        if name in ("total_global_memory", "available_global_memory"):
            import os

            pages = "SC_PHYS_PAGES" if name.startswith("total") else "SC_AVPHYS_PAGES"
            return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
        return {"max_threads_per_block": 1, "warp_size": 1}.get(name)

    def allocate(self, index: int, nbytes: int, alignment: int, mem_scope: str | None) -> tuple[int, object]:
        mem, ptr = aligned_bytes(nbytes, alignment)
        return ptr, mem

    def copy(self, source: int, source_device: Device, target: int, target_device: Device, nbytes: int) -> None:
        import ctypes

        ctypes.memmove(target, source, nbytes)

    def synchronize(self, index: int, stream: int | None = None) -> None:
        return None


def _cpu_name() -> str:
    import platform

    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cuda_api() -> DeviceAPI:
    from ..nvidia.device_api import CUDADeviceAPI

    return CUDADeviceAPI()


def _opencl_api() -> DeviceAPI:
    from ..opencl_driver.device_api import OpenCLDeviceAPI

    return OpenCLDeviceAPI()


register_device_api(Device.kDLCPU, _CPUAPI)
register_device_api(Device.kDLCUDA, _cuda_api)
register_device_api(Device.kDLOpenCL, _opencl_api)
