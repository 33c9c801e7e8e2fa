"""Activations and small element-wise helpers."""

from __future__ import annotations


from ...ir.errors import CheckValueError
from ... import te, tir
from ...tir import const, PrimExpr
from .. import tag as tags
from ..utils import ax_compute, const_int

__all__ = ["leaky_relu", "prelu", "relu", "scale_shift_nchw", "softplus"]


def relu(x: te.Tensor) -> te.Tensor:
    """Negative elements become zero."""
    return te.compute(x.shape, lambda *i: tir.max(x(*i), const(0, x.dtype)), "compute", tags.ELEMWISE)


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """Negative elements scaled by ``alpha``."""

    def body(*indices: PrimExpr) -> PrimExpr:
        value = x(*indices)
        return tir.Select(value > const(0, x.dtype), value, value * const(alpha, x.dtype))

    return te.compute(x.shape, body, "compute", tags.ELEMWISE)


def softplus(x: te.Tensor, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """``log(1 + exp(beta x)) / beta``; the argument itself where ``beta x`` is above ``threshold``."""

    def body(*indices: PrimExpr) -> PrimExpr:
        value = x(*indices)
        b, limit, one = const(beta, x.dtype), const(threshold, x.dtype), const(1, x.dtype)
        return tir.Select(b * value > limit, value, one / b * tir.log(one + tir.exp(b * value)))

    return te.compute(x.shape, body, "compute", tags.ELEMWISE)


def prelu(x: te.Tensor, slope: te.Tensor, axis: int = 1) -> te.Tensor:
    """Negative elements scaled by a slope of their channel; a single slope serves all channels."""
    if len(slope.shape) != 1:
        raise CheckValueError(f"prelu takes one slope a channel, got a tensor of {len(slope.shape)} dimensions")
    if const_int(slope.shape[0]) == 1 and const_int(x.shape[axis]) != 1:
        single = slope
        slope = te.compute((x.shape[axis],), lambda _: single(const(0, "int64")), "slope_broadcasted")

    def body(*indices: PrimExpr) -> PrimExpr:
        value = x(*indices)
        return tir.Select(value > const(0, x.dtype), value, value * slope(indices[axis]))

    return te.compute(x.shape, body, "compute", tags.ELEMWISE)


def scale_shift_nchw(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Each channel scaled and shifted."""
    return ax_compute(Input.shape, lambda i: Input(*i) * Scale(i[1]) + Shift(i[1]), "ScaleShift", tags.BROADCAST)
