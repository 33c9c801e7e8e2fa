"""What intrinsics mean, on Python numbers and NumPy vectors."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["EXTERN", "INTRINSICS", "Pointer", "np_dtype", "register_extern", "wrap_int"]

# Functions of external libraries and target instructions, by name.
EXTERN: dict[str, Callable[..., Any]] = {}


def register_extern(name: str, function: Callable[..., Any] | None = None) -> Any:
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

    def __init__(self, data: Any, offset: int) -> None:
        self.data = data
        self.offset = int(offset)

    def view(self, count: int) -> Any:
        """``count`` elements from here, sharing memory."""
        return self.data[self.offset : self.offset + count]


def np_dtype(dtype: str) -> Any:
    """The NumPy dtype of a scalar dtype."""
    from ..ir.dtype import numpy_dtype

    return np.dtype(numpy_dtype(dtype))


def wrap_int(value: Any, bits: int, signed: bool) -> Any:
    """A Python integer as the machine would keep it."""
    if isinstance(value, np.ndarray):
        return value.astype(f"{'int' if signed else 'uint'}{bits}")
    value = int(value) & ((1 << bits) - 1)
    if signed and value >> (bits - 1):
        value -= 1 << bits
    return value


def _erf(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)
    return type(x)(math.erf(float(x)))


def _sigmoid(x: Any) -> Any:
    one = x.dtype.type(1) if hasattr(x, "dtype") else 1.0
    return one / (one + np.exp(-x))


def _rsqrt(x: Any) -> Any:
    one = x.dtype.type(1) if hasattr(x, "dtype") else 1.0
    return one / np.sqrt(x)


def _shift_right(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        bits = np.asarray(a).dtype.itemsize * 8
        return np.where((b >= 0) & (b < bits), a >> np.clip(b, 0, bits - 1), np.where(a < 0, -1, 0)).astype(a.dtype)
    return a >> min(int(b) & (1 << 63) - 1, 64)


def _shift_left(a: Any, b: Any) -> Any:
    """Without a width, for which the caller cares: by 64 and more (or less than none) nothing is left."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        bits = np.asarray(a).dtype.itemsize * 8
        return np.where((b >= 0) & (b < bits), a << np.clip(b, 0, bits - 1), 0).astype(a.dtype)
    return int(a) << int(b) if 0 <= b < 64 else 0


def _popcount(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.vectorize(lambda v: bin(int(v) & (1 << 8 * x.itemsize) - 1).count("1"))(x).astype(x.dtype)
    return bin(int(x) & (1 << 64) - 1).count("1")


def _fixed_point(x: Any, y: Any, q: Any, s: Any) -> Any:
    shift = int(q) + int(s)
    product = np.int64(x) * np.int64(y) if isinstance(x, np.ndarray) else int(x) * int(y)
    return (product + (1 << (shift - 1))) >> shift


def _fused(a: Any, b: Any, c: Any) -> Any:
    """Product and sum, rounded once (in double precision nearly so)."""
    if not hasattr(a, "dtype") or a.dtype.kind in "iu":
        return a * b + c
    wide = np.asarray(a, np.longdouble) * np.asarray(b, np.longdouble) + np.asarray(c, np.longdouble)
    return wide.astype(a.dtype)[()]


INTRINSICS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(type(x)(10) if not hasattr(x, "dtype") else
                                                                 x.dtype.type(10), x),
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": _erf, "sigmoid": _sigmoid, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "nearbyint": np.rint, "fabs": np.abs, "abs": np.abs,
    "pow": lambda a, b: np.power(a, b), "fmod": np.fmod, "atan2": np.arctan2, "copysign": np.copysign,
    "hypot": np.hypot, "nextafter": np.nextafter, "ldexp": lambda a, b: np.ldexp(a, b), "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "isnullptr": lambda p: p is None,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a, "shift_left": _shift_left, "shift_right": _shift_right,
    "popcount": _popcount, "likely": lambda x: x, "fma": _fused,
    "ignore_loop_partition": lambda x: x, "q_multiply_shift": _fixed_point, "tvm_thread_invariant": lambda x: x,
    "vectorlow": lambda v: v[: len(v) // 2], "vectorhigh": lambda v: v[len(v) // 2 :],
    "vectorcombine": lambda a, b: np.concatenate([a, b]), "undef": lambda: 0, "large_uint_imm":
    lambda low, high: (int(high) << 32) | int(low), "assume": lambda *_: 0, "tvm_storage_sync": lambda *_: 0,
    "vscale": lambda: 1, "type_annotation": lambda: None, "start_profile_intrinsic": lambda *_: 0,
    "end_profile_intrinsic": lambda *_: 0, "ptx_commit_group": lambda *_: 0, "ptx_wait_group": lambda *_: 0,
}  # fmt: skip


def _dp4a(a: Any, b: Any, acc: Any = 0) -> Any:
    return int(acc) + int(np.dot(np.asarray(a, np.int64), np.asarray(b, np.int64)))


INTRINSICS["dp4a"] = _dp4a


def _vnni(acc: Any, unsigned: Any, signed: Any) -> Any:
    """``vpdpbusd``: four unsigned by signed byte products added to each 32-bit lane."""
    a = np.ascontiguousarray(unsigned).view(np.uint8).astype(np.int64).reshape(-1, 4)
    b = np.ascontiguousarray(signed).view(np.int8).astype(np.int64).reshape(-1, 4)
    return (np.asarray(acc, np.int64) + (a * b).sum(axis=1)).astype(np.int32)


for _width in (128, 256, 512):
    EXTERN[f"llvm.x86.avx512.vpdpbusd.{_width}"] = _vnni


def _maddubs(unsigned: Any, signed: Any) -> Any:
    """``vpmaddubsw``: pairs of byte products added with saturation to 16 bits."""
    a = np.ascontiguousarray(unsigned).view(np.uint8).astype(np.int32).reshape(-1, 2)
    b = np.ascontiguousarray(signed).view(np.int8).astype(np.int32).reshape(-1, 2)
    return np.clip((a * b).sum(axis=1), -32768, 32767).astype(np.int16)


def _madd(a: Any, b: Any) -> Any:
    """``vpmaddwd``: pairs of 16-bit products added to 32 bits."""
    x = np.ascontiguousarray(a).view(np.int16).astype(np.int64).reshape(-1, 2)
    y = np.ascontiguousarray(b).view(np.int16).astype(np.int64).reshape(-1, 2)
    return (x * y).sum(axis=1).astype(np.int32)


EXTERN["llvm.x86.avx512.pmaddubs.w.512"] = EXTERN["llvm.x86.avx2.pmadd.ub.sw"] = _maddubs
EXTERN["llvm.x86.avx512.pmaddw.d.512"] = EXTERN["llvm.x86.avx2.pmadd.wd"] = _madd
EXTERN["llvm.fma"] = lambda a, b, c: a * b + c
EXTERN["llvm.fmuladd"] = EXTERN["llvm.fma"]
