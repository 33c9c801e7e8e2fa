"""Calls of intrinsics whose arguments are literals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import build as B
from ._ir import Call, FloatImm, IntImm, PrimExpr

Args = tuple[Any, ...]


def _shift_right(args: Args, dtype: str) -> PrimExpr | None:
    a, b = B.as_int(args[0]), B.as_int(args[1])
    return None if a is None or b is None or b < 0 else B.const(dtype, B.wrap(dtype, a >> b))


def _shift_left(args: Args, dtype: str) -> PrimExpr | None:
    a, b = B.as_int(args[0]), B.as_int(args[1])
    return None if a is None or b is None or b < 0 else B.const(dtype, B.wrap(dtype, a << b))


def _bitwise(op: Callable[[int, int], int]) -> Callable[[Args, str], PrimExpr | None]:
    def fold(args: Args, dtype: str) -> PrimExpr | None:
        a, b = B.as_int(args[0]), B.as_int(args[1])
        return None if a is None or b is None else B.const(dtype, op(a, b))

    return fold


def _count_leading_zeros(args: Args, dtype: str) -> PrimExpr | None:
    (e,) = args
    if type(e) is not IntImm:
        return None
    bits = int("".join(c for c in e.dtype if c.isdigit()))
    return B.const(dtype, bits - (e.value & ((1 << bits) - 1)).bit_length())


def _ceil(args: Args, dtype: str) -> PrimExpr | None:
    (e,) = args
    if type(e) is IntImm:
        return B.cast(dtype, e)
    if type(e) is FloatImm and math.isfinite(e.value):
        return B.cast(dtype, FloatImm(e.dtype, float(math.ceil(e.value))))
    # The number of binary digits of a literal, the same whatever way a target rounds.
    if type(e) is Call and getattr(e.op, "name", "") == "tir.log2":
        value: Any = e.args[0]
        if type(value) is FloatImm and value.value > 0:
            return FloatImm(dtype, float(math.ceil(math.log2(value.value))))
    return None


_FOLDS: dict[str, Callable[[Args, str], PrimExpr | None]] = {
    "tir.shift_right": _shift_right,
    "tir.shift_left": _shift_left,
    "tir.bitwise_and": _bitwise(lambda a, b: a & b),
    "tir.bitwise_or": _bitwise(lambda a, b: a | b),
    "tir.bitwise_xor": _bitwise(lambda a, b: a ^ b),
    "tir.clz": _count_leading_zeros,
    "tir.ceil": _ceil,
}


def simplify_call(name: str, args: Args, dtype: str) -> PrimExpr | None:
    """The value of the intrinsic ``name`` where its arguments are literals, else None."""
    fold = _FOLDS.get(name)
    return None if fold is None else fold(args, dtype)
