"""Conversions between number types, as compiled programs make them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..ir import dtype as dt
from .intrinsics import np_dtype, Value, wrap_int


def cast(value: Value, source: str, target: str) -> Value:
    """A value of one dtype as another.

    Floats round once, to nearest, ties to even; as integers of fewer than 32 bits they wrap around, as others they
    keep to the type's range, and NaN is 0.
    """
    return _conversion(source, target)(value)


@lru_cache(maxsize=None)
def _conversion(source: str, target: str) -> Callable[[Any], Value]:
    """The function that converts values of one dtype to another: programs convert millions of elements one by one."""
    element = dt.element_of(target)
    if dt.lanes(target) != 1:
        return partial(
            _lanes,
            _conversion(dt.element_of(source), element),
            np_dtype(element),
            exact=(not dt.is_float(source) and not dt.is_float(element)),
        )
    if element == "bool":
        return bool
    if element == "handle":
        return lambda value: value
    if dt.is_float(element):
        kind = np_dtype(element)
        return kind.type if dt.bits(element) >= 32 else partial(_nearest, kind)
    bits, signed = dt.bits(element), dt.is_int(element)
    if dt.is_float(source):
        return lambda value: wrap_int(_whole(float(value), element), bits, signed)
    return lambda value: wrap_int(int(value), bits, signed)


def _lanes(convert: Callable[[Any], Value], kind: np.dtype[Any], value: Value, exact: bool) -> Value:
    """A vector, lane by lane unless NumPy's conversion of integers is the same."""
    items = np.asarray(value)
    if exact:
        return items.astype(kind)
    return np.array([convert(item) for item in items.reshape(-1)], kind).reshape(items.shape)


def _whole(value: float, target: str) -> int:
    """A float towards zero, within the range of the integers that processors convert to on the way to ``target``."""
    bits = dt.bits(target)
    if value != value:
        return 0
    if bits == 64 and dt.is_uint(target) and value >= 0:
        low, high = 0, (1 << 64) - 1
    else:
        width = 32 if bits < 32 or target == "int32" else 64
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    if abs(value) == float("inf"):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def _nearest(kind: np.dtype[Any], value: Value) -> Value:
    """The float of fewer than 32 bits nearest to a number: what is wider than float32 goes there rounded to odd first."""
    if isinstance(value, (bool, np.bool_)):
        return kind.type(value)
    exact = int(value) if isinstance(value, (int, np.integer)) else float(value)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.float32(exact)
        if float(near) != exact and exact == exact:
            if abs(float(near)) > abs(exact):
                near = np.nextafter(near, np.float32(0))
            near = np.uint32(near.view(np.uint32) | np.uint32(1)).view(np.float32)
        return near.astype(kind)
