"""Tensors at run time.

An :class:`NDArray` is an address, a shape, a dtype and whatever keeps the memory alive. Its NumPy view is made only
when asked for, so passing arrays between kernels costs no NumPy call. CPU memory we allocate is 64-byte aligned.
"""

from __future__ import annotations

from types import EllipsisType
import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...support.entry_points import lazy_package
from ...support.errors import MissingExtraError, RelaxishError
from ..device import _CPU0, Device, cpu
from ..device import device as make_device
from .dlpack import VERSION, export_capsule, import_capsule
from .dtype import dtype_str, itemsize, numpy_dtype
from .memory import Allocator, Storage, get_allocator


class ReadOnlyError(RelaxishError, ValueError):
    """Memory was to be written that must not be."""


class ViewError(RelaxishError, ValueError):
    """A view would reach beyond the memory it is made of, or has no valid shape."""


class NDArray:
    """A dense, compact tensor on a device. Make one with :func:`array`, :func:`empty` or :func:`from_dlpack`."""

    __slots__ = ("device", "dtype", "ptr", "shape", "_np", "_owner", "__weakref__")
    __array_priority__ = 100

    def __init__(
        self,
        ptr: int,
        shape: tuple[int, ...],
        dtype: str,
        device: Device,
        owner: object,
        view: np.ndarray[Any, Any] | None = None,
    ) -> None:
        self.ptr = ptr
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self._owner = owner
        self._np = view

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for dim in self.shape:
            total *= dim
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * itemsize(self.dtype)

    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written: that of a constant, of a read-only array of another library, or of a
        copy that stands for strided memory, which would not see what is written."""
        view = self._np
        return view is not None and not view.flags.writeable

    def _check_writable(self) -> None:
        if self.readonly:
            raise ReadOnlyError(
                f"the array {self.shape} {self.dtype} is read-only (a constant, read-only memory of another library, or a "
                f"compact copy of strided memory); write to a copy of it"
            )

    @property
    def ctx(self) -> Device:
        """Old name of :attr:`device`."""
        return self.device

    @property
    def handle(self) -> int:
        """The address of the first element."""
        return self.ptr

    def _host(self) -> np.ndarray[Any, Any]:
        """The NumPy array viewing this memory (CPU only)."""
        view = self._np
        if view is None:
            if self.device.device_type != Device.kDLCPU:
                raise RelaxishError(f"memory on {self.device} cannot be viewed by NumPy; copy it with .numpy()")
            owner = self._owner
            if isinstance(owner, Storage):
                offset = self.ptr - owner.mem.__array_interface__["data"][0]
                view = np.ndarray(self.shape, numpy_dtype(self.dtype), buffer=owner.mem, offset=offset)
            else:
                view = import_capsule(_request_capsule(owner))[0]
                if _is_float8(owner) or (isinstance(owner, NDArray) and owner.dtype != self.dtype):
                    view = view.view(numpy_dtype(self.dtype))
            self._np = view
        return view

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy as a NumPy array."""
        if self.device.device_type == Device.kDLCPU:
            return self._host().copy()
        return self.copyto(cpu(0))._host()

    asnumpy = numpy

    def copyfrom(self, source_array: NDArray | npt.ArrayLike) -> NDArray:
        """Overwrite the contents with those of an array of the same shape; converts the dtype if needed.

        Raises ReadOnlyError for a read-only array, ValueError for another shape.
        """
        self._check_writable()
        if isinstance(source_array, NDArray):
            source_array.copyto(self)
            return self
        source = np.asarray(source_array)
        if source.shape != self.shape:
            raise ValueError(f"array shape do not match the shape of NDArray {source.shape} vs {self.shape}")
        if self.device.device_type == Device.kDLCPU:
            _cast_into(self._host(), source)
        else:
            array(source.astype(numpy_dtype(self.dtype), copy=False)).copyto(self)
        return self

    def copyto(self, target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        """Copy into another array, or into a new one on a device."""
        if isinstance(target, Device):
            target = empty(self.shape, self.dtype, target, mem_scope)
        elif not isinstance(target, NDArray):
            raise ValueError(f"unsupported target type {type(target).__name__}")
        if target.shape != self.shape or target.dtype != self.dtype:
            raise ValueError(
                f"copyto: shapes and dtypes must agree, got {self.shape} {self.dtype} and {target.shape} {target.dtype}"
            )
        target._check_writable()
        here, there = self.device.device_type, target.device.device_type
        if here == there == Device.kDLCPU:
            if self.nbytes:
                ctypes.memmove(target.ptr, self.ptr, self.nbytes)
        else:
            api = (target if there != Device.kDLCPU else self).device.api
            api.copy(self.ptr, self.device, target.ptr, target.device, self.nbytes)
        return target

    def _create_view(self, shape: Sequence[int], dtype: str | None = None, relative_byte_offset: int = 0) -> NDArray:
        """Another array over the same memory. Raises ViewError, a ValueError, where it would reach beyond it."""
        new_shape = tuple(int(d) for d in shape)
        new_dtype = self.dtype if dtype is None else dtype_str(dtype)
        view = NDArray(self.ptr + relative_byte_offset, new_shape, new_dtype, self.device, self._owner)
        if min(new_shape, default=0) < 0 or max(new_shape, default=0) > _MAX_EXTENT:
            raise ViewError(f"a view of shape {new_shape} cannot be made: every dimension must be from 0 to 2**63 - 1")
        nbytes = view.nbytes
        if relative_byte_offset < 0 or nbytes + relative_byte_offset > self.nbytes:
            raise ViewError(
                f"View with shape {new_shape} and datatype {new_dtype} would have a size of {nbytes} bytes.  This would "
                f"occupy bytes {relative_byte_offset} <= i_byte < {relative_byte_offset + nbytes} within the backing "
                f"array.  However, the NDArray being viewed only contains {self.nbytes} bytes (shape = {self.shape}, "
                f"dtype = {self.dtype})."
            )
        derived = self.readonly or not isinstance(self._owner, Storage)
        if derived and self.device.device_type == Device.kDLCPU:
            raw = self._host().reshape(-1).view(np.uint8)[relative_byte_offset : relative_byte_offset + nbytes]
            view._np = raw.view(numpy_dtype(new_dtype)).reshape(new_shape)
            view._owner = self
        return view

    def reshape(self, shape: Sequence[int]) -> NDArray:
        """The same elements in another shape, without a copy."""
        return self._create_view(shape)

    def same_as(self, other: object) -> bool:
        """Identity."""
        return self is other

    def __getitem__(self, index: slice | EllipsisType | int | tuple[int, ...]) -> Any:
        return self._host()[index]

    def __setitem__(self, index: slice | EllipsisType | int | tuple[int, ...], value: NDArray | npt.ArrayLike) -> None:
        self._check_writable()
        if isinstance(index, slice) and index == slice(None):
            if isinstance(value, NDArray):
                value.copyto(self)
            elif np.ndim(value) == 0 and self.device.device_type == Device.kDLCPU:
                self._host()[...] = value
            elif np.ndim(value) == 0:
                self.copyfrom(np.full(self.shape, value, numpy_dtype(self.dtype)))
            else:
                self.copyfrom(value)
            return
        self._host()[index] = value

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self.device.device_type != Device.kDLCPU:
            view = self.numpy()
        else:
            view = self.numpy() if copy else self._host()
        return view if dtype is None else view.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        place = self.device if dl_device is None else Device(*(int(d) for d in dl_device))
        # Consumers may overlook that memory must not be written (torch does), so that is shared only with those that
        # insist, in the versioned protocol, which can say so.
        versioned = _NUMPY_IS_VERSIONED and max_version is not None and tuple(max_version) >= VERSION
        if copy or place != self.device or (self.readonly and not (copy is False and versioned)):
            if copy is False:
                raise BufferError(f"the array cannot be shared with {place} as it is; let it be copied")
            return self.copyto(place).__dlpack__(stream=stream)
        if self.device.device_type == Device.kDLCUDA and stream != -1:
            _order(self.device, self.device.api.current_stream(self.device.device_id), _raw_stream(stream))
        owner: Any = self
        if self._np is None and isinstance(self._owner, Storage):
            # The consumer must pin the memory block, not this object: pools watch the block's reference count.
            owner = (self, self._owner.mem)
        return export_capsule(self.ptr, self.shape, self.dtype, self.device, owner, readonly=self.readonly)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.device_type, self.device.device_id

    def to_dlpack(self) -> Any:
        """A DLPack capsule sharing the memory."""
        return self.__dlpack__()

    def __float__(self) -> float:
        return float(self._host())

    def __int__(self) -> int:
        return int(self._host())

    def __bool__(self) -> bool:
        return bool(self._host())

    def __repr__(self) -> str:
        body = repr(self.numpy()) if self.size <= 1000 else "..."
        return f"<relaxish.nd.NDArray shape={self.shape}, {self.device}>\n{body}"

    def __str__(self) -> str:
        return str(self.numpy())

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (self.numpy().tobytes(), self.shape, self.dtype, self.device)


_MAX_EXTENT = (1 << 63) - 1


def _cast_into(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    if source.dtype.kind == "c":
        raise TypeError("complex arrays are not supported")
    target[...] = source if source.dtype == target.dtype else source.astype(target.dtype)


def _from_bytes(data: bytes, shape: tuple[int, ...], dtype: str, device: Device) -> NDArray:
    return array(np.frombuffer(data, numpy_dtype(dtype)).reshape(shape), device)


# Whether NumPy makes capsules that can say "read-only".
_NUMPY_IS_VERSIONED = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)


def is_shareable(source: np.ndarray[Any, Any]) -> bool:
    """Whether kernels can work on the memory of a NumPy array as it is: compact, aligned, in the machine's byte order."""
    flags = source.flags
    return bool(flags.c_contiguous and flags.aligned and source.dtype.isnative)


def compact_copy(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of a NumPy array that :func:`is_shareable`."""
    return np.array(source, dtype=source.dtype.newbyteorder("="), order="C", copy=True, subok=False)


def from_numpy(source: np.ndarray[Any, Any]) -> NDArray:
    """An NDArray over a NumPy array's own memory; over a read-only copy where that cannot be shared."""
    if not is_shareable(source):
        source = compact_copy(source)
        source.flags.writeable = False  # writes would be lost
    dtype = source.dtype
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        name = _DTYPE_NAMES[dtype] = dtype_str(dtype)
    return NDArray(source.__array_interface__["data"][0], source.shape, name, _CPU0, source, source)


def read_only(value: NDArray) -> NDArray:
    """The same memory as an array that must not be written; the array itself where there is no host memory."""
    if value.readonly or value.device.device_type != Device.kDLCPU:
        return value
    try:
        view = value._host().view()
    except MissingExtraError:  # NumPy has no such type: nothing but kernels can get at the memory
        return value
    view.flags.writeable = False
    return NDArray(value.ptr, value.shape, value.dtype, value.device, value._owner, view)


_DTYPE_NAMES: dict[Any, str] = {}


def array(arr: NDArray | npt.ArrayLike, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """A new array with a copy of ``arr`` (anything NumPy understands, or an NDArray)."""
    device = device or _CPU0
    if isinstance(arr, NDArray):
        return arr.copyto(empty(arr.shape, arr.dtype, device, mem_scope))
    if not isinstance(arr, np.ndarray | np.generic) and hasattr(arr, "__dlpack__"):
        return from_dlpack(arr).copyto(device)
    source = np.asarray(arr)
    made = empty(source.shape, dtype_str(source.dtype), device, mem_scope)
    made.copyfrom(source)
    return made


def empty(
    shape: int | Sequence[int], dtype: str = "float32", device: Device | None = None, mem_scope: str | None = None
) -> NDArray:
    """An uninitialised array."""
    dims = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(d) for d in shape)
    name = dtype_str(dtype)
    place = device or _CPU0
    nbytes = itemsize(name)
    for dim in dims:
        if dim < 0:
            raise ViewError(f"negative dimension in shape {dims}")
        nbytes *= dim
    return alloc_tensor(get_allocator(place).allocate(nbytes, mem_scope), 0, dims, name)


def alloc_tensor(storage: Storage, offset: int, shape: tuple[int, ...], dtype: str) -> NDArray:
    """A tensor at a byte offset of a block. Raises ViewError where it is not inside."""
    nbytes = itemsize(dtype)
    for dim in shape:
        if not 0 <= dim <= _MAX_EXTENT:
            raise ViewError(f"a tensor of shape {tuple(shape)} cannot be made")
        nbytes *= dim
    if offset < 0 or offset + nbytes > storage.nbytes:
        raise ViewError(
            f"a tensor of shape {tuple(shape)} and type {dtype} takes {nbytes:,} bytes at offset {offset:,}, "
            f"but its storage has {storage.nbytes:,}"
        )
    return NDArray(storage.ptr + offset, shape, dtype, storage.device, storage)


def numpyasarray(np_data: np.ndarray[Any, Any]) -> NDArray:
    """Zero-copy from NumPy (name used by older scripts)."""
    return from_numpy(np.asarray(np_data))


def from_dlpack(external: object) -> NDArray:
    """Share memory with any object speaking DLPack (torch tensor, NumPy array, capsule).

    Strided memory is copied, and the copy is read-only: what would be written to it would not reach the tensor.
    """
    match external:
        case NDArray():
            return external
        case np.ndarray():
            return from_numpy(external)
    if _is_float8(external):
        return _from_torch_bytes(external)
    if hasattr(external, "__dlpack__"):
        external = _request_capsule(external)
    view, ptr, shape, dtype, device, owner = import_capsule(external)
    if view is None:
        return NDArray(ptr, shape, dtype, device, owner)
    if not is_shareable(view):
        return from_numpy(view)
    return NDArray(ptr, shape, dtype, device, view, view)


def _request_capsule(producer: Any) -> Any:
    """A capsule of the memory; of 8-bit floats of torch, one of their bytes."""
    if _is_float8(producer):
        producer = _bytes_of(producer)
    if getattr(producer, "requires_grad", False):
        producer = producer.detach()
    if hasattr(producer, "resolve_neg"):  # torch may leave a sign to be applied when elements are read
        producer = producer.resolve_conj().resolve_neg()
    place = producer.__dlpack_device__() if hasattr(producer, "__dlpack_device__") else (Device.kDLCPU, 0)
    if int(place[0]) != Device.kDLCUDA:
        try:
            return producer.__dlpack__(max_version=VERSION)
        except TypeError:  # a producer from before there were versions
            return producer.__dlpack__()
    # The producer lets our stream wait for what it still has to do. 1 is the default stream's number in the protocol.
    device = Device(*place)
    return producer.__dlpack__(stream=device.api.current_stream(device.device_id) or 1)


def _raw_stream(stream: int | None) -> int:
    """The driver's handle for a stream as the DLPack protocol numbers it."""
    return 0 if stream in (None, 0, 1) else int(stream)


def _order(device: Device, before: int, after: int) -> None:
    """Let stream ``after`` wait for what is on stream ``before``."""
    if before != after:
        device.api.order_streams(device.device_id, before, after)


def as_ndarray(value: object) -> NDArray | None:
    """Share the memory of a tensor-like value; ``None`` if it is not one."""
    match value:
        case NDArray():
            return value
        case np.ndarray():
            return from_numpy(value)
        case np.generic():
            return from_numpy(np.asarray(value))
    if _is_torch(value):
        return _from_torch(value)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    return None


def _is_torch(value: object) -> bool:
    return type(value).__module__.startswith("torch") and hasattr(value, "data_ptr")


def _is_float8(value: Any) -> bool:
    """Whether it is a tensor of torch that not every torch makes a capsule of."""
    return _is_torch(value) and str(value.dtype).startswith("torch.float8")


def _bytes_of(tensor: Any) -> Any:
    return tensor.detach().view(sys.modules["torch"].uint8)


def _from_torch(value: Any) -> NDArray:
    # A DLPack round trip costs some 20 us; asking the tensor for its address costs 0.1.
    kind = value.device.type
    if kind == "cuda":
        return _from_torch_cuda(value if value.is_contiguous() else value.contiguous())
    if kind != "cpu" or not value.is_contiguous() or value.is_neg() or value.is_conj():
        return from_dlpack(value)
    return NDArray(value.data_ptr(), tuple(value.shape), dtype_str(str(value.dtype)[6:]), _CPU0, value)


def _from_torch_bytes(value: Any) -> NDArray:
    """A tensor of 8-bit floats: not every torch makes capsules of such, all do of the bytes."""
    shared = from_dlpack(_bytes_of(value))
    made = NDArray(shared.ptr, shared.shape, dtype_str(str(value.dtype)[6:]), shared.device, shared)
    return read_only(made) if shared.readonly else made


def _from_torch_cuda(value: Any) -> NDArray:
    device = Device(Device.kDLCUDA, value.device.index)
    theirs = sys.modules["torch"].cuda.current_stream(value.device).cuda_stream
    _order(device, _raw_stream(theirs), device.api.current_stream(device.device_id))
    return NDArray(value.data_ptr(), tuple(value.shape), dtype_str(str(value.dtype)[6:]), device, value)


__all__ = [
    "Allocator",
    "Device",
    "NDArray",
    "ReadOnlyError",
    "ViewError",
    "alloc_tensor",
    "array",
    "as_ndarray",
    "empty",
    "from_dlpack",
    "from_numpy",
    "make_device",
    "numpyasarray",
]


__getattr__, __dir__ = lazy_package(globals())  # devices have a file of their own
