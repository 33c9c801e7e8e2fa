"""Names of scalar and vector types in CUDA C++, and constants of them.

Types of 4 bits are two to a byte in memory, the lower half first; in expressions an ``int4`` is a ``signed char``.
"""

from __future__ import annotations

import math

from ....ir import dtype as dt
from ....support.errors import RelaxishError

__all__ = ["HALVES", "constant", "is_nibble", "section_of", "size_of", "type_name"]

_SCALARS = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "int4": "signed char", "uint4": "unsigned char",
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double",
    "float8_e4m3fn": "__nv_fp8_e4m3", "float8_e4m3": "__nv_fp8_e4m3", "e4m3_float8": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2", "e5m2_float8": "__nv_fp8_e5m2", "float8_e8m0fnu": "__nv_fp8_e8m0",
    "float4_e2m1fn": "__nv_fp4_e2m1", "handle": "void*", "void": "void", "": "void",
}  # fmt: skip

# The section of device code that a type needs.
_SECTIONS = {
    "float16": "half", "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e4m3": "fp8", "float8_e5m2": "fp8",
    "e4m3_float8": "fp8", "e5m2_float8": "fp8", "float8_e8m0fnu": "fp8", "float4_e2m1fn": "fp4", "int4": "int4",
    "uint4": "int4",
}  # fmt: skip

HALVES = ("float16", "bfloat16")
"""Types of 16 bits with arithmetic on pairs."""


def is_nibble(dtype: str) -> bool:
    """Whether elements of the type are two to a byte in memory."""
    return dt.element_of(dtype) in ("int4", "uint4", "float4_e2m1fn")


def size_of(dtype: str) -> int:
    """Bytes of a scalar or vector in memory."""
    return dt.nbytes(dtype)


def type_name(dtype: str) -> str:
    """The C++ type of a dtype; vectors are ``Vec<T, lanes>``. Raises RelaxishError for a dtype CUDA lacks.

    >>> type_name("float16x8")
    'Vec<__half, 8>'
    """
    element, lanes = dt.element_of(dtype), dt.lanes(dtype)
    name = _SCALARS.get(element)
    if name is None:
        raise RelaxishError(f"CUDA code generation has no type for {dtype}")
    if lanes < 1:
        raise RelaxishError(f"CUDA has no vectors of unknown length, as {dtype}")
    return name if lanes == 1 else f"Vec<{name}, {lanes}>"


def section_of(dtype: str) -> str | None:
    """The section of the preamble that declares what the type can do; None for C++'s own types."""
    return _SECTIONS.get(dt.element_of(dtype))


def constant(value: float | int, dtype: str) -> str:
    """A scalar constant as C++ text."""
    if dtype == "bool":
        return "true" if value else "false"
    if dt.is_float(dtype):
        return _floating(float(value), dtype)
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    if value == -(1 << 31) and dtype == "int32":
        return "(-2147483647 - 1)"
    text = f"{int(value)}{suffix}"
    text = f"({text})" if value < 0 else text
    return text if dtype in ("int32", "int64", "uint32", "uint64") else f"({type_name(dtype)}){text}"


def _floating(value: float, dtype: str) -> str:
    if math.isnan(value) or math.isinf(value):
        sign = "-" if value < 0 else ""
        plain = f"({sign}__int_as_float(0x7f800000))" if math.isinf(value) else "__int_as_float(0x7fc00000)"
        return plain if dtype == "float32" else f"({type_name(dtype)})({plain})"
    text = repr(value)
    if dtype == "float64":
        return f"({text})" if math.copysign(1.0, value) < 0 else text
    if abs(value) > 3.4028235677973366e38:
        return _floating(math.copysign(math.inf, value), dtype)
    text = f"({text}f)" if math.copysign(1.0, value) < 0 else f"{text}f"
    return text if dtype == "float32" else f"({type_name(dtype)})({text})"
