"""Masks, fused multiply-add and sampling."""

from __future__ import annotations

import numpy as np

from .. import te, topi
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue, const
from ..relax.layout import InferLayoutOutput, LayoutMap, initial_layout_decision
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import StructInfo, TensorStructInfo
from ..tir import Select
from ..tir import const as tir_const
from .inference import (
    Number,
    agreed_vdevice,
    as_expr,
    common_dtype,
    fail,
    input_tensors,
    make_call,
    tensor,
    type_fail,
    written_dims,
)
from .kinds import Desired, rank_of
from .lowering import by_te
from .record import define
from ..ir.plain import plain

__all__ = ["ewise_fma", "masked_fill", "multinomial_from_uniform"]


def masked_fill(x: Expr, mask: Expr, value: Number) -> Expr:
    """``value`` where the mask holds, else ``x``."""
    from .create import full_like
    from .search import where

    x = as_expr(x)
    fill = (
        value
        if isinstance(value, Expr) and not isinstance(value, PrimValue)
        else const(plain(plain(value)), _dtype_of(x))
    )
    return where(as_expr(mask), full_like(x, fill), x)


def _dtype_of(x: Expr) -> str | None:
    info = x.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) and info.dtype else None


def ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> Expr:
    """``x1 * x2 + x3``, element by element."""
    return make_call("ewise_fma", [as_expr(v) for v in (x1, x2, x3)])


def _infer_fma(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 3)
    ranks = {i.ndim for i in infos if i.ndim >= 0}
    if len(ranks) > 1:
        raise fail(call, f"the 3 arguments must have the same number of dimensions, not {sorted(ranks)}")
    dtype = common_dtype(call, infos)
    device = agreed_vdevice(infos)
    shapes = [written_dims(i) for i in infos]
    if all(s is not None for s in shapes):
        for first, *rest in zip(*shapes):
            if not all(prove_equal(first, other) for other in rest):
                raise fail(call, f"the 3 arguments must have the same shape, but {first} and {rest} may differ")
        return tensor(shapes[0], dtype, vdevice=device)
    if infos[0].shape is not None and all(i.shape is infos[0].shape for i in infos):
        return tensor(infos[0].shape, dtype, vdevice=device)
    return tensor(None, dtype, ranks.pop() if ranks else -1, device)


def _fma_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    found = [layouts.of(a) for a in call.args]
    layout = found[0] if found[0] == found[1] == found[2] else initial_layout_decision(rank_of(call))
    return InferLayoutOutput([layout] * 3, [layout])


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


_X = np.random.default_rng(31).uniform(-1, 1, (3, 4)).astype("float32")
define(
    "ewise_fma",
    _infer_fma,
    legalize=by_te("ewise_fma", lambda a, b, c: topi.add(topi.multiply(a, b), c)),
    layout=_fma_layout,
    precision="follow",
    reference=lambda a, b, c: a * b + c,
    samples=lambda: [((_X, _X + 1, _X * 2), {})],
)
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
