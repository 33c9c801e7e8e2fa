"""Names of scalar and vector types in CUDA C++, and constants of them."""

from __future__ import annotations

import math

from ...ir import dtype as dt
from ...support.errors import RelaxishError

__all__ = ["HEADERS", "constant", "headers_for", "type_name"]

_SCALARS = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double",
    "float8_e4m3fn": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2", "handle": "void*", "void": "void",
}  # fmt: skip

# Which header declares a type.
HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h", "float8_e4m3fn": "cuda_fp8.h", "float8_e5m2": "cuda_fp8.h"}


def type_name(dtype: str) -> str:
    """The C++ type of a dtype; vectors are ``Vec<T, lanes>``. Raises RelaxishError for a dtype CUDA lacks."""
    element, lanes = dt.element_of(dtype), dt.lanes(dtype)
    name = _SCALARS.get(element)
    if name is None:
        raise RelaxishError(f"CUDA code generation has no type for {dtype}")
    return name if lanes == 1 else f"Vec<{name}, {lanes}>"


def headers_for(dtypes: set[str]) -> list[str]:
    """The headers that these dtypes need."""
    return sorted({HEADERS[d] for d in map(dt.element_of, dtypes) if d in HEADERS})


def constant(value: float | int, dtype: str) -> str:
    """A scalar constant as C++ text."""
    if dtype == "bool":
        return "true" if value else "false"
    if dt.is_float(dtype) or dtype.startswith("bfloat"):
        return _floating(float(value), dtype)
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
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
        return f"({text})" if value < 0 else text
    text = f"({text}f)" if value < 0 else f"{text}f"
    return text if dtype == "float32" else f"({type_name(dtype)})({text})"
