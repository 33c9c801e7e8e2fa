"""Windows that bend, and windows of one image compared with those of another."""

from __future__ import annotations

from ... import te, tir
from ...ir.errors import CheckValueError
from ...tir import const, PrimExpr
from ..utils import const_int, int_pair, Padding, simplify, Steps
from .conv import pad_pair
from .pad import pad

__all__ = ["correlation_nchw", "deformable_conv2d_nchw", "deformable_conv2d_nhwc"]


def _deformable(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Steps, padding: Padding, dilation: Steps,
    deformable_groups: int, groups: int, out_dtype: str | None, channels_last: bool,
) -> te.Tensor:  # fmt: skip
    kind = out_dtype or data.dtype
    to_nchw = (0, 3, 1, 2) if channels_last else (0, 1, 2, 3)
    to_oihw = (3, 2, 0, 1) if channels_last else (0, 1, 2, 3)
    batch, channels, *size = [data.shape[a] for a in to_nchw]
    filters, inner, *window = [kernel.shape[a] for a in to_oihw]
    _, moves, *result = [offset.shape[a] for a in to_nchw]
    count = window[0] * window[1]
    wanted = const_int(simplify(count * (2 * deformable_groups)))
    if None not in (wanted, const_int(moves)) and wanted != const_int(moves):
        raise CheckValueError(f"{deformable_groups} groups of windows take {wanted} offsets, not {const_int(moves)}")
    steps, apart = int_pair(strides), int_pair(dilation)
    before, _ = pad_pair(padding, [(k - 1) * d + 1 for k, d in zip(window, apart)])
    share = simplify(channels // deformable_groups)
    per_group = simplify(filters // groups)

    def element(n: PrimExpr, c: PrimExpr, *at: PrimExpr) -> PrimExpr:
        return data(n, *at, c) if channels_last else data(n, c, *at)

    def bent(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        """An element of a window, between four of the image; 0 where these are outside."""
        tap = (c // share * count + i * window[1] + j) * 2
        axes = []
        for axis, (place, step) in enumerate(((y, i), (x, j))):
            shift = offset(n, y, x, tap + axis) if channels_last else offset(n, tap + axis, y, x)
            whole = place * steps[axis] - before[axis] + step * apart[axis]
            spot = whole.astype("float32") + shift.astype("float32")
            low = tir.floor(spot)
            part, base, limit = spot - low, low.astype("int64"), size[axis].astype("int64")
            axes.append([(base, const(1, "float32") - part, limit), (base + 1, part, limit)])
        total: PrimExpr = const(0, "float32")
        for row, row_share, height in axes[0]:
            for column, column_share, width in axes[1]:
                inside = tir.And(tir.And(row >= 0, row < height), tir.And(column >= 0, column < width))
                safe = [tir.max(tir.min(v, m - 1), const(0, "int64")) for v, m in ((row, height), (column, width))]
                value = tir.if_then_else(inside, element(n, c, *safe), const(0, data.dtype))
                total = total + value.astype("float32") * (row_share * column_share)
        return total.astype(data.dtype)

    columns = te.compute((batch, channels, *window, *result), bent, "data_deform")
    ic = te.reduce_axis((0, inner), "rc")
    axes = [te.reduce_axis((0, k), name) for k, name in zip(window, ("ry", "rx"))]

    def body(*at: PrimExpr) -> PrimExpr:
        n, o, y, x = (at[a] for a in to_nchw)
        first = ic.var if groups == 1 else o // per_group * inner + ic.var
        where = [a.var for a in axes]
        weight = kernel(*where, ic.var, o) if channels_last else kernel(o, ic.var, *where)
        return te.sum(columns(n, first, *where, y, x).astype(kind) * weight.astype(kind), axis=[ic, *axes])

    shape = (batch, *result, filters) if channels_last else (batch, filters, *result)
    name = f"deformable_conv2d_{'nhwc' if channels_last else 'nchw'}"
    return te.compute(shape, body, name, name)


def deformable_conv2d_nchw(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Steps, padding: Padding, dilation: Steps,
    deformable_groups: int, groups: int, out_dtype: str | None,
) -> te.Tensor:  # fmt: skip
    """A convolution each of whose windows' elements is moved by ``offset [n, 2 * groups * kh * kw, h, w]``, the row's
    part before the column's."""
    return _deformable(
        data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, channels_last=False
    )


def deformable_conv2d_nhwc(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Steps, padding: Padding, dilation: Steps,
    deformable_groups: int, groups: int, out_dtype: str | None,
) -> te.Tensor:  # fmt: skip
    """As :func:`deformable_conv2d_nchw`, with channels last and filters ``[h, w, in, out]``."""
    return _deformable(
        data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, channels_last=True
    )


def correlation_nchw(
    data1: te.Tensor, data2: te.Tensor, kernel_size: int, max_displacement: int, stride1: int, stride2: int,
    padding: Padding, is_multiply: bool,
) -> te.Tensor:  # fmt: skip
    """Windows of one image compared with those of another that are displaced by up to ``max_displacement``.

    A channel for each displacement (in steps of ``stride2``): the mean over window and channels of products, or of
    absolute differences.
    """
    before, after = pad_pair(padding, [const(kernel_size, "int32")] * 2)
    first, second = (pad(d, [0, 0, *before], [0, 0, *after], name="padded") for d in (data1, data2))
    batch, channels, *size = first.shape
    around, radius = max_displacement + (kernel_size - 1) // 2, max_displacement // stride2
    across = 2 * radius + 1
    shape = [simplify((n - 2 * around + stride1 - 1) // stride1) for n in size]
    rc = te.reduce_axis((0, channels), "rc")
    axes = [te.reduce_axis((0, kernel_size), name) for name in ("ry", "rx")]
    count = (channels * (kernel_size * kernel_size)).astype(data1.dtype)

    def compared(n: PrimExpr, q: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        here = [p * stride1 + max_displacement + a.var for p, a in zip((y, x), axes)]
        there = [h + (m - radius) * stride2 for h, m in zip(here, (q // across, q % across))]
        a, b = first(n, rc.var, *here), second(n, rc.var, *there)
        return te.sum(a * b if is_multiply else tir.abs(a - b), axis=[rc, *axes])

    total = te.compute((batch, across * across, *shape), compared, "correlation_sum")
    return te.compute(total.shape, lambda *at: total(*at) / count, "correlation_nchw", "correlation_nchw")
