"""Masks, fused multiply-add and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import te, topi
from ..relax.expr import Call, Expr, PrimValue, const
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import StructInfo, TensorStructInfo
from ..tir import Select
from ..tir import const as tir_const
from .inference import (
    as_expr,
    common_dtype,
    fail,
    input_tensors,
    make_call,
    tensor,
    type_fail,
)
from .record import define

__all__ = ["ewise_fma", "masked_fill", "multinomial_from_uniform"]


def masked_fill(x: Any, mask: Any, value: Any) -> Expr:
    """``value`` where the mask holds, else ``x``."""
    from .create import full_like
    from .search import where

    x = as_expr(x)
    fill = (
        value
        if isinstance(value, Expr) and not isinstance(value, PrimValue)
        else const(getattr(getattr(value, "value", value), "value", getattr(value, "value", value)), _dtype_of(x))
    )
    return where(as_expr(mask), full_like(x, fill), x)


def _dtype_of(x: Any) -> str | None:
    info = x.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) and info.dtype else None


def ewise_fma(x1: Any, x2: Any, x3: Any) -> Expr:
    """``x1 * x2 + x3``, element by element."""
    return make_call("ewise_fma", [as_expr(v) for v in (x1, x2, x3)])


def _infer_fma(call: Call, builder: Any) -> StructInfo:
    infos = input_tensors(call, 3)
    dtype = common_dtype(call, infos)
    ranks = {i.ndim for i in infos if i.ndim >= 0}
    if len(ranks) > 1:
        raise fail(call, f"requires all inputs to have the same rank, not {sorted(ranks)}")
    dims = [i.dims() for i in infos]
    if all(d is not None for d in dims):
        for a, b in ((dims[0], dims[1]), (dims[0], dims[2])):
            for x, y in zip(a, b):  # type: ignore[arg-type]
                p, q = const_int(x), const_int(y)
                if p is not None and q is not None and p != q:
                    raise fail(call, "requires all inputs to have the same shape")
                if (p is None or q is None) and not prove_equal(x, y):
                    return tensor(None, dtype, infos[0].ndim, infos[0].vdevice)
        return tensor(infos[0].shape, dtype, vdevice=infos[0].vdevice)
    shapes = [i.shape for i in infos]
    if shapes[0] is not None and all(s is shapes[0] for s in shapes):
        return tensor(shapes[0], dtype, vdevice=infos[0].vdevice)
    return tensor(None, dtype, ranks.pop() if ranks else -1, infos[0].vdevice)


def _legalize_fma(builder: Any, call: Call) -> Expr:
    def compute(a: Any, b: Any, c: Any) -> Any:
        return topi.add(topi.multiply(a, b), c)

    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint="ewise_fma")
    return made


def multinomial_from_uniform(prob: Any, uniform_sample: Any, sample_indices: Any = None, dtype: str = "int64") -> Expr:
    """Draws from the rows of ``prob``, given uniform random numbers in ``[0, 1)``."""
    from .create import arange
    from .manipulate import reshape

    prob, uniform = as_expr(prob), as_expr(uniform_sample)
    if sample_indices is None:
        rows = uniform.struct_info.dims()[0]
        sample_indices = reshape(arange(rows, dtype="int64"), (rows, 1))
    return make_call("multinomial_from_uniform", [prob, uniform, as_expr(sample_indices)], {"dtype": dtype})


def _infer_multinomial(call: Call, builder: Any) -> StructInfo:
    prob, uniform, rows = input_tensors(call, 3)
    for info, name, kind in (
        (prob, "prob", "float"),
        (uniform, "uniform_sample", "float"),
        (rows, "sample_indices", "int"),
    ):
        if info.ndim not in (2, -1):
            raise fail(call, f"expects {name} to be a 2-dimensional tensor, not of rank {info.ndim}")
        if info.dtype and kind not in info.dtype:
            raise type_fail(call, f"expects {name} of {kind} dtype, not {info.dtype}")
    dims = uniform.dims()
    if dims is None:
        return tensor(None, call.attrs.dtype, 2, prob.vdevice)
    where = rows.dims()
    if where is not None:
        a, b = const_int(where[0]), const_int(dims[0])
        if a is not None and b is not None and a != b:
            raise fail(call, f"uniform_sample and sample_indices must have as many rows, not {b} and {a}")
    return tensor([dims[0], 1], call.attrs.dtype, vdevice=prob.vdevice)


def te_multinomial(prob: Any, uniform: Any, rows: Any, dtype: str) -> Any:
    """The number of classes whose cumulated probability does not reach the uniform draw."""
    total = topi.cumsum(prob, 1)
    classes = prob.shape[1]
    k = te.reduce_axis((tir_const(0, "int64"), classes), "k")

    def count(i: Any, j: Any) -> Any:
        row = rows(i, 0)
        whole = total(row, classes - 1)
        below = total(row, k.var) <= uniform(i, 0).astype(prob.dtype) * whole
        return te.sum(Select(below, tir_const(1, dtype), tir_const(0, dtype)), axis=k)

    counted = te.compute((uniform.shape[0], tir_const(1, "int64")), count, "multinomial_count")
    top = (classes - 1).astype(dtype)
    return te.compute(counted.shape, lambda i, j: te.min(counted(i, j), top), "multinomial")


def _legalize_multinomial(builder: Any, call: Call) -> Expr:
    dtype = call.attrs.dtype
    made: Expr = builder.call_te(
        lambda p, u, r: te_multinomial(p, u, r, dtype), *call.args, primfunc_name_hint="multinomial_from_uniform"
    )
    return made


_X = np.random.default_rng(31).uniform(-1, 1, (3, 4)).astype("float32")
define(
    "ewise_fma",
    _infer_fma,
    legalize=_legalize_fma,
    precision="follow",
    reference=lambda a, b, c: a * b + c,
    samples=lambda: [((_X, _X + 1, _X * 2), {})],
    arg_names=("x1", "x2", "x3"),
)
define(
    "multinomial_from_uniform",
    _infer_multinomial,
    legalize=_legalize_multinomial,
    precision="never",
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
    arg_names=("prob", "uniform_sample", "sample_indices"),
)
