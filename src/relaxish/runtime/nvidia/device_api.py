"""CUDA devices as relaxish sees them: memory, copies, attributes, streams."""

from __future__ import annotations


from ...support.errors import RelaxishError
from ..device import Attribute, Device, DeviceAPI
from . import providers
from .state import CUDAState

__all__ = ["CUDADeviceAPI"]


class CUDADeviceAPI(DeviceAPI):
    """Everything goes to the driver in use (:func:`providers.current`)."""

    def exists(self, index: int) -> bool:
        """Whether the driver in use has such a device."""
        state = providers.find()
        return state is not None and 0 <= index < state.driver.device_count()

    def attribute(self, index: int, name: str) -> Attribute:
        """A property under the name that ``Device`` has for it."""
        driver = providers.current().driver
        if name == "compute_version":
            major = driver.attribute(index, "compute_capability_major")
            return f"{major}.{driver.attribute(index, 'compute_capability_minor')}"
        if name == "max_thread_dimensions":
            return str([driver.attribute(index, f"max_block_dim_{axis}") for axis in "xyz"])
        if name == "total_global_memory":
            return driver.memory_info(index)[1]
        if name == "available_global_memory":
            return driver.memory_info(index)[0]
        if name == "api_version":
            return driver.attribute(index, "driver_version")
        return driver.attribute(index, name)

    def allocate_pooled(self, index: int, nbytes: int) -> tuple[int, int, object]:
        """Memory from the pool of the current stream."""
        block = providers.current().allocate_pooled(index, nbytes)
        return block.nbytes, block.address, block

    def allocate(self, index: int, nbytes: int, alignment: int, mem_scope: str | None) -> tuple[int, object]:
        """Memory of the device."""
        if mem_scope not in (None, "", "global"):
            raise RelaxishError(f"cuda({index}) has no memory of scope {mem_scope!r} to allocate; use 'global'")
        block = providers.current().allocate(index, nbytes)
        return block.address, block

    def trim(self) -> None:
        """Give pooled blocks back to the driver."""
        state = providers.find()
        if state is not None:
            state.trim()

    def copy(self, source: int, source_device: Device, target: int, target_device: Device, nbytes: int) -> None:
        """Copy in stream order. Copies from and to the host are complete on return."""
        if not nbytes:
            return
        state = providers.current()
        driver = state.driver
        if target_device.device_type == Device.kDLCPU:
            stream = state.stream(source_device.device_id)
            driver.copy_to_host(source_device.device_id, target, source, nbytes, stream or None)
            _wait(state, source_device.device_id, stream)
            return
        index = target_device.device_id
        stream = state.stream(index)
        if source_device.device_type == Device.kDLCPU:
            driver.copy_to_device(index, target, source, nbytes, stream or None)
            _wait(state, index, stream)
        elif source_device == target_device:
            driver.copy_on_device(index, target, source, nbytes, stream)
        else:
            _wait(state, source_device.device_id, state.stream(source_device.device_id), always=True)
            driver.copy_on_device(index, target, source, nbytes, stream, source_device.device_id)

    def synchronize(self, index: int, stream: int | None = None) -> None:
        """Wait for a stream, or for the whole device."""
        state = providers.current()
        if stream is None:
            state.driver.synchronize(index)
        else:
            state.driver.synchronize_stream(index, stream)

    def create_stream(self, index: int) -> int:
        """A new stream."""
        return providers.current().driver.create_stream(index)

    def free_stream(self, index: int, stream: int) -> None:
        """Give a stream back once its work is done."""
        state = providers.current()
        if state.stream(index) == stream:
            state.set_stream(index, 0)
        state.driver.destroy_stream(index, stream)

    def set_stream(self, index: int, stream: int) -> None:
        """Issue this thread's work to a stream from now on."""
        providers.current().set_stream(index, stream)

    def current_stream(self, index: int) -> int:
        """The stream of this thread."""
        return providers.current().stream(index)

    def order_streams(self, index: int, before: int, after: int) -> None:
        """Let a stream wait for another."""
        providers.current().order(index, before, after)

    def timer(self, index: int) -> DeviceTimer:
        """A clock that the device itself reads."""
        return DeviceTimer(providers.current(), index)


def _wait(state: CUDAState, device: int, stream: int, always: bool = False) -> None:
    """Without a stream a copy has waited already."""
    if stream or always:
        state.driver.synchronize_stream(device, stream)


class DeviceTimer:
    """Measures what runs on the current stream between :meth:`start` and :meth:`stop`."""

    def __init__(self, state: CUDAState, device: int) -> None:
        self._state = state
        self._device = device
        self._begin, self._end = (state.driver.create_event(device) for _ in range(2))

    def start(self) -> None:
        """Mark the beginning."""
        self._state.driver.record_event(self._begin, self._state.stream(self._device))

    def stop(self) -> float:
        """Mark the end, wait for it, and give the seconds between."""
        driver = self._state.driver
        driver.record_event(self._end, self._state.stream(self._device))
        driver.synchronize_event(self._end)
        return driver.elapsed_ms(self._begin, self._end) / 1e3

    def close(self) -> None:
        """Give the events back."""
        for event in (self._begin, self._end):
            self._state.driver.destroy_event(event)
