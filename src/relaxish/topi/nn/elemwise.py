"""Activations and small element-wise helpers."""

from __future__ import annotations

from typing import Any

from ... import te, tir
from ...tir import const
from .. import tag as tags
from ..utils import ax_compute

__all__ = ["leaky_relu", "prelu", "relu", "scale_shift_nchw"]


def relu(x: Any) -> Any:
    """Negative elements become zero."""
    return te.compute(x.shape, lambda *i: tir.max(x(*i), const(0, x.dtype)), "compute", tags.ELEMWISE)


def leaky_relu(x: Any, alpha: float) -> Any:
    """Negative elements scaled by ``alpha``."""

    def body(*indices: Any) -> Any:
        value = x(*indices)
        return tir.Select(value > const(0, x.dtype), value, value * const(alpha, x.dtype))

    return te.compute(x.shape, body, "compute", tags.ELEMWISE)


def prelu(x: Any, slope: Any, axis: int = 1) -> Any:
    """Negative elements scaled by a slope of their channel."""

    def body(*indices: Any) -> Any:
        value = x(*indices)
        return tir.Select(value > const(0, x.dtype), value, value * slope(indices[axis]))

    return te.compute(x.shape, body, "compute", tags.ELEMWISE)


def scale_shift_nchw(Input: Any, Scale: Any, Shift: Any) -> Any:
    """Each channel scaled and shifted."""
    return ax_compute(Input.shape, lambda i: Input(*i) * Scale(i[1]) + Shift(i[1]), "ScaleShift", tags.BROADCAST)
