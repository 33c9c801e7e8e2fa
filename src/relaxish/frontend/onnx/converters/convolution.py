"""Convolutions and their transposes."""

from __future__ import annotations

from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....tir import const
from ..context import Context, attr_ints, convert


def _kernel(ctx: Context, weight: Expr, attrs: dict[str, Any]) -> list[int]:
    given = attr_ints(attrs, "kernel_shape")
    if given:
        return given
    return [int(const_int(d) or 0) for d in ctx.dims(weight)[2:]]


def same_padding(
    ctx: Context, x: Expr, kernel: list[int], strides: list[int], dilation: list[int], lower: bool
) -> list[int]:
    """Padding that makes the output ``ceil(size / stride)``; the odd element goes to the end, or to the beginning."""
    before: list[int] = []
    after: list[int] = []
    for dim, k, s, d in zip(ctx.dims(x)[2:], kernel, strides, dilation):
        size = const_int(dim) if s > 1 else 1  # at stride 1 the size does not matter
        if size is None:
            raise ValueError("auto_pad SAME needs an input of known size where it strides")
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        half, rest = total // 2, total - total // 2
        before.append(rest if lower else half)
        after.append(half if lower else rest)
    return before + after


def window_padding(
    ctx: Context, x: Expr, attrs: dict[str, Any], kernel: list[int], strides: list[int], dilation: list[int]
) -> list[int]:
    """Explicit or automatic padding, before of all axes, then after."""
    mode = attrs.get("auto_pad", "NOTSET")
    n = len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_padding(ctx, x, kernel, strides, dilation, mode == "SAME_LOWER")
    if mode == "VALID":
        return [0] * (2 * n)
    pads = attr_ints(attrs, "pads", [0] * (2 * n))
    assert pads is not None
    return pads


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
    return _CONV[n](
        x,
        weight,
        strides=attr_ints(attrs, "strides", [1] * n) or [],
        padding=padding_of(ctx, x, weight, attrs),
        dilation=attr_ints(attrs, "dilations", [1] * n) or [],
        groups=int(attrs.get("group", 1)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )


def padding_of(ctx: Context, x: Expr, weight: Expr, attrs: dict[str, Any]) -> list[int]:
    """The padding of a convolution's image, before and after its axes, that the attributes of a node ask for."""
    n = ctx.ndim(x) - 2
    strides = attr_ints(attrs, "strides", [1] * n) or []
    dilation = attr_ints(attrs, "dilations", [1] * n) or []
    return list(window_padding(ctx, x, attrs, _kernel(ctx, weight, attrs), strides, dilation))


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
    kernel = _kernel(ctx, weight, attrs)
    strides = attr_ints(attrs, "strides", [1] * n) or []
    dilation = attr_ints(attrs, "dilations", [1] * n) or []
    extra = attr_ints(attrs, "output_padding", [0] * n) or []
    pads = attr_ints(attrs, "pads", [0] * (2 * n)) or []
    mode = attrs.get("auto_pad", "NOTSET")
    wanted = attr_ints(attrs, "output_shape")
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
