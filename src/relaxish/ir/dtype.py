"""Scalar and vector data types as plain strings, with the questions one asks of them.

A dtype is ``code bits ["x" lanes]``: ``"int32"``, ``"float16x8"``, ``"bfloat16"``, ``"bool"``, ``"handle"``,
``"void"``, ``"float8_e4m3fn"``.  Strings keep dtypes hashable, printable and serialisable for free; the
parsed form is memoised, so the helpers cost one dictionary lookup.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .errors import CheckValueError

__all__ = [
    "ParsedDType",
    "parse",
    "bits",
    "canonical",
    "lanes",
    "code",
    "element_of",
    "with_lanes",
    "with_bits",
    "is_int",
    "is_uint",
    "is_float",
    "is_bool",
    "is_scalar",
    "is_handle",
    "is_index",
    "is_integral",
    "nbytes",
    "numpy_dtype",
    "from_numpy",
    "max_value",
    "min_value",
]

_PATTERN = re.compile(r"^(int|uint|float|bfloat|bool|handle|custom\[\w+\])(\d*)(_[a-z0-9]+?)?(?:x(\d+|vscalex\d+))?$")


class ParsedDType(NamedTuple):
    """Code (``int``, ``uint``, ``float``, ``bfloat``, ``bool``, ``handle``, ``void``), bits, lanes."""

    code: str
    bits: int
    lanes: int


@lru_cache(maxsize=None)
def parse(dtype: str) -> ParsedDType:
    """Split a dtype string. Raises ValueError if it is not one."""
    if dtype in ("void", ""):
        return ParsedDType("void", 0, 1)
    match = _PATTERN.match(dtype)
    if match is None:
        raise CheckValueError(f"unknown data type {dtype!r}; expected e.g. 'int32', 'float16x8', 'bool', 'handle'")
    name, digits, suffix, lane_text = match.groups()
    if lane_text and lane_text.startswith("vscale"):
        lane_count = -int(lane_text[7:])
    else:
        lane_count = int(lane_text) if lane_text else 1
    if name == "bool" or (name == "uint" and digits == "1"):
        return ParsedDType("bool", 1, lane_count)
    if name == "handle":
        return ParsedDType("handle", 64, lane_count)
    if suffix:
        return ParsedDType(f"{name}{digits}{suffix}", int(digits), lane_count)
    if not digits:
        digits = "32"
    return ParsedDType(name, int(digits), lane_count)


def bits(dtype: str) -> int:
    """Bits of one lane; ``bool`` has 1, ``handle`` 64, ``void`` 0."""
    return parse(dtype).bits


def lanes(dtype: str) -> int:
    """Number of lanes; negative for scalable vectors (``xvscalexN`` gives ``-N``)."""
    return parse(dtype).lanes


def code(dtype: str) -> str:
    """The type code without bits and lanes; float8 kinds keep their full name."""
    return parse(dtype).code


@lru_cache(maxsize=None)
def element_of(dtype: str) -> str:
    """The one-lane dtype of a vector dtype."""
    parsed = parse(dtype)
    if parsed.code == "bool":
        return "bool"
    if parsed.lanes == 1:
        return dtype
    return re.sub(r"x(\d+|vscalex\d+)$", "", dtype)


@lru_cache(maxsize=None)
def canonical(dtype: str) -> str:
    """The one spelling of a type: ``float`` is ``float32``, ``uint1`` is ``bool``, vectors of bool are ``uint1x4``."""
    if dtype in ("int", "uint", "float"):
        return f"{dtype}32"
    if not dtype.startswith(("bool", "uint1")):
        return dtype
    parsed = parse(dtype)
    return with_lanes("bool", parsed.lanes) if parsed.code == "bool" else dtype


@lru_cache(maxsize=None)
def with_lanes(dtype: str, count: int) -> str:
    """The same element type with ``count`` lanes (negative: scalable)."""
    element = element_of(dtype)
    if count == 1:
        return element
    if element == "bool":
        element = "uint1"
    return f"{element}x{count}" if count > 0 else f"{element}xvscalex{-count}"


@lru_cache(maxsize=None)
def with_bits(dtype: str, count: int) -> str:
    """The same code and lanes with another width."""
    parsed = parse(dtype)
    return with_lanes(f"{parsed.code}{count}", parsed.lanes)


def is_int(dtype: str) -> bool:
    """Signed integer of any width (vectors included)."""
    return parse(dtype).code == "int"


def is_uint(dtype: str) -> bool:
    """Unsigned integer; ``bool`` counts, as it does for TVM's ``uint1``."""
    return parse(dtype).code in ("uint", "bool")


def is_integral(dtype: str) -> bool:
    """Signed, unsigned or bool."""
    return parse(dtype).code in ("int", "uint", "bool")


def is_bool(dtype: str) -> bool:
    """Truth values, any lanes."""
    return parse(dtype).code == "bool"


def is_float(dtype: str) -> bool:
    """IEEE float, bfloat16 or an 8-bit float."""
    return parse(dtype).code.startswith(("float", "bfloat"))


def is_handle(dtype: str) -> bool:
    """Opaque pointers."""
    return parse(dtype).code == "handle"


def is_scalar(dtype: str) -> bool:
    """One lane."""
    return parse(dtype).lanes == 1


def is_index(dtype: str) -> bool:
    """A scalar int32 or int64: the types of indices and extents."""
    return dtype in ("int32", "int64")


def nbytes(dtype: str) -> int:
    """Bytes of one value, all lanes; sub-byte lanes are packed and rounded up."""
    parsed = parse(dtype)
    lane_bits = 8 if parsed.code == "bool" else parsed.bits
    return (lane_bits * abs(parsed.lanes) + 7) // 8


@lru_cache(maxsize=None)
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of one lane; bfloat16 and float8 come from ``ml_dtypes``."""
    element = element_of(dtype)
    if element.startswith(("bfloat16", "float8", "int4", "uint4", "int2", "uint2", "float4_", "float6_")):
        import ml_dtypes

        names = {"float8_e4m3": "float8_e4m3", "e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2"}
        return np.dtype(getattr(ml_dtypes, names.get(element, element)))
    if element == "handle":
        return np.dtype("uint64")
    return np.dtype(element)


def from_numpy(dtype: np.dtype[Any] | type | str) -> str:
    """The dtype string of a NumPy dtype."""
    return str(np.dtype(dtype))


def max_value(dtype: str) -> int:
    """Largest integer a scalar integral dtype holds."""
    parsed = parse(dtype)
    if parsed.code == "int":
        return (1 << (parsed.bits - 1)) - 1
    return (1 << parsed.bits) - 1


def min_value(dtype: str) -> int:
    """Smallest integer a scalar integral dtype holds."""
    parsed = parse(dtype)
    return -(1 << (parsed.bits - 1)) if parsed.code == "int" else 0
