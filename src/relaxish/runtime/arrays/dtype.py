"""Data types of run-time values: plain strings such as ``"float32"``, with their NumPy and DLPack forms."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from ...support import custom_datatypes
from ...support.errors import MissingExtraError

_NAME = re.compile(r"^(bool|handle|void|u?int|bfloat|float)(\d*)((?:_[a-z0-9]+)?)(?:x((?:vscalex)?\d+))?$")
_ML_DTYPES = frozenset(
    (
        "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
        "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
        "float4_e2m1fn", "int4", "uint4", "int2", "uint2",
    )
)  # fmt: skip

# DLPack type codes
DL_INT, DL_UINT, DL_FLOAT, DL_HANDLE, DL_BFLOAT, DL_COMPLEX, DL_BOOL = 0, 1, 2, 3, 4, 5, 6
_FLOAT8_CODES = {
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float6_e2m3fn": 15,
    "float6_e3m2fn": 16,
    "float4_e2m1fn": 17,
}
_FLOAT8_NAMES = {code: name for name, code in _FLOAT8_CODES.items()}


class ArgTypeCode(IntEnum):
    """Kinds of values that arguments of packed functions have, numbered as in the field's calling convention."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    NULL = 4
    DLDATATYPE = 5
    DLDEVICE = 6
    DLTENSOR_HANDLE = 7
    OBJECT_HANDLE = 8
    MODULE_HANDLE = 9
    PACKED_FUNC_HANDLE = 10
    STR = 11
    BYTES = 12
    NDARRAY_HANDLE = 13
    OBJECT_RVALUE_REF_ARG = 14
    EXT_BEGIN = 15


TypeCode = ArgTypeCode


class DataTypeCode(IntEnum):
    """Kinds of numbers of a data type, numbered as in DLPack."""

    INT = DL_INT
    UINT = DL_UINT
    FLOAT = DL_FLOAT
    HANDLE = DL_HANDLE
    BFLOAT = DL_BFLOAT
    Float8E3M4 = 7
    Float8E4M3 = 8
    Float8E4M3B11FNUZ = 9
    Float8E4M3FN = 10
    Float8E4M3FNUZ = 11
    Float8E5M2 = 12
    Float8E5M2FNUZ = 13
    Float8E8M0FNU = 14
    Float6E2M3FN = 15
    Float6E3M2FN = 16
    Float4E2M1FN = 17


class DataType(str):
    """A data type as a string with parts: ``DataType("float32x4").lanes == 4``."""

    def __new__(cls, text: str | DataType | np.dtype[Any] | type) -> DataType:
        return super().__new__(cls, dtype_str(text))

    @property
    def type_code(self) -> int:
        """The type code; truth values count as unsigned."""
        return int(DL_UINT) if self.startswith("bool") else dlpack_code(self)[0]

    @property
    def bits(self) -> int:
        """Bits of one lane; truth values have 1, though memory holds them as bytes."""
        return 1 if self.startswith("bool") else dlpack_code(self)[1]

    @property
    def lanes(self) -> int:
        """Number of lanes; 1 for a scalar type, negative multiples of the hardware's unit for a scalable one."""
        return dlpack_code(self)[2]

    def itemsize(self) -> int:
        """Bytes of one element, all lanes together. Raises ValueError for scalable vectors."""
        if self.lanes < 0:
            raise ValueError("Cannot determine itemsize for scalable vector types")
        return (dlpack_code(self)[1] * self.lanes + 7) // 8


@cache
def dlpack_code(dtype: str) -> tuple[int, int, int]:
    """``(type code, bits, lanes)`` of a type name."""
    own = custom_datatypes.PATTERN.match(dtype)
    if own is not None:
        return custom_datatypes.type_code(own[1]), int(own[2]), int(own[3] or 1)
    match = _NAME.match(dtype)
    if match is None:
        raise ValueError(f"unknown dtype {dtype!r}")
    base, width, suffix, lanes = match.groups()
    if suffix and lanes is None and f"{base}{width}{suffix}" not in _FLOAT8_CODES:
        # The suffix takes the lanes of "float8_e4m3fnx4" for its own letters.
        suffix, _, lanes = suffix.rpartition("x")
    count = -int(lanes[7:]) if lanes and lanes.startswith("vscale") else int(lanes or 1)
    if suffix:
        code = _FLOAT8_CODES.get(f"{base}{width}{suffix}")
        if code is None:
            raise ValueError(f"unknown dtype {dtype!r}")
        return code, int(width), count
    if base == "bool":
        return DL_BOOL, 8, count
    if base in ("handle", "void"):
        return DL_HANDLE, 64 if base == "handle" else 0, count
    if base == "bfloat":
        return DL_BFLOAT, int(width or 16), count
    code = {"int": DL_INT, "uint": DL_UINT, "float": DL_FLOAT}[base]
    return code, int(width or 32), count


@cache
def dtype_of_dlpack(code: int, bits: int, lanes: int = 1) -> str:
    """The type name of a DLPack triple."""
    tail = f"x{lanes}" if lanes > 1 else ""
    if code == DL_BOOL or (code == DL_UINT and bits == 1):
        return "bool" + tail
    if code in _FLOAT8_NAMES:
        return _FLOAT8_NAMES[code] + tail
    base = {DL_INT: "int", DL_UINT: "uint", DL_FLOAT: "float", DL_BFLOAT: "bfloat", DL_HANDLE: "handle"}.get(code)
    if base is None:
        raise ValueError(f"DLPack type code {code} is not supported")
    return "handle" if base == "handle" else f"{base}{bits}{tail}"


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type holding elements of ``dtype``; vector types get a trailing subarray-free scalar type."""
    code, _, lanes = dlpack_code(dtype)
    if lanes > 1:
        dtype = dtype.rsplit("x", 1)[0]
    if code == DL_BOOL:
        return np.dtype(np.bool_)
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise MissingExtraError("onnx", "ml_dtypes", f"dtype {dtype}") from None
        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return made
    if code == DL_HANDLE:
        return np.dtype(np.uint64)
    plain: np.dtype[Any] = np.dtype(dtype)
    return plain


@cache
def itemsize(dtype: str) -> int:
    """Bytes one element takes in memory (sub-byte types take a whole byte)."""
    _, bits, lanes = dlpack_code(dtype)
    return max(1, (bits + 7) // 8) * lanes


def dtype_str(dtype: str | np.dtype[Any] | type) -> str:
    """The name of a type given as a string, a NumPy type, or anything printing as one (``torch.float32``)."""
    if isinstance(dtype, str):
        dlpack_code(dtype)
        return str(dtype)
    try:
        name: str = np.dtype(dtype).name
    except TypeError:
        name = str(dtype).rpartition(".")[2]
    dlpack_code(name)
    return name
