"""Convolutions as tensor expressions, with the names of stages and axes that sketches are known by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.plain import plain_ints
from ...ir.prim import IterVar
from ... import te, topi
from ...ir.expr import PrimExpr
from ...tir import const, if_then_else

__all__ = [
    "conv1d_nlc",
    "conv2d_capsule_nhwijc",
    "conv2d_nchw",
    "conv2d_nchw_bias_bn_relu",
    "conv2d_nhwc",
    "conv2d_nhwc_bn_relu",
    "conv2d_nhwc_without_layout_rewrite",
    "conv2d_transpose_nhwc",
    "conv3d_ndhwc",
    "depthwise_conv2d_nhwc",
]


def _extent(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _channels_last(
    letters: str,
    sizes: Sequence[int],
    batch: int,
    channels: tuple[int, int],
    window: tuple[int, int, int, int],
    groups: int,
    dtypes: tuple[str, str],
) -> tuple[Any, ...]:
    """A convolution over the axes ``letters``; ``window`` is kernel size, stride, padding and dilation."""
    (ci, co), (kernel, stride, padding, dilation), (in_dtype, out_dtype) = channels, window, dtypes
    inputs = te.placeholder((batch, *sizes, ci), in_dtype, name="inputs")
    weight = te.placeholder((*[kernel] * len(sizes), ci // groups, co), in_dtype, name="weight")
    rc = te.reduce_axis((0, ci // groups), name="rc")
    taps = [te.reduce_axis((0, kernel), name=f"r{letter}") for letter in letters]
    padded = topi.nn.pad(inputs, [0, *[padding] * len(sizes), 0])

    def element(*at: Any) -> PrimExpr:
        n, *place, c = at
        source = [i * stride + tap * dilation for i, tap in zip(place, taps, strict=True)]
        value = padded[(n, *source, c // (co // groups) * (ci // groups) + rc)]
        return te.sum(value.astype(out_dtype) * weight[(*taps, rc, c)].astype(out_dtype), axis=[*taps, rc])

    shape = (batch, *(_extent(size, kernel, stride, padding, dilation) for size in sizes), co)
    name = f"conv{len(sizes)}d_n{letters}c"
    return inputs, weight, te.compute(shape, element, name=name, varargs_names=["n", *letters, "co"])


def conv1d_nlc(
    N: int,
    L: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """One-dimensional convolution, channels last."""
    window = (kernel_size, stride, padding, dilation)
    return _channels_last("l", (L,), N, (CI, CO), window, groups, (in_dtype, out_dtype))


def conv2d_nhwc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Two-dimensional convolution, channels last."""
    window = (kernel_size, stride, padding, dilation)
    return _channels_last("hw", (H, W), N, (CI, CO), window, groups, (in_dtype, out_dtype))


def conv3d_ndhwc(
    N: int,
    D: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Three-dimensional convolution, channels last."""
    window = (kernel_size, stride, padding, dilation)
    return _channels_last("dhw", (D, H, W), N, (CI, CO), window, groups, (in_dtype, out_dtype))


def depthwise_conv2d_nhwc(
    N: int,
    H: int,
    W: int,
    C: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    factor: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Each channel convolved by itself; ``factor`` has to be 1."""
    if factor != 1:
        raise AssertionError("only one output channel for each input channel is supported")
    inputs = te.placeholder((N, H, W, C), in_dtype)
    weight = te.placeholder((factor, kernel_size, kernel_size, C), in_dtype)
    rh, rw = te.reduce_axis((0, kernel_size), name="rh"), te.reduce_axis((0, kernel_size), name="rw")
    padded = topi.nn.pad(inputs, [0, padding, padding, 0])
    out = te.compute(
        (N, *(_extent(size, kernel_size, stride, padding, dilation) for size in (H, W)), C * factor),
        lambda n, h, w, c: te.sum(
            padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c // factor].astype(out_dtype)
            * weight[c % factor, rh, rw, c // factor].astype(out_dtype),
            axis=[rh, rw],
        ),
        name="depth_conv2d_nhwc",
    )
    return inputs, weight, out


def conv2d_transpose_nhwc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Transposed convolution: the input spread by ``stride`` within the product, not by a stage of its own."""
    inputs = te.placeholder((N, H, W, CI), in_dtype, name="inputs")
    weight = te.placeholder((kernel_size, kernel_size, CI, CO), in_dtype, name="weight")
    border = kernel_size - 1 - padding
    around = -(-border // stride)
    padded = topi.nn.pad(inputs, [0, around, around, 0])
    skipped = (stride - border % stride) % stride

    def spread(n: PrimExpr, h: PrimExpr, w: PrimExpr, c: PrimExpr | IterVar) -> PrimExpr:
        if stride == 1:
            return padded(n, h, w, c)
        filled = te.all((h % stride).equal(0), (w % stride).equal(0))
        return if_then_else(filled, padded(n, h // stride, w // stride, c), const(0.0, in_dtype))

    rc = te.reduce_axis((0, CI), name="rc")
    rh, rw = te.reduce_axis((0, kernel_size), name="rh"), te.reduce_axis((0, kernel_size), name="rw")
    last = kernel_size - 1
    out = te.compute(
        (N, *((size - 1) * stride - 2 * padding + kernel_size for size in (H, W)), CO),
        lambda n, h, w, co: te.sum(
            spread(n, h + rh + skipped, w + rw + skipped, rc).astype(out_dtype)
            * weight[last - rh, last - rw, rc, co].astype(out_dtype),
            axis=[rh, rw, rc],
        ),
        name="conv2d_transpose_nhwc",
    )
    return inputs, weight, out


def conv2d_capsule_nhwijc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    capsule_size: int = 4,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """A convolution of small matrices, multiplied where numbers would be."""
    inputs = te.placeholder((N, H, W, capsule_size, capsule_size, CI), in_dtype, name="inputs")
    weight = te.placeholder((kernel_size, kernel_size, capsule_size, capsule_size, CI, CO), in_dtype, name="weight")
    rh, rw = te.reduce_axis((0, kernel_size), name="rh"), te.reduce_axis((0, kernel_size), name="rw")
    cap_k, rc = te.reduce_axis((0, capsule_size), name="cap_k"), te.reduce_axis((0, CI), name="rc")
    padded = topi.nn.pad(inputs, [0, padding, padding, 0, 0, 0])
    out = te.compute(
        (N, *(_extent(size, kernel_size, stride, padding) for size in (H, W)), capsule_size, capsule_size, CO),
        lambda n, h, w, cap_i, cap_j, co: te.sum(
            padded[n, h * stride + rh, w * stride + rw, cap_i, cap_k, rc].astype(out_dtype)
            * weight[rh, rw, cap_k, cap_j, rc, co].astype(out_dtype),
            axis=[rh, rw, cap_k, rc],
        ),
        name="conv2d_capsule_nhwijc",
    )
    return inputs, weight, out


def conv2d_nhwc_without_layout_rewrite(
    Input: te.Tensor, Filter: te.Tensor, stride: int, padding: int, dilation: int, out_dtype: str = "float32"
) -> te.Tensor:
    """A convolution whose weight keeps its layout: the block has no attribute ``layout_free_placeholders``."""
    batch, height, width, channels = plain_ints(Input.shape)
    kernel_h, kernel_w, _, filters = plain_ints(Filter.shape)
    padded = topi.nn.pad(Input, [0, padding, padding, 0], [0, padding, padding, 0], name="PaddedInput")
    rc = te.reduce_axis((0, channels), name="rc")
    ry, rx = te.reduce_axis((0, kernel_h), name="ry"), te.reduce_axis((0, kernel_w), name="rx")
    return te.compute(
        (
            batch,
            _extent(height, kernel_h, stride, padding, dilation),
            _extent(width, kernel_w, stride, padding, dilation),
            filters,
        ),
        lambda nn, yy, xx, ff: te.sum(
            padded[nn, yy * stride + ry * dilation, xx * stride + rx * dilation, rc].astype(out_dtype)
            * Filter[ry, rx, rc, ff].astype(out_dtype),
            axis=[ry, rx, rc],
        ),
        name="Conv2dOutput",
        tag="conv2d_nhwc",
    )


def _normalised(
    conv: te.Tensor, bias: Callable[..., Any], scale: Callable[..., Any], offset: Callable[..., Any]
) -> te.Tensor:
    """Bias, scale, offset and rectifier, each of them a stage; the operands are given as functions of the place."""
    biased = te.compute(conv.shape, lambda i, j, k, l: conv[i, j, k, l] + bias(j, l), name="bias_add")
    scaled = te.compute(conv.shape, lambda i, j, k, l: biased[i, j, k, l] * scale(j, l), name="bn_mul")
    moved = te.compute(conv.shape, lambda i, j, k, l: scaled[i, j, k, l] + offset(j, l), name="bn_add")
    return topi.nn.relu(moved)


def conv2d_nhwc_bn_relu(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    strides: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Convolution, bias, folded batch normalisation and rectifier, channels last."""
    data = te.placeholder((N, H, W, CI), in_dtype, name="data")
    kernel = te.placeholder((kernel_size, kernel_size, CI, CO), in_dtype, name="kernel")
    bias, scale, offset = (te.placeholder((CO,), "float32", name=name) for name in ("bias", "bn_scale", "bn_offset"))
    conv = conv2d_nhwc_without_layout_rewrite(data, kernel, strides, padding, dilation, out_dtype)
    out = _normalised(conv, lambda _, c: bias[c], lambda _, c: scale[c], lambda _, c: offset[c])
    return data, kernel, bias, offset, scale, out


def conv2d_nchw(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int,
    kw: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Two-dimensional convolution, channels first."""
    x = te.placeholder((n, ci, h, w), in_dtype, name="X")
    y = te.placeholder((co, ci, kh, kw), in_dtype, name="W")
    return x, y, topi.nn.conv2d_nchw(x, y, stride, padding, dilation, out_dtype)


def conv2d_nchw_bias_bn_relu(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int,
    kw: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> tuple[Any, ...]:
    """Convolution, bias, folded batch normalisation and rectifier, channels first."""
    x, y, conv = conv2d_nchw(n, h, w, ci, co, kh, kw, stride, padding, dilation, in_dtype, out_dtype)
    bias, scale, offset = (te.placeholder((co, 1, 1), out_dtype, name=name) for name in ("B", "bn_scale", "bn_offset"))
    out = _normalised(conv, lambda c, _: bias[c, 0, 0], lambda c, _: scale[c, 0, 0], lambda c, _: offset[c, 0, 0])
    return x, y, bias, scale, offset, out
