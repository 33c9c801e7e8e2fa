"""Parts of images: regions pooled into squares of one size, and convolutions whose windows bend."""

from __future__ import annotations

from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ....topi import vision
from ..context import Context, attr_ints, convert
from .convolution import add_bias


def _int(value: int) -> PrimExpr:
    return const(value, "int64")


def _roi_align(ctx: Context, inputs: list[Any], attrs: dict[str, Any], half_pixel: bool) -> Expr:
    x, rois, images = (ctx.tensor(v) for v in inputs)
    size = int(attrs.get("output_height", 1)), int(attrs.get("output_width", 1))
    pool = vision.AlignedRegions(
        size, float(attrs.get("spatial_scale", 1.0)), int(attrs.get("sampling_ratio", 0)), attrs.get("mode", "avg") == "max",
        half_pixel,
    )  # fmt: skip
    return ctx.builder.call_te(pool.compute, x, rois, images, primfunc_name_hint="roi_align")


@convert("RoiAlign", 10)
def _roi_align10(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _roi_align(ctx, inputs, attrs, half_pixel=False)


@convert("RoiAlign", 16)
def _roi_align16(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    return _roi_align(ctx, inputs, attrs, half_pixel=mode == "half_pixel")


@convert("MaxRoiPool")
def _max_roi_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Maxima over the cells of regions ``(image, x1, y1, x2, y2)`` with whole bounds."""
    size = attr_ints(attrs, "pooled_shape") or []
    if len(size) != 2:
        raise OpAttributeInvalid("MaxRoiPool needs a pooled_shape of two sizes")
    scale = float(attrs.get("spatial_scale", 1.0))

    def compute(x: te.Tensor, rois: te.Tensor) -> te.Tensor:
        return vision.roi_pool_nchw(x, rois, size, scale)

    return ctx.builder.call_te(compute, ctx.tensor(inputs[0]), ctx.tensor(inputs[1]), primfunc_name_hint="max_roi_pool")


@convert("DeformConv", 19)
def _deform_conv(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A convolution whose windows have an offset, and a weight, for each of their elements: columns, then a product."""
    given = [None if v is None else ctx.tensor(v) for v in inputs] + [None] * (5 - len(inputs))
    x, weight, offset, bias, mask = given
    if x is None or weight is None or offset is None:
        raise OpAttributeInvalid("DeformConv needs an image, weights and offsets")
    if ctx.ndim(x) != 4:
        raise NotImplementedError(f"DeformConv over {ctx.ndim(x) - 2} spatial axes")
    filters, inner, *window = ctx.dims(weight)
    kernel = attr_ints(attrs, "kernel_shape") or [int(const_int(d) or 0) for d in window]
    strides, dilation = (attr_ints(attrs, n, [1, 1]) or [] for n in ("strides", "dilations"))
    pads = attr_ints(attrs, "pads", [0] * 4) or []
    groups, shifts = int(attrs.get("group", 1)), int(attrs.get("offset_group", 1))
    batch = ctx.dims(x)[0]
    rows, columns = ctx.dims(offset)[2:]
    count = kernel[0] * kernel[1]

    def compute(data: te.Tensor, moves: te.Tensor, masks: list[te.Tensor]) -> te.Tensor:
        kind = data.dtype

        def body(n: PrimExpr, c: PrimExpr, k: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            group = tir.floordiv(c, tir.floordiv(data.shape[1], shifts))
            tap = group * count + k
            total: PrimExpr = const(0, kind)
            axes = []
            for axis, (at, step) in enumerate(((i, tir.floordiv(k, kernel[1])), (j, tir.floormod(k, kernel[1])))):
                place = at * strides[axis] - pads[axis] + step * dilation[axis]
                spot = place.astype(kind) + moves(n, tap * 2 + axis, i, j)
                low = tir.floor(spot)
                part = spot - low
                base, limit = low.astype("int64"), data.shape[2 + axis]
                axes.append([(base, const(1, kind) - part, limit), (base + 1, part, limit)])
            for row, row_share, height in axes[0]:
                for column, column_share, width in axes[1]:
                    inside = tir.And(tir.And(row >= 0, row < height), tir.And(column >= 0, column < width))
                    safe = [tir.max(tir.min(v, m - 1), 0) for v, m in ((row, height), (column, width))]
                    value = tir.if_then_else(inside, data(n, c, *safe), const(0, kind))
                    total = total + value * (row_share * column_share)
            return total * masks[0](n, tap, i, j) if masks else total

        return te.compute([*data.shape[:2], _int(count), *moves.shape[2:]], body, "bent_columns")

    taken: Expr = ctx.builder.emit_te(
        compute, x, offset, [] if mask is None else [mask], primfunc_name_hint="deformable_columns"
    )
    deep = inner * count
    taken = ctx.emit(ctx.reshape(taken, [batch, groups, deep, rows * columns]))
    matrix = ctx.emit(ctx.reshape(weight, [1, groups, tir.floordiv(filters, groups), deep]))
    out = ctx.emit(op.matmul(matrix, taken))
    out = ctx.emit(ctx.reshape(out, [batch, filters, rows, columns]))
    return add_bias(ctx, out, bias, 2)
