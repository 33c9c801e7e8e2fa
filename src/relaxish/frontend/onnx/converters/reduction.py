"""Reductions, extremes and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import op
from ..context import Context, attr_ints, convert


def _axes(ctx: Context, inputs: list[Any], attrs: dict[str, Any], since: int) -> list[int] | None:
    """Axes from an input (newer opsets) or an attribute; an empty list means all, unless told otherwise."""
    if len(inputs) > 1 and inputs[1] is not None:
        found = ctx.axes(inputs[1])
        return found or ([] if attrs.get("noop_with_empty_axes", 0) else None)
    found_attr = attr_ints(attrs, "axes")
    if found_attr:
        return found_attr
    return [] if attrs.get("noop_with_empty_axes", 0) else None


def _reduction(name: str, emit: Callable[[Context, Any, Any, bool], Any]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        x = ctx.tensor(inputs[0])
        axes = _axes(ctx, inputs, attrs, ctx.opset)
        if axes == []:
            return x
        return emit(ctx, x, axes, bool(attrs.get("keepdims", 1)))


def _plain(function: Callable[..., Any]) -> Callable[[Context, Any, Any, bool], Any]:
    return lambda ctx, x, axes, keep: function(x, axes, keep)


_reduction("ReduceSum", _plain(op.sum))
_reduction("ReduceMean", _plain(op.mean))
_reduction("ReduceMax", _plain(op.max))
_reduction("ReduceMin", _plain(op.min))
_reduction("ReduceProd", _plain(op.prod))
_reduction("ReduceSumSquare", lambda ctx, x, axes, keep: op.sum(ctx.emit(op.multiply(x, x)), axes, keep))
_reduction("ReduceL1", lambda ctx, x, axes, keep: op.sum(ctx.emit(op.abs(x)), axes, keep))
_reduction("ReduceL2", lambda ctx, x, axes, keep: op.sqrt(ctx.emit(op.sum(ctx.emit(op.multiply(x, x)), axes, keep))))
_reduction("ReduceLogSum", lambda ctx, x, axes, keep: op.log(ctx.emit(op.sum(x, axes, keep))))


def _log_sum_exp(ctx: Context, x: Any, axes: Any, keep: bool) -> Any:
    # Shifted by the maximum, so that no exponential overflows.
    top = ctx.emit(op.max(x, axes, True))
    powers = ctx.emit(op.exp(ctx.emit(op.subtract(x, top))))
    out = ctx.emit(op.add(ctx.emit(op.log(ctx.emit(op.sum(powers, axes, True)))), top))
    if keep:
        return out
    return op.squeeze(out, list(range(ctx.ndim(x))) if axes is None else axes)


_reduction("ReduceLogSumExp", _log_sum_exp)


def _extreme(name: str, emit: Callable[..., Any]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        x = ctx.tensor(inputs[0])
        axis, keep = int(attrs.get("axis", 0)), bool(attrs.get("keepdims", 1))
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


@convert("CumSum")
def _cumsum(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    x = ctx.tensor(inputs[0])
    axis = int(ctx.need_constant(inputs[1], "the axis of CumSum").reshape(-1)[0])
    exclusive, reverse = bool(attrs.get("exclusive", 0)), bool(attrs.get("reverse", 0))
    axis %= ctx.ndim(x)
    if reverse:
        x = ctx.emit(op.flip(x, axis))
    out = op.cumsum(x, axis, exclusive=exclusive)
    return op.flip(ctx.emit(out), axis) if reverse else out


@convert("TopK")
def _topk(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    k = int(attrs["k"]) if len(inputs) < 2 else int(ctx.need_constant(inputs[1], "k of TopK").reshape(-1)[0])
    largest = bool(attrs.get("largest", 1))
    return op.topk(ctx.tensor(inputs[0]), k, int(attrs.get("axis", -1)), "both", largest, "int64")
