"""Pooling."""

from __future__ import annotations

import math
from typing import Any
from collections.abc import Callable

from .... import op, te, tir, topi
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import product, simplify
from ....tir import const
from ..context import Context, attr_ints, convert, Made
from .convolution import bordered, window_padding

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
    border = -math.inf if table is _MAX else 0.0

    def pooled(image: Expr) -> tuple[Expr, bool]:
        whole, known = bordered(ctx, image, attrs, kernel, border)
        out = table[n](
            whole,
            pool_size=kernel,
            strides=strides,
            padding=known["pads"],
            dilation=dilation,
            ceil_mode=bool(attrs.get("ceil_mode", 0)),
            count_include_pad=include_pad,
            layout=_LAYOUT[n],
        )
        return ctx.emit(out), whole is not image

    out, laid = pooled(x)
    if table is _MAX or include_pad or not laid:
        return out
    # The border was averaged, too: as much of each mean is of the image as of a mean of ones.
    ones = ctx.emit(op.ones([1, 1, *ctx.dims(x)[2:]], ctx.dtype(x)))
    return op.divide(out, pooled(ones)[0])


@convert("MaxPool")
def _max_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.tensor(inputs[0])
    out = _largest(ctx, x, attrs)
    if attrs["__outputs__"] < 2:
        return out
    out = ctx.emit(out)
    return [out, _positions(ctx, x, ctx.dims(out), attrs)]


def _positions(ctx: Context, x: Expr, shape: list[PrimExpr], attrs: dict[str, Any]) -> Expr:
    """Where the largest element of each window is in the whole tensor, the first of equal ones."""
    n, kind = len(shape) - 2, ctx.dtype(x)
    kernel = attr_ints(attrs, "kernel_shape") or []
    strides, dilation = (attr_ints(attrs, name, [1] * n) or [] for name in ("strides", "dilations"))
    pads = ctx.named(window_padding(ctx, x, attrs, kernel, strides, dilation))
    columns_first = bool(attrs.get("storage_order", 0))
    reducer = topi.reduction.arg_reducer(True, False)

    def compute(data: te.Tensor, size: list[PrimExpr], pads: list[PrimExpr]) -> te.Tensor:
        steps = [te.reduce_axis((0, k), f"k{d}") for d, k in enumerate(kernel)]
        plane = data.shape[2:]

        def body(*at: PrimExpr) -> tuple[PrimExpr, ...]:
            inside: PrimExpr = const(True, "bool")
            places = []
            for d, spot in enumerate(at[2:]):
                place = spot * strides[d] + steps[d].var * dilation[d] - pads[d]
                inside = tir.And(inside, tir.And(place >= 0, place < plane[d]))
                places.append(place)
            flat = at[0] * data.shape[1] + at[1]
            order = list(zip(places, plane))
            for d in range(n):
                flat = flat * plane[d]
            within: PrimExpr = const(0, "int64")
            for place, length in reversed(order) if columns_first else order:
                within = within * length + place
            value = tir.if_then_else(inside, data(*at[:2], *places), te.min_value(kind))
            return reducer((tir.if_then_else(inside, flat + within, const(2**62, "int64")), value), axis=steps)

        found = te.compute(size, body, "largest")
        return te.compute(size, lambda *at: found[0](*at), "positions")

    return ctx.builder.emit_te(compute, x, shape, pads, primfunc_name_hint="max_pool_positions")


def _largest(ctx: Context, x: Expr, attrs: dict[str, Any]) -> Expr:
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


def _in_larger_plane(ctx: Context, places: Expr, natural: list[PrimExpr], shape: list[PrimExpr]) -> Expr:
    """Positions of a tensor in one of other sizes, in which it lies at the beginning."""

    def compute(flat: te.Tensor, old: list[PrimExpr], new: list[PrimExpr]) -> te.Tensor:
        def body(i: PrimExpr) -> PrimExpr:
            rest: PrimExpr = flat(i)
            parts = []
            for size in reversed(old):
                parts.append(tir.floormod(rest, tir.max(size, 1)))
                rest = tir.floordiv(rest, tir.max(size, 1))
            moved: PrimExpr = const(0, "int64")
            for part, size in zip(reversed(parts), new):
                moved = moved * size + part
            return moved

        return te.compute(flat.shape, body, "places")

    return ctx.builder.emit_te(compute, places, natural, shape, primfunc_name_hint="places")


@convert("MaxUnpool")
def _max_unpool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, where = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    n = ctx.ndim(x) - 2
    kernel = attr_ints(attrs, "kernel_shape") or []
    strides = attr_ints(attrs, "strides", [1] * n) or []
    pads = attr_ints(attrs, "pads", [0] * (2 * n)) or []
    dims = ctx.dims(x)
    natural = dims[:2] + [
        (d - 1) * s + k - pads[i] - pads[i + n] for i, (d, s, k) in enumerate(zip(dims[2:], strides, kernel))
    ]
    shape = ctx.elements(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else natural
    values, places = ctx.emit(ctx.reshape(x, [-1])), ctx.emit(ctx.reshape(where, [-1]))
    if len(inputs) > 2 and inputs[2] is not None:
        places = _in_larger_plane(ctx, places, natural, shape)
    (total,) = ctx.named([simplify(product(shape))])
    flat = ctx.emit(op.zeros([total], ctx.dtype(x)))
    return ctx.reshape(ctx.emit(op.scatter_elements(flat, places, values, 0)), shape)
