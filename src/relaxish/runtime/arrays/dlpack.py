"""DLPack in both directions, also where NumPy's own does not reach (bfloat16, float8, devices).

Importing keeps the producer's capsule alive through the array made from it. Exporting lets NumPy make the capsule, of an
array of bytes that stands for our memory, and then says what is in it: a consumer may free a tensor while an exception
passes, and NumPy's deleter is machine code that does not disturb it (a deleter in Python would replace the exception by a
``SystemError``).
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

from ..device import Device
from .dtype import dlpack_code, dtype_of_dlpack, numpy_dtype


class _DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER))


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    )
    READ_ONLY: ClassVar[int] = 1


_api = ctypes.pythonapi
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_set_name = _api.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)

# Layouts of a capsule's content by its name, and the name of a consumed one.
_KINDS: dict[bytes, tuple[Any, bytes]] = {
    b"dltensor": (_DLManagedTensor, b"used_dltensor"),
    b"dltensor_versioned": (_DLManagedTensorVersioned, b"used_dltensor_versioned"),
}
VERSION = (1, 0)
"""The newest version of the protocol that is understood here; an older major version is a capsule without flags."""


class _Export:
    """Our memory as NumPy sees it: an array of bytes with as many of them as there are elements."""

    __slots__ = ("__array_interface__", "__weakref__", "owner")

    def __init__(self, ptr: int, shape: tuple[int, ...], readonly: bool, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": shape, "typestr": "|u1", "data": (ptr, readonly), "version": 3}


def export_capsule(
    ptr: int, shape: tuple[int, ...], dtype: str, device: Device, owner: object, *, readonly: bool = False
) -> object:
    """A capsule of compact memory at ``ptr``; ``owner`` lives as long as the consumer needs it.

    It is a ``dltensor``, or, ``readonly``, a ``dltensor_versioned`` that says so.
    """
    stand_in = np.asarray(_Export(ptr or 1, shape, readonly, owner))
    capsule: Any = stand_in.__dlpack__(max_version=VERSION) if readonly else stand_in.__dlpack__()
    name = b"dltensor_versioned" if _is_valid(capsule, b"dltensor_versioned") else b"dltensor"
    tensor = _KINDS[name][0].from_address(_get_pointer(capsule, name)).dl_tensor
    tensor.data = ptr
    tensor.device = _DLDevice(device.device_type, device.device_id)
    tensor.dtype = _DLDataType(*dlpack_code(dtype))
    return capsule


class _Imported:
    """Owns a consumed capsule: calls the producer's deleter when the last view is gone."""

    __slots__ = ("__array_interface__", "_managed")

    def __init__(self, managed: Any, nbytes: int, ptr: int, readonly: bool) -> None:
        self._managed = managed
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (ptr, readonly), "version": 3}

    def __del__(self) -> None:
        managed = self._managed
        if managed.deleter:
            managed.deleter(ctypes.addressof(managed))


def _is_compact(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements follow each other without gaps, last axis first; axes of one element do not count."""
    step = itemsize
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != step:
            return False
        step *= dim
    return True


def _extent(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> tuple[int, int]:
    """Bytes before and from the first element on that a tensor covers; (0, 0) when it has no elements."""
    if 0 in shape:
        return 0, 0
    if strides is None:
        for dim in shape:
            itemsize *= dim
        return 0, itemsize
    reach = [(dim - 1) * stride for dim, stride in zip(shape, strides, strict=True)]
    return -sum(r for r in reach if r < 0), itemsize + sum(r for r in reach if r > 0)


def import_capsule(capsule: object) -> tuple[Any, int, tuple[int, ...], str, Device, Any]:
    """Take over a capsule: ``(numpy array or None, address, shape, dtype, device, owner)``.

    CPU memory comes back as a NumPy array viewing it (strides kept; not writeable where the producer forbids it). Raises
    ValueError for what is no capsule, or one that was consumed before.
    """
    name = next((n for n in _KINDS if _is_valid(capsule, n)), None)
    if name is None:
        raise ValueError("expected an unused DLPack capsule named 'dltensor' or 'dltensor_versioned'")
    layout, used = _KINDS[name]
    managed = layout.from_address(_get_pointer(capsule, name))
    versioned = layout is _DLManagedTensorVersioned
    if versioned and managed.major > VERSION[0]:
        raise ValueError(f"DLPack {managed.major}.{managed.minor} is newer than what is known here ({VERSION[0]}.x)")
    readonly = versioned and bool(managed.flags & _DLManagedTensorVersioned.READ_ONLY)
    tensor = managed.dl_tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if min(shape, default=0) < 0:
        raise ValueError(f"a DLPack tensor of shape {shape} has a negative dimension")
    dtype = dtype_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    device = Device(tensor.device.device_type, tensor.device.device_id)
    ptr = (tensor.data or 0) + tensor.byte_offset
    element = numpy_dtype(dtype)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * element.itemsize for i in range(tensor.ndim))
    before, after = _extent(shape, strides, element.itemsize)
    _set_name(capsule, used)
    owner = _Imported(managed, before + after, (ptr or 1) - before, readonly)
    if device.device_type != Device.kDLCPU:
        if strides is not None and not _is_compact(shape, strides, element.itemsize):
            raise ValueError(f"memory on {device} is shared only where it is compact; copy the tensor first")
        return None, ptr, shape, dtype, device, owner
    raw = np.asarray(owner)
    array = np.empty(shape, element)
    if before + after:
        array = np.ndarray(shape, element, buffer=raw, strides=strides, offset=before)
    return array, ptr, shape, dtype, device, owner
