"""The CUDA driver through PyCUDA: devices, contexts, modules, kernels, streams, and copies that wait.

What PyCUDA lacks (clusters, graphs, tensor maps, streams of other libraries) goes to libcuda, and so do memory and
events, whose PyCUDA objects may only die in the thread that made their context. Contexts are the devices' primary
ones, shared with torch. PyCUDA wants its own stack of contexts filled while it makes an object, and empty when a
thread ends: a context is pushed for just that long.
"""

from __future__ import annotations

from types import ModuleType
import atexit
import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..device import Attribute
from .arguments import ArgumentLayout
from .context_driver import ContextDriver, OwnedHandle, launch_text
from .driver import ATTRIBUTES, Dim3, Launcher, TensorMapSpec
from .errors import CODES, NAMES, NoCUDAError, failure
from .libcuda import DISABLE_TIMING, LibCUDA

__all__ = ["PyCUDADriver"]


@dataclass(eq=False)
class _Module:
    handle: Any
    device: int
    image: bytes
    raw: int = 0  # the module as libcuda loaded it, for launches that PyCUDA cannot make


@dataclass(eq=False)
class _Function:
    handle: Any
    name: str
    module: _Module
    max_shared: int = 0
    raw: int = 0

    @property
    def device(self) -> int:
        """The device it runs on."""
        return self.module.device


class PyCUDADriver(ContextDriver):
    """``pycuda.driver`` behind the interface of :class:`~.driver.Driver`."""

    name = "pycuda"

    def __init__(self) -> None:
        self._cuda = _import_pycuda()
        self._library = LibCUDA()
        self._call("initialising CUDA", self._cuda.init)
        self._set_count(int(self._call("counting the devices", self._cuda.Device.count)))
        self._devices: dict[int, Any] = {}
        self._contexts: dict[int, Any] = {}
        self._streams: dict[int, tuple[int, Any]] = {}  # by handle: device, PyCUDA's object
        atexit.register(self._close)

    def _call(self, what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call PyCUDA. Raises CUDAError where it raises its own."""
        try:
            return function(*args, **kwargs)
        except self._cuda.Error as error:
            raise failure(_code_of(error), what, str(error)) from None

    def _device(self, device: int) -> Any:
        found = self._devices.get(device)
        if found is None:
            self._check_number(device)
            found = self._devices[device] = self._call("opening the device", self._cuda.Device, device)
        return found

    def _context(self, device: int) -> Any:
        context = self._contexts.get(device)
        if context is None:
            context = self._call("opening the device", self._device(device).retain_primary_context)
            self._contexts[device] = context
        return context

    def _enter(self, device: int) -> int:
        """Make the primary context of a device current on this thread; its handle."""
        handle = int(self._context(device).handle)
        self._library.call("choosing a device", "cuCtxSetCurrent", handle)
        return handle

    @contextlib.contextmanager
    def _pushed(self, device: int) -> Iterator[None]:
        """The context of a device on PyCUDA's own stack, for calls that make or drop its objects."""
        self._call("choosing a device", self._context(device).push)
        try:
            yield
        finally:
            self._call("leaving a device", self._cuda.Context.pop)

    def _close(self) -> None:
        """Drop streams before PyCUDA's module goes."""
        for handle, (device, _) in list(self._streams.items()):
            with self._pushed(device):
                self._streams.pop(handle, None)

    # ---- devices

    def attribute(self, device: int, name: str) -> Attribute:
        """An attribute of a device; ``None`` for an unknown name."""
        found = self._device(device)
        if name == "device_name":
            return str(self._call("asking for the device's name", found.name))
        if name == "driver_version":
            return int(self._call("asking for the driver's version", self._cuda.get_driver_version))
        if name in ("compute_capability_major", "compute_capability_minor"):
            return int(self._call(f"asking for {name}", found.compute_capability)[name.endswith("minor")])
        if name not in ATTRIBUTES:
            return None
        key = _attribute_key(self._cuda.device_attribute, name)
        return None if key is None else int(self._call(f"asking for {name}", found.get_attribute, key))

    def memory_info(self, device: int) -> tuple[int, int]:
        """Free and total memory, in bytes."""
        self._enter(device)
        free, total = self._call("asking for free memory", self._cuda.mem_get_info)
        return int(free), int(total)

    def synchronize(self, device: int) -> None:
        """Wait for all work of the device."""
        self._enter(device)
        self._call("waiting for the device", self._cuda.Context.synchronize)

    # ---- memory

    def allocate(self, device: int, nbytes: int) -> int:
        """The address of new memory."""
        self._enter(device)
        return self._library.made(f"allocating {nbytes} bytes", "cuMemAlloc_v2", nbytes)

    def free(self, device: int, address: int) -> None:
        """Free memory."""
        self._enter(device)
        self._library.call("freeing memory", "cuMemFree_v2", address)

    def copy_to_device(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy from host memory."""
        self._enter(device)
        what = f"copying {nbytes} bytes to the device"
        if stream is None:
            self._call(what, self._cuda.memcpy_htod, target, _host_memory(source, nbytes))
        else:
            self._library.call(what, "cuMemcpyHtoDAsync_v2", target, source, nbytes, stream or None)

    def copy_to_host(self, device: int, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy to host memory."""
        self._enter(device)
        what = f"copying {nbytes} bytes to the host"
        if stream is None:
            self._call(what, self._cuda.memcpy_dtoh, _host_memory(target, nbytes), source)
        else:
            self._library.call(what, "cuMemcpyDtoHAsync_v2", target, source, nbytes, stream or None)

    def copy_on_device(
        self, device: int, target: int, source: int, nbytes: int, stream: int | None = None, source_device: int = -1
    ) -> None:
        """Copy within a device or from another one."""
        what, call = f"copying {nbytes} bytes on the device", self._library.call
        if source_device not in (-1, device):
            other = self._enter(source_device)
            here = self._enter(device)
            call(what, "cuMemcpyPeerAsync", target, here, source, other, nbytes, stream or None)
        else:
            self._enter(device)
            call(what, "cuMemcpyDtoDAsync_v2", target, source, nbytes, stream or None)
        if stream is None:
            self.synchronize_stream(device, 0)

    def fill(self, device: int, target: int, value: int, nbytes: int, stream: int | None = None) -> None:
        """Set bytes of device memory."""
        self._enter(device)
        self._library.call("filling memory", "cuMemsetD8Async", target, value, nbytes, stream or None)
        if stream is None:
            self.synchronize_stream(device, 0)

    # ---- kernels

    def load_module(self, device: int, image: bytes) -> _Module:
        """Load a cubin or PTX."""
        data = bytes(image)
        with self._pushed(device):
            return _Module(self._call("loading a module", self._cuda.module_from_buffer, data), device, data)

    def unload_module(self, module: _Module) -> None:
        """Unload a module: PyCUDA does when the last of its functions is gone."""
        with self._pushed(module.device):
            module.handle = None
        self._enter(module.device)
        if module.raw:
            self._library.call("unloading a module", "cuModuleUnload", module.raw)
            module.raw = 0

    def get_function(self, module: _Module, name: str) -> _Function:
        """A kernel of a module."""
        if module.handle is None:
            raise failure(CODES["INVALID_HANDLE"], f"looking up the kernel {name}", "the module was unloaded")
        self._enter(module.device)
        return _Function(self._call(f"looking up the kernel {name}", module.handle.get_function, name), name, module)

    def _raw(self, function: _Function) -> int:
        """The kernel as libcuda knows it."""
        if not function.raw:
            module = function.module
            if module.handle is None:
                raise failure(CODES["INVALID_HANDLE"], f"launching {function.name}", "the module was unloaded")
            module.raw = module.raw or self._library.load_module(module.image)
            function.raw = self._library.get_function(module.raw, function.name)
            if function.max_shared:
                self._library.set_max_dynamic_shared(function.raw, function.max_shared)
        return function.raw

    def set_max_dynamic_shared(self, function: _Function, nbytes: int) -> None:
        """Allow more dynamic shared memory."""
        self._enter(function.device)
        key = self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        what = f"allowing {function.name} {nbytes} bytes of shared memory"
        self._call(what, function.handle.set_attribute, key, nbytes)
        function.max_shared = nbytes
        if function.raw:
            self._library.set_max_dynamic_shared(function.raw, nbytes)

    def prepare(self, function: _Function, kinds: Sequence[str], cluster: Dim3 = (1, 1, 1)) -> Launcher:
        """A launcher: PyCUDA's call where it can, else libcuda's."""
        layout = ArgumentLayout(kinds)
        direct = self._direct_launcher(function, layout, cluster)
        if cluster != (1, 1, 1) or "tensor_map" in layout.kinds:
            return direct
        # The public calls set the block's shape by a deprecated driver call first; this one is what they end in.
        run, pack, streams = function.handle._launch_kernel, layout.pack, self._streams
        what = f"launching {function.name}"

        def launcher(grid: Dim3, block: Dim3, shared: int, stream: int, values: Sequence[Any]) -> None:
            known = None
            if stream:
                if stream not in streams:
                    direct(grid, block, shared, stream, values)
                    return
                known = streams[stream][1]
            packed = pack(values)
            self._enter(function.device)
            try:
                run(grid, block, packed, shared, known)
            except self._cuda.Error as error:
                raise failure(_code_of(error), what, launch_text(grid, block, shared)) from None

        return launcher

    def _direct_launcher(self, function: _Function, layout: ArgumentLayout, cluster: Dim3) -> Launcher:
        """A launcher that calls libcuda itself."""

        def start(grid: Dim3, block: Dim3, shared: int, stream: int, table: int) -> int:
            return self._library.launch(self._raw(function), grid, block, shared, stream, table, cluster)

        return self._launcher(function, layout, cluster, start)

    # ---- streams and events

    def create_stream(self, device: int) -> int:
        """A new stream."""
        with self._pushed(device):
            made = self._call("creating a stream", self._cuda.Stream)
        handle = int(made.handle)
        self._streams[handle] = device, made
        return handle

    def destroy_stream(self, device: int, stream: int) -> None:
        """Wait for a stream and destroy it."""
        self.synchronize_stream(device, stream)
        if stream not in self._streams:
            raise failure(CODES["INVALID_HANDLE"], "destroying a stream", "another library made it")
        with self._pushed(device):
            del self._streams[stream]

    def synchronize_stream(self, device: int, stream: int) -> None:
        """Wait for a stream."""
        self._enter(device)
        self._library.call("waiting for a stream", "cuStreamSynchronize", stream or None)

    def create_event(self, device: int, timing: bool = True) -> OwnedHandle:
        """A new event."""
        self._enter(device)
        flags = 0 if timing else DISABLE_TIMING
        return OwnedHandle(self._library.made("creating an event", "cuEventCreate", flags), device)

    def _with_event(self, what: str, name: str, event: OwnedHandle, *args: Any) -> None:
        if not event.handle:
            raise failure(CODES["INVALID_HANDLE"], what, "the event was destroyed")
        self._enter(event.device)
        self._library.call(what, name, *args)

    def record_event(self, event: OwnedHandle, stream: int) -> None:
        """Record an event behind the present work of a stream."""
        self._with_event("recording an event", "cuEventRecord", event, event.handle, stream or None)

    def wait_event(self, event: OwnedHandle, stream: int) -> None:
        """Let later work of a stream wait for an event."""
        self._with_event("waiting for an event", "cuStreamWaitEvent", event, stream or None, event.handle, 0)

    def synchronize_event(self, event: OwnedHandle) -> None:
        """Wait on the host for an event."""
        self._with_event("waiting for an event", "cuEventSynchronize", event, event.handle)

    def elapsed_ms(self, start: OwnedHandle, end: OwnedHandle) -> float:
        """Milliseconds between two events."""
        self._enter(end.device)
        return self._library.elapsed_ms(start.handle, end.handle)

    def destroy_event(self, event: OwnedHandle) -> None:
        """Destroy an event; recorded work is not affected."""
        self._with_event("destroying an event", "cuEventDestroy_v2", event, event.handle)
        event.handle = 0

    # ---- graphs

    def begin_capture(self, device: int, stream: int) -> None:
        """Capture the work of a stream."""
        self._enter(device)
        self._library.begin_capture(stream)

    def end_capture(self, device: int, stream: int) -> OwnedHandle:
        """End the capture and make the work an executable graph."""
        self._enter(device)
        return OwnedHandle(self._library.end_capture(stream), device)

    def launch_graph(self, graph: OwnedHandle, stream: int) -> None:
        """Run a graph on a stream."""
        self._enter(graph.device)
        self._library.call("launching a graph", "cuGraphLaunch", graph.handle or None, stream or None)

    def destroy_graph(self, graph: OwnedHandle) -> None:
        """Destroy an executable graph."""
        self._enter(graph.device)
        self._library.call("giving a graph back", "cuGraphExecDestroy", graph.handle)
        graph.handle = 0

    # ---- tensor maps

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The driver's encoding of a tensor map: 128 bytes."""
        return self._library.encode_tensor_map(spec)


def _import_pycuda() -> ModuleType:
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise NoCUDAError(f"PyCUDA cannot be imported ({error}); docs/cuda.md says how it is built") from None
    return driver


def _host_memory(address: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * nbytes).from_address(address)


def _code_of(error: BaseException) -> int:
    """The driver's number in an error of PyCUDA, which words it: "cuMemAlloc failed: out of memory"."""
    code = getattr(error, "code", None)
    if callable(code):
        code = code()
    if isinstance(code, int) and code in NAMES:
        return code
    text = str(error).lower()
    for words, name in _WORDS:
        if words in text:
            return CODES[name]
    kinds = {"MemoryError": "OUT_OF_MEMORY", "LaunchError": "LAUNCH_FAILED"}
    return CODES[kinds.get(type(error).__name__, "UNKNOWN")]


_WORDS = (
    ("out of memory", "OUT_OF_MEMORY"),
    ("invalid value", "INVALID_VALUE"),
    ("invalid argument", "INVALID_VALUE"),
    ("no cuda-capable device", "NO_DEVICE"),
    ("no device", "NO_DEVICE"),
    ("invalid device ordinal", "INVALID_DEVICE"),
    ("invalid device", "INVALID_DEVICE"),
    ("kernel image is invalid", "INVALID_IMAGE"),
    ("invalid image", "INVALID_IMAGE"),
    ("no kernel image", "NO_BINARY_FOR_GPU"),
    ("no binary for gpu", "NO_BINARY_FOR_GPU"),
    ("ptx", "INVALID_PTX"),
    ("invalid resource handle", "INVALID_HANDLE"),
    ("invalid handle", "INVALID_HANDLE"),
    ("named symbol not found", "NOT_FOUND"),
    ("not found", "NOT_FOUND"),
    ("not ready", "NOT_READY"),
    ("illegal memory access", "ILLEGAL_ADDRESS"),
    ("illegal address", "ILLEGAL_ADDRESS"),
    ("misaligned address", "MISALIGNED_ADDRESS"),
    ("illegal instruction", "ILLEGAL_INSTRUCTION"),
    ("too many resources requested", "LAUNCH_OUT_OF_RESOURCES"),
    ("out of resources", "LAUNCH_OUT_OF_RESOURCES"),
    ("timed out", "LAUNCH_TIMEOUT"),
    ("launch failed", "LAUNCH_FAILED"),
    ("unspecified launch failure", "LAUNCH_FAILED"),
    ("initialization error", "NOT_INITIALIZED"),
    ("not initialized", "NOT_INITIALIZED"),
    ("stream is capturing", "STREAM_CAPTURE_UNSUPPORTED"),
    ("context is destroyed", "CONTEXT_IS_DESTROYED"),
)

# Names that PyCUDA has for attributes.
_PYCUDA_NAMES = {
    "max_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "max_clock_rate": "CLOCK_RATE",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "l2_cache_size_bytes": "L2_CACHE_SIZE",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_shared_memory_per_multi_processor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "max_registers_per_multi_processor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "max_shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
}


def _attribute_key(names: Any, name: str) -> Any:
    return getattr(names, _PYCUDA_NAMES.get(name, name.upper()), None)
