"""Convolutions of any rank and layout, and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...tir import const, if_then_else, PrimExpr
from ..utils import const_int, int_pair, Padding, simplify, Steps
from .pad import pad
from ...te.tensor import Dim

__all__ = [
    "conv", "conv1d", "conv1d_transpose_ncw", "conv2d", "conv2d_nchw", "conv2d_nhwc", "conv2d_transpose_nchw",
    "conv3d", "conv3d_transpose_ncdhw", "conv_transpose", "depthwise_conv2d_nchw", "dilate", "group_conv1d_transpose_ncw",
    "group_conv2d_transpose_nchw", "pad_pair",
]  # fmt: skip

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def pad_pair(padding: Padding, kernel: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Padding before and after each spatial axis from any of the accepted notations."""
    dim = len(kernel)
    match padding:
        case tuple() | list():
            if len(padding) == 2 * dim:
                return list(padding[:dim]), list(padding[dim:])
            if len(padding) == dim:
                return list(padding), list(padding)
            if len(padding) == 1:
                return [padding[0]] * dim, [padding[0]] * dim
            raise CheckValueError(
                f"padding can only have {dim} or {2 * dim} values for {dim} spatial axes, got {padding}"
            )
        case int() | tir.PrimExpr():
            return [padding] * dim, [padding] * dim
    if padding == "VALID":
        return [0] * dim, [0] * dim
    if padding == "SAME":
        total = [k - 1 for k in kernel]
        before = [(t + 1) // 2 for t in total]
        return before, [t - b for t, b in zip(total, before)]
    raise CheckValueError(f"Unknown padding option {padding}")


def _order(layout: str, wanted: str) -> list[int]:
    """Where each letter of ``wanted`` stands in ``layout``."""
    return [layout.index(letter) for letter in wanted]


def _inverse(order: Sequence[int]) -> list[int]:
    out = [0] * len(order)
    for i, o in enumerate(order):
        out[o] = i
    return out


def _exact_div(value: PrimExpr, by: int, what: str) -> PrimExpr:
    known = const_int(value)
    if known is not None and known % by != 0:
        raise CheckValueError(f"{what} {known} must be divisible by groups {by}")
    return simplify(value // by) if by != 1 else value


def conv(
    inp: te.Tensor,
    filt: te.Tensor,
    stride: Steps,
    padding: Padding,
    dilation: Steps,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Convolution (cross-correlation) of ``inp`` with ``filt`` over one to three spatial axes."""
    dim = len(inp.shape) - 2
    spatial = _SPATIAL[dim]
    out_dtype = out_dtype or inp.dtype
    strides, dilations = int_pair(stride, dim), int_pair(dilation, dim)
    if not kernel_layout:
        first = data_layout.index("C") < data_layout.index(spatial[0])
        kernel_layout = "OI" + spatial if first else spatial + "IO"
    data_to = _order(data_layout, "NC" + spatial)
    data_from = _inverse(data_to)
    kernel_to = _order(kernel_layout, "OI" + spatial)
    kernel_from = _inverse(kernel_to)
    batch, in_channel, *size = [inp.shape[i] for i in data_to]
    num_filter, _, *kernel = [filt.shape[i] for i in kernel_to]
    dilated = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    before, after = pad_pair(padding, dilated)
    out_size = [
        simplify((n - (k - 1) * d - 1 + b + a) // s + 1)
        for n, k, d, b, a, s in zip(size, kernel, dilations, before, after, strides)
    ]
    pad_before, pad_after = [0, 0, *before], [0, 0, *after]
    temp = pad(inp, [pad_before[i] for i in data_from], [pad_after[i] for i in data_from], name="pad_temp")
    per_group = _exact_div(in_channel, groups, "input channels")
    filters = _exact_div(num_filter, groups, "output channels")
    rc = te.reduce_axis((const(0, str(per_group.dtype)), per_group), "rc")
    rs = [te.reduce_axis((const(0, str(k.dtype)), k), f"r{n}") for n, k in zip("yxz", kernel)]
    # Reduction axes come in the order of the kernel's layout.
    axes = {"I": rc, **dict(zip(spatial, rs))}
    reduction = [axes[letter] for letter in kernel_layout if letter != "O"]

    def body(*args: PrimExpr) -> PrimExpr:
        nn, ff, *where = [args[i] for i in data_to]
        channel = rc.var if groups == 1 else ff // filters * per_group + rc.var
        at = [nn, channel, *(w * s + r.var * d for w, s, r, d in zip(where, strides, rs, dilations))]
        weight_at = [ff, rc.var, *(r.var for r in rs)]
        left = temp(*[at[i] for i in data_from]).astype(out_dtype)
        right = filt(*[weight_at[i] for i in kernel_from]).astype(out_dtype)
        return te.sum(left * right, axis=reduction)

    name = f"{'group_' if groups > 1 else ''}conv{dim}d_{data_layout.lower()}"
    names = ["nn", "ff", *["yy", "xx", "zz"][:dim]]
    shape = [batch, num_filter, *out_size]
    return te.compute([shape[i] for i in data_from], body, name, name, None, [names[i] for i in data_from])


def conv1d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Steps = 1,
    padding: Padding = "VALID",
    dilation: Steps = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """One spatial axis."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv2d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Steps,
    padding: Padding,
    dilation: Steps,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Two spatial axes."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv3d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Steps,
    padding: Padding,
    dilation: Steps,
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Three spatial axes."""
    return conv(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, out_dtype: str | None = None
) -> te.Tensor:
    """Channels first."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype)


def conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, out_dtype: str | None = None
) -> te.Tensor:
    """Channels last."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype)


def depthwise_conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, out_dtype: str | None = None
) -> te.Tensor:
    """Every input channel with filters of its own; ``Filter`` is ``[channel, multiplier, h, w]``."""
    out_dtype = out_dtype or Input.dtype
    batch, channels, height, width = Input.shape
    _, multiplier, kh, kw = Filter.shape
    (sh, sw), (dh, dw) = int_pair(stride), int_pair(dilation)
    before, after = pad_pair(padding, [(kh - 1) * dh + 1, (kw - 1) * dw + 1])
    out_h = simplify((height - (kh - 1) * dh - 1 + before[0] + after[0]) // sh + 1)
    out_w = simplify((width - (kw - 1) * dw - 1 + before[1] + after[1]) // sw + 1)
    temp = pad(Input, [0, 0, *before], [0, 0, *after], name="PaddedInput")
    di, dj = te.reduce_axis((0, kh), "di"), te.reduce_axis((0, kw), "dj")
    return te.compute(
        (batch, simplify(channels * multiplier), out_h, out_w),
        lambda b, c, i, j: te.sum(
            temp(b, c // multiplier, i * sh + di * dh, j * sw + dj * dw).astype(out_dtype)
            * Filter(c // multiplier, c % multiplier, di.var, dj.var).astype(out_dtype),
            axis=[di, dj],
        ),
        "DepthwiseConv2d",
        "depthwise_conv2d_nchw",
    )


def dilate(
    data: te.Tensor, strides: Sequence[Dim], dilation_value: float = 0.0, name: str = "DilatedInput"
) -> te.Tensor:
    """``data`` with ``stride - 1`` fill elements between neighbours."""
    shape = [simplify((d - 1) * s + 1) for d, s in zip(data.shape, strides)]

    def body(*indices: PrimExpr) -> PrimExpr:
        tests: list[Any] = []
        source: list[Any] = []
        for index, s in zip(indices, strides):
            if const_int(s) == 1:
                source.append(index)
            else:
                source.append(index // s)
                tests.append((index % s).equal(const(0, str(index.dtype))))
        if not tests:
            return data(*source)
        return if_then_else(tir.all(*tests), data(*source), const(dilation_value, data.dtype))

    return te.compute(shape, body, name, "injective,dilate")


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Steps,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Steps,
    groups: int = 1,
    dilation: Steps = 1,
) -> te.Tensor:
    """Transposed convolution, channels first; the kernel is ``[in, out / groups, *spatial]``.

    Computed as a convolution of the dilated and padded input with the flipped kernel.
    """
    dim = len(data.shape) - 2
    out_dtype = out_dtype or data.dtype
    steps, gaps, extra = (int_pair(v, dim) for v in (strides, dilation, output_padding))
    for e, s in zip(extra, steps):
        if not const_int(e) < const_int(s):  # type: ignore[operator]
            raise ValueError(f"output_padding {output_padding} must be smaller than the strides {strides}")
    batch, in_channel, *_ = data.shape
    _, out_per_group, *size = kernel.shape
    before, after = pad_pair(padding, size)
    spread = dilate(data, [1, 1, *steps], name="data_dilate")
    reach = [k - 1 if const_int(g) == 1 else (k - 1) * g for k, g in zip(size, gaps)]
    head = [r - b for r, b in zip(reach, before)]
    tail = [r - a + e for r, a, e in zip(reach, after, extra)]
    temp = pad(spread, [0, 0, *head], [0, 0, *tail], name="data_pad")
    flipped = te.compute(
        (simplify(out_per_group), in_channel, *size),
        lambda o, i, *at: kernel(i, o, *(k - 1 - a for k, a in zip(size, at))),
        "kernel" if dim == 1 else "kernel_transform",
    )
    channels = simplify(out_per_group * groups)
    out_size = [simplify(t - r) for t, r in zip(temp.shape[2:], reach)]
    in_per_group = _exact_div(in_channel, groups, "input channels")
    dc = te.reduce_axis((const(0, str(in_per_group.dtype)), in_per_group), "dc")
    rs = [te.reduce_axis((const(0, str(k.dtype)), k), n) for n, k in zip(["dh", "dw", "dd"], size)]

    def body(b: PrimExpr, c: PrimExpr, *where: PrimExpr) -> PrimExpr:
        per_group = channels // groups
        channel = dc.var if groups == 1 else c // per_group * in_per_group + dc.var
        out_channel = c if groups == 1 else c % per_group
        left = temp(b, channel, *(w + r.var * g for w, r, g in zip(where, rs, gaps))).astype(out_dtype)
        right = flipped(out_channel, channel, *(r.var for r in rs)).astype(out_dtype)
        return te.sum(left * right, axis=[dc, *rs])

    suffix = {1: "ncw", 2: "nchw", 3: "ncdhw"}[dim]
    tag = f"{'' if groups == 1 else 'group_'}conv{dim}d_transpose_{suffix}"
    return te.compute((batch, channels, *out_size), body, "compute", tag, None, ["h", "w", "d"][:dim])


def conv1d_transpose_ncw(
    data: te.Tensor, kernel: te.Tensor, stride: Steps, padding: Padding, out_dtype: str, output_padding: Steps
) -> te.Tensor:
    """One spatial axis."""
    return conv_transpose(data, kernel, stride, padding, out_dtype, output_padding)


def group_conv1d_transpose_ncw(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Steps,
    padding: Padding,
    out_dtype: str,
    output_padding: Steps,
    groups: int,
) -> te.Tensor:
    """One spatial axis, channels in groups."""
    return conv_transpose(data, kernel, stride, padding, out_dtype, output_padding, groups)


def conv2d_transpose_nchw(
    Input: te.Tensor, Filter: te.Tensor, strides: Steps, padding: Padding, out_dtype: str, output_padding: Steps
) -> te.Tensor:
    """Two spatial axes."""
    return conv_transpose(Input, Filter, strides, padding, out_dtype, output_padding)


def group_conv2d_transpose_nchw(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Steps,
    padding: Padding,
    out_dtype: str,
    output_padding: Steps,
    groups: int,
) -> te.Tensor:
    """Two spatial axes, channels in groups."""
    return conv_transpose(data, kernel, stride, padding, out_dtype, output_padding, groups)


def conv3d_transpose_ncdhw(
    Input: te.Tensor, Filter: te.Tensor, strides: Steps, padding: Padding, out_dtype: str, output_padding: Steps
) -> te.Tensor:
    """Three spatial axes."""
    return conv_transpose(Input, Filter, strides, padding, out_dtype, output_padding)


def conv2d_hwcn(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, out_dtype: str | None = None
) -> te.Tensor:
    """The batch last."""
    return conv(Input, Filter, stride, padding, dilation, 1, "HWCN", "HWIO", out_dtype)


def conv1d_ncw(
    data: te.Tensor, kernel: te.Tensor, strides: Steps = 1, padding: Padding = "VALID", dilation: Steps = 1,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Along one axis, channels first."""
    return conv(data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


def conv1d_nwc(
    data: te.Tensor, kernel: te.Tensor, strides: Steps = 1, padding: Padding = "VALID", dilation: Steps = 1,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Along one axis, channels last."""
    return conv(data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype)


def conv3d_ncdhw(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, groups: int = 1,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Along three axes, channels first."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, groups: int = 1,
    out_dtype: str | None = "float32",
) -> te.Tensor:  # fmt: skip
    """Along three axes, channels last."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


def group_conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, groups: int,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Groups of channels each with filters of their own, channels first."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype)


def group_conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, groups: int,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Groups of channels each with filters of their own, channels last."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype)
