"""Conversions between number types, as compiled programs make them."""

from __future__ import annotations


import numpy as np

from ..ir import dtype as dt
from .intrinsics import np_dtype, Value, wrap_int


def cast(value: Value, source: str, target: str) -> Value:
    """A value of one dtype as another.

    Floats round once, to nearest, ties to even; as integers of fewer than 32 bits they wrap around, as others they
    keep to the type's range, and NaN is 0.
    """
    element = dt.element_of(target)
    if dt.lanes(target) != 1:
        items = np.asarray(value)
        if not dt.is_float(source) and not dt.is_float(element):
            return items.astype(np_dtype(element))
        made = [cast(item, dt.element_of(source), element) for item in items.reshape(-1)]
        return np.array(made, np_dtype(element)).reshape(items.shape)
    if element == "bool":
        return bool(value)
    if element == "handle":
        return value
    if dt.is_float(element):
        return _nearest(value, element)
    number = _whole(float(value), element) if dt.is_float(source) else int(value)
    return wrap_int(number, dt.bits(element), dt.is_int(element))


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


def _nearest(value: Value, target: str) -> Value:
    """The float of ``target`` nearest to a number: what is wider than float32 goes there rounded to odd first."""
    kind = np_dtype(target)
    if dt.bits(target) >= 32 or isinstance(value, (bool, np.bool_)):
        return kind.type(value)
    exact = int(value) if isinstance(value, (int, np.integer)) else float(value)
    with np.errstate(over="ignore"):
        near = np.float32(exact)
    if float(near) != exact and exact == exact:
        if abs(float(near)) > abs(exact):
            near = np.nextafter(near, np.float32(0))
        near = np.uint32(near.view(np.uint32) | np.uint32(1)).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return near.astype(kind)
