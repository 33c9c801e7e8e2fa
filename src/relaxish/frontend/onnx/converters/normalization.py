"""Normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ..context import attr_ints, Context, convert, Made


@convert("BatchNormalization")
def _batch_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x, gamma, beta, mean, variance = (ctx.tensor(v) for v in inputs[:5])
    if attrs.get("training_mode", 0):
        return _batch_norm_training(ctx, (x, gamma, beta, mean, variance), attrs)
    if attrs["__outputs__"] > 3:
        raise NotImplementedError("BatchNormalization that gives the statistics of the batch")
    bound = ctx.builder.emit(
        op.nn.batch_norm(
            x,
            gamma,
            beta,
            mean,
            variance,
            axis=1,
            epsilon=float(attrs.get("epsilon", 1e-5)),
            training=False,
        )
    )
    if attrs["__outputs__"] == 1:
        return bound[0]
    return [bound[i] for i in range(attrs["__outputs__"])]


def _batch_norm_training(ctx: Context, tensors: tuple[Expr, ...], attrs: dict[str, Any]) -> Made:
    """Normalised by the batch's own mean and variance, which the running ones move towards."""
    x, gamma, beta, mean, variance = tensors
    kind, rest = ctx.dtype(x), [d for d in range(ctx.ndim(x)) if d != 1]
    kinds = [ctx.dtype(t) for t in tensors]
    x, gamma, beta, mean, variance = (_in_float32(ctx, t) for t in tensors)
    wide = ctx.dtype(x)
    column = [-1] + [1] * (len(rest) - 1)

    def along(value: Expr) -> Expr:
        return ctx.emit(ctx.reshape(value, column))

    now = ctx.emit(op.mean(x, rest))
    apart = ctx.emit(op.subtract(x, along(now)))
    spread = ctx.emit(op.mean(ctx.emit(op.multiply(apart, apart)), rest))
    epsilon = ctx.const(float(attrs.get("epsilon", 1e-5)), wide)
    root = ctx.emit(op.sqrt(ctx.emit(op.add(spread, epsilon))))
    scaled = ctx.emit(op.multiply(ctx.emit(op.divide(apart, along(root))), along(gamma)))
    out = ctx.emit(op.add(scaled, along(beta)))
    made = [out if kind == wide else ctx.emit(op.astype(out, kind))]
    share = float(attrs.get("momentum", 0.9))
    for old, new, dtype in ((mean, now, kinds[3]), (variance, spread, kinds[4])):
        kept = ctx.emit(op.multiply(old, ctx.const(share, ctx.dtype(old))))
        moved = ctx.emit(op.multiply(new, ctx.const(1 - share, wide)))
        total = ctx.emit(op.add(kept, moved))
        made.append(total if ctx.dtype(total) == dtype else ctx.emit(op.astype(total, dtype)))
    return made[0] if attrs["__outputs__"] == 1 else made[: attrs["__outputs__"]]


def _in_float32(ctx: Context, x: Expr) -> Expr:
    return ctx.emit(op.astype(x, "float32")) if ctx.dtype(x) in ("float16", "bfloat16") else x


@convert("LayerNormalization")
def _layer_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x, scale = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    axis = int(attrs.get("axis", -1))
    ndim = ctx.ndim(x)
    axes = list(range(axis % ndim, ndim))
    bias = ctx.tensor(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else ctx.emit(op.zeros_like(scale))
    epsilon = float(attrs.get("epsilon", 1e-5))
    out = ctx.emit(op.nn.layer_norm(x, scale, bias, axes, epsilon))
    if attrs["__outputs__"] == 1:
        return out
    kind = ctx.dtype(x)
    mean = ctx.emit(op.mean(x, axes, True))
    variance = ctx.emit(op.variance(x, axes, True))
    return [out, mean, op.rsqrt(ctx.emit(op.add(variance, ctx.const(epsilon, kind))))]


@convert("InstanceNormalization")
def _instance_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, scale, bias = (ctx.tensor(v) for v in inputs)
    axes = list(range(2, ctx.ndim(x)))
    return op.nn.instance_norm(x, scale, bias, 1, axes, float(attrs.get("epsilon", 1e-5)))


@convert("MeanVarianceNormalization")
def _mean_variance(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    axes = attr_ints(attrs, "axes", [0, 2, 3])
    mean = ctx.emit(op.mean(x, axes, True))
    deviation = ctx.emit(op.std(x, axes, True))
    small = ctx.const(1e-9, ctx.dtype(x))
    return op.divide(ctx.emit(op.subtract(x, mean)), ctx.emit(op.add(deviation, small)))


@convert("LRN")
def _lrn(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Each element divided by a power of the sum of squares over neighbouring channels."""
    x = ctx.tensor(inputs[0])
    kind, ndim = ctx.dtype(x), ctx.ndim(x)
    size = int(attrs["size"])
    alpha, beta, bias = float(attrs.get("alpha", 1e-4)), float(attrs.get("beta", 0.75)), float(attrs.get("bias", 1.0))
    channels = ctx.dims(x)[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = ctx.emit(op.multiply(x, x))
    widths = [0, 0, before, after] + [0, 0] * (ndim - 2)
    padded = ctx.emit(op.nn.pad(squares, widths))
    known = const_int(channels)
    if known is None:
        raise ValueError("LRN needs a known number of channels")
    total = None
    for k in range(size):
        part = ctx.emit(op.strided_slice(padded, [1], [k], [k + known]))
        total = part if total is None else ctx.emit(op.add(total, part))
    scaled = ctx.emit(op.multiply(total, ctx.const(alpha / size, kind)))
    base = ctx.emit(op.add(scaled, ctx.const(bias, kind)))
    return op.divide(x, ctx.emit(op.power(base, ctx.const(beta, kind))))


@convert("LpNormalization")
def _lp_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    axis, p = int(attrs.get("axis", -1)), int(attrs.get("p", 2))
    if p == 1:
        norm = ctx.emit(op.sum(ctx.emit(op.abs(x)), axis, True))
    else:
        norm = ctx.emit(op.sqrt(ctx.emit(op.sum(ctx.emit(op.multiply(x, x)), axis, True))))
    kind = ctx.dtype(x)
    empty = ctx.emit(op.equal(norm, ctx.const(0, kind)))
    return op.divide(x, ctx.emit(op.where(empty, ctx.const(1, kind), norm)))


@convert("SkipLayerNormalization", domain="com.microsoft")
def _skip_layer_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.emit(op.add(ctx.tensor(inputs[0]), ctx.tensor(inputs[1])))
    gamma = ctx.tensor(inputs[2])
    beta = ctx.tensor(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else ctx.emit(op.zeros_like(gamma))
    if len(inputs) > 4 and inputs[4] is not None:
        x = ctx.emit(op.add(x, ctx.tensor(inputs[4])))
    out = ctx.emit(op.nn.layer_norm(x, gamma, beta, [-1], float(attrs.get("epsilon", 1e-12))))
    if attrs["__outputs__"] == 1:
        return out
    empty = ctx.const(np.zeros([0]), "float32")
    return [out, empty, empty, x][: max(attrs["__outputs__"], 4)]


@convert("EmbedLayerNormalization", domain="com.microsoft")
def _embed_layer_norm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    padded = inputs + [None] * (9 - len(inputs))
    ids, segments, words, positions, types, gamma, beta, *rest = padded
    mask = rest[0] if rest else None
    place = rest[1] if len(rest) > 1 else None
    total = ctx.emit(op.take(ctx.tensor(words), ctx.tensor(ids), axis=0))
    if place is not None:
        where = ctx.emit(op.take(ctx.tensor(positions), ctx.tensor(place), axis=0))
    else:
        length = ctx.dims(ids)[1]
        where = ctx.emit(op.strided_slice(ctx.tensor(positions), [0], [0], [length]))
    total = ctx.emit(op.add(total, where))
    if segments is not None:
        total = ctx.emit(op.add(total, ctx.emit(op.take(ctx.tensor(types), ctx.tensor(segments), axis=0))))
    out = op.nn.layer_norm(total, ctx.tensor(gamma), ctx.tensor(beta), [-1], float(attrs.get("epsilon", 1e-12)))
    batch = ctx.dims(ids)[0]
    if mask is not None:
        index = op.sum(ctx.emit(op.astype(ctx.tensor(mask), "int32")), axis=1)
    else:
        index = op.zeros([batch], "int32")
    return [ctx.emit(out), index, total]
