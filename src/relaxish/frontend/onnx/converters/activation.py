"""Activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from collections.abc import Callable

from .... import op
from ....ir import dtype as dt
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ..context import Context, convert


def _simple(name: str, emit: Callable[[Expr], Expr], domain: str = "") -> None:
    @convert(name, domain=domain)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        return emit(ctx.tensor(inputs[0]))


_simple("Relu", op.nn.relu)
_simple("Sigmoid", op.sigmoid)
_simple("Softplus", op.nn.softplus)
_simple("Gelu", op.nn.gelu)
_simple("Gelu", op.nn.gelu, "com.microsoft")


def _scaled(ctx: Context, value: float, x: Expr) -> Expr:
    return ctx.emit(op.multiply(ctx.const(value, ctx.dtype(x)), x))


def _exp_minus_one(ctx: Context, x: Expr) -> Expr:
    """``exp(min(x, 0)) - 1``: never overflows, and zero where x is positive."""
    kind = ctx.dtype(x)
    below = ctx.emit(op.minimum(x, ctx.const(0.0, kind)))
    return ctx.emit(op.subtract(ctx.emit(op.exp(below)), ctx.const(1.0, kind)))


@convert("Gelu", 20)
def _gelu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return op.nn.gelu_tanh(x) if attrs.get("approximate", "none") == "tanh" else op.nn.gelu(x)


@convert("FastGelu", domain="com.microsoft")
def _fast_gelu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    if len(inputs) > 1 and inputs[1] is not None:
        x = ctx.emit(op.add(x, ctx.tensor(inputs[1])))
    return op.nn.gelu_tanh(x)


@convert("BiasGelu", domain="com.microsoft")
def _bias_gelu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return op.nn.gelu(ctx.emit(op.add(ctx.tensor(inputs[0]), ctx.tensor(inputs[1]))))


@convert("LeakyRelu")
def _leaky(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return op.nn.leakyrelu(ctx.tensor(inputs[0]), float(attrs.get("alpha", 0.01)))


@convert("ThresholdedRelu")
def _thresholded(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    above = ctx.emit(op.greater(x, ctx.const(float(attrs.get("alpha", 1.0)), kind)))
    return op.where(above, x, ctx.const(0.0, kind))


@convert("Elu")
def _elu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    low = _scaled(ctx, float(attrs.get("alpha", 1.0)), _exp_minus_one(ctx, x))
    return op.add(ctx.emit(op.nn.relu(x)), low)


@convert("Celu")
def _celu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    alpha = float(attrs.get("alpha", 1.0))
    scaled = ctx.emit(op.divide(x, ctx.const(alpha, ctx.dtype(x))))
    low = _scaled(ctx, alpha, _exp_minus_one(ctx, scaled))
    return op.add(ctx.emit(op.nn.relu(x)), low)


@convert("Selu")
def _selu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    alpha, gamma = (
        float(attrs.get("alpha", 1.67326319217681884765625)),
        float(attrs.get("gamma", 1.05070102214813232421875)),
    )
    low = _scaled(ctx, alpha, _exp_minus_one(ctx, x))
    return op.multiply(ctx.const(gamma, ctx.dtype(x)), ctx.emit(op.add(ctx.emit(op.nn.relu(x)), low)))


@convert("Mish")
def _mish(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    wide = x if kind != "float16" else ctx.emit(op.astype(x, "float32"))
    out = ctx.emit(op.multiply(wide, ctx.emit(op.tanh(ctx.emit(op.nn.softplus(wide))))))
    return out if kind != "float16" else op.astype(out, kind)


@convert("PRelu")
def _prelu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, slope = (ctx.tensor(v) for v in inputs)
    if ctx.opset < 7 and ctx.ndim(slope) == 1 and ctx.ndim(x) > 1 and const_int(ctx.dims(slope)[0]) != 1:
        # Older slopes are one a channel.
        slope = ctx.emit(ctx.reshape(slope, [-1] + [1] * (ctx.ndim(x) - 2)))
    below = ctx.emit(op.less(x, ctx.const(0, ctx.dtype(x))))
    return op.where(below, ctx.emit(op.multiply(slope, x)), x)


def _hard_sigmoid(ctx: Context, x: Expr, alpha: float, beta: float) -> Expr:
    kind = ctx.dtype(x)
    line = ctx.emit(op.add(_scaled(ctx, alpha, x), ctx.const(beta, kind)))
    return ctx.emit(op.clip(line, 0.0, 1.0))


@convert("HardSigmoid")
def _hardsigmoid(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _hard_sigmoid(ctx, ctx.tensor(inputs[0]), float(attrs.get("alpha", 0.2)), float(attrs.get("beta", 0.5)))


@convert("HardSwish")
def _hard_swish(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return op.multiply(x, _hard_sigmoid(ctx, x, 1.0 / 6.0, 0.5))


@convert("Softsign")
def _softsign(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return op.divide(x, ctx.emit(op.add(ctx.const(1.0, ctx.dtype(x)), ctx.emit(op.abs(x)))))


@convert("Shrink")
def _shrink(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    if not dt.is_float(kind):
        # Limit and bias are fractions.
        return op.astype(ctx.emit(_shrink(ctx, [ctx.emit(op.astype(x, "float32"))], attrs)), kind)
    limit, bias = float(attrs.get("lambd", 0.5)), float(attrs.get("bias", 0.0))
    high = ctx.emit(op.greater(x, ctx.const(limit, kind)))
    low = ctx.emit(op.less(x, ctx.const(-limit, kind)))
    minus = ctx.emit(op.subtract(x, ctx.const(bias, kind)))
    plus = ctx.emit(op.add(x, ctx.const(bias, kind)))
    return op.where(high, minus, ctx.emit(op.where(low, plus, ctx.const(0.0, kind))))


def _flattened(ctx: Context, x: Expr, axis: int, emit: Callable[[Expr, int], Expr]) -> Expr:
    """Before opset 13 the axes from ``axis`` on count as one."""
    from .shaping import flatten_at

    dims = ctx.dims(x)
    flat = ctx.emit(emit(ctx.emit(flatten_at(ctx, x, axis)), 1))
    return ctx.reshape(flat, dims)


for _name, _emit in (("Softmax", op.nn.softmax), ("LogSoftmax", op.nn.log_softmax)):

    @convert(_name, 1)
    def _old(ctx: Context, inputs: list[Any], attrs: dict[str, Any], emit: Callable[[Expr, int], Expr] = _emit) -> Expr:
        x = ctx.tensor(inputs[0])
        axis = int(attrs.get("axis", 1))
        axis = axis + ctx.ndim(x) if axis < 0 else axis
        if axis == ctx.ndim(x) - 1:
            return emit(x, axis)
        return _flattened(ctx, x, axis, emit)

    @convert(_name, 13)
    def _new(ctx: Context, inputs: list[Any], attrs: dict[str, Any], emit: Callable[[Expr, int], Expr] = _emit) -> Expr:
        return emit(ctx.tensor(inputs[0]), int(attrs.get("axis", -1)))


@convert("Hardmax")
def _old_hardmax(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    axis = int(attrs.get("axis", 1)) % ctx.ndim(x)
    return _flattened(ctx, x, axis, lambda v, last: _hardmax_along(ctx, v, last))


@convert("Hardmax", 13)
def _hardmax(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return _hardmax_along(ctx, x, int(attrs.get("axis", -1)) % ctx.ndim(x))


def _hardmax_along(ctx: Context, x: Expr, axis: int) -> Expr:
    """One at the first largest element along ``axis``, else zero."""
    if any(const_int(d) == 0 for d in ctx.dims(x)):
        return x
    depth = int(np.asarray(ctx.dims(x)[axis].value))  # type: ignore[attr-defined]
    best = ctx.emit(op.argmax(x, axis))
    kind = ctx.dtype(x)
    from ....relax.expr import PrimValue
    from ....tir import const

    return op.one_hot(best, PrimValue(const(1, kind)), PrimValue(const(0, kind)), depth, axis)
