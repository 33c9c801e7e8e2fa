"""A CUDA driver without a GPU: device memory is host memory, streams, events and graphs behave as the real ones.

Subclasses say what an image is (:meth:`SimulatedDriver.open_image`) and what running a kernel does
(:meth:`SimulatedDriver.run_kernel`): the null driver does nothing, the fake of the tests runs Python functions, the
emulator runs the kernels on the CPU.

With ``deferred``, issued work waits until something synchronises, which shows missing synchronisation.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..device import Attribute
from . import tensor_map
from .allocations import Allocations
from .driver import Dim3, Handle, KernelArg, Launcher, TensorMapSpec
from .errors import CODES, CUDAError, failure
from .timeline import Event, Graph, Timeline

__all__ = ["Kernel", "Launch", "SimulatedDriver"]

_T = TypeVar("_T")

_H100: dict[str, Any] = {
    "max_threads_per_block": 1024,
    "max_block_dim_x": 1024,
    "max_block_dim_y": 1024,
    "max_block_dim_z": 64,
    "max_grid_dim_x": 2**31 - 1,
    "max_grid_dim_y": 65535,
    "max_grid_dim_z": 65535,
    "max_shared_memory_per_block": 49152,
    "warp_size": 32,
    "max_registers_per_block": 65536,
    "max_clock_rate": 1980000,
    "multi_processor_count": 132,
    "memory_clock_rate": 2619000,
    "memory_bus_width": 5120,
    "l2_cache_size_bytes": 50 * 2**20,
    "max_threads_per_multi_processor": 2048,
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "max_shared_memory_per_multi_processor": 233472,
    "max_registers_per_multi_processor": 65536,
    "max_shared_memory_per_block_optin": 232448,
    "driver_version": 13000,
}


@dataclass
class Kernel:
    """A kernel of a loaded image. ``body`` is what the subclass runs; ``kinds`` its parameters, where known."""

    name: str
    body: Any
    kinds: tuple[str, ...] | None = None
    device: int = 0
    max_dynamic_shared: int = 49152
    static_shared: int = 0
    loaded: _Image | None = None


@dataclass(eq=False)
class _Image:
    device: int
    kernels: dict[str, Kernel]
    alive: bool = True


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    kernel: str
    grid: Dim3
    block: Dim3
    shared: int
    args: tuple[KernelArg, ...]
    cluster: Dim3 = (1, 1, 1)
    device: int = 0
    stream: int = 0


@dataclass
class _Device:
    timeline: Timeline
    allocations: Allocations
    attributes: dict[str, Any]
    lost: CUDAError | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


class SimulatedDriver:
    """The common part of all drivers without a GPU."""

    name = "simulated"
    image_format = "null"
    simulated = True

    def __init__(
        self,
        *,
        devices: int = 1,
        total_memory: int = 80 * 2**30,
        deferred: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.deferred = deferred
        given = {"device_name": f"{self.name} device", **_H100, **(attributes or {})}
        self._devices = [
            _Device(Timeline(deferred, self.clock_ms), Allocations(total_memory), dict(given)) for _ in range(devices)
        ]

    # ---- what subclasses define

    def open_image(self, device: int, image: Handle) -> Mapping[str, Kernel]:
        """The kernels of an image by name. Raises CUDAError for one that cannot be loaded."""
        raise failure(CODES["INVALID_IMAGE"], "loading a module")

    def run_kernel(self, kernel: Kernel, launch: Launch) -> None:
        """Do what a launch does; a CUDAError with a sticky code loses the context."""

    def clock_ms(self) -> float:
        """The simulated time that events record, in milliseconds."""
        return time.perf_counter() * 1e3

    # ---- devices

    def device_count(self) -> int:
        """Number of simulated devices."""
        return len(self._devices)

    def _device(self, device: int, what: str, *, even_lost: bool = False) -> _Device:
        if not 0 <= device < len(self._devices):
            raise failure(CODES["INVALID_DEVICE"], what, f"there are {len(self._devices)} devices, asked for {device}")
        found = self._devices[device]
        if found.lost is not None and not even_lost:
            raise failure(found.lost.code, what, f"the first failure was: {found.lost.what}")
        return found

    def attribute(self, device: int, name: str) -> Attribute:
        """An attribute of the simulated device."""
        return self._device(device, "reading an attribute", even_lost=True).attributes.get(name)

    def memory_info(self, device: int) -> tuple[int, int]:
        """(free, total) bytes of the simulated memory."""
        memory = self._device(device, "reading the amount of memory").allocations
        return memory.total - memory.used, memory.total

    def synchronize(self, device: int) -> None:
        """Run all queued work."""
        found = self._device(device, "waiting for the device")
        self._not_while_capturing(found, "waiting for the device")
        self._guard(found, found.timeline.finish)

    def make_current(self, device: int) -> None:
        """Nothing to do but check the number: there are no contexts."""
        self._device(device, "making a device current")

    def issue(self, device: int, stream: int, what: str, run: Callable[[], None]) -> None:
        """Put host work on a stream as if it were a kernel: for stand-ins of libraries."""
        self._issue(self._device(device, what), stream, what, run)

    def _guard(self, device: _Device, run: Callable[[], _T]) -> _T:
        """Run work; a failure that loses the context is remembered."""
        try:
            with device.lock:
                return run()
        except CUDAError as error:
            if error.sticky and device.lost is None:
                device.lost = error
                device.timeline.drop()
            raise

    @staticmethod
    def _not_while_capturing(device: _Device, what: str) -> None:
        device.timeline.forbid_while_capturing(what)

    # ---- memory

    def allocate(self, device: int, nbytes: int) -> int:
        """Host memory standing for device memory."""
        found = self._device(device, f"allocating {nbytes} bytes")
        self._not_while_capturing(found, "allocating memory")
        return found.allocations.allocate(nbytes)

    def free(self, device: int, address: int) -> None:
        """Drop the memory, after the work that may use it."""
        found = self._device(device, "freeing memory")
        self._not_while_capturing(found, "freeing memory")
        self._guard(found, found.timeline.finish)
        found.allocations.free(address)

    def _issue(self, device: _Device, stream: int | None, what: str, run: Callable[[], None]) -> None:
        """Put work on a stream, or do it now with all that comes before it on the default stream."""
        if stream is None:
            self._not_while_capturing(device, what)
        self._guard(device, lambda: device.timeline.issue(stream or 0, what, run))
        if stream is None:
            self._guard(device, lambda: device.timeline.finish(0))

    def copy_to_device(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy from host memory, which is read at once, as the driver does with pageable memory."""
        found = self._device(device, "copying to the device")
        found.allocations.check(target, nbytes, "copying to the device")
        staged = ctypes.string_at(source, nbytes) if self.deferred or found.timeline.captures(stream) else None
        if staged is None:
            self._issue(found, stream, "copying to the device", lambda: _move(target, source, nbytes))
        else:
            self._issue(found, stream, "copying to the device", lambda: _move(target, staged, nbytes))

    def copy_to_host(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy to host memory."""
        found = self._device(device, "copying to the host")
        found.allocations.check(source, nbytes, "copying to the host")
        self._issue(found, stream, "copying to the host", lambda: _move(target, source, nbytes))

    def copy_on_device(
        self, device: int, target: int, source: int, nbytes: int, stream: int | None = None, source_device: int = -1
    ) -> None:
        """Copy within a device or from another one."""
        found = self._device(device, "copying on the device")
        other = found if source_device < 0 else self._device(source_device, "copying between devices")
        found.allocations.check(target, nbytes, "copying on the device")
        other.allocations.check(source, nbytes, "copying on the device")
        if other is not found:
            self._guard(other, other.timeline.finish)
        self._issue(found, stream, "copying on the device", lambda: _move(target, source, nbytes))

    def fill(self, device: int, target: int, value: int, nbytes: int, stream: int | None = None) -> None:
        """Set bytes."""
        found = self._device(device, "filling memory")
        found.allocations.check(target, nbytes, "filling memory")
        self._issue(found, stream, "filling memory", lambda: _set(target, value, nbytes))

    # ---- kernels

    def load_module(self, device: int, image: Handle) -> Handle:
        """Open an image on a device."""
        self._device(device, "loading a module")
        made = _Image(device, {})
        for name, kernel in self.open_image(device, image).items():
            made.kernels[name] = Kernel(
                name, kernel.body, kernel.kinds, device, kernel.max_dynamic_shared, kernel.static_shared, made
            )
        return made

    def unload_module(self, module: Handle) -> None:
        """Forget an image; its kernels cannot be launched any more."""
        module.alive = False

    def get_function(self, module: Handle, name: str) -> Kernel:
        """A kernel by name."""
        if not module.alive:
            raise failure(CODES["INVALID_HANDLE"], f"looking up the kernel {name}", "the module was unloaded")
        if name not in module.kernels:
            known = ", ".join(module.kernels) or "none"
            raise failure(CODES["NOT_FOUND"], f"looking up the kernel {name}", f"the module has: {known}")
        return module.kernels[name]

    def set_max_dynamic_shared(self, function: Kernel, nbytes: int) -> None:
        """Allow more dynamic shared memory, up to the device's limit."""
        most = self._devices[function.device].attributes["max_shared_memory_per_block_optin"]
        if nbytes < 0 or nbytes + function.static_shared > most:
            raise failure(
                CODES["INVALID_VALUE"],
                f"setting the dynamic shared memory of {function.name}",
                f"{nbytes} bytes and {function.static_shared} static ones, the device has {most} for a block",
            )
        function.max_dynamic_shared = nbytes

    def launch(
        self,
        function: Kernel,
        grid: Dim3,
        block: Dim3,
        shared: int,
        stream: int,
        args: Sequence[KernelArg],
        cluster: Dim3 = (1, 1, 1),
    ) -> None:
        """Check a launch as the driver does and put it on its stream."""
        what = f"launching {function.name}"
        found = self._device(function.device, what)
        launch = Launch(function.name, grid, block, shared, tuple(args), cluster, function.device, stream)
        _check_launch(function, launch, found.attributes)
        self._issue(found, stream, what, lambda: self.run_kernel(function, launch))

    def prepare(self, function: Kernel, kinds: Sequence[str], cluster: Dim3 = (1, 1, 1)) -> Launcher:
        """A launcher that pairs values with their kinds."""
        kinds = tuple(kinds)

        def launcher(grid: Dim3, block: Dim3, shared: int, stream: int, values: Sequence[Any]) -> None:
            if len(values) != len(kinds):
                raise failure(
                    CODES["INVALID_VALUE"],
                    f"launching {function.name}",
                    f"{len(values)} arguments for {len(kinds)} parameters",
                )
            self.launch(function, grid, block, shared, stream, tuple(zip(kinds, values)), cluster)

        return launcher

    # ---- streams and events

    def create_stream(self, device: int) -> int:
        """A new stream."""
        return self._device(device, "creating a stream").timeline.create_stream()

    def destroy_stream(self, device: int, stream: int) -> None:
        """Finish a stream and forget it."""
        found = self._device(device, "destroying a stream")
        self._guard(found, lambda: found.timeline.destroy_stream(stream))

    def synchronize_stream(self, device: int, stream: int) -> None:
        """Run the work queued on a stream."""
        found = self._device(device, "waiting for a stream")
        found.timeline.forbid_while_capturing("waiting for a stream", stream)
        self._guard(found, lambda: found.timeline.finish(stream))

    def create_event(self, device: int, timing: bool = True) -> Event:
        """A new event."""
        self._device(device, "creating an event")
        return Event(device, timing)

    def _event(self, event: Event, what: str) -> _Device:
        if not event.alive:
            raise failure(CODES["INVALID_HANDLE"], what, "the event was destroyed")
        return self._device(event.device, what)

    def record_event(self, event: Event, stream: int) -> None:
        """Record an event behind the present work of a stream."""
        found = self._event(event, "recording an event")
        self._guard(found, lambda: found.timeline.record(event, stream))

    def wait_event(self, event: Event, stream: int) -> None:
        """Let later work of a stream wait for an event."""
        found = self._event(event, "waiting for an event")
        self._guard(found, lambda: found.timeline.wait(event, stream))

    def synchronize_event(self, event: Event) -> None:
        """Run the work that an event was recorded behind."""
        found = self._event(event, "waiting for an event")
        self._not_while_capturing(found, "waiting for an event")
        self._guard(found, lambda: found.timeline.reach(event))

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """Milliseconds between two events."""
        for event in (start, end):
            self._event(event, "reading the time between events")
            if not event.timing or not event.recorded:
                raise failure(
                    CODES["INVALID_HANDLE"],
                    "reading the time between events",
                    "an event was made without timing, or was not recorded",
                )
        if start.time is None or end.time is None:
            raise failure(CODES["NOT_READY"], "reading the time between events", "wait for the event first")
        return float(end.time - start.time)

    def destroy_event(self, event: Event) -> None:
        """Forget an event."""
        event.alive = False

    # ---- graphs

    def begin_capture(self, device: int, stream: int) -> None:
        """Capture the work issued to a stream."""
        self._device(device, "capturing a stream").timeline.begin_capture(stream)

    def end_capture(self, device: int, stream: int) -> Graph:
        """End the capture; its work as a graph."""
        return Graph(device, self._device(device, "capturing a stream").timeline.end_capture(stream))

    def launch_graph(self, graph: Graph, stream: int) -> None:
        """Run the work of a graph."""
        found = self._device(graph.device, "launching a graph")
        if not graph.alive:
            raise failure(CODES["INVALID_VALUE"], "launching a graph", "the graph was destroyed")
        self._issue(found, stream, "launching a graph", graph.run)

    def destroy_graph(self, graph: Graph) -> None:
        """Forget a graph."""
        graph.alive = False

    # ---- tensor maps

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The map in our own encoding; :func:`tensor_map.decode` reads it."""
        return tensor_map.encode(spec)


def _move(target: int, source: int | bytes, nbytes: int) -> None:
    ctypes.memmove(target, source, nbytes)


def _set(target: int, value: int, nbytes: int) -> None:
    ctypes.memset(target, value, nbytes)


def _check_launch(kernel: Kernel, launch: Launch, attributes: Mapping[str, Any]) -> None:
    what = f"launching {kernel.name}"

    def refuse(why: str, code: str = "INVALID_VALUE") -> None:
        raise failure(CODES[code], what, why)

    if kernel.loaded is not None and not kernel.loaded.alive:
        refuse("its module was unloaded", "INVALID_HANDLE")
    for part, sizes in (("grid", launch.grid), ("block", launch.block)):
        for axis, size in zip("xyz", sizes):
            most = attributes[f"max_{part}_dim_{axis}"]
            if not 1 <= size <= most:
                refuse(f"the {part} is {sizes}; {axis} must be within 1 .. {most}")
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > attributes["max_threads_per_block"]:
        refuse(f"a block of {threads} threads; the device has {attributes['max_threads_per_block']} at most")
    if not 0 <= launch.shared <= kernel.max_dynamic_shared:
        refuse(f"{launch.shared} bytes of dynamic shared memory; {kernel.max_dynamic_shared} are allowed")
    if launch.cluster != (1, 1, 1):
        blocks = int(np.prod(launch.cluster))
        if any(g % c for g, c in zip(launch.grid, launch.cluster)) or not 1 <= blocks <= 8:
            refuse(f"a grid {launch.grid} in clusters of {launch.cluster}", "INVALID_CLUSTER_SIZE")
        if attributes["compute_capability_major"] < 9:
            refuse("clusters need compute capability 9.0", "NOT_SUPPORTED")
    if kernel.kinds is not None and tuple(kind for kind, _ in launch.args) != kernel.kinds:
        refuse(f"arguments of kinds {tuple(k for k, _ in launch.args)} for parameters {kernel.kinds}")
