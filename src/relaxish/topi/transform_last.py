"""Working along an axis by a function that knows only the last one."""

from __future__ import annotations

from collections.abc import Callable

from .shape import transpose
from .. import te

__all__ = ["with_last_axis"]


def with_last_axis(data: te.Tensor, axis: int) -> tuple[te.Tensor, Callable[[te.Tensor], te.Tensor]]:
    """The data with ``axis`` and the last axis exchanged, and what exchanges them again in a result."""
    last = len(data.shape) - 1
    if axis == last:
        return data, lambda x: x
    order = list(range(len(data.shape)))
    order[axis], order[last] = last, axis
    return transpose(data, order), lambda x: transpose(x, order)
