"""Meanings of intrinsics, on Python numbers and NumPy vectors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..ir.dtype import numpy_dtype
from ..tir.intrinsics import INTRINSICS

__all__ = [
    "EXTERN",
    "MEANINGS",
    "Array",
    "Integer",
    "Number",
    "Pointer",
    "Value",
    "np_dtype",
    "register_extern",
    "wrap_int",
]

Array = np.ndarray[Any, Any]
Number = int | float | np.number[Any]
Integer = int | np.integer[Any] | Array
#: A scalar of a program, or a vector of them.
Value = Number | Array

# Functions of external libraries and target instructions, by name.
EXTERN: dict[str, Callable[..., Any]] = {}


def register_extern(name: str, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Say what an external function or instruction does; pointers arrive as :class:`Pointer`."""
    if function is not None:
        EXTERN[name] = function
        return function

    def decorator(inner: Callable[..., Any]) -> Callable[..., Any]:
        EXTERN[name] = inner
        return inner

    return decorator


def _printf(form: str, *values: Any) -> int:
    """C's ``printf``, to Python's standard output: what sizes integers have (``ll``) is not asked here."""
    text = re.sub(r"(%[-+ #0-9.]*)(?:hh|ll|[hlzjt])", r"\1", form) % tuple(values)
    sys.stdout.write(text)
    return len(text)


register_extern("printf", _printf)


class Pointer:
    """An address: flat memory and an offset into it."""

    __slots__ = ("data", "offset")

    def __init__(self, data: Array, offset: int) -> None:
        self.data = data
        self.offset = int(offset)

    def view(self, count: int) -> Array:
        """``count`` elements from here, sharing memory."""
        return self.data[self.offset : self.offset + count]


@lru_cache(maxsize=None)
def np_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a scalar dtype."""
    return np.dtype(numpy_dtype(dtype))


def wrap_int(value: Value, bits: int, signed: bool) -> Value:
    """A Python integer as the machine would keep it."""
    if isinstance(value, np.ndarray):
        return value.astype(f"{'int' if signed else 'uint'}{bits}")
    value = int(value) & ((1 << bits) - 1)
    if signed and value >> (bits - 1):
        value -= 1 << bits
    return value


MEANINGS: dict[str, Callable[..., Any]] = {
    name: record.meaning for name, record in INTRINSICS.items() if record.meaning is not None
}
"""What calls of an intrinsic mean: the table's meanings, and here those that need memory or threads."""


def _vnni(acc: Array, unsigned: Array, signed: Array) -> Array:
    """``vpdpbusd``: four unsigned by signed byte products added to each 32-bit lane."""
    a = np.ascontiguousarray(unsigned).view(np.uint8).astype(np.int64).reshape(-1, 4)
    b = np.ascontiguousarray(signed).view(np.int8).astype(np.int64).reshape(-1, 4)
    return (np.asarray(acc, np.int64) + (a * b).sum(axis=1)).astype(np.int32)


for _width in (128, 256, 512):
    EXTERN[f"llvm.x86.avx512.vpdpbusd.{_width}"] = _vnni


def _maddubs(unsigned: Array, signed: Array) -> Array:
    """``vpmaddubsw``: pairs of byte products added with saturation to 16 bits."""
    a = np.ascontiguousarray(unsigned).view(np.uint8).astype(np.int32).reshape(-1, 2)
    b = np.ascontiguousarray(signed).view(np.int8).astype(np.int32).reshape(-1, 2)
    return np.clip((a * b).sum(axis=1), -32768, 32767).astype(np.int16)


def _madd(a: Array, b: Array) -> Array:
    """``vpmaddwd``: pairs of 16-bit products added to 32 bits."""
    x = np.ascontiguousarray(a).view(np.int16).astype(np.int64).reshape(-1, 2)
    y = np.ascontiguousarray(b).view(np.int16).astype(np.int64).reshape(-1, 2)
    return (x * y).sum(axis=1).astype(np.int32)


EXTERN["llvm.x86.avx512.pmaddubs.w.512"] = EXTERN["llvm.x86.avx2.pmadd.ub.sw"] = _maddubs
EXTERN["llvm.x86.avx512.pmaddw.d.512"] = EXTERN["llvm.x86.avx2.pmadd.wd"] = _madd
EXTERN["llvm.fma"] = lambda a, b, c: a * b + c
EXTERN["llvm.fmuladd"] = EXTERN["llvm.fma"]
EXTERN["abs"] = EXTERN["llvm.abs"] = lambda x, *_: np.abs(x)
