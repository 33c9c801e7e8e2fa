"""Pooling."""

from __future__ import annotations

from typing import Any
from collections.abc import Callable

from .... import op
from ....ir import dtype as dt
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ..context import Context, attr_ints, convert
from .convolution import window_padding

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVG = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(
    ctx: Context, x: Expr, attrs: dict[str, Any], table: dict[int, Callable[..., Expr]], include_pad: bool
) -> Expr:
    n = ctx.ndim(x) - 2
    if n not in table:
        raise NotImplementedError(f"pooling over {n} spatial axes")
    kernel = attr_ints(attrs, "kernel_shape") or []
    strides = attr_ints(attrs, "strides", [1] * n) or []
    dilation = attr_ints(attrs, "dilations", [1] * n) or []
    pads = window_padding(ctx, x, attrs, kernel, strides, dilation)
    return table[n](
        x,
        pool_size=kernel,
        strides=strides,
        padding=pads,
        dilation=dilation,
        ceil_mode=bool(attrs.get("ceil_mode", 0)),
        count_include_pad=include_pad,
        layout=_LAYOUT[n],
    )


@convert("MaxPool")
def _max_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    if attrs["__outputs__"] > 1:
        raise NotImplementedError("MaxPool with an output of positions")
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    if not dt.is_float(kind):
        wide = ctx.emit(op.astype(x, "float32"))
        return op.astype(ctx.emit(_pool(ctx, wide, attrs, _MAX, False)), kind)
    return _pool(ctx, x, attrs, _MAX, False)


@convert("AveragePool")
def _average_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _pool(ctx, ctx.tensor(inputs[0]), attrs, _AVG, bool(attrs.get("count_include_pad", 0)))


@convert("LpPool")
def _lp_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    p = float(attrs.get("p", 2))
    kernel = attr_ints(attrs, "kernel_shape") or []
    count = 1
    for k in kernel:
        count *= k
    powers = ctx.emit(op.power(ctx.emit(op.abs(x)), ctx.const(p, kind)))
    mean = ctx.emit(_pool(ctx, powers, attrs, _AVG, True))
    total = ctx.emit(op.multiply(mean, ctx.const(float(count), kind)))
    return op.power(total, ctx.const(1.0 / p, kind))


def _spatial(ctx: Context, x: Expr) -> list[int]:
    return list(range(2, ctx.ndim(x)))


@convert("GlobalAveragePool")
def _global_average(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    n = ctx.ndim(x) - 2
    emit = {1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d}.get(n)
    return emit(x, 1) if emit is not None else op.mean(x, _spatial(ctx, x), True)


@convert("GlobalMaxPool")
def _global_max(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return op.max(x, _spatial(ctx, x), True)


@convert("GlobalLpPool")
def _global_lp(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    p = float(attrs.get("p", 2))
    powers = ctx.emit(op.power(ctx.emit(op.abs(x)), ctx.const(p, kind)))
    total = ctx.emit(op.sum(powers, _spatial(ctx, x), True))
    return op.power(total, ctx.const(1.0 / p, kind))


@convert("MaxUnpool")
def _max_unpool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, where = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    n = ctx.ndim(x) - 2
    kernel = attr_ints(attrs, "kernel_shape") or []
    strides = attr_ints(attrs, "strides", [1] * n) or []
    pads = attr_ints(attrs, "pads", [0] * (2 * n)) or []
    dims = [int(const_int(d) or 0) for d in ctx.dims(x)]
    natural = dims[:2] + [
        (d - 1) * s + k - pads[i] - pads[i + n] for i, (d, s, k) in enumerate(zip(dims[2:], strides, kernel))
    ]
    shape = ctx.axes(inputs[2], "output_shape") if len(inputs) > 2 and inputs[2] is not None else natural
    total = 1
    for d in shape:
        total *= d
    flat = ctx.emit(op.zeros([total], ctx.dtype(x)))
    values, places = ctx.emit(ctx.reshape(x, [-1])), ctx.emit(ctx.reshape(where, [-1]))
    return ctx.reshape(ctx.emit(op.scatter_elements(flat, places, values, 0)), shape)
