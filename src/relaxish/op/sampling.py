"""Draws from distributions: classes from rows of probabilities."""

from __future__ import annotations

import numpy as np

from .. import te, topi
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import StructInfo
from ..tir import Select
from ..tir import const as tir_const
from .inference import as_expr, fail, input_tensors, make_call, tensor, type_fail, written_dims
from .lowering import by_te
from .record import define

__all__ = ["multinomial_from_uniform"]


def multinomial_from_uniform(
    prob: Expr, uniform_sample: Expr, sample_indices: Expr | None = None, dtype: str = "int64"
) -> Expr:
    """Draws from the rows of ``prob``, given uniform random numbers in ``[0, 1)``."""
    from .create import arange
    from .manipulate import reshape

    prob, uniform = as_expr(prob), as_expr(uniform_sample)
    if sample_indices is None:
        rows = uniform.struct_info.dims()[0]
        sample_indices = reshape(arange(rows, dtype="int64"), (rows, 1))
    return make_call("multinomial_from_uniform", [prob, uniform, as_expr(sample_indices)], {"dtype": dtype})


def _infer_multinomial(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 3)
    names = ("prob", "uniform_sample", "sample_indices")
    for info, name, kind in zip(infos, names, ("float", "float", "int")):
        if not info.dtype.startswith(kind):
            raise type_fail(call, f"requires the input {name} to have {kind} dtype, not {info.dtype or 'unknown'}")
    prob, uniform, rows = infos
    dtype = call.attrs.dtype
    if any(i.ndim < 0 for i in infos):
        return tensor(None, dtype, -1, prob.vdevice)
    for info, name in zip(infos, names):
        if info.ndim != 2:
            raise fail(call, f"requires the input {name} to be a 2D tensor, but it has ndim {info.ndim}")
    shapes = [written_dims(i) for i in infos]
    if any(s is None for s in shapes):
        return tensor(None, dtype, 2, prob.vdevice)
    (count, one), (other, another) = shapes[1], shapes[2]  # type: ignore[misc]
    if not prove_equal(count, other):
        raise fail(
            call,
            "requires the input uniform_sample and sample_indices to have the same batch size, but they have "
            f"{count} and {other}",
        )
    if const_int(one) != 1 or const_int(another) != 1:
        raise fail(
            call, f"requires the second dimension of uniform_sample and sample_indices to be 1, not {one} and {another}"
        )
    return tensor([count, 1], dtype, vdevice=prob.vdevice)


def te_multinomial(prob: te.Tensor, uniform: te.Tensor, rows: te.Tensor, dtype: str) -> te.Tensor:
    """The number of classes whose cumulated probability does not reach the uniform draw."""
    total = topi.cumsum(prob, 1)
    classes = prob.shape[1]
    k = te.reduce_axis((tir_const(0, "int64"), classes), "k")

    def count(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = rows(i, 0)
        whole = total(row, classes - 1)
        below = total(row, k.var) <= uniform(i, 0).astype(prob.dtype) * whole
        return te.sum(Select(below, tir_const(1, dtype), tir_const(0, dtype)), axis=k)

    counted = te.compute((uniform.shape[0], tir_const(1, "int64")), count, "multinomial_count")
    top = (classes - 1).astype(dtype)
    return te.compute(counted.shape, lambda i, j: te.min(counted(i, j), top), "multinomial")


define(
    "multinomial_from_uniform",
    _infer_multinomial,
    attrs="MultinomialFromUniform",
    legalize=by_te("multinomial_from_uniform", te_multinomial, lambda a: [a.dtype]),
    reference=lambda p, u, r, dtype="int64": np.array(
        [[int((np.cumsum(p[i]) <= v * p[i].sum()).sum())] for (i,), (v,) in zip(r, u)], dtype
    ),
    samples=lambda: [
        (
            (
                np.array([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]], "float32"),
                np.array([[0.4], [0.91]], "float32"),
                np.array([[0], [1]]),
            ),
            {},
        )
    ],
)
