"""Batch, layer, group and RMS normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import topi
from ...ir.attrs import Attrs
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr
from ...relax.layout import InferLayoutOutput, LayoutMap
from ...relax.op_table import Infer
from ...relax.scalars import prove_equal
from ...relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ...tir import const, floormod
from ..inference import (
    Ints,
    as_expr,
    as_int,
    axis_list,
    check_axes,
    check_axis,
    fail,
    input_tensors,
    make_call,
    provably_differ,
    require_float,
    tensor,
    type_fail,
    unknown_like,
    written_dims,
)
from ..kinds import NORMALIZATION, Desired, axis_in, initial_layouts, join_normalized, plain_layout
from ..lowering import by_te, te_call
from ..record import define

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> Expr:
    """Normalised by channel; returns the result and the new moving mean and variance."""
    attrs = {
        "axis": as_int(axis),
        "epsilon": float(epsilon),
        "center": bool(center),
        "scale": bool(scale),
        "momentum": float(momentum),
        "training": bool(training),
    }
    return make_call("nn.batch_norm", [as_expr(v) for v in (data, gamma, beta, moving_mean, moving_var)], attrs)


def layer_norm(
    data: Expr, gamma: Expr, beta: Expr, axes: Ints, epsilon: float = 1e-5, center: bool = True, scale: bool = True
) -> Expr:
    """Normalised over ``axes`` of each sample."""
    attrs = {"axes": axis_list(axes), "epsilon": float(epsilon), "center": bool(center), "scale": bool(scale)}
    return make_call("nn.layer_norm", [as_expr(v) for v in (data, gamma, beta)], attrs)


def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: Ints,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalised within groups of channels."""
    attrs = {
        "num_groups": as_int(num_groups),
        "channel_axis": as_int(channel_axis),
        "axes": axis_list(axes),
        "epsilon": float(epsilon),
        "center": bool(center),
        "scale": bool(scale),
    }
    return make_call("nn.group_norm", [as_expr(v) for v in (data, gamma, beta)], attrs)


def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    channel_axis: int,
    axes: Ints,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalised for every channel of every sample."""
    attrs = {
        "channel_axis": as_int(channel_axis),
        "axes": axis_list(axes),
        "epsilon": float(epsilon),
        "center": bool(center),
        "scale": bool(scale),
    }
    return make_call("nn.instance_norm", [as_expr(v) for v in (data, gamma, beta)], attrs)


def rms_norm(data: Expr, weight: Expr, axes: Ints = -1, epsilon: float = 1e-5) -> Expr:
    """Divided by the root mean square over ``axes``, then scaled."""
    return make_call(
        "nn.rms_norm", [as_expr(data), as_expr(weight)], {"axes": axis_list(axes), "epsilon": float(epsilon)}
    )


def _check_dtypes(call: Call, infos: Sequence[TensorStructInfo], rank: int) -> None:
    """The data is float; the others have its dtype and ``rank`` dimensions."""
    data = infos[0]
    require_float(call, data)
    for info in infos[1:]:
        if info.dtype != data.dtype:
            raise type_fail(
                call,
                "requires all the input tensors to have the same dtype, but got "
                f"{info.dtype or 'unknown'} and {data.dtype or 'unknown'}",
            )
        if info.ndim != rank:
            raise fail(call, f"requires each weight to have {rank} dimensions, but one has ndim {info.ndim}")


def _certain(call: Call, infos: Sequence[TensorStructInfo], axes: Sequence[Any]) -> bool:
    """Check the inputs of a normalisation over ``axes``; False where it cannot be told whether the sizes agree."""
    data = infos[0]
    places = check_axes(call, data.ndim, axes) if data.ndim >= 0 else []
    _check_dtypes(call, infos, len(axes))
    dims = written_dims(data)
    sizes = [] if dims is None else [[dims[p] for p in places]]
    sizes += [list(d) for d in (written_dims(i) for i in infos[1:]) if d is not None]
    for other in sizes[1:]:
        for size, want in zip(other, sizes[0]):
            if provably_differ(want, size):
                raise fail(
                    call,
                    "requires the input gamma, beta, etc., to have size same as the lengths of the data on the given "
                    f"axes, but there are {want} and {size}",
                )
            if not prove_equal(want, size):
                return False
    return True


def _infer_batch_norm(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 5)
    data, _, _, mean, variance = infos
    if _certain(call, infos, [call.attrs.axis]):
        return TupleStructInfo([data, mean, variance])
    moving = tensor(None, data.dtype, 1, data.vdevice)
    return TupleStructInfo([unknown_like(data), moving, moving])


def _infer_over_axes(count: int) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        infos = input_tensors(call, count)
        return infos[0] if _certain(call, infos, call.attrs.axes) else unknown_like(infos[0])

    return infer


_infer_layer_norm = _infer_over_axes(3)
_infer_rms_norm = _infer_over_axes(2)


def _infer_group_norm(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 3)
    at = _channel(call, infos[0])
    require_float(call, infos[0])
    dims = written_dims(infos[0])
    if dims is not None and at is not None:
        groups = const(int(call.attrs.num_groups), "int64")
        if provably_differ(floormod(dims[at], groups), const(0, "int64")):
            raise fail(call, f"expects the size of channel_axis, {dims[at]}, to be divisible by num_groups, {groups}")
    _check_channel_weights(call, infos, at)
    return infos[0]


def _infer_instance_norm(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 3)
    _check_channel_weights(call, infos, _channel(call, infos[0]))
    return infos[0]


def _channel(call: Call, data: TensorStructInfo) -> int | None:
    """The channel axis, which must not be among the normalised axes."""
    if data.ndim < 0:
        return None
    at = check_axis(call, data.ndim, call.attrs.channel_axis)
    if at in check_axes(call, data.ndim, call.attrs.axes):
        raise fail(call, f"expects that channel_axis must not be in axes, but got {at} and {list(call.attrs.axes)}")
    return at


def _check_channel_weights(call: Call, infos: Sequence[TensorStructInfo], at: int | None) -> None:
    _check_dtypes(call, infos, 1)
    dims = written_dims(infos[0])
    for info in infos[1:]:
        size = written_dims(info)
        if dims is not None and at is not None and size is not None and provably_differ(dims[at], size[0]):
            raise fail(call, f"expects every weight to have the size of channel_axis, but got {size[0]} and {dims[at]}")


def _legalize_batch_norm(builder: BlockBuilder, call: Call) -> Expr:
    a = call.attrs
    return te_call(
        builder,
        "batch_norm",
        topi.nn.batch_norm,
        *call.args,
        axis=int(a.axis),
        epsilon=float(a.epsilon),
        center=bool(a.center),
        scale=bool(a.scale),
        training=bool(a.training),
        momentum=float(a.momentum),
    )


def _axes(attrs: Attrs) -> list[int]:
    return [int(v) for v in attrs.axes]


def _batch_norm_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = plain_layout(call, layouts)
    rest = initial_layouts(call, 1, 2, 3, 4)
    changed = {"axis": axis_in(layout, int(call.attrs.axis))}
    return InferLayoutOutput([layout, *rest], [(layout, rest[2], rest[3])], changed)


_RNG = np.random.default_rng(2)


def _a(*shape: int) -> np.ndarray:
    return _RNG.uniform(0.5, 1.5, shape).astype("float32")


def _np_layer_norm(
    x: np.ndarray, g: np.ndarray, b: np.ndarray, axes: int | Sequence[int], epsilon: float = 1e-5
) -> np.ndarray:
    over = (axes,) if isinstance(axes, int) else tuple(axes)
    mean, var = x.mean(over, keepdims=True), x.var(over, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * g + b


def _np_batch_norm(
    x: np.ndarray,
    g: np.ndarray,
    b: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    axis: int,
    epsilon: float = 1e-5,
    training: bool = True,
    momentum: float = 0.1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    row = [1] * x.ndim
    row[axis] = -1
    rest = tuple(i for i in range(x.ndim) if i != axis)
    mean, var = (x.mean(rest), x.var(rest)) if training else (m, v)
    out = (x - mean.reshape(row)) / np.sqrt(var.reshape(row) + epsilon) * g.reshape(row) + b.reshape(row)
    if not training:
        return out, m, v
    return out, (1 - momentum) * m + momentum * mean, (1 - momentum) * v + momentum * var


def _np_group_norm(
    x: np.ndarray,
    g: np.ndarray,
    b: np.ndarray,
    num_groups: int,
    channel_axis: int,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
) -> np.ndarray:
    n, c, *rest = x.shape
    grouped = x.reshape(n, num_groups, -1)
    mean, var = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    row = (1, c, *([1] * len(rest)))
    return ((grouped - mean) / np.sqrt(var + epsilon)).reshape(x.shape) * g.reshape(row) + b.reshape(row)


define(
    "nn.batch_norm",
    _infer_batch_norm,
    kind=NORMALIZATION,
    attrs="BatchNorm",
    layout=_batch_norm_layout,
    legalize=_legalize_batch_norm,
    reference=_np_batch_norm,
    samples=lambda: [
        ((_a(2, 3, 4, 5), _a(3), _a(3), _a(3), _a(3)), {"axis": 1}),
        ((_a(2, 3, 4, 5), _a(3), _a(3), _a(3), _a(3)), {"axis": 1, "training": False}),
    ],
)
define(
    "nn.layer_norm",
    _infer_layer_norm,
    kind=NORMALIZATION,
    attrs="LayerNorm",
    precision="follow",
    axes=join_normalized,
    legalize=by_te("layer_norm", topi.nn.layer_norm, lambda a: (_axes(a), float(a.epsilon))),
    reference=_np_layer_norm,
    samples=lambda: [
        ((_a(2, 3, 5), _a(5), _a(5)), {"axes": -1}),
        ((_a(2, 3, 5), _a(3, 5), _a(3, 5)), {"axes": [-2, -1]}),
    ],
)
define(
    "nn.group_norm",
    _infer_group_norm,
    kind=NORMALIZATION,
    attrs="GroupNorm",
    precision="follow",
    legalize=by_te(
        "group_norm", topi.nn.group_norm, lambda a: (int(a.num_groups), int(a.channel_axis), _axes(a), float(a.epsilon))
    ),
    reference=_np_group_norm,
    samples=lambda: [((_a(2, 4, 3, 5), _a(4), _a(4)), {"num_groups": 2, "channel_axis": 1, "axes": [2, 3]})],
)
define(
    "nn.instance_norm",
    _infer_instance_norm,
    kind=NORMALIZATION,
    attrs="InstanceNorm",
    legalize=by_te("instance_norm", topi.nn.instance_norm, lambda a: (int(a.channel_axis), _axes(a), float(a.epsilon))),
    reference=lambda x, g, b, channel_axis, axes, epsilon=1e-5: _np_layer_norm(
        x, g.reshape(1, -1, 1, 1), b.reshape(1, -1, 1, 1), axes, epsilon
    ),
    samples=lambda: [((_a(2, 4, 3, 5), _a(4), _a(4)), {"channel_axis": 1, "axes": [2, 3]})],
)
define(
    "nn.rms_norm",
    _infer_rms_norm,
    kind=NORMALIZATION,
    attrs="RMSNorm",
    precision="follow",
    axes=join_normalized,
    legalize=by_te("rms_norm", topi.nn.rms_norm, lambda a: (_axes(a), float(a.epsilon))),
    reference=lambda x, w, axes=-1, epsilon=1e-5: x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * w,
    samples=lambda: [((_a(2, 3, 5), _a(5)), {"axes": -1})],
)
