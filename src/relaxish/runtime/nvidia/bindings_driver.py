"""The CUDA driver through NVIDIA's ``cuda-bindings``.

Contexts are the devices' primary ones, so memory and streams are shared with torch. They are never released: the
process's other libraries may use them, and the driver frees them at exit.
"""

from __future__ import annotations

from types import ModuleType
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..device import Attribute
from .arguments import ArgumentLayout
from .context_driver import ContextDriver, OwnedHandle, Start
from .driver import ATTRIBUTES, Dim3, Launcher, TensorMapSpec
from .errors import NoCUDAError, failure
from .libcuda import LibCUDA

__all__ = ["BindingsDriver"]

_CLUSTER_ATTRIBUTE = "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"


@dataclass(eq=False)
class _Function:
    handle: Any
    name: str
    device: int


@dataclass(eq=False)
class _Module:
    handle: Any
    device: int


class BindingsDriver(ContextDriver):
    """``cuda.bindings.driver`` behind the interface of :class:`~.driver.Driver`."""

    name = "cuda-bindings"

    def __init__(self) -> None:
        self._cuda = _import_bindings()
        self._library: LibCUDA | None = None
        self._contexts: dict[int, Any] = {}  # by device, made when first asked for
        self._call("initialising CUDA", self._cuda.cuInit, 0)
        self._set_count(int(self._call("counting the devices", self._cuda.cuDeviceGetCount)))
        self._event_flags = int(self._cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call the driver; its one result, if it has one. Raises CUDAError for a status that is not success."""
        try:
            status, *results = function(*args)
        except (RuntimeError, OSError) as error:
            # So it says that libcuda, or a function of it, was not found.
            raise NoCUDAError(f"CUDA: {what} failed: {error}; is NVIDIA's driver installed?") from None
        if int(status):
            raise failure(int(status), what)
        return results[0] if len(results) == 1 else tuple(results)

    def _enter(self, device: int) -> Any:
        """Make the primary context of a device current on this thread."""
        context = self._contexts.get(device)
        if context is None:
            self._check_number(device)
            context = self._call("opening the device", self._cuda.cuDevicePrimaryCtxRetain, device)
            self._contexts[device] = context
        status = self._cuda.cuCtxSetCurrent(context)[0]
        if int(status):
            raise failure(int(status), "choosing a device")
        return context

    # ---- devices

    def attribute(self, device: int, name: str) -> Attribute:
        """An attribute of a device; ``None`` for an unknown name."""
        cuda = self._cuda
        if name == "device_name":
            text = self._call("asking for the device's name", cuda.cuDeviceGetName, 256, device)
            return text.split(b"\0")[0].decode() if isinstance(text, bytes) else str(text)
        if name == "driver_version":
            return int(self._call("asking for the driver's version", cuda.cuDriverGetVersion))
        number = ATTRIBUTES.get(name)
        if number is None:
            return None
        return int(self._call(f"asking for {name}", cuda.cuDeviceGetAttribute, cuda.CUdevice_attribute(number), device))

    def memory_info(self, device: int) -> tuple[int, int]:
        """Free and total memory, in bytes."""
        self._enter(device)
        free, total = self._call("asking for free memory", self._cuda.cuMemGetInfo)
        return int(free), int(total)

    def synchronize(self, device: int) -> None:
        """Wait for all work of the device."""
        self._enter(device)
        self._call("waiting for the device", self._cuda.cuCtxSynchronize)

    # ---- memory

    def allocate(self, device: int, nbytes: int) -> int:
        """The address of new memory."""
        self._enter(device)
        return int(self._call(f"allocating {nbytes} bytes", self._cuda.cuMemAlloc, nbytes))

    def free(self, device: int, address: int) -> None:
        """Free memory."""
        self._enter(device)
        self._call("freeing memory", self._cuda.cuMemFree, address)

    def copy_to_device(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy from host memory."""
        self._enter(device)
        what, cuda = f"copying {nbytes} bytes to the device", self._cuda
        if stream is None:
            self._call(what, cuda.cuMemcpyHtoD, target, source, nbytes)
        else:
            self._call(what, cuda.cuMemcpyHtoDAsync, target, source, nbytes, stream)

    def copy_to_host(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy to host memory."""
        self._enter(device)
        what, cuda = f"copying {nbytes} bytes to the host", self._cuda
        if stream is None:
            self._call(what, cuda.cuMemcpyDtoH, target, source, nbytes)
        else:
            self._call(what, cuda.cuMemcpyDtoHAsync, target, source, nbytes, stream)

    def copy_on_device(
        self, device: int, target: int, source: int, nbytes: int, stream: int | None = None, source_device: int = -1
    ) -> None:
        """Copy within a device or from another one."""
        context = self._enter(device)
        what, cuda = f"copying {nbytes} bytes on the device", self._cuda
        if source_device not in (-1, device):
            other = self._enter(source_device)
            self._enter(device)
            self._call(what, cuda.cuMemcpyPeerAsync, target, context, source, other, nbytes, stream or 0)
        else:
            self._call(what, cuda.cuMemcpyDtoDAsync, target, source, nbytes, stream or 0)
        if stream is None:
            self.synchronize_stream(device, 0)

    def fill(self, device: int, target: int, value: int, nbytes: int, stream: int | None = None) -> None:
        """Set bytes of device memory."""
        self._enter(device)
        self._call("filling memory", self._cuda.cuMemsetD8Async, target, value, nbytes, stream or 0)
        if stream is None:
            self.synchronize_stream(device, 0)

    # ---- kernels

    def load_module(self, device: int, image: bytes) -> _Module:
        """Load a cubin or PTX."""
        self._enter(device)
        return _Module(self._call("loading a module", self._cuda.cuModuleLoadData, image), device)

    def unload_module(self, module: _Module) -> None:
        """Unload a module."""
        self._enter(module.device)
        self._call("unloading a module", self._cuda.cuModuleUnload, module.handle)

    def get_function(self, module: _Module, name: str) -> _Function:
        """A kernel of a module."""
        self._enter(module.device)
        what = f"looking up the kernel {name}"
        return _Function(
            self._call(what, self._cuda.cuModuleGetFunction, module.handle, name.encode()), name, module.device
        )

    def set_max_dynamic_shared(self, function: _Function, nbytes: int) -> None:
        """Allow more dynamic shared memory."""
        self._enter(function.device)
        key = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        what = f"allowing {function.name} {nbytes} bytes of shared memory"
        self._call(what, self._cuda.cuFuncSetAttribute, function.handle, key, nbytes)

    def prepare(self, function: _Function, kinds: Sequence[str], cluster: Dim3 = (1, 1, 1)) -> Launcher:
        """A launcher that reuses its argument buffers."""
        start = self._starter(function) if cluster == (1, 1, 1) else self._cluster_starter(function, cluster)
        return self._launcher(function, ArgumentLayout(kinds), cluster, start)

    def _starter(self, function: _Function) -> Start:
        launch, handle = self._cuda.cuLaunchKernel, function.handle

        def start(grid: Dim3, block: Dim3, shared: int, stream: int, table: int) -> int:
            return int(launch(handle, *grid, *block, shared, stream, table, 0)[0])

        return start

    def _cluster_starter(self, function: _Function, cluster: Dim3) -> Start:
        cuda, handle = self._cuda, function.handle
        attribute = cuda.CUlaunchAttribute()
        attribute.id = getattr(cuda.CUlaunchAttributeID, _CLUSTER_ATTRIBUTE)
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster

        def start(grid: Dim3, block: Dim3, shared: int, stream: int, table: int) -> int:
            config = cuda.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid
            config.blockDimX, config.blockDimY, config.blockDimZ = block
            config.sharedMemBytes = shared
            config.hStream = stream
            config.attrs = [attribute]
            config.numAttrs = 1
            return int(cuda.cuLaunchKernelEx(config, handle, table, 0)[0])

        return start

    # ---- streams and events

    def create_stream(self, device: int) -> int:
        """A new stream."""
        self._enter(device)
        return int(self._call("creating a stream", self._cuda.cuStreamCreate, 0))

    def destroy_stream(self, device: int, stream: int) -> None:
        """Wait for a stream and destroy it."""
        self.synchronize_stream(device, stream)
        self._call("destroying a stream", self._cuda.cuStreamDestroy, stream)

    def synchronize_stream(self, device: int, stream: int) -> None:
        """Wait for a stream."""
        self._enter(device)
        self._call("waiting for a stream", self._cuda.cuStreamSynchronize, stream)

    def create_event(self, device: int, timing: bool = True) -> OwnedHandle:
        """A new event."""
        self._enter(device)
        return OwnedHandle(
            self._call("creating an event", self._cuda.cuEventCreate, 0 if timing else self._event_flags), device
        )

    def record_event(self, event: OwnedHandle, stream: int) -> None:
        """Record an event behind the present work of a stream."""
        self._enter(event.device)
        self._call("recording an event", self._cuda.cuEventRecord, event.handle, stream)

    def wait_event(self, event: OwnedHandle, stream: int) -> None:
        """Let later work of a stream wait for an event."""
        self._enter(event.device)
        self._call("waiting for an event", self._cuda.cuStreamWaitEvent, stream, event.handle, 0)

    def synchronize_event(self, event: OwnedHandle) -> None:
        """Wait on the host for an event."""
        self._enter(event.device)
        self._call("waiting for an event", self._cuda.cuEventSynchronize, event.handle)

    def elapsed_ms(self, start: OwnedHandle, end: OwnedHandle) -> float:
        """Milliseconds between two events."""
        self._enter(end.device)
        what = "reading the time between events"
        return float(self._call(what, self._cuda.cuEventElapsedTime, start.handle, end.handle))

    def destroy_event(self, event: OwnedHandle) -> None:
        """Destroy an event; recorded work is not affected."""
        self._enter(event.device)
        self._call("destroying an event", self._cuda.cuEventDestroy, event.handle)

    # ---- graphs

    def begin_capture(self, device: int, stream: int) -> None:
        """Capture the work of a stream; calls of other threads stay allowed."""
        self._enter(device)
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("capturing a stream", self._cuda.cuStreamBeginCapture, stream, mode)

    def end_capture(self, device: int, stream: int) -> OwnedHandle:
        """End the capture and make the work an executable graph."""
        self._enter(device)
        graph = self._call("ending a capture", self._cuda.cuStreamEndCapture, stream)
        try:
            return OwnedHandle(self._call("making a graph executable", self._cuda.cuGraphInstantiate, graph, 0), device)
        finally:
            self._call("giving a graph back", self._cuda.cuGraphDestroy, graph)

    def launch_graph(self, graph: OwnedHandle, stream: int) -> None:
        """Run a graph on a stream."""
        self._enter(graph.device)
        self._call("launching a graph", self._cuda.cuGraphLaunch, graph.handle, stream)

    def destroy_graph(self, graph: OwnedHandle) -> None:
        """Destroy an executable graph."""
        self._enter(graph.device)
        self._call("giving a graph back", self._cuda.cuGraphExecDestroy, graph.handle)

    # ---- tensor maps

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The driver's encoding. Uses libcuda: the driver writes to an address that is a multiple of 64 bytes, which the object
        of cuda-bindings does not guarantee.
        """
        if self._library is None:
            self._library = LibCUDA()
        return self._library.encode_tensor_map(spec)


def _import_bindings() -> ModuleType:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoCUDAError(
            f"the package cuda-bindings cannot be imported ({error}): pip install 'relaxish[cuda]'"
        ) from None
    return driver
