"""Reductions over axes and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..ir import dtype as dt
from ..ir.attrs import Attrs
from ..ir.prim import is_zero
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Var
from ..relax.op_table import Gradient, Sample
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo
from ..tir import const
from .binary import add, divide, multiply, subtract
from .datatype import astype
from .inference import as_expr, axis_list, check_axes, check_count, make_call, opt_int, tensor, tensor_arg, written_dims
from .kinds import REDUCTION, reduced_axes
from .literals import const_like
from .lowering import by_te
from .manipulate import broadcast_to, expand_dims, flatten, reshape
from .record import define

__all__ = ["cumprod", "cumsum", "max", "mean", "min", "prod", "std", "sum", "variance"]

Axis = int | list[int] | tuple[int, ...] | None
#: What computes a reduction of a tensor.
_Reduce = Callable[..., te.Tensor]


def infer_reduction(call: Call, builder: BlockBuilder) -> StructInfo:
    """Shape of a reduction over ``axis`` with or without ``keepdims``."""
    check_count(call, 1)
    info = tensor_arg(call, 0)
    axis, keep = call.attrs.axis, bool(call.attrs.keepdims)
    if info.ndim < 0:
        if not keep and axis is None:
            return tensor([], info.dtype, vdevice=info.vdevice)
        return tensor(None, info.dtype, -1, info.vdevice)
    axes = list(range(info.ndim)) if axis is None else check_axes(call, info.ndim, axis)
    ndim = info.ndim if keep else info.ndim - len(axes)
    dims = written_dims(info)
    if dims is None:
        if axis is None and keep:
            return tensor([1] * info.ndim, info.dtype, vdevice=info.vdevice)
        if ndim == 0:
            return tensor([], info.dtype, vdevice=info.vdevice)
        return tensor(None, info.dtype, ndim, info.vdevice)
    shape: list[Any] = []
    for i, dim in enumerate(dims):
        if i not in axes:
            shape.append(dim)
        elif keep:
            shape.append(1)
    return tensor(shape, info.dtype, vdevice=info.vdevice)


# The largest number of half precision: it cannot count more elements.
_MOST_IN_HALF = 65504


def te_mean(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    """The arithmetic mean."""
    count: Any = const(1, "int32")
    for a in topi_axes(x, axis):
        count = count * x.shape[a]
    if is_zero(count) and dt.is_float(x.dtype):
        # Of nothing there is no mean.
        return topi.multiply(topi.sum(x, axis, keepdims), const(math.nan, x.dtype))
    if x.dtype == "float16" and const_int(count, 0) > _MOST_IN_HALF:
        return topi.cast(te_mean(topi.cast(x, "float32"), axis, keepdims), x.dtype)
    return topi.divide(topi.sum(x, axis, keepdims), count)


def topi_axes(x: te.Tensor, axis: Sequence[int] | None) -> list[int]:
    """Axes in the order given (all, if none are)."""
    if axis is None:
        return list(range(len(x.shape)))
    return [int(a) % len(x.shape) for a in axis]


def te_variance(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    """The mean squared distance from the mean."""
    deviation = topi.subtract(x, te_mean(x, axis, True))
    return te_mean(topi.multiply(deviation, deviation), axis, keepdims)


def _te_std(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    return topi.sqrt(te_variance(x, axis, keepdims))


def _read(attrs: Attrs) -> tuple[list[int] | None, bool]:
    axis = axis_list(attrs.axis)
    return None if axis is None else list(axis), bool(attrs.keepdims)


def _gradient_of_sum(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    return [_spread(call, out)]


def _spread(call: Call, out: Expr) -> Expr:
    """A reduced gradient back over the input's shape."""
    return broadcast_to(_with_axes(call, out), call.args[0].struct_info.shape)


def _with_axes(call: Call, out: Expr) -> Expr:
    """A reduced gradient with the axes that the reduction removed."""
    axis = call.attrs.axis
    return out if call.attrs.keepdims or not axis else expand_dims(out, [int(a) for a in axis])


def _count(call: Call) -> float:
    total = 1
    for a in reduced_axes(call):
        size = const_int(call.args[0].struct_info.dims()[a])
        if size is None:
            raise ValueError("the gradient of a mean needs known extents along the reduced axes")
        total *= size
    return float(total)


def _gradient_of_mean(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    return [_spread(call, divide(out, const_like(_count(call), call.args[0])))]


def _gradient_of_variance(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    x, axis, count = call.args[0], call.attrs.axis, _count(call)
    own = multiply(const_like(2.0 / count, x), x)
    mean = multiply(const_like(2.0 / count / count, x), sum(x, axis, keepdims=True))
    return [multiply(_with_axes(call, out), subtract(own, mean))]


def _reduction(
    name: str, compute: _Reduce, reference: Callable[..., Any], gradient: Gradient | None = None
) -> Callable[..., Expr]:
    def function(x: Expr, axis: Axis = None, keepdims: bool = False) -> Expr:
        return make_call(name, [as_expr(x)], {"axis": axis_list(axis), "keepdims": bool(keepdims)})

    def samples() -> Sequence[Sample]:
        x = np.random.default_rng(5).uniform(0.5, 1.5, (2, 3, 4)).astype("float32")
        return [((x,), {}), ((x,), {"axis": 1}), ((x,), {"axis": [0, -1], "keepdims": True})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over axes (all of them by default)."
    define(
        name,
        infer_reduction,
        kind=REDUCTION,
        legalize=by_te(name, compute, _read),
        gradient=gradient,
        reference=lambda x, axis=None, keepdims=False: reference(
            x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims
        ),
        samples=samples,
    )
    return function


max = _reduction("max", topi.max, np.max)
mean = _reduction("mean", te_mean, np.mean, _gradient_of_mean)
min = _reduction("min", topi.min, np.min)
prod = _reduction("prod", topi.prod, np.prod)
std = _reduction("std", _te_std, np.std)
sum = _reduction("sum", topi.sum, np.sum, _gradient_of_sum)
variance = _reduction("variance", te_variance, np.var, _gradient_of_variance)


def _infer_scan(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    dtype = str(call.attrs.dtype or "") or info.dtype
    if call.attrs.axis is None:
        dims = written_dims(info)
        if dims is None:
            return tensor(None, dtype, info.ndim, info.vdevice)
        total: Any = const(1, "int64")
        for dim in dims:
            total = total * dim
        return tensor([total], dtype, vdevice=info.vdevice)
    return tensor(info.shape, dtype, info.ndim, info.vdevice)


def _scan(
    name: str, compute: _Reduce, reference: Callable[..., Any], gradient: Gradient | None = None
) -> Callable[..., Expr]:
    def function(data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool = False) -> Expr:
        attrs = {"axis": opt_int(axis), "dtype": "" if dtype is None else str(dtype), "exclusive": bool(exclusive)}
        return make_call(name, [as_expr(data)], attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Running ``{name[3:]}`` along ``axis`` (of the flat data by default)."
    x = np.random.default_rng(6).uniform(0.5, 1.5, (3, 4)).astype("float32")
    define(
        name,
        _infer_scan,
        attrs="Scanop",
        legalize=by_te(name, compute, lambda a: (opt_int(a.axis), str(a.dtype or "") or None, bool(a.exclusive))),
        gradient=gradient,
        reference=reference,
        samples=lambda: [((x,), {}), ((x,), {"axis": 1})],
    )
    return function


def _gradient_of_cumsum(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    """Each value counts in all sums from its place on: the total less the sums before."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    x = call.args[0]
    back = subtract(sum(out, axis, keepdims=True), cumsum(out, axis))
    if not call.attrs.exclusive:
        back = add(back, flatten(out) if axis is None else out)
    if axis is None:
        back = reshape(back, x.struct_info.shape)
    return [astype(back, x.struct_info.dtype)]


cumprod = _scan("cumprod", topi.cumprod, lambda x, axis=None: np.cumprod(x, axis=axis))
cumsum = _scan("cumsum", topi.cumsum, lambda x, axis=None: np.cumsum(x, axis=axis), _gradient_of_cumsum)
