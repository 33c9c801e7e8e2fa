"""Plain containers of the run time: shapes and strings, and conversion of Python values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .ndarray import NDArray, from_numpy


class ShapeTuple(tuple):  # type: ignore[type-arg]
    """A tuple of integers, the run-time value of a shape expression."""

    __slots__ = ()

    def __new__(cls, shape: Iterable[int] = ()) -> ShapeTuple:
        return super().__new__(cls, (int(d) for d in shape))

    def __repr__(self) -> str:
        return f"ShapeTuple([{', '.join(str(d) for d in self)}])"


class String(str):
    """Run-time string; a plain ``str`` does as well."""

    __slots__ = ()


def convert(value: Any) -> Any:
    """A Python value as a run-time value: NumPy arrays become :class:`NDArray`, lists become tuples."""
    if isinstance(value, list | tuple) and not isinstance(value, ShapeTuple):
        return tuple(convert(v) for v in value)
    if isinstance(value, np.ndarray):
        return from_numpy(value)
    return value


def flatten(value: Any) -> list[NDArray]:
    """All arrays in a nested result, left to right."""
    if isinstance(value, NDArray):
        return [value]
    if isinstance(value, list | tuple) and not isinstance(value, ShapeTuple):
        return [a for v in value for a in flatten(v)]
    return []
