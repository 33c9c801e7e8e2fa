"""DLPack in both directions, by hand where NumPy's own does not reach (bfloat16, float8).

Importing keeps the producer's capsule alive through the array made from it; exporting hands out a
``DLManagedTensor`` whose deleter drops our reference.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .device import Device
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


class _DLManagedTensor(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = (("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER))

_api = ctypes.pythonapi
_new_capsule = _api.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_set_name = _api.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)

_NAME, _USED = b"dltensor", b"used_dltensor"
_exported: dict[int, tuple[Any, ...]] = {}


def _forget(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


_release_export = _DELETER(_forget)


_CAPSULE_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_get_pointer_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))


def _drop(capsule: int) -> None:
    # A consumer renames the capsule and calls the deleter itself; only an unconsumed one is ours to free.
    if _is_valid_raw(capsule, _NAME):
        _exported.pop(_get_pointer_raw(capsule, _NAME), None)


_drop_unused = _CAPSULE_DESTRUCTOR(_drop)


def export_capsule(ptr: int, shape: tuple[int, ...], dtype: str, device: Device, owner: Any) -> Any:
    """A ``dltensor`` capsule of compact memory at ``ptr``; ``owner`` lives as long as the consumer needs it."""
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    strides = (ctypes.c_int64 * max(1, len(shape)))()
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    code, bits, lanes = dlpack_code(dtype)
    managed = _DLManagedTensor()
    tensor = managed.dl_tensor
    tensor.data = ptr
    tensor.device = _DLDevice(device.device_type, device.device_id)
    tensor.ndim = len(shape)
    tensor.dtype = _DLDataType(code, bits, lanes)
    tensor.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _release_export
    address = ctypes.addressof(managed)
    _exported[address] = (managed, dims, strides, owner)
    return _new_capsule(address, _NAME, ctypes.cast(_drop_unused, ctypes.c_void_p))


class _Imported:
    """Owns a consumed capsule: calls the producer's deleter when the last view is gone."""

    __slots__ = ("__array_interface__", "_address")

    def __init__(self, address: int, nbytes: int, ptr: int) -> None:
        self._address = address
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (ptr, False), "version": 3}

    def __del__(self) -> None:
        managed = _DLManagedTensor.from_address(self._address)
        if managed.deleter:
            managed.deleter(ctypes.pointer(managed))


def _is_compact(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements follow each other without gaps, last axis first; axes of one element do not count."""
    step = itemsize
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != step:
            return False
        step *= dim
    return True


def import_capsule(capsule: Any) -> tuple[Any, int, tuple[int, ...], str, Device, Any]:
    """Take over a capsule: ``(numpy array or None, address, shape, dtype, device, owner)``.

    CPU memory comes back as a NumPy array viewing it (strides kept).
    """
    if not _is_valid(capsule, _NAME):
        raise ValueError("expected an unused DLPack capsule named 'dltensor'")
    address = _get_pointer(capsule, _NAME)
    managed = _DLManagedTensor.from_address(address)
    tensor = managed.dl_tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    dtype = dtype_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    device = Device(tensor.device.device_type, tensor.device.device_id)
    ptr = (tensor.data or 0) + tensor.byte_offset
    element = numpy_dtype(dtype)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * element.itemsize for i in range(tensor.ndim))
    _set_name(capsule, _USED)
    extent = element.itemsize
    for axis, dim in enumerate(shape):
        if dim == 0:
            extent = 0
            break
        if strides is not None:
            extent += (dim - 1) * strides[axis]
        else:
            extent *= dim
    owner = _Imported(address, extent, ptr or 1)
    if device.device_type != Device.kDLCPU:
        if strides is not None and not _is_compact(shape, strides, element.itemsize):
            raise ValueError(f"memory on {device} is shared only where it is compact; copy the tensor first")
        return None, ptr, shape, dtype, device, owner
    raw = np.asarray(owner)
    array = np.ndarray(shape, element, buffer=raw, strides=strides) if extent else np.empty(shape, element)
    return array, ptr, shape, dtype, device, owner
