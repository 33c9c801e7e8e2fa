"""Normalisations: batch, layer, group, instance, RMS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import te, tir
from ...tir import const, PrimExpr
from .. import broadcast, math, reduction, shape
from .. import tag as tags
from ..utils import ax_compute, normalize_axis, prod

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def _tuple_sum() -> Callable[..., tuple[PrimExpr, ...]]:
    return te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda a, b: (const(0, a), const(0, b)), "tuple_sum"
    )


def _wide(value: PrimExpr) -> PrimExpr:
    """Half precision sums are kept in single precision."""
    return tir.Cast("float32", value) if value.dtype == "float16" else value


def _moments(data: te.Tensor, axes: Sequence[int], name: str) -> tuple[te.Tensor, te.Tensor]:
    """Sums of the elements and of their squares over ``axes``, in one pass."""
    rv = [te.reduce_axis((const(0, str(data.shape[a].dtype)), data.shape[a]), f"k{a}") for a in axes]
    combine = _tuple_sum()
    target = [d for i, d in enumerate(data.shape) if i not in axes]
    kept = [i for i in range(len(data.shape)) if i not in axes]

    def body(*indices: PrimExpr) -> tuple[PrimExpr, ...]:
        at = dict(zip(axes, (r.var for r in rv))) | dict(zip(kept, indices))
        value = _wide(data(*(at[axis] for axis in range(len(data.shape)))))
        return combine((value, value * value), axis=rv)

    names = [f"ax{i}" for i in range(len(target))]
    total, squares = te.compute(target, body, name, tags.COMM_REDUCE, None, names)
    return total, squares


def _extent(data: te.Tensor, axes: Sequence[int], dtype: str) -> PrimExpr:
    total: Any = const(1, dtype)
    for a in axes:
        total = total * data.shape[a]
    return total


def _normalised(
    data: te.Tensor,
    axes: Sequence[int],
    epsilon: float,
    finish: Callable[[PrimExpr, list[PrimExpr]], PrimExpr],
    name: str,
    result_dtype: str,
    sums_name: str,
) -> te.Tensor:
    sums, squares = _moments(data, axes, sums_name)
    wide = "float32" if data.dtype == "float16" else data.dtype
    count = _extent(data, axes, wide)
    kept = [i for i in range(len(data.shape)) if i not in axes]

    def body(indices: list[PrimExpr]) -> PrimExpr:
        outer = [indices[k] for k in kept]
        mean = sums(*outer) / count
        variance = squares(*outer) / count - mean * mean
        value = (data(*indices) - mean) * tir.rsqrt(variance + const(epsilon, wide))
        if result_dtype == "float16":
            value = tir.Cast("float16", value)
        return finish(value, indices)

    return ax_compute(data.shape, body, name, tags.INJECTIVE)


def layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axis: Sequence[int], epsilon: float = 1e-5
) -> te.Tensor:
    """Zero mean and unit variance over ``axis``, then scaled and shifted."""
    axes = reduction.real_axes(len(data.shape), axis)

    def finish(value: PrimExpr, indices: list[PrimExpr]) -> PrimExpr:
        inner = [indices[a] for a in axes]
        value = value * gamma(*inner)
        return value + beta(*inner) if beta is not None else value

    return _normalised(data, axes, epsilon, finish, "T_layer_norm", data.dtype, f"{data.op.name}_red_temp")


def rms_norm(data: te.Tensor, weight: te.Tensor, axis: Sequence[int], epsilon: float = 1e-5) -> te.Tensor:
    """Divided by the root mean square over ``axis``, then scaled; computed in single precision."""
    axes = reduction.real_axes(len(data.shape), axis)
    wide_data, wide_weight = _cast_copy(data, "float32"), _cast_copy(weight, "float32")
    squares = broadcast.multiply(wide_data, wide_data)
    total = reduction.sum(squares, axes)
    count = _extent(wide_data, axes, "float32")
    kept = [i for i in range(len(data.shape)) if i not in axes]
    scalar = not kept
    rows = [const(1, str(data.shape[0].dtype))] if scalar else [data.shape[k] for k in kept]
    scale = ax_compute(
        rows,
        lambda i: tir.rsqrt((total() if scalar else total(*i)) / count + const(epsilon, "float32")),
        "rsqrt",
        tags.INJECTIVE,
    )

    def body(indices: list[PrimExpr]) -> PrimExpr:
        outer = [const(0, str(data.shape[0].dtype))] if scalar else [indices[k] for k in kept]
        return scale(*outer) * wide_data(*indices) * wide_weight(*[indices[a] for a in axes])

    return _cast_copy(ax_compute(data.shape, body, "T_rms_norm", tags.INJECTIVE), data.dtype)


def _cast_copy(x: te.Tensor, dtype: str) -> te.Tensor:
    return ax_compute(x.shape, lambda i: x(*i).astype(dtype), "T_cast", tags.ELEMWISE)


def group_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Zero mean and unit variance within each group of channels."""
    ndim = len(data.shape)
    channel = normalize_axis(channel_axis, ndim)
    channels = data.shape[channel]
    groups = const(num_groups, str(channels.dtype))
    split = [*data.shape[:channel], groups, tir.floordiv(channels, groups), *data.shape[channel + 1 :]]
    grouped = shape.reshape(data, split)
    if data.dtype == "float16":
        grouped = _cast_copy(grouped, "float32")
    inner = [groups, tir.floordiv(channels, groups)]
    scale = shape.reshape(gamma, inner) if gamma is not None else None
    shift = shape.reshape(beta, inner) if beta is not None else None
    given = reduction.real_axes(ndim, list(axes))
    reduced = sorted({channel + 1, *(a + 1 if a > channel else a for a in given if a != channel)})

    def finish(value: PrimExpr, indices: list[PrimExpr]) -> PrimExpr:
        at = [indices[channel], indices[channel + 1]]
        if scale is not None:
            value = value * scale(*at)
        return value + shift(*at) if shift is not None else value

    result = _normalised(grouped, reduced, epsilon, finish, "T_group_norm", data.dtype, f"{data.op.name}_red_temp")
    return shape.reshape(result, data.shape)


def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, channel_axis: int, axis: Sequence[int], epsilon: float = 1e-5
) -> te.Tensor:
    """Zero mean and unit variance for every channel of every sample."""
    axes = reduction.real_axes(len(data.shape), list(axis))
    channel = normalize_axis(channel_axis, len(data.shape))

    def finish(value: PrimExpr, indices: list[PrimExpr]) -> PrimExpr:
        return value * gamma(indices[channel]) + beta(indices[channel])

    return _normalised(data, axes, epsilon, finish, "T_instance_norm", data.dtype, f"{data.op.name}_red_temp")


def batch_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    moving_mean: te.Tensor,
    moving_var: te.Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[te.Tensor]:
    """Normalised by batch statistics (training) or by the moving ones; returns the moving ones too."""
    axis = 1 if axis is None else axis
    epsilon = 1e-5 if epsilon is None else epsilon
    momentum = 0.1 if momentum is None else momentum
    ndim = len(data.shape)
    axis = normalize_axis(axis, ndim)
    one = const(1, str(data.shape[axis].dtype))
    row = [data.shape[axis] if i == axis else one for i in range(ndim)]
    axes = [i for i in range(ndim) if i != axis]
    if training:
        count = prod([data.shape[a] for a in axes])
        mean = broadcast.divide(reduction.sum(data, axes), count)
        mean_row = shape.reshape(mean, row)
        centred = broadcast.subtract(data, mean_row)
        variance = broadcast.divide(
            reduction.sum(broadcast.multiply(centred, broadcast.subtract(data, mean_row)), axes), count
        )
        var_row = shape.reshape(variance, row)
    else:
        mean_row, var_row = shape.reshape(moving_mean, row), shape.reshape(moving_var, row)
    out = broadcast.divide(broadcast.subtract(data, mean_row), math.sqrt(broadcast.add(var_row, _f(epsilon, data))))
    if scale is None or scale:
        out = broadcast.multiply(out, shape.reshape(gamma, row))
    if center is None or center:
        out = broadcast.add(out, shape.reshape(beta, row))
    if not training:
        return [out, broadcast.multiply(moving_mean, 1), broadcast.multiply(moving_var, 1)]

    def blend(moving: te.Tensor, now: te.Tensor) -> te.Tensor:
        kept = broadcast.multiply(_f(1 - momentum, moving), moving)
        return broadcast.add(kept, broadcast.multiply(_f(momentum, now), now))

    return [out, blend(moving_mean, mean), blend(moving_var, variance)]


def _f(value: float, like: te.Tensor) -> PrimExpr:
    return const(value, like.dtype)
