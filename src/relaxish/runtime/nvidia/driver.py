"""The one interface to a CUDA driver; providers implement it.

Addresses and streams are integers (a stream is the driver's own handle, 0 the default stream), all other handles are
opaque objects of the provider. Every method raises :class:`~.errors.CUDAError` with the driver's code when the driver
refuses. Methods may be called from any thread; they make the device's primary context current themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..device import Attribute

__all__ = ["ATTRIBUTES", "Dim3", "Driver", "Handle", "KernelArg", "Launcher", "TensorMapSpec"]

Dim3 = tuple[int, int, int]

#: A loaded module, a function, an event or a graph: only the driver that made one looks into it.
Handle: TypeAlias = Any

# ("pointer", address) | ("tensor_map", 128 bytes) | (dtype, number), for example ("int32", 7)
KernelArg = tuple[str, Any]

# launcher(grid, block, shared, stream, values): what Driver.prepare gives, the hot path of a kernel.
Launcher = Callable[[Dim3, Dim3, int, int, Sequence[Any]], None]

# What `Driver.attribute` knows, with the number of the driver's own attribute where it is one integer.
ATTRIBUTES: dict[str, int] = {
    "max_threads_per_block": 1,
    "max_block_dim_x": 2,
    "max_block_dim_y": 3,
    "max_block_dim_z": 4,
    "max_grid_dim_x": 5,
    "max_grid_dim_y": 6,
    "max_grid_dim_z": 7,
    "max_shared_memory_per_block": 8,
    "warp_size": 10,
    "max_registers_per_block": 12,
    "max_clock_rate": 13,  # kHz
    "multi_processor_count": 16,
    "memory_clock_rate": 36,  # kHz
    "memory_bus_width": 37,
    "l2_cache_size_bytes": 38,
    "max_threads_per_multi_processor": 39,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "max_shared_memory_per_multi_processor": 81,
    "max_registers_per_multi_processor": 82,
    "max_shared_memory_per_block_optin": 97,
}


@dataclass(frozen=True)
class TensorMapSpec:
    """A tiled tensor map: how the tensor memory accelerator walks a tensor, innermost dimension first.

    ``strides`` are in bytes and have one entry less than ``dims`` (the innermost is dense). ``swizzle`` and
    ``interleave`` are in bytes (0: none), ``l2_promotion`` too; ``fill_nan`` fills outside elements with NaN, not zero.
    """

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    l2_promotion: int = 0
    fill_nan: bool = False


class Driver(Protocol):
    """Operations relaxish needs of a CUDA driver.

    Devices are numbers from 0, addresses are integers, sizes are bytes, streams are handles (0 is the legacy default
    stream). Every method raises CUDAError with the driver's code where the call fails.
    """

    name: str
    image_format: str  # what load_module takes: "cubin", "emulated", "null"
    simulated: bool  # device memory is this process's memory

    # ---- devices

    def device_count(self) -> int:
        """Number of devices."""
        ...

    def attribute(self, device: int, name: str) -> Attribute:
        """One of :data:`ATTRIBUTES`, "device_name" or "driver_version"; ``None`` for an unknown name."""
        ...

    def memory_info(self, device: int) -> tuple[int, int]:
        """Free and total memory of a device, in bytes."""
        ...

    def synchronize(self, device: int) -> None:
        """Wait for all work of a device."""
        ...

    def make_current(self, device: int) -> None:
        """Make the device's primary context current in this thread, for libraries that are called directly."""
        ...

    # ---- memory; ``stream=None`` waits for the result, a stream orders the work on it

    def allocate(self, device: int, nbytes: int) -> int:
        """The address of new memory, aligned to at least 256 bytes. Raises DeviceMemoryError when the device is full."""
        ...

    def free(self, device: int, address: int) -> None:
        """Free memory; waits for work that may still use it."""
        ...

    def copy_to_device(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy from host memory to a device; the host memory may be reused as soon as the call returns."""
        ...

    def copy_to_host(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy from a device to host memory; with a stream, the data is there only after waiting for it."""
        ...

    def copy_on_device(
        self, device: int, target: int, source: int, nbytes: int, stream: int | None = None, source_device: int = -1
    ) -> None:
        """Copy within a device, or from ``source_device`` to ``device`` where one is given."""
        ...

    def fill(self, device: int, target: int, value: int, nbytes: int, stream: int | None = None) -> None:
        """Set ``nbytes`` bytes to ``value`` (0 to 255)."""
        ...

    # ---- kernels

    def load_module(self, device: int, image: Handle) -> Handle:
        """Load an image of :attr:`image_format` (a cubin, or PTX as bytes that end in a zero byte)."""
        ...

    def unload_module(self, module: Handle) -> None:
        """Unload a module; its kernels cannot be launched any more."""
        ...

    def get_function(self, module: Handle, name: str) -> Handle:
        """The kernel of that name. Raises CUDAError if the module has none."""
        ...

    def set_max_dynamic_shared(self, function: Handle, nbytes: int) -> None:
        """Allow a kernel more than 48 KiB of dynamic shared memory."""
        ...

    def launch(
        self,
        function: Handle,
        grid: Dim3,
        block: Dim3,
        shared: int,
        stream: int,
        args: Sequence[KernelArg],
        cluster: Dim3 = (1, 1, 1),
    ) -> None:
        """Queue one launch on a stream: ``grid`` blocks of ``block`` threads with ``shared`` bytes of dynamic shared memory."""
        ...

    def prepare(self, function: Handle, kinds: Sequence[str], cluster: Dim3 = (1, 1, 1)) -> Launcher:
        """A function that launches the kernel with arguments of these kinds; what does not depend on the values is done once."""
        ...

    # ---- streams and events

    def create_stream(self, device: int) -> int:
        """A new blocking stream: its work is ordered with that of the default stream, in both directions."""
        ...

    def destroy_stream(self, device: int, stream: int) -> None:
        """Wait for the work of a stream and destroy it."""
        ...

    def synchronize_stream(self, device: int, stream: int) -> None:
        """Wait on the host until all work of a stream is done."""
        ...

    def create_event(self, device: int, timing: bool = True) -> Handle:
        """A new event; only one made with ``timing`` can be given to :meth:`elapsed_ms`."""
        ...

    def record_event(self, event: Handle, stream: int) -> None:
        """Record an event behind the work that a stream has now."""
        ...

    def wait_event(self, event: Handle, stream: int) -> None:
        """Let later work of a stream wait for an event."""
        ...

    def synchronize_event(self, event: Handle) -> None:
        """Wait on the host until an event is reached."""
        ...

    def elapsed_ms(self, start: Handle, end: Handle) -> float:
        """Milliseconds between two events that have been reached."""
        ...

    def destroy_event(self, event: Handle) -> None:
        """Destroy an event; work that waits for it is not affected."""
        ...

    # ---- graphs

    def begin_capture(self, device: int, stream: int) -> None:
        """Capture the work issued to a stream (not the default one) instead of running it."""
        ...

    def end_capture(self, device: int, stream: int) -> Handle:
        """End the capture; the captured work as an executable graph."""
        ...

    def launch_graph(self, graph: Handle, stream: int) -> None:
        """Run the work of a graph on a stream."""
        ...

    def destroy_graph(self, graph: Handle) -> None:
        """Destroy an executable graph."""
        ...

    # ---- tensor maps

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The 128 bytes that a kernel takes as its "tensor_map" argument."""
        ...
