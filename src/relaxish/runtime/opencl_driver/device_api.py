"""OpenCL devices as relaxish sees them: memory, copies, attributes."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ..device import Attribute, Device, DeviceAPI
from .state import OpenCLState, find_state, state

__all__ = ["OpenCLDeviceAPI"]

# Attributes that are one property of the device.
_PROPERTIES = {
    "max_threads_per_block": "max_work_group_size",
    "max_shared_memory_per_block": "local_mem_size",
    "compute_version": "version",
    "device_name": "name",
    "max_clock_rate": "max_clock_frequency",
    "multi_processor_count": "max_compute_units",
    "driver_version": "driver_version",
    "api_version": "version",
    "total_global_memory": "global_mem_size",
    "l2_cache_size_bytes": "global_mem_cache_size",
    "texture_spatial_limit": "image2d_max_width",
    "image_base_address_alignment": "image_base_address_alignment",
}


class OpenCLDeviceAPI(DeviceAPI):
    """Each device has one queue, in order."""

    def exists(self, index: int) -> bool:
        """Whether pyopencl finds such a device."""
        found = find_state()
        return found is not None and 0 <= index < len(found.infos)

    def attribute(self, index: int, name: str) -> Attribute:
        """A property under the name that ``Device`` has for it."""
        info = state().device(index).info
        if name == "warp_size":
            return 1  # what a device calls a warp is not to be had everywhere, and programs must not count on it
        if name == "max_thread_dimensions":
            return str(list(info.max_work_item_sizes))
        if name not in _PROPERTIES:
            return None
        value = getattr(info, _PROPERTIES[name])
        return value.strip() if isinstance(value, str) else value

    def allocate(self, index: int, nbytes: int, alignment: int, mem_scope: str | None) -> tuple[int, object]:
        """A buffer of the device."""
        if mem_scope not in (None, "", "global"):
            raise RelaxishError(f"opencl({index}) has no memory of scope {mem_scope!r} to allocate; use 'global'")
        block = state().allocate(index, nbytes)
        return block.address, block

    def copy(self, source: int, source_device: Device, target: int, target_device: Device, nbytes: int) -> None:
        """Copy after all work that was given before; complete on return, but for copies within a device."""
        if not nbytes:
            return
        here = state()
        if target_device.device_type == Device.kDLCPU:
            _read(here, source_device.device_id, source, _host(target, nbytes))
        elif source_device.device_type == Device.kDLCPU:
            _write(here, target_device.device_id, target, _host(source, nbytes))
        elif source_device == target_device:
            (a, a_at, _), (b, b_at, _) = here.book.find(source), here.book.find(target)
            here.cl.enqueue_copy(
                here.device(target_device.device_id).queue, b, a, byte_count=nbytes, src_offset=a_at, dst_offset=b_at
            )
        else:
            between = np.empty(nbytes, np.uint8)
            _read(here, source_device.device_id, source, between)
            _write(here, target_device.device_id, target, between)

    def synchronize(self, index: int, stream: int | None = None) -> None:
        """Wait for all work."""
        state().device(index).queue.finish()

    def timer(self, index: int) -> OpenCLTimer:
        """A clock around what the queue does."""
        return OpenCLTimer(index)


class OpenCLTimer:
    """Seconds from an empty queue to an empty queue."""

    def __init__(self, index: int) -> None:
        self._queue = state().device(index).queue
        self._begin = 0.0

    def start(self) -> None:
        """Wait for what is under way, then begin."""
        self._queue.finish()
        self._begin = time.perf_counter()

    def stop(self) -> float:
        """Wait for the work, and give the seconds it took."""
        self._queue.finish()
        return time.perf_counter() - self._begin

    def close(self) -> None:
        """Nothing to give back."""


def _host(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B"), np.uint8)


def _read(here: OpenCLState, index: int, source: int, target: Any) -> None:
    handle, offset, _ = here.book.find(source)
    here.cl.enqueue_copy(here.device(index).queue, target, handle, src_offset=offset, is_blocking=True)


def _write(here: OpenCLState, index: int, target: int, source: Any) -> None:
    handle, offset, _ = here.book.find(target)
    here.cl.enqueue_copy(here.device(index).queue, handle, source, dst_offset=offset, is_blocking=True)
