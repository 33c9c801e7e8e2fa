"""Selection by a condition and positions of extremes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import topi
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Var
from ..relax.struct_info import StructInfo
from .base import no_grad
from .inference import (
    agreed_vdevice,
    as_expr,
    broadcast,
    check_axis,
    check_count,
    common_dtype,
    input_tensors,
    make_call,
    opt_int,
    tensor,
    tensor_arg,
    type_fail,
    written_dims,
)
from .literals import const_like
from .lowering import by_te
from .manipulate import fit_to
from .record import define

__all__ = ["argmax", "argmin", "where"]


def where(condition: Expr, x1: Expr, x2: Expr) -> Expr:
    """``x1`` where the condition holds, else ``x2``; all broadcast."""
    return make_call("where", [as_expr(condition), as_expr(x1), as_expr(x2)])


def argmax(x: Expr, axis: int | None = None, keepdims: bool = False) -> Expr:
    """Position of the maximum along ``axis`` (of the flat data by default)."""
    return make_call("argmax", [as_expr(x)], {"axis": opt_int(axis), "keepdims": bool(keepdims)})


def argmin(x: Expr, axis: int | None = None, keepdims: bool = False) -> Expr:
    """Position of the minimum along ``axis`` (of the flat data by default)."""
    return make_call("argmin", [as_expr(x)], {"axis": opt_int(axis), "keepdims": bool(keepdims)})


def _infer_where(call: Call, builder: BlockBuilder) -> StructInfo:
    cond, a, b = input_tensors(call, 3)
    if cond.dtype != "bool":
        raise type_fail(
            call, f"requires the input condition tensor to have boolean dtype, not {cond.dtype or 'unknown'}"
        )
    dtype = common_dtype(call, [a, b])
    infos = (cond, a, b)
    device = agreed_vdevice(infos)
    ndim = -1 if any(i.ndim < 0 for i in infos) else max(i.ndim for i in infos)
    dims = [written_dims(i) for i in infos]
    if any(d is None for d in dims):
        if cond.shape is not None and cond.shape is a.shape and cond.shape is b.shape:
            return tensor(cond.shape, dtype, vdevice=device)
        return tensor(None, dtype, ndim, device)
    inner = broadcast(call, dims[1], dims[2])  # type: ignore[arg-type]
    shape = None if inner is None else broadcast(call, dims[0], inner)  # type: ignore[arg-type]
    return tensor(shape, dtype, ndim, device)


def _infer_arg(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    axis, keep = call.attrs.axis, bool(call.attrs.keepdims)
    if axis is not None and info.ndim >= 0:
        axis = check_axis(call, info.ndim, axis)
    if info.ndim < 0:
        if axis is None and not keep:
            return tensor([], "int64", vdevice=info.vdevice)
        return tensor(None, "int64", -1, info.vdevice)
    if axis is None:
        return tensor([1] * info.ndim if keep else [], "int64", vdevice=info.vdevice)
    dims = written_dims(info)
    if dims is None:
        ndim = info.ndim if keep else info.ndim - 1
        return tensor([] if ndim == 0 else None, "int64", ndim, info.vdevice)
    shape: list[Any] = [d for i, d in enumerate(dims) if i != axis]
    if keep:
        shape.insert(axis, 1)
    return tensor(shape, "int64", vdevice=info.vdevice)


def _where_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    condition, a, _ = call.args
    zero = const_like(0.0, a)
    return [
        no_grad(condition),
        fit_to(where(condition, out, zero), call, 1),
        fit_to(where(condition, zero, out), call, 2),
    ]


_RNG = np.random.default_rng(9)
_X, _Y = (_RNG.uniform(-1, 1, (3, 4)).astype("float32") for _ in range(2))
define(
    "where",
    _infer_where,
    gradient=_where_gradient,
    legalize=by_te("where", topi.where),
    reference=np.where,
    samples=lambda: [((_X > 0, _X, _Y), {})],
)
for _name, _ref in (("argmax", np.argmax), ("argmin", np.argmin)):
    define(
        _name,
        _infer_arg,
        attrs="ArgmaxArgmin",
        legalize=by_te(_name, getattr(topi, _name), lambda a: (opt_int(a.axis), bool(a.keepdims))),
        reference=lambda x, axis=None, keepdims=False, f=_ref: np.asarray(f(x, axis=axis, keepdims=keepdims)),
        samples=lambda: [((_X,), {}), ((_X,), {"axis": 1}), ((_X,), {"axis": 0, "keepdims": True})],
    )
