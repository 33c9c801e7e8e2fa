"""Image operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te, topi
from ...ir.expr import PrimExpr
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, ShapeExpr
from ...relax.layout import (
    InferLayoutOutput,
    LayoutDecision,
    LayoutMap,
    initial_layout,
    initial_nlayout,
    transpose_like,
)
from ...relax.struct_info import StructInfo
from ..inference import (
    as_expr,
    as_int,
    as_shape,
    check_count,
    fail,
    make_call,
    shape_info,
    tensor,
    tensor_arg,
    written_dims,
)
from ..kinds import POOLING, Desired, plain_layout, rank_of
from ..lowering import te_call
from ..nn.layouts import check_rank, layout_attr, reorder
from ..record import define

__all__ = ["resize2d"]


def resize2d(
    data: Expr,
    size: Expr | int | PrimExpr | Sequence[int | PrimExpr],
    roi: float | Sequence[float] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Expr:
    """Images resampled to ``size`` by ``nearest_neighbor``, ``linear`` or ``cubic`` interpolation."""
    if isinstance(size, (int, np.integer, PrimExpr)):
        size = (size, size)
    if isinstance(size, Sequence) and len(size) == 1:
        size = (size[0], size[0])
    values = (
        (0.0,) * 4 if roi is None else tuple(float(v) for v in roi) if isinstance(roi, Sequence) else (float(roi),) * 4
    )
    attrs = {
        "roi": values,
        "layout": layout,
        "method": method,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "rounding_method": rounding_method,
        "cubic_alpha": float(cubic_alpha),
        "cubic_exclude": as_int(cubic_exclude),
        "extrapolation_value": float(extrapolation_value),
        "out_dtype": "" if out_dtype is None else str(out_dtype),
    }
    return make_call("image.resize2d", [as_expr(data), as_shape(size)], attrs)


def _infer(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) != 2:
        check_count(call, 2)
    info = tensor_arg(call, 0)
    size = shape_info(call, 1)
    if size.ndim != 2:
        raise fail(call, f"expects the given output size to be a 2-dimensional shape, not of {size.ndim} dimensions")
    layout, convert = layout_attr(call, "input", call.attrs.layout, "NCHW")
    check_rank(call, "data", info.ndim, layout)
    dtype = call.attrs.out_dtype or info.dtype
    dims, wanted = written_dims(info), call.args[1]
    if dims is None or not isinstance(wanted, ShapeExpr):
        return tensor(None, dtype, len(layout), info.vdevice)
    batch, channels, *_ = reorder(convert, dims)
    return tensor(list(convert.backward_shape([batch, channels, *wanted.values])), dtype, vdevice=info.vdevice)


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    a = call.attrs
    if not isinstance(call.args[1], ShapeExpr):
        return call

    def compute(data: te.Tensor, size: Sequence[PrimExpr]) -> te.Tensor:
        return topi.image.resize2d(
            data,
            a.roi,
            size,
            a.layout,
            a.method,
            a.coordinate_transformation_mode,
            a.rounding_method,
            float(a.cubic_alpha),
            int(a.cubic_exclude),
            float(a.extrapolation_value),
            a.out_dtype or None,
        )

    return te_call(builder, "resize2d", compute, *call.args)


def _layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    """The layout asked for, else that of the images; blocked ones are not resampled."""
    start, own = initial_layout(rank_of(call)), str(call.attrs.layout)
    asked = [w for w in desired.get(call.op.name, ()) if sorted(w) == sorted(own)]
    layout = LayoutDecision(transpose_like(start, own, asked[0])) if asked else plain_layout(call, layouts)
    changed = {"layout": transpose_like(own, start, layout.name)}
    return InferLayoutOutput([layout, initial_nlayout(call.args[1])], [layout], changed)


def _np_linear(x: np.ndarray, size: Sequence[int], method: str = "linear", **_: Any) -> np.ndarray:
    """Half-pixel linear interpolation, or nearest with rounding, channels first."""
    for axis, want in zip((2, 3), size):
        have = x.shape[axis]
        at = (np.arange(want) + 0.5) * have / want - 0.5
        if method == "nearest_neighbor":
            x = np.take(x, np.clip(np.round(at).astype(int), 0, have - 1), axis)
            continue
        low = np.floor(at).astype(int)
        part = (at - low).astype("float32").reshape([-1 if d == axis else 1 for d in range(4)])
        a, b = (np.take(x, np.clip(low + k, 0, have - 1), axis) for k in (0, 1))
        x = a * (1 - part) + b * part
    return x


_X = np.random.default_rng(51).uniform(-1, 1, (1, 2, 4, 5)).astype("float32")
define(
    "image.resize2d",
    _infer,
    kind=POOLING,
    attrs="Resize2D",
    layout=_layout,
    legalize=_legalize,
    reference=_np_linear,
    samples=lambda: [((_X,), {"size": (8, 7)}), ((_X,), {"size": (3, 10), "method": "nearest_neighbor"})],
)
