"""LLVM types and constants of dtypes."""

from __future__ import annotations

import struct

from ....ir import dtype as dt
from ....support.errors import RelaxishError

__all__ = ["constant", "llvm_type", "memory_type"]

_FLOATS = {"float16": "half", "float32": "float", "float64": "double"}


def llvm_type(dtype: str) -> str:
    """The type of values. Raises RelaxishError for one that must be legalised first."""
    element, lanes = dt.element_of(dtype), dt.lanes(dtype)
    if element == "bool":
        kind = "i1"
    elif element in _FLOATS:
        kind = _FLOATS[element]
    elif dt.is_integral(element):
        kind = f"i{dt.bits(element)}"
    else:
        raise RelaxishError(f"device code has no type for {dtype}")
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def memory_type(dtype: str) -> str:
    """The type in memory: booleans take a byte."""
    return llvm_type(dt.with_lanes("uint8", dt.lanes(dtype)) if dt.is_bool(dtype) else dtype)


def constant(value: float | int, dtype: str) -> str:
    """A scalar constant. Floats are written as the bits of the double they are equal to, which LLVM wants."""
    if dtype == "bool":
        return "true" if value else "false"
    if not dt.is_float(dtype):
        return str(int(value))
    number = float(value)
    if dtype == "float16":
        return "0xH" + struct.pack(">e", number).hex().upper()
    if dtype == "float32":
        number = struct.unpack("f", struct.pack("f", number))[0]
    return "0x" + struct.pack(">d", number).hex().upper()
