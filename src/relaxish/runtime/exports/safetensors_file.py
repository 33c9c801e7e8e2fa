"""Reading and writing the safetensors format with 64-byte-aligned tensors.

The format forbids gaps, so alignment comes from small ``__pad.N`` tensors; any safetensors reader can read the file,
and ours can map it and use the weights in place.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...support.errors import MalformedDataError, RelaxishError
from ...support.untrusted import anything, integer, list_of, mapping_of, one_of, parse_json, record, text, tuple_of
from ..arrays.dtype import numpy_dtype
from ..arrays.memory import ALIGNMENT
from ..arrays.ndarray import NDArray, from_numpy

_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
_DTYPES = {text: name for name, text in _NAMES.items()}
_PAD = "__pad."
_MAX_HEADER = 100_000_000
_HEADER = mapping_of(anything, text(longest=1 << 12))
_ENTRY = record(
    {
        "dtype": one_of(*_DTYPES),
        "shape": list_of(integer(0, 1 << 48), 64),
        "data_offsets": tuple_of(integer(0), integer(0)),
    }
)


def save(path: str, tensors: Mapping[str, NDArray], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    order: list[Any] = []
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise RelaxishError(f"tensor {name}: dtype {tensor.dtype} has no safetensors form")
        pad = -offset % ALIGNMENT
        if pad:
            header[f"{_PAD}{len(order)}"] = {"dtype": "U8", "shape": [pad], "data_offsets": [offset, offset + pad]}
            order.append(bytes(pad))
            offset += pad
        end = offset + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        order.append(tensor)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for item in order:
                out.write(
                    item
                    if isinstance(item, bytes)
                    else np.ascontiguousarray(item._host()).view(np.uint8).data
                    if item.ndim
                    else item.numpy().tobytes()
                )
        os.replace(temporary, path)
    except OSError as err:
        raise RelaxishError(f"cannot write {path}: {err.strerror}") from None


def load(path: str) -> dict[str, NDArray]:
    """Map a file and return its tensors without copying (misaligned ones are copied)."""
    try:
        with open(path, "rb") as source:
            data = np.frombuffer(mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    except (OSError, ValueError) as err:
        raise RelaxishError(f"cannot read weights {path}: {err}") from None
    where = f"weights {path}"
    if data.size < 8:
        raise MalformedDataError(f"{where} are truncated: {data.size} bytes are less than a header")
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    if size > min(data.size - 8, _MAX_HEADER):
        raise MalformedDataError(f"{where} are truncated or damaged: a header of {size} bytes in {data.size}")
    header = _HEADER(parse_json(data[8 : 8 + size].tobytes(), where, max_depth=20), where)
    body = data[8 + size :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        found = _ENTRY(entry, f"{where}: tensor {name}")
        begin, end = found["data_offsets"]
        dtype, elements = numpy_dtype(_DTYPES[found["dtype"]]), math.prod(found["shape"])
        if not begin <= end <= body.size or elements * dtype.itemsize != end - begin:
            raise MalformedDataError(f"{where} are truncated or damaged at tensor {name}")
        if name.startswith(_PAD):
            continue
        array = body[begin:end]
        if array.size and array.__array_interface__["data"][0] % ALIGNMENT:
            array = array.copy()
        tensors[name] = from_numpy(array.view(dtype).reshape(found["shape"]))
    return tensors
