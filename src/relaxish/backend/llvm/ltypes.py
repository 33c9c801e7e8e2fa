"""LLVM types and literals of TIR dtypes."""

from __future__ import annotations

import functools
import struct

import numpy as np

from ...ir import dtype as dt
from ...tir.intrinsics import named


@functools.lru_cache(maxsize=None)
def scalar_type(dtype: str) -> str:
    """The LLVM type of one lane held in a register: ``bool`` is ``i1``, bfloat16 and floats of a byte are their bits."""
    code, bits, _ = dt.parse(dtype)
    if code in ("int", "uint"):
        return f"i{bits}"
    if code == "bool":
        return "i1"
    if code == "handle":
        return "ptr"
    if code == "float":
        return {16: "half", 32: "float", 64: "double"}[bits]
    if code == "bfloat":
        return "i16"
    if code == "void":
        return "void"
    return f"i{max(8, bits)}" if code.startswith("float") else f"i{bits}"


@functools.lru_cache(maxsize=None)
def llvm_type(dtype: str) -> str:
    """The LLVM type of a value in a register."""
    lanes = dt.lanes(dtype)
    scalar = scalar_type(dtype)
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


@functools.lru_cache(maxsize=None)
def memory_type(dtype: str) -> str:
    """The LLVM type of a value in memory: like ``llvm_type``, but booleans and integers of a few bits take a byte."""
    if takes_whole_byte(dtype):
        lanes = dt.lanes(dtype)
        return "i8" if lanes == 1 else f"<{lanes} x i8>"
    return llvm_type(dtype)


@functools.lru_cache(maxsize=None)
def takes_whole_byte(dtype: str) -> bool:
    """Whether an element is wider in memory than in a register; LLVM would pack a vector of such elements."""
    code, bits, _ = dt.parse(dtype)
    return code == "bool" or (code in ("int", "uint") and bits < 8)


def element_bytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    return max(1, dt.nbytes(dt.element_of(dtype)))


def vector_type(lanes: int, scalar: str) -> str:
    """``<lanes x scalar>``, or the scalar itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def float_literal(value: float, dtype: str) -> str:
    """A floating-point constant as LLVM reads it exactly (hexadecimal form)."""
    scalar = scalar_type(dtype)
    if scalar == "float":
        # LLVM writes float constants as the double they equal.
        value = struct.unpack("f", struct.pack("f", _clamp(value, 3.4028234663852886e38)))[0]
        return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
    if scalar == "double":
        return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
    if scalar == "half":
        return f"0xH{struct.unpack('>H', struct.pack('>e', _clamp(value, 65504.0)))[0]:04X}"
    if not dt.is_float(dtype):
        raise ValueError(f"not a floating-point type: {dtype}")
    # Such numbers are their bits here.
    bits = np.int16 if scalar == "i16" else np.int8
    return str(int(np.asarray(value).astype(dt.numpy_dtype(dt.element_of(dtype))).view(bits)))


def _clamp(value: float, limit: float) -> float:
    """Values just past the largest finite one round to it; infinities stay."""
    if value != value or value in (float("inf"), float("-inf")):
        return value
    return max(-limit, min(limit, value)) if abs(value) < limit * (1 + 1e-3) else value * float("inf")


# What generated code may call, by its C name: a kernel of such a name would be called in its place.
_LIBRARY = frozenset(
    name + ending
    for name in (
        *named(lambda record: record.libm),
        *"cbrt erfc exp10 expm1 fmax fmin lgamma remainder rint roundeven sincos tgamma".split(),
    )
    for ending in ("", "f", "l")
) | frozenset("abort abs calloc exit free malloc memcmp memcpy memmove memset printf puts realloc".split())


def quoted(name: str) -> str:
    """A symbol as LLVM text wants it."""
    return name if name.replace("_", "").replace(".", "").isalnum() else f'"{name}"'


def kernel_symbol(name: str) -> str:
    """The symbol of the kernel called ``name``: another one where the C library has a function of that name."""
    return f"{name}__kernel" if name in _LIBRARY else name


def splat(text: str, scalar: str, lanes: int) -> str:
    """A constant with every lane equal to ``text``."""
    return text if lanes == 1 else f"splat ({scalar} {text})"


def zero_of(dtype: str) -> str:
    """The zero constant of a type."""
    if dt.lanes(dtype) != 1:
        return "zeroinitializer"
    scalar = scalar_type(dtype)
    if scalar == "ptr":
        return "null"
    return "0" if scalar.startswith("i") else float_literal(0.0, dtype)
