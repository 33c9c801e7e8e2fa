"""Calls of the driver library itself, for what a provider's package does not offer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from .driver import Dim3, TensorMapSpec
from .errors import CODES, NoCUDAError, failure
from .tensor_map import BYTES, driver_numbers

__all__ = ["DISABLE_TIMING", "LibCUDA"]

_P, _U, _I, _Z = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_size_t
_ADDRESS = ctypes.c_uint64  # CUdeviceptr
_OUT = ctypes.POINTER(ctypes.c_void_p)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuCtxSetCurrent": (_P,),
    "cuDriverGetVersion": (ctypes.POINTER(_I),),
    "cuModuleLoadData": (_OUT, _P),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_OUT, _P, ctypes.c_char_p),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P),
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuMemAlloc_v2": (_OUT, _Z),
    "cuMemFree_v2": (_ADDRESS,),
    "cuStreamSynchronize": (_P,),
    "cuEventCreate": (_OUT, _U),
    "cuEventDestroy_v2": (_P,),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _P, _P),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuEventRecord": (_P, _P),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _P, _Z, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _ADDRESS, _Z, _P),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _Z, _P),
    "cuMemcpyPeerAsync": (_ADDRESS, _P, _ADDRESS, _P, _Z, _P),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _Z, _P),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, _P, ctypes.c_ulonglong),
    "cuGraphDestroy": (_P,),
    "cuGraphExecDestroy": (_P,),
    "cuGraphLaunch": (_P, _P),
    "cuTensorMapEncodeTiled": (_P, _I, _U, _P, _P, _P, _P, _P, _I, _I, _I, _I),
}

DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_THREAD_LOCAL_CAPTURE = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_MAP_ALIGNMENT = 128  # of a CUtensorMap, since CUDA 13
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _LaunchAttribute(ctypes.Structure):
    # An id, padding to 8 bytes, and a union of 64 bytes of which the cluster's dimensions are the first 12.
    _fields_ = (("id", _I), ("pad", _I), ("dims", _U * 3), ("rest", ctypes.c_char * 52))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", _U * 3),
        ("block", _U * 3),
        ("shared", _U),
        ("stream", _P),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", _U),
    )


class LibCUDA:
    """``libcuda.so.1``, which the provider has loaded and initialised."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoCUDAError(f"the driver library cannot be loaded ({error}): install the NVIDIA driver") from None
        self._functions: dict[str, Any] = {}

    def call(self, what: str, name: str, *args: Any) -> None:
        """Call a function. Raises CUDAError for a status that is not success."""
        function = self._functions.get(name) or self.function(name)
        status = function(*args)
        if status:
            raise failure(status, what)

    def function(self, name: str) -> Callable[..., int]:
        """A function by its exported name. Raises CUDAError where the driver is too old to have it."""
        found = self._functions.get(name)
        if found is None:
            found = getattr(self._library, name, None)
            if found is None:
                raise failure(CODES["NOT_SUPPORTED"], f"looking up {name}", "this driver is too old: update it")
            found.argtypes, found.restype = _SIGNATURES[name], _I
            self._functions[name] = found
        return found

    def made(self, what: str, name: str, *args: Any) -> int:
        """The handle that a function stores through its first argument."""
        handle = ctypes.c_void_p()
        self.call(what, name, ctypes.byref(handle), *args)
        return handle.value or 0

    # ---- modules and launches

    def load_module(self, image: bytes) -> int:
        """A module of the current context."""
        return self.made("loading a module", "cuModuleLoadData", image)

    def get_function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return self.made(f"looking up the kernel {name}", "cuModuleGetFunction", module, name.encode())

    def set_max_dynamic_shared(self, function: int, nbytes: int) -> None:
        """Allow a kernel ``nbytes`` bytes of dynamic shared memory."""
        self.call("allowing more shared memory", "cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, nbytes)

    def launch(
        self, function: int, grid: Dim3, block: Dim3, shared: int, stream: int, table: int, cluster: Dim3
    ) -> int:
        """Launch with a table of argument addresses; the driver's status."""
        if cluster == (1, 1, 1):
            status = self.function("cuLaunchKernel")(function, *grid, *block, shared, stream or None, table, None)
            return int(status)
        attribute = _LaunchAttribute(_CLUSTER_DIMENSION, 0, (_U * 3)(*cluster))
        config = _LaunchConfig((_U * 3)(*grid), (_U * 3)(*block), shared, stream or None, ctypes.pointer(attribute), 1)
        return int(self.function("cuLaunchKernelEx")(ctypes.byref(config), function, table, None))

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        value = ctypes.c_float()
        self.call("reading the time between events", "cuEventElapsedTime", ctypes.byref(value), start, end)
        return value.value

    # ---- graphs

    def begin_capture(self, stream: int) -> None:
        """Capture the work of a stream; calls of other threads stay allowed."""
        self.call("capturing a stream", "cuStreamBeginCapture_v2", stream, _THREAD_LOCAL_CAPTURE)

    def end_capture(self, stream: int) -> int:
        """The captured work as an executable graph."""
        graph = ctypes.c_void_p()
        self.call("ending a capture", "cuStreamEndCapture", stream, ctypes.byref(graph))
        try:
            return self.made("making a graph executable", "cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self.call("giving a graph back", "cuGraphDestroy", graph)

    # ---- tensor maps

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The driver's encoding of a tensor map: 128 bytes."""
        dtype, interleave, swizzle, promotion, fill = driver_numbers(spec)
        rank = len(spec.dims)
        buffer = (ctypes.c_char * (BYTES + _MAP_ALIGNMENT))()
        place = -ctypes.addressof(buffer) % _MAP_ALIGNMENT
        self.call(
            "encoding a tensor map", "cuTensorMapEncodeTiled",
            ctypes.addressof(buffer) + place, dtype, rank, spec.address,
            _array(ctypes.c_uint64, spec.dims), _array(ctypes.c_uint64, spec.strides or (0,)),
            _array(ctypes.c_uint32, spec.box), _array(ctypes.c_uint32, spec.element_strides or (1,) * rank),
            interleave, swizzle, promotion, fill,
        )  # fmt: skip
        return bytes(buffer.raw[place : place + BYTES])


def _array(kind: type[ctypes.c_uint64] | type[ctypes.c_uint32], values: Sequence[int]) -> ctypes.Array[Any]:
    return (kind * len(values))(*values)
