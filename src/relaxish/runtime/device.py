"""Devices: where an array lives and a kernel runs.

``cpu(0)``, ``device("cuda", 1)`` and so on only *name* a device. What can be done on it is in the table of device
interfaces, which backends fill (:func:`register_device_api`); the CPU's is always there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias, TYPE_CHECKING

from ..support.errors import RelaxishError

_NAMES = {
    1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm", 12: "ext_dev", 14: "hexagon",
    15: "webgpu",
}  # fmt: skip
_TYPES = {
    **{name: number for number, name in _NAMES.items()},
    "llvm": 1, "c": 1, "test": 1, "hybrid": 1, "composite": 1, "nvptx": 2, "gpu": 2, "cl": 4, "sdaccel": 4, "aocl": 5,
    "aocl_sw_emu": 5, "mtl": 8,
}  # fmt: skip


# A property of a device; None: not known.
Attribute: TypeAlias = "int | float | str | None"


class Clock(Protocol):
    """A clock that measures one stretch after the other."""

    def start(self) -> None:
        """Mark the beginning."""

    def stop(self) -> float:
        """Seconds since the beginning."""

    def close(self) -> None:
        """Give back what the clock holds."""


class DeviceAPI:
    """Operations of a backend for one device type; see ``backend/*/device.py`` for implementations."""

    def exists(self, index: int) -> bool:
        """Whether the device is there."""
        raise NotImplementedError

    def attribute(self, index: int, name: str) -> Attribute:
        """A property such as ``"max_threads_per_block"``; ``None`` when not known."""
        raise NotImplementedError

    def allocate(self, index: int, nbytes: int, alignment: int, mem_scope: str | None) -> tuple[int, object]:
        """Memory: its address and an object that owns it."""
        raise NotImplementedError

    def copy(self, source: int, source_device: Device, target: int, target_device: Device, nbytes: int) -> None:
        """Copy bytes between two devices of which at least one is of this type."""
        raise NotImplementedError

    def synchronize(self, index: int, stream: int | None = None) -> None:
        """Wait for all work."""
        raise NotImplementedError

    def allocate_pooled(self, index: int, nbytes: int) -> tuple[int, int, object] | None:
        """Size, address and owner of memory from a pool, where the device's memory is pooled."""
        return None

    def trim(self) -> None:
        """Give pooled memory back."""

    def create_stream(self, index: int) -> int:
        """A new stream; devices without streams have only the default one, 0."""
        self.synchronize(index)
        return 0

    def free_stream(self, index: int, stream: int) -> None:
        """Give a stream back, once its work is done."""
        self.synchronize(index, stream)

    def set_stream(self, index: int, stream: int) -> None:
        """Issue further work of this thread to a stream."""
        if stream:
            raise RelaxishError(f"device {index} has no stream {stream}")

    def current_stream(self, index: int) -> int:
        """The stream that this thread issues work to."""
        return 0

    def order_streams(self, index: int, before: int, after: int) -> None:
        """Let stream ``after`` wait for what is on stream ``before`` now."""

    def timer(self, index: int) -> Clock | None:
        """An object with ``start()``, ``stop()`` (seconds) and ``close()`` reading the device's clock; None: the host's."""
        return None


_APIS: dict[int, DeviceAPI] = {}
_API_LOADERS: dict[int, Callable[[], DeviceAPI | None]] = {}


def register_device_api(device_type: int, loader: Callable[[], DeviceAPI | None]) -> None:
    """Offer an interface for a device type; ``loader`` runs at first use and may return ``None``: not available."""
    _API_LOADERS[device_type] = loader


class Device:
    """A device type and an index, e.g. ``cpu(0)``."""

    __slots__ = ("device_id", "device_type")
    kDLCPU: ClassVar[int] = 1
    kDLCUDA: ClassVar[int] = 2
    kDLOpenCL: ClassVar[int] = 4
    kDLVulkan: ClassVar[int] = 7
    kDLMetal: ClassVar[int] = 8
    kDLROCM: ClassVar[int] = 10
    DEVICE_TYPE_TO_NAME: ClassVar[dict[int, str]] = _NAMES
    DEVICE_NAME_TO_TYPE: ClassVar[dict[str, int]] = _TYPES
    MASK2STR: ClassVar[dict[int, str]] = _NAMES
    STR2MASK: ClassVar[dict[str, int]] = _TYPES

    _made: ClassVar[dict[tuple[int, int], Device]] = {}

    def __new__(cls, device_type: int | str, device_id: int = 0) -> Device:
        """The one object for this device, so that `is` compares devices."""
        key = _TYPES[device_type] if isinstance(device_type, str) else int(device_type), int(device_id)
        found = cls._made.get(key)
        if found is None:
            found = object.__new__(cls)
            found.device_type, found.device_id = key
            found = cls._made.setdefault(key, found)
        return found

    if TYPE_CHECKING:
        device_type: int
        device_id: int

    @property
    def api(self) -> DeviceAPI:
        """The interface of the device's type; an error when no backend offers one."""
        found = _find_api(self.device_type)
        if found is None:
            raise RelaxishError(f"device {self} is not available in this process")
        return found

    def _attribute(self, name: str) -> Any:
        found = _find_api(self.device_type)
        return None if found is None or not found.exists(self.device_id) else found.attribute(self.device_id, name)

    @property
    def exist(self) -> bool:
        """Whether the device can be used here."""
        found = _find_api(self.device_type)
        return found is not None and found.exists(self.device_id)

    max_threads_per_block = property(lambda self: self._attribute("max_threads_per_block"))
    warp_size = property(lambda self: self._attribute("warp_size"))
    max_shared_memory_per_block = property(lambda self: self._attribute("max_shared_memory_per_block"))
    compute_version = property(lambda self: self._attribute("compute_version"))
    device_name = property(lambda self: self._attribute("device_name"))
    max_clock_rate = property(lambda self: self._attribute("max_clock_rate"))
    multi_processor_count = property(lambda self: self._attribute("multi_processor_count"))
    max_thread_dimensions = property(lambda self: self._attribute("max_thread_dimensions"))
    api_version = property(lambda self: self._attribute("api_version"))
    driver_version = property(lambda self: self._attribute("driver_version"))
    l2_cache_size_bytes = property(lambda self: self._attribute("l2_cache_size_bytes"))
    total_global_memory = property(lambda self: self._attribute("total_global_memory"))
    available_global_memory = property(lambda self: self._attribute("available_global_memory"))
    texture_spatial_limit = property(lambda self: self._attribute("texture_spatial_limit"))

    def sync(self, stream: int | None = None) -> None:
        """Wait until everything issued to the device has finished."""
        self.api.synchronize(self.device_id, stream)

    def create_raw_stream(self) -> int:
        """A new stream of work. Devices without streams have only the default one, 0."""
        return self.api.create_stream(self.device_id)

    def free_raw_stream(self, stream: int) -> None:
        """Give a stream back, once its work is done."""
        self.api.free_stream(self.device_id, stream)

    def set_raw_stream(self, stream: int) -> None:
        """Issue further work of this thread to a stream. Raises RelaxishError on a device that has no streams."""
        self.api.set_stream(self.device_id, stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.device_type == self.device_type and other.device_id == self.device_id

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{_NAMES.get(self.device_type, f'device_type{self.device_type}')}({self.device_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.device_type, self.device_id)


def _find_api(device_type: int) -> DeviceAPI | None:
    found = _APIS.get(device_type)
    if found is None and device_type in _API_LOADERS:
        found = _API_LOADERS[device_type]()
        if found is not None:
            _APIS[device_type] = found
    return found


def device(dev_type: str | int, dev_id: int = 0) -> Device:
    """A device by name: ``device("cuda", 1)``, ``device("llvm")``, ``device("cpu:0")``."""
    if isinstance(dev_type, str):
        name, _, index = dev_type.split()[0].partition(":")
        if name not in _TYPES:
            raise ValueError(f"unknown device type {dev_type!r}; known: {', '.join(sorted(_TYPES))}")
        return Device(_TYPES[name], int(index) if index else dev_id)
    return Device(dev_type, dev_id)


_CPU0 = Device(1, 0)


def cpu(dev_id: int = 0) -> Device:
    """A CPU device."""
    return _CPU0 if dev_id == 0 else Device(1, dev_id)


def cuda(dev_id: int = 0) -> Device:
    """An NVIDIA device."""
    return Device(2, dev_id)


def opencl(dev_id: int = 0) -> Device:
    """An OpenCL device."""
    return Device(4, dev_id)


def vulkan(dev_id: int = 0) -> Device:
    """A Vulkan device."""
    return Device(7, dev_id)


def metal(dev_id: int = 0) -> Device:
    """A Metal device."""
    return Device(8, dev_id)


def vpi(dev_id: int = 0) -> Device:
    """A simulated VPI device."""
    return Device(9, dev_id)


def rocm(dev_id: int = 0) -> Device:
    """An AMD device."""
    return Device(10, dev_id)


def ext_dev(dev_id: int = 0) -> Device:
    """An extension device."""
    return Device(12, dev_id)


def hexagon(dev_id: int = 0) -> Device:
    """A Hexagon DSP."""
    return Device(14, dev_id)


def webgpu(dev_id: int = 0) -> Device:
    """A WebGPU device."""
    return Device(15, dev_id)


def enabled(target: str) -> bool:
    """Whether code for a target kind can run here: CPU kinds always, devices when there is one.

    >>> from relaxish import runtime
    >>> runtime.enabled("llvm")
    True
    """
    kind, _, _ = target.strip().partition(" ")
    if not kind:
        return False
    if kind in ("llvm", "c", "cpu", "stackvm"):
        return True
    try:
        return bool(device(kind, 0).exist)
    except ValueError:
        return False
