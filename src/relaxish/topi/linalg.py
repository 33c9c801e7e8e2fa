"""Products of matrices and tensors by their axes alone; operators with biases and types are in ``topi.nn``."""

from __future__ import annotations

from collections.abc import Sequence

from .. import te
from ..tir import const, IterVar, PrimExpr
from .nn.dense import matmul as stacked_matmul

__all__ = ["matmul", "tensordot"]


def _axis(extent: PrimExpr, name: str) -> IterVar:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), name)


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """The product of two matrices (or of stacks of them), either of them transposed first."""
    if len(a.shape) > 2:
        return stacked_matmul(a, b, None, None, transp_a, transp_b)
    rows, inner = (a.shape[1], a.shape[0]) if transp_a else (a.shape[0], a.shape[1])
    cols = b.shape[0] if transp_b else b.shape[1]
    k = _axis(inner, "k")

    def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        left = a(k.var, i) if transp_a else a(i, k.var)
        right = b(j, k.var) if transp_b else b(k.var, j)
        return te.sum(left * right, axis=k)

    return te.compute((rows, cols), body, "T_matmul", "matmul")


def tensordot(a: te.Tensor, b: te.Tensor, axes: int | Sequence[int | Sequence[int]]) -> te.Tensor:
    """Sum over pairs of axes: the last ``axes`` of ``a`` with the first of ``b``, or two lists of axes."""
    if isinstance(axes, int):
        left_axes, right_axes = list(range(len(a.shape) - axes, len(a.shape))), list(range(axes))
    else:
        left_axes, right_axes = [[v] if isinstance(v, int) else [*v] for v in axes]
    left_axes, right_axes = [v % len(a.shape) for v in left_axes], [v % len(b.shape) for v in right_axes]
    left_free = [k for k in range(len(a.shape)) if k not in left_axes]
    right_free = [k for k in range(len(b.shape)) if k not in right_axes]
    summed = [_axis(a.shape[v], f"k{n}") for n, v in enumerate(left_axes)]

    def body(*i: PrimExpr) -> PrimExpr:
        left = dict(zip(left_free, i)) | {v: k.var for v, k in zip(left_axes, summed)}
        right = dict(zip(right_free, i[len(left_free) :])) | {v: k.var for v, k in zip(right_axes, summed)}
        product = a(*(left[n] for n in range(len(a.shape)))) * b(*(right[n] for n in range(len(b.shape))))
        return te.sum(product, axis=summed) if summed else product

    shape = [a.shape[k] for k in left_free] + [b.shape[k] for k in right_free]
    return te.compute(shape, body, "T_tensordot", "matmul")
