"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from ... import te
from ...tir import const, IterVar, PrimExpr
from ..utils import const_int, simplify
from ...te.tensor import Dim

__all__ = ["batch_matmul", "dense", "matmul"]


def _reduce(extent: PrimExpr) -> IterVar:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), "k")


def matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> te.Tensor:
    """``a @ b (+ bias)`` on the last two axes; leading axes of ``a`` are kept."""
    out_dtype = out_dtype or tensor_a.dtype
    rows = tensor_a.shape[-1] if transpose_a else tensor_a.shape[-2]
    inner = tensor_a.shape[-2] if transpose_a else tensor_a.shape[-1]
    cols = tensor_b.shape[-2] if transpose_b else tensor_b.shape[-1]
    k = _reduce(inner)
    lead = list(tensor_a.shape[:-2])
    kind = "TN"

    def body(*indices: PrimExpr) -> PrimExpr:
        *batch, i, j = indices
        left = tensor_a(*batch, *((k.var, i) if transpose_a else (i, k.var)))
        right_lead = batch[len(batch) - (len(tensor_b.shape) - 2) :] if len(tensor_b.shape) > 2 else []
        right = tensor_b(*right_lead, *((j, k.var) if transpose_b else (k.var, j)))
        return te.sum(left.astype(out_dtype) * right.astype(out_dtype), axis=k)

    name = f"T_matmul_{kind[0 if transpose_a else 1]}{kind[0 if transpose_b else 1]}"
    if not transpose_a and transpose_b and not lead:
        name = "T_matmul_NT"
    tag = "dense" if name == "T_matmul_NT" else "matmul"
    made = te.compute([*lead, rows, cols], body, name, tag, {"layout_free_placeholders": [tensor_b]})
    if bias is None:
        return made
    return te.compute(made.shape, lambda *i: made(*i) + bias(i[-1]).astype(out_dtype), "T_add", "broadcast")


def dense(data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None) -> te.Tensor:
    """``data @ weight.T (+ bias)``."""
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    oshape: Sequence[Dim] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """Products of matrix pairs; a batch of one is repeated."""
    out_dtype = out_dtype or tensor_a.dtype
    batch_a, batch_b = tensor_a.shape[0], tensor_b.shape[0]
    rows = tensor_a.shape[2] if transpose_a else tensor_a.shape[1]
    inner = tensor_a.shape[1] if transpose_a else tensor_a.shape[2]
    cols = tensor_b.shape[1] if transpose_b else tensor_b.shape[2]
    one_a, one_b = const_int(batch_a) == 1, const_int(batch_b) == 1
    batch = batch_b if one_a else batch_a
    k = _reduce(inner)

    def body(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        zero = const(0, str(b.dtype))
        at_a, at_b = (zero if one_a and not one_b else b), (zero if one_b and not one_a else b)
        left = tensor_a(at_a, *((k.var, i) if transpose_a else (i, k.var)))
        right = tensor_b(at_b, *((j, k.var) if transpose_b else (k.var, j)))
        return te.sum(left.astype(out_dtype) * right.astype(out_dtype), axis=k)

    name = f"T_batch_matmul_{'T' if transpose_a else 'N'}{'T' if transpose_b else 'N'}"
    # Weights may be laid out as suits the loops.
    attrs = {"layout_free_placeholders": [tensor_b]}
    return te.compute((batch, simplify(rows), simplify(cols)), body, name, "batch_matmul", attrs)
