"""Named arrays as one block of bytes, in the field's parameter-file format.

Little-endian: the list's magic number, a reserved word, the names, then each array: magic, reserved word, device, rank,
dtype (DLPack code, bits, lanes), shape, size in bytes, contents. Lengths and counts are 64-bit.

>>> from relaxish import runtime
>>> import numpy as np
>>> block = runtime.save_param_dict({"w": runtime.nd.array(np.arange(3, dtype="float32"))})
>>> runtime.load_param_dict(block)["w"].numpy().tolist()
[0.0, 1.0, 2.0]
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import MalformedDataError, MissingFileError, RelaxishError
from ...support.files import replace_file
from ...support.untrusted import malformed
from .dtype import dlpack_code, dtype_of_dlpack, numpy_dtype
from .ndarray import NDArray, array, from_numpy

__all__ = ["load_param_dict", "load_param_dict_from_file", "save_param_dict", "save_param_dict_to_file"]

_LIST_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_CPU = 1


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """The arrays of ``params`` (NDArray or NumPy) as bytes."""
    names = [str(name).encode() for name in params]
    parts = [struct.pack("<QQQ", _LIST_MAGIC, 0, len(names))]
    parts += [struct.pack("<Q", len(name)) + name for name in names]
    parts.append(struct.pack("<Q", len(names)))
    parts += [_array_bytes(value if isinstance(value, NDArray) else array(value)) for value in params.values()]
    return b"".join(parts)


def _array_bytes(value: NDArray) -> bytes:
    data = np.ascontiguousarray(value.numpy())
    code, bits, lanes = dlpack_code(str(value.dtype))
    head = struct.pack("<QQiiiBBH", _ARRAY_MAGIC, 0, _CPU, 0, data.ndim, code, bits, lanes)
    shape = struct.pack(f"<{data.ndim}q", *data.shape)
    return head + shape + struct.pack("<q", data.nbytes) + data.tobytes()


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, NDArray]:
    """The arrays in a block that :func:`save_param_dict` made. Raises RelaxishError for anything else."""
    reader = _Reader(bytes(param_bytes))
    with malformed("the parameter file"):
        magic, _ = reader.take("<QQ")
        if magic != _LIST_MAGIC:
            raise MalformedDataError("this is no parameter file: its first bytes are not the format's magic number")
        names = [reader.bytes(reader.take("<Q")[0]).decode() for _ in range(reader.take("<Q")[0])]
        (count,) = reader.take("<Q")
        if count != len(names):
            raise MalformedDataError(f"the parameter file is damaged: {len(names)} names for {count} arrays")
        found = {name: _read_array(reader) for name in names}
        if len(found) != len(names):
            raise MalformedDataError("the parameter file is damaged: a name is there twice")
        if reader.at != len(reader.data):
            raise MalformedDataError(f"the parameter file is damaged: bytes follow after the {reader.at}th, its end")
        return found


def _read_array(reader: _Reader) -> NDArray:
    magic, _, _, _, ndim, code, bits, lanes = reader.take("<QQiiiBBH")
    if magic != _ARRAY_MAGIC or not 0 <= ndim <= 64:
        raise MalformedDataError("the parameter file is damaged: an array does not begin as one")
    shape = reader.take(f"<{ndim}q")
    (size,) = reader.take("<q")
    dtype = numpy_dtype(dtype_of_dlpack(code, bits, lanes))
    data = np.frombuffer(reader.bytes(size), dtype=dtype)
    if min(shape, default=0) < 0 or data.size != math.prod(shape):
        raise MalformedDataError(f"the parameter file is damaged: {data.size} elements for the shape {list(shape)}")
    return from_numpy(data.reshape(shape).copy())


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, form: str) -> tuple[Any, ...]:
        """The next values."""
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count < 0 or self.at + count > len(self.data):
            raise MalformedDataError(f"the parameter file is cut off: it ends after {len(self.data)} bytes")
        self.at += count
        return self.data[self.at - count : self.at]


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """:func:`save_param_dict` to a file; an existing one is replaced only once all is written."""
    replace_file(Path(path), save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """:func:`load_param_dict` from a file."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"cannot find file {path}: no such file") from None
    except OSError as err:
        raise RelaxishError(f"cannot read {path}: {err.strerror}") from None
    return load_param_dict(data)
