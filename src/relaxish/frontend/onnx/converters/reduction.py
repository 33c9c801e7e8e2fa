"""Reductions, extremes and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import op, tir
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import product, simplify
from ..context import Context, attr_ints, convert, Made
from .at_run_time import as_matrix, axis_flags, from_matrix, Halves, kept_dims


def _axes(ctx: Context, inputs: list[Any], attrs: dict[str, Any], since: int) -> list[int] | None:
    """Axes from an input (newer opsets) or an attribute; an empty list means all, unless told otherwise."""
    if len(inputs) > 1 and inputs[1] is not None:
        found = ctx.axes(inputs[1])
        return found or ([] if attrs.get("noop_with_empty_axes", 0) else None)
    found_attr = attr_ints(attrs, "axes")
    if found_attr:
        return found_attr
    return [] if attrs.get("noop_with_empty_axes", 0) else None


def _reduction(name: str, emit: Callable[[Context, Expr, list[int] | None, bool], Expr]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        x = ctx.tensor(inputs[0])
        keep = attrs.get("keepdims", 1) == 1
        if len(inputs) > 1 and inputs[1] is not None and ctx.setting(inputs[1]) is None:
            found = ctx.elements(inputs[1])
            if found:
                return _reduced_at_run_time(ctx, x, found, keep, emit)
            inputs = [inputs[0], ctx.const([], "int64")]
        axes = _axes(ctx, inputs, attrs, ctx.opset)
        if axes == [] or ctx.ndim(x) == 0:
            # Nothing to reduce over, but the rest of the function still holds.
            return _ELEMENTWISE[name](ctx, x) if name in _ELEMENTWISE else x
        return emit(ctx, x, axes, keep)


def _reduced_at_run_time(
    ctx: Context,
    x: Expr,
    axes: list[PrimExpr],
    keep: bool,
    emit: Callable[[Context, Expr, list[int] | None, bool], Expr],
) -> Expr:
    """A reduction over axes that the run names: over the rows of a matrix that has them there."""
    dims = ctx.dims(x)
    flags = axis_flags(ctx, axes, len(dims))
    halves = Halves(ctx, dims, flags)
    out = ctx.emit(emit(ctx, as_matrix(ctx, x, halves), [1], False))
    shape = halves.sizes[: len(dims)] if keep else kept_dims(ctx, dims, flags, len(axes))
    return ctx.reshape(out, shape)


_ELEMENTWISE: dict[str, Callable[[Context, Any], Any]] = {
    "ReduceSumSquare": lambda ctx, x: op.multiply(x, x),
    "ReduceL1": lambda ctx, x: op.abs(x),
    "ReduceL2": lambda ctx, x: op.abs(x),
    "ReduceLogSum": lambda ctx, x: op.log(x),
}


def _plain(
    function: Callable[[Expr, list[int] | None, bool], Expr],
) -> Callable[[Context, Expr, list[int] | None, bool], Expr]:
    return lambda ctx, x, axes, keep: function(x, axes, keep)


def _mean(ctx: Context, x: Expr, axes: list[int] | None, keep: bool) -> Expr:
    kind = ctx.dtype(x)
    if dt.is_float(kind):
        return op.mean(x, axes, keep)
    # Of integers it is the integer towards zero.
    total = ctx.emit(op.sum(x, axes, keep))
    dims = [d for k, d in enumerate(ctx.dims(x)) if axes is None or k in [a % ctx.ndim(x) for a in axes]]
    count = ctx.tensor(ctx.from_scalars([simplify(product(dims))], 0))
    return op.divide(total, ctx.emit(op.astype(count, kind)) if ctx.dtype(count) != kind else count)


def _root(ctx: Context, x: Expr) -> Expr:
    """The square root; of integers the one towards zero."""
    kind = ctx.dtype(x)
    if dt.is_float(kind):
        return op.sqrt(x)
    return op.astype(ctx.emit(op.sqrt(ctx.emit(op.astype(x, "float64")))), kind)


_reduction("ReduceSum", _plain(op.sum))
_reduction("ReduceMean", _mean)
_reduction("ReduceMax", _plain(op.max))
_reduction("ReduceMin", _plain(op.min))
_reduction("ReduceProd", _plain(op.prod))
_reduction("ReduceSumSquare", lambda ctx, x, axes, keep: op.sum(ctx.emit(op.multiply(x, x)), axes, keep))
_reduction("ReduceL1", lambda ctx, x, axes, keep: op.sum(ctx.emit(op.abs(x)), axes, keep))
_reduction("ReduceL2", lambda ctx, x, axes, keep: _root(ctx, ctx.emit(op.sum(ctx.emit(op.multiply(x, x)), axes, keep))))
_reduction("ReduceLogSum", lambda ctx, x, axes, keep: op.log(ctx.emit(op.sum(x, axes, keep))))


def _log_sum_exp(ctx: Context, x: Expr, axes: list[int] | None, keep: bool) -> Expr:
    # Shifted by the maximum, so that no exponential overflows.
    kind = ctx.dtype(x)
    top = ctx.emit(op.max(x, axes, True))
    # An infinite maximum would leave NaN; nothing overflows beside it.
    finite = ctx.emit(op.isfinite(top))
    top = ctx.emit(op.where(finite, top, ctx.const(0, kind)))
    powers = ctx.emit(op.exp(ctx.emit(op.subtract(x, top))))
    out = ctx.emit(op.add(ctx.emit(op.log(ctx.emit(op.sum(powers, axes, True)))), top))
    if keep:
        return out
    return op.squeeze(out, list(range(ctx.ndim(x))) if axes is None else axes)


_reduction("ReduceLogSumExp", _log_sum_exp)


def _extreme(name: str, emit: Callable[[Expr, int, bool], Expr]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        x = ctx.tensor(inputs[0])
        axis, keep = int(attrs.get("axis", 0)), attrs.get("keepdims", 1) == 1
        if not attrs.get("select_last_index", 0):
            return emit(x, axis, keep)
        # The last extreme of x is the first of the reversed x.
        axis %= ctx.ndim(x)
        extent = ctx.dims(x)[axis]
        found = ctx.emit(emit(ctx.emit(op.flip(x, axis)), axis, keep))
        last = ctx.tensor(ctx.from_scalars([extent - 1], 0))
        return op.subtract(last, found)


_extreme("ArgMax", op.argmax)
_extreme("ArgMin", op.argmin)


def _running(name: str, emit: Callable[..., Expr]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        x = ctx.tensor(inputs[0])
        dims, halves = ctx.dims(x), None
        known = ctx.setting(inputs[1])
        if known is None:  # the axis is the second one of a matrix that has it there
            halves = Halves(ctx, dims, axis_flags(ctx, ctx.elements(inputs[1]), len(dims)))
            x = as_matrix(ctx, x, halves)
        axis = int(known.reshape(-1)[0]) % len(dims) if known is not None else 1
        reverse = bool(attrs.get("reverse", 0))
        if reverse:
            x = ctx.emit(op.flip(x, axis))
        out = ctx.emit(emit(x, axis, exclusive=bool(attrs.get("exclusive", 0))))
        out = ctx.emit(op.flip(out, axis)) if reverse else out
        return out if halves is None else from_matrix(ctx, out, halves, dims)


_running("CumSum", op.cumsum)
_running("CumProd", op.cumprod)


@convert("TopK")
def _topk(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.tensor(inputs[0])
    axis, largest = int(attrs.get("axis", -1)), bool(attrs.get("largest", 1))
    known = np.asarray(attrs["k"]) if len(inputs) < 2 else ctx.setting(inputs[1])
    if known is not None:
        return op.topk(x, int(known.reshape(-1)[0]), axis, "both", largest, "int64")
    # As many as the run says, of all in order.
    k = ctx.element(inputs[1])
    axis %= ctx.ndim(x)
    (fitting,) = ctx.named([tir.max(tir.min(k, ctx.dims(x)[axis]), 0)])
    ctx.require([fitting], [k])
    order = ctx.emit(op.argsort(x, axis, largest, "int64"))
    ordered = ctx.emit(op.gather_elements(x, order, axis))
    return [ctx.emit(op.strided_slice(v, [axis], [0], [fitting], assume_inbound=True)) for v in (ordered, order)]
