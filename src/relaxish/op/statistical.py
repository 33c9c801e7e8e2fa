"""Reductions over axes and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import topi
from ..ir import dtype as dt
from ..ir.prim import IntImm
from ..relax.expr import Call, Expr
from ..relax.struct_info import StructInfo
from ..tir import const
from .inference import as_expr, axis_list, check_axes, check_count, make_call, opt_int, tensor, tensor_arg, written_dims
from .record import define

__all__ = ["cumprod", "cumsum", "max", "mean", "min", "prod", "std", "sum", "variance"]

Axis = int | list[int] | tuple[int, ...] | None


def infer_reduction(call: Call, builder: Any) -> StructInfo:
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


def te_mean(x: Any, axis: Any, keepdims: bool) -> Any:
    """The arithmetic mean."""
    count: Any = const(1, "int32")
    for a in topi_axes(x, axis):
        count = count * x.shape[a]
    if isinstance(count, IntImm) and count.value == 0 and dt.is_float(x.dtype):
        # Of nothing there is no mean.
        return topi.multiply(topi.sum(x, axis, keepdims), const(math.nan, x.dtype))
    if isinstance(count, IntImm) and x.dtype == "float16" and count.value > _MOST_IN_HALF:
        return topi.cast(te_mean(topi.cast(x, "float32"), axis, keepdims), x.dtype)
    return topi.divide(topi.sum(x, axis, keepdims), count)


def topi_axes(x: Any, axis: Any) -> list[int]:
    """Axes in the order given (all, if none are)."""
    if axis is None:
        return list(range(len(x.shape)))
    return [int(a) % len(x.shape) for a in axis]


def te_variance(x: Any, axis: Any, keepdims: bool) -> Any:
    """The mean squared distance from the mean."""
    deviation = topi.subtract(x, te_mean(x, axis, True))
    return te_mean(topi.multiply(deviation, deviation), axis, keepdims)


def _te_std(x: Any, axis: Any, keepdims: bool) -> Any:
    return topi.sqrt(te_variance(x, axis, keepdims))


def legalize_reduction(compute: Callable[..., Any], name: str) -> Callable[[Any, Call], Expr]:
    """Lower by a function of ``(x, axis, keepdims)``."""

    def legalize(builder: Any, call: Call) -> Expr:
        axis = axis_list(call.attrs.axis)
        axes = None if axis is None else list(axis)
        made: Expr = builder.call_te(compute, call.args[0], axes, bool(call.attrs.keepdims), primfunc_name_hint=name)
        return made

    return legalize


def _reduction(name: str, compute: Callable[..., Any], reference: Any) -> Callable[..., Expr]:
    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Expr:
        return make_call(name, [as_expr(x)], {"axis": axis_list(axis), "keepdims": bool(keepdims)})

    def samples() -> Any:
        x = np.random.default_rng(5).uniform(0.5, 1.5, (2, 3, 4)).astype("float32")
        return [((x,), {}), ((x,), {"axis": 1}), ((x,), {"axis": [0, -1], "keepdims": True})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over axes (all of them by default)."
    define(
        name,
        infer_reduction,
        legalize=legalize_reduction(compute, name),
        precision="never",
        reference=lambda x, axis=None, keepdims=False: reference(
            x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims
        ),
        samples=samples,
        arg_names=("x",),
    )
    return function


max = _reduction("max", topi.max, np.max)
mean = _reduction("mean", te_mean, np.mean)
min = _reduction("min", topi.min, np.min)
prod = _reduction("prod", topi.prod, np.prod)
std = _reduction("std", _te_std, np.std)
sum = _reduction("sum", topi.sum, np.sum)
variance = _reduction("variance", te_variance, np.var)


def _infer_scan(call: Call, builder: Any) -> StructInfo:
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


def _scan(name: str, compute: Callable[..., Any], reference: Any) -> Callable[..., Expr]:
    def function(data: Any, axis: int | None = None, dtype: Any = None, exclusive: bool = False) -> Expr:
        attrs = {"axis": opt_int(axis), "dtype": "" if dtype is None else str(dtype), "exclusive": bool(exclusive)}
        return make_call(name, [as_expr(data)], attrs)

    def legalize(builder: Any, call: Call) -> Expr:
        dtype = str(call.attrs.dtype or "") or None
        made: Expr = builder.call_te(
            compute, call.args[0], opt_int(call.attrs.axis), dtype, bool(call.attrs.exclusive), primfunc_name_hint=name
        )
        return made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Running ``{name[3:]}`` along ``axis`` (of the flat data by default)."
    x = np.random.default_rng(6).uniform(0.5, 1.5, (3, 4)).astype("float32")
    define(
        name,
        _infer_scan,
        legalize=legalize,
        precision="never",
        reference=reference,
        samples=lambda: [((x,), {}), ((x,), {"axis": 1})],
        arg_names=("data",),
    )
    return function


cumprod = _scan("cumprod", topi.cumprod, lambda x, axis=None: np.cumprod(x, axis=axis))
cumsum = _scan("cumsum", topi.cumsum, lambda x, axis=None: np.cumsum(x, axis=axis))
