"""Tensor maps of drivers that are not the real one: the fields of a :class:`TensorMapSpec` in 128 bytes, and back.

The real encoding is the driver's secret. This one has the same size, so that kernels pass it on the same way, and an
emulated bulk copy reads from it what it needs.
"""

from __future__ import annotations

import struct

from .driver import TensorMapSpec
from .errors import CODES, failure

__all__ = ["BYTES", "check", "decode", "driver_numbers", "encode"]

BYTES = 128
_MAGIC = 0x524D4150
# magic, rank, dtype index, address, dims, strides, box, element strides, swizzle, interleave, promotion, fill
_LAYOUT = struct.Struct("<IBBxxQ5I4Q5H5BBBBB")
_DTYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "int8",
    "float8_e4m3fn", "float8_e5m2", "tfloat32",
)  # fmt: skip
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def _item_size(dtype: str) -> int:
    if dtype.startswith("float8"):
        return 1
    return _SIZES[dtype.lstrip("abcdefghijklmnopqrstuvwxyz")]


def check(spec: TensorMapSpec) -> None:
    """Raise the driver's error for a map it refuses: unaligned address or strides, too large a box."""
    rank = len(spec.dims)

    def refuse(why: str) -> None:
        raise failure(CODES["INVALID_VALUE"], "encoding a tensor map", why)

    if spec.dtype not in _DTYPES:
        refuse(f"no tensor map has elements of type {spec.dtype}")
    if not 1 <= rank <= 5 or len(spec.box) != rank or len(spec.strides) != rank - 1:
        refuse(f"a map of {rank} dimensions with {len(spec.strides)} strides and a box of {len(spec.box)} dimensions")
    unit = 32 if spec.interleave == 32 else 16
    if spec.address % unit:
        refuse(f"the address {spec.address:#x} is not a multiple of {unit}")
    if any(not 1 <= dim <= 1 << 32 for dim in spec.dims):
        refuse(f"the dimensions {spec.dims} are not within 1 .. 2^32")
    if any(stride % unit or not 0 < stride < 1 << 40 for stride in spec.strides):
        refuse(f"the strides {spec.strides} are not multiples of {unit} bytes below 2^40")
    if any(not 1 <= extent <= 256 for extent in spec.box):
        refuse(f"the box {spec.box} is not within 1 .. 256")
    if any(not 1 <= stride <= 8 for stride in spec.element_strides):
        refuse(f"the element strides {spec.element_strides} are not within 1 .. 8")
    if spec.swizzle not in (0, 32, 64, 128) or spec.interleave not in (0, 16, 32):
        refuse(f"no swizzle of {spec.swizzle} bytes with an interleave of {spec.interleave} bytes")
    if spec.interleave and (rank < 3 or (spec.interleave == 32 and spec.swizzle != 32)):
        refuse("interleaved maps have three dimensions or more, and a swizzle of 32 bytes where they interleave 32")
    row = spec.box[0] * _item_size("float32" if spec.dtype == "tfloat32" else spec.dtype)
    if not spec.interleave and row % 16:
        refuse(f"the innermost extent of the box is {row} bytes, not a multiple of 16")
    if spec.swizzle and not spec.interleave and row > spec.swizzle:
        refuse(f"the innermost extent of the box is {row} bytes, more than the swizzle of {spec.swizzle} bytes")


def _padded(values: tuple[int, ...], size: int, fill: int) -> tuple[int, ...]:
    return (*values, *(fill for _ in range(size - len(values))))


def encode(spec: TensorMapSpec) -> bytes:
    """A checked map as 128 bytes."""
    check(spec)
    data = _LAYOUT.pack(
        _MAGIC,
        len(spec.dims),
        _DTYPES.index(spec.dtype),
        spec.address,
        *_padded(tuple(dim - 1 for dim in spec.dims), 5, 0),
        *_padded(spec.strides, 4, 0),
        *_padded(spec.box, 5, 1),
        *_padded(spec.element_strides, 5, 1),
        spec.swizzle,
        spec.interleave,
        spec.l2_promotion // 64,
        int(spec.fill_nan),
    )
    return data.ljust(BYTES, b"\0")


def decode(data: bytes) -> TensorMapSpec:
    """The map that :func:`encode` made these bytes of. Raises ValueError for other bytes."""
    fields = _LAYOUT.unpack_from(data)
    if fields[0] != _MAGIC:
        raise ValueError("these bytes are no tensor map")
    rank, rest = fields[1], fields[4:]
    return TensorMapSpec(
        fields[3],
        _DTYPES[fields[2]],
        tuple(dim + 1 for dim in rest[:rank]),
        tuple(rest[5 : 5 + rank - 1]),
        tuple(rest[9 : 9 + rank]),
        tuple(rest[14 : 14 + rank]),
        rest[19],
        rest[20],
        rest[21] * 64,
        bool(rest[22]),
    )


# The driver's numbers.
_DRIVER_DTYPES = {
    "uint8": 0, "int8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4,
    "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "tfloat32": 11,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_INTERLEAVES = {0: 0, 16: 1, 32: 2}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


def driver_numbers(spec: TensorMapSpec) -> tuple[int, int, int, int, int]:
    """Element type, interleave, swizzle, promotion and fill as ``cuTensorMapEncodeTiled`` counts them."""
    check(spec)
    promotion = _PROMOTIONS.get(spec.l2_promotion)
    if promotion is None:
        raise failure(CODES["INVALID_VALUE"], "encoding a tensor map", f"no promotion of {spec.l2_promotion} bytes")
    return (
        _DRIVER_DTYPES[spec.dtype],
        _INTERLEAVES[spec.interleave],
        _SWIZZLES[spec.swizzle],
        promotion,
        int(spec.fill_nan),
    )
