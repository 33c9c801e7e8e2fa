"""Contexts and queues: one of each for every OpenCL device, made at first use."""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from types import ModuleType

from ...support.errors import MissingExtraError, RelaxishError
from .addresses import AddressBook, Block

__all__ = ["OpenCLDevice", "OpenCLState", "find_state", "state"]


class OpenCLDevice:
    """A device with its context and its queue, which runs everything in the order it was given."""

    def __init__(self, cl: ModuleType, device: Any) -> None:
        self.info = device
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        # Parts of a buffer must begin at multiples of this many bytes.
        self.alignment = max(1, device.mem_base_addr_align // 8)


class OpenCLState:
    """All devices of this process: GPUs and accelerators first, then processors."""

    def __init__(self, cl: ModuleType) -> None:
        self.cl = cl
        self.book = AddressBook()
        self._lock = threading.Lock()
        self._opened: dict[int, OpenCLDevice] = {}
        self.infos = _devices(cl)

    def device(self, index: int) -> OpenCLDevice:
        """An opened device. Raises RelaxishError if there is none of this number."""
        if not 0 <= index < len(self.infos):
            raise RelaxishError(f"there is no device opencl({index}); found {len(self.infos)}")
        with self._lock:
            if index not in self._opened:
                self._opened[index] = OpenCLDevice(self.cl, self.infos[index])
            return self._opened[index]

    def allocate(self, index: int, nbytes: int) -> Block:
        """Memory of a device."""
        flags = self.cl.mem_flags.READ_WRITE
        made = self.cl.Buffer(self.device(index).context, flags, max(1, nbytes))
        return self.book.add(made, max(1, nbytes), index)


def _devices(cl: ModuleType) -> list[Any]:
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # how a loader without any platform answers
        return []
    found = [device for platform in platforms for device in _of_platform(cl, platform)]
    cpu = cl.device_type.CPU
    return sorted(found, key=lambda device: bool(device.type & cpu))


def _of_platform(cl: ModuleType, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # CL_DEVICE_NOT_FOUND: a driver without hardware
        return []


@lru_cache(maxsize=1)
def _loaded() -> OpenCLState | None:
    if find_spec("pyopencl") is None:
        return None
    import pyopencl

    return OpenCLState(pyopencl)


def find_state() -> OpenCLState | None:
    """The devices of this process; None without pyopencl."""
    return _loaded()


def state() -> OpenCLState:
    """The devices of this process. Raises MissingExtraError without pyopencl."""
    found = find_state()
    if found is None:
        raise MissingExtraError("opencl", "pyopencl", "running on OpenCL devices")
    return found
