"""Convolutions and their transposes."""

from __future__ import annotations

from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, simplify
from ....relax.struct_info import TensorStructInfo
from ....tir import const
from ..context import Context, attr_ints, convert
from .at_run_time import padded


def kernel_of(ctx: Context, weight: Expr, attrs: dict[str, Any]) -> list[int]:
    """The spatial sizes of a convolution's windows."""
    given = attr_ints(attrs, "kernel_shape")
    if given:
        return given
    return [int(const_int(d) or 0) for d in ctx.dims(weight)[2:]]


def _same(size: PrimExpr, kernel: int, stride: int, dilation: int, lower: bool) -> tuple[PrimExpr, PrimExpr]:
    """Padding in front and the padded size that make the output ``ceil(size / stride)``; the odd element goes behind
    unless ``lower``."""
    reach = (kernel - 1) * dilation + 1
    full = (tir.floordiv(size + (stride - 1), stride) - 1) * stride + reach
    # At stride 1 the size does not matter.
    total = const(reach - 1, "int64") if stride == 1 else simplify(full - size)
    if reach < stride:
        total = simplify(tir.max(total, const(0, "int64")))
    rest = total - tir.floordiv(total, 2) if lower else tir.floordiv(total, 2)
    return simplify(rest), full if reach >= stride > 1 else size + total


def same_padding(
    ctx: Context, x: Expr, kernel: list[int], strides: list[int], dilation: list[int], lower: bool
) -> list[PrimExpr]:
    """Padding before all axes, then after, for outputs of ``ceil(size / stride)``."""
    sizes = ctx.dims(x)[2:]
    found = [_same(size, k, s, d, lower) for size, k, s, d in zip(sizes, kernel, strides, dilation)]
    return [before for before, _ in found] + [
        simplify(full - size - before) for size, (before, full) in zip(sizes, found)
    ]


def window_padding(
    ctx: Context, x: Expr, attrs: dict[str, Any], kernel: list[int], strides: list[int], dilation: list[int]
) -> list[PrimExpr]:
    """Explicit or automatic padding, before of all axes, then after."""
    mode = attrs.get("auto_pad", "NOTSET")
    n = len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_padding(ctx, x, kernel, strides, dilation, mode == "SAME_LOWER")
    pads = None if mode == "VALID" else attr_ints(attrs, "pads")
    return [const(p, "int64") for p in pads or [0] * (2 * n)]


def bordered(
    ctx: Context, x: Expr, attrs: dict[str, Any], kernel: list[int], value: float | Expr = 0.0
) -> tuple[Expr, dict[str, Any]]:
    """An image with borders of ``value`` along the axes where their widths follow from unknown sizes.

    The second are the attributes of a node that asks for the other borders in numbers.
    """
    n = len(kernel)
    strides, dilation = (attr_ints(attrs, name, [1] * n) or [] for name in ("strides", "dilations"))
    pads = [const_int(p) for p in window_padding(ctx, x, attrs, kernel, strides, dilation)]
    known = {**attrs, "auto_pad": "NOTSET", "pads": [p or 0 for p in pads]}
    if None not in pads:
        return x, known
    axes = {d for d in range(n) if None in (pads[d], pads[n + d])}
    known["pads"] = [0 if k % n in axes else p for k, p in enumerate(known["pads"])]
    lower, kind = attrs["auto_pad"] == "SAME_LOWER", ctx.dtype(x)

    def compute(data: te.Tensor, *fill: te.Tensor) -> te.Tensor:
        sizes = data.shape[2:]
        borders = {d: _same(sizes[d], kernel[d], strides[d], dilation[d], lower) for d in axes}
        outside = const(value, kind) if isinstance(value, float) else fill[0]()

        def body(*at: PrimExpr) -> PrimExpr:
            inside: PrimExpr = const(True, "bool")
            places = list(at)
            for d, (before, _) in borders.items():
                places[2 + d] = at[2 + d] - before
                inside = tir.And(inside, tir.And(at[2 + d] >= before, at[2 + d] < before + sizes[d]))
            return tir.if_then_else(inside, data(*places), outside)

        shape = [*data.shape[:2], *(borders[d][1] if d in axes else sizes[d] for d in range(n))]
        return te.compute(shape, body, "pad")

    fills = [value] if isinstance(value, Expr) else []
    return ctx.builder.emit_te(compute, x, *fills, primfunc_name_hint="pad"), known


_CONV = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}
_LAYOUT = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def add_bias(ctx: Context, out: Expr, bias: Expr | None, n: int) -> Expr:
    """A bias for each channel."""
    out = ctx.emit(out)
    if bias is None:
        return out
    row = ctx.emit(ctx.reshape(ctx.tensor(bias), [1, -1] + [1] * n))
    return op.add(out, row)


def convolution(ctx: Context, x: Expr, weight: Expr, attrs: dict[str, Any], out_dtype: str | None = None) -> Expr:
    """The convolution that the attributes of a node describe."""
    n = ctx.ndim(x) - 2
    if n not in _CONV:
        raise NotImplementedError(f"convolution over {n} spatial axes")
    data_layout, kernel_layout = _LAYOUT[n]
    x, attrs = bordered(ctx, x, attrs, kernel_of(ctx, weight, attrs))
    return _CONV[n](
        x,
        weight,
        strides=attr_ints(attrs, "strides", [1] * n) or [],
        padding=attrs["pads"],
        dilation=attr_ints(attrs, "dilations", [1] * n) or [],
        groups=int(attrs.get("group", 1)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )


@convert("Conv")
def _conv(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, weight = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    out = convolution(ctx, x, weight, attrs)
    return add_bias(ctx, out, inputs[2] if len(inputs) > 2 else None, ctx.ndim(x) - 2)


@convert("ConvTranspose")
def _conv_transpose(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, weight = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    n = ctx.ndim(x) - 2
    if n not in (1, 2, 3):
        raise NotImplementedError(f"transposed convolution over {n} spatial axes")
    kernel = kernel_of(ctx, weight, attrs)
    strides = attr_ints(attrs, "strides", [1] * n) or []
    dilation = attr_ints(attrs, "dilations", [1] * n) or []
    extra = attr_ints(attrs, "output_padding", [0] * n) or []
    pads = attr_ints(attrs, "pads", [0] * (2 * n)) or []
    mode = attrs.get("auto_pad", "NOTSET")
    wanted = attr_ints(attrs, "output_shape")
    sizes_known = all(const_int(d) is not None for d in ctx.dims(x)[2:])
    if wanted and not sizes_known:
        whole = {**attrs, "auto_pad": "NOTSET", "pads": [0] * (2 * n)}
        del whole["output_shape"]
        out = ctx.emit(_conv_transpose(ctx, [x, weight], whole))
        out = _cut_to(ctx, out, wanted[-n:], upper=mode == "SAME_UPPER")
        return add_bias(ctx, out, inputs[2] if len(inputs) > 2 else None, n)
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [int(const_int(d) or 0) for d in ctx.dims(x)[2:]]
        target = wanted[-n:] if wanted else [s * t for s, t in zip(sizes, strides)]
        spans = [t * (i - 1) + (k - 1) * d + 1 for t, i, k, d in zip(strides, sizes, kernel, dilation)]
        total = [max(s + e - o, 0) for s, e, o in zip(spans, extra, target)]
        if wanted:  # A size beyond what the windows cover is padded behind.
            extra = [max(o + p - s, 0) for s, o, p in zip(spans, target, total)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if mode == "SAME_UPPER" else large + small
    groups = int(attrs.get("group", 1))
    if n == 3:
        out = _transposed_in_space(ctx, x, weight, kernel, strides, dilation, pads, extra, groups)
        return add_bias(ctx, out, inputs[2] if len(inputs) > 2 else None, n)
    data_layout, kernel_layout = _LAYOUT[n]
    out = _TRANSPOSED[n](
        x,
        weight,
        strides=strides,
        padding=pads,
        output_padding=extra,
        dilation=dilation,
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout.replace("OI", "IO"),
    )
    return add_bias(ctx, out, inputs[2] if len(inputs) > 2 else None, n)


def _cut_to(ctx: Context, x: Expr, wanted: list[int], upper: bool) -> Expr:
    """As much of an image as is wanted, from its middle; zeros follow where there is less."""
    zero = const(0, "int64")
    spare = [tir.max(d - w, zero) for d, w in zip(ctx.dims(x)[2:], wanted)]
    front = [tir.floordiv(s, 2) if upper else s - tir.floordiv(s, 2) for s in spare]
    behind = [w - d + b for d, w, b in zip(ctx.dims(x)[2:], wanted, front)]
    border = ctx.const(0, ctx.dtype(x))
    out = padded(ctx, x, [zero, zero, *(-b for b in front)], [zero, zero, *behind], "constant", border)
    return ctx.builder.match_cast(out, TensorStructInfo([*ctx.dims(x)[:2], *wanted], ctx.dtype(x)))


def _transposed_in_space(
    ctx: Context,
    x: Expr,
    weight: Expr,
    kernel: list[int],
    strides: list[int],
    dilation: list[int],
    pads: list[int],
    extra: list[int],
    groups: int,
) -> Expr:
    """A transposed convolution over three axes: a convolution of the elements set apart by zeros."""
    n = len(kernel)
    before = [d * (k - 1) - p for k, d, p in zip(kernel, dilation, pads[:n])]
    after = [d * (k - 1) - p + e for k, d, p, e in zip(kernel, dilation, pads[n:], extra)]

    def apart(data: te.Tensor) -> te.Tensor:
        sizes = [(d - 1) * s + 1 + b + a for d, s, b, a in zip(data.shape[2:], strides, before, after)]

        def body(*at: PrimExpr) -> PrimExpr:
            inside: PrimExpr = const(True, "bool")
            places = []
            for k, spot in enumerate(at[2:]):
                moved, extent = spot - before[k], data.shape[2 + k]
                place = tir.floordiv(moved, strides[k])
                inside = tir.And(inside, tir.And(tir.floormod(moved, strides[k]) == 0, place >= 0))
                inside = tir.And(inside, place < extent)
                places.append(tir.max(tir.min(place, extent - 1), 0))
            return tir.if_then_else(inside, data(*at[:2], *places), const(0, data.dtype))

        return te.compute([*data.shape[:2], *sizes], body, "apart")

    spread = ctx.builder.emit_te(apart, x, primfunc_name_hint="apart")
    inner, filters, *window = ctx.dims(weight)
    for axis in range(2, 2 + n):
        weight = ctx.emit(op.flip(weight, axis))
    share = tir.floordiv(inner, groups)
    weight = ctx.emit(ctx.reshape(weight, [groups, share, filters, *window]))
    weight = ctx.emit(op.permute_dims(weight, [0, 2, 1, 3, 4, 5]))
    weight = ctx.emit(ctx.reshape(weight, [filters * groups, share, *window]))
    return op.nn.conv3d(spread, weight, strides=1, padding=0, dilation=dilation, groups=groups)
