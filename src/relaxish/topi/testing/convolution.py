"""Convolutions in NumPy, by windows over the padded input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..nn.conv import pad_pair
from ..utils import get_const_int, int_pair, Padding, Steps

__all__ = [
    "conv1d_ncw_python", "conv1d_transpose_ncw_python", "conv2d_hwcn_python", "conv2d_nchw_python",
    "conv2d_nhwc_python", "conv2d_transpose_nchw_python", "conv2d_transpose_nhwc_python", "conv3d_ncdhw_python",
    "conv3d_ndhwc_python", "conv3d_transpose_ncdhw_python", "depthwise_conv2d_python_nchw",
    "depthwise_conv2d_python_nhwc", "dilate_python", "group_conv1d_ncw_python", "group_conv1d_transpose_ncw_python",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def _convolve(
    data: Array, weight: Array, stride: Steps, padding: Padding, dilation: Steps = 1, groups: int = 1
) -> Array:
    """Channels first, any number of spatial axes; ``weight`` is (out, in / groups, ...)."""
    rank = data.ndim - 2
    steps, gaps = int_pair(stride, rank), int_pair(dilation, rank)
    reach = [(k - 1) * g + 1 for k, g in zip(weight.shape[2:], gaps, strict=True)]
    before, after = pad_pair(padding, reach)
    spread = np.pad(data, np.array([(0, 0), (0, 0), *zip(before, after, strict=True)], int))
    axes = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(spread, reach, axis=axes)
    windows = windows[
        (slice(None), slice(None), *(slice(None, None, s) for s in steps), *(slice(None, None, g) for g in gaps))
    ]
    batch, channels = data.shape[:2]
    windows = windows.reshape(batch, groups, channels // groups, *windows.shape[2:])
    kernels = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    at, taps = "xyz"[:rank], "uvw"[:rank]
    out = np.einsum(f"ngi{at}{taps},goi{taps}->ngo{at}", windows, kernels, optimize=True)
    return out.reshape(batch, weight.shape[0], *out.shape[3:]).astype(data.dtype)


def _channels_last(rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Axes that bring data to channels first, a weight ``(..., in, out)`` to ``(out, in, ...)``, and a result back."""
    spatial = range(rank)
    return (0, rank + 1, *(i + 1 for i in spatial)), (rank + 1, rank, *spatial), (0, *(i + 2 for i in spatial), 1)


def _convolve_last(data: Array, weight: Array, stride: Steps, padding: Padding, groups: int = 1) -> Array:
    to_first, to_kernel, back = _channels_last(data.ndim - 2)
    return _convolve(data.transpose(to_first), weight.transpose(to_kernel), stride, padding, 1, groups).transpose(back)


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding, dilation: Steps) -> Array:
    """One spatial axis."""
    return _convolve(a_np, w_np, stride, padding, dilation)


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Steps, padding: Padding, dilation: Steps, groups: int
) -> Array:
    """One spatial axis, channels in groups."""
    return _convolve(a_np, w_np, stride, padding, dilation, groups)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding, groups: int = 1) -> Array:
    """Two spatial axes, channels first; the weight is (out, in / groups, height, width)."""
    return _convolve(a_np, w_np, stride, padding, 1, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding, groups: int = 1) -> Array:
    """Two spatial axes, channels last; the weight is (height, width, in / groups, out)."""
    return _convolve_last(a_np, w_np, stride, padding, groups)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding) -> Array:
    """Two spatial axes, the batch last; the weight is (height, width, in, out)."""
    out = _convolve(a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1), stride, padding)
    return out.transpose(2, 3, 1, 0)


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding, groups: int = 1) -> Array:
    """Three spatial axes, channels first."""
    return _convolve(a_np, w_np, stride, padding, 1, groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Steps, padding: Padding, groups: int = 1) -> Array:
    """Three spatial axes, channels last; the weight is (depth, height, width, in / groups, out)."""
    return _convolve_last(a_np, w_np, stride, padding, groups)


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Steps, padding: Padding) -> Array:
    """Each channel with filters of its own: the weight is (in, multiplier, height, width)."""
    channels, multiplier, *size = filter_np.shape
    return _convolve(input_np, filter_np.reshape(channels * multiplier, 1, *size), stride, padding, 1, channels)


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Steps, padding: Padding) -> Array:
    """Channels last; the weight is (height, width, in, multiplier)."""
    out = depthwise_conv2d_python_nchw(input_np.transpose(0, 3, 1, 2), filter_np.transpose(2, 3, 0, 1), stride, padding)
    return out.transpose(0, 2, 3, 1)


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> Array:
    """``stride - 1`` fill elements between neighbours."""
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides, strict=True)]
    out = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


def _transposed(data: Array, weight: Array, stride: Steps, padding: Padding, extra: Steps, groups: int = 1) -> Array:
    """The transpose of a convolution; the weight is (in, out / groups, ...)."""
    rank = data.ndim - 2
    steps, more, size = int_pair(stride, rank), int_pair(extra, rank), weight.shape[2:]
    assert all(e < s for e, s in zip(more, steps, strict=True)), "output_padding must be smaller than the strides"
    before, after = pad_pair(padding, size)
    spread = dilate_python(data, (1, 1, *map(get_const_int, steps)))
    border = [(k - 1 - b, k - 1 - a + e) for k, b, a, e in zip(size, before, after, more, strict=True)]
    spread = np.pad(spread, [(0, 0), (0, 0), *border])
    turned = np.flip(weight, tuple(range(2, 2 + rank)))
    turned = turned.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).swapaxes(1, 2)
    return _convolve(spread, turned.reshape(-1, *turned.shape[2:]), 1, 0, 1, groups)


def conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Steps, padding: Padding, output_padding: Steps
) -> Array:
    """One spatial axis."""
    return _transposed(a_np, w_np, stride, padding, output_padding)


def group_conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Steps, padding: Padding, output_padding: Steps, groups: int
) -> Array:
    """One spatial axis, channels in groups."""
    return _transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Steps, padding: Padding, output_padding: Steps, groups: int = 1
) -> Array:
    """Two spatial axes."""
    return _transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array, weight: Array, weight_format: str, stride: Steps, padding: Padding, output_padding: Steps = (0, 0)
) -> Array:
    """Two spatial axes, channels last; ``weight_format`` names the weight's axes, ``I`` being the input's channels."""
    assert sorted(weight_format) == sorted("HWIO"), f"unknown weight format {weight_format}"
    kernel = weight.transpose([weight_format.index(letter) for letter in "IOHW"])
    out = _transposed(a_nhwc.transpose(0, 3, 1, 2), kernel, stride, padding, output_padding)
    return out.transpose(0, 2, 3, 1)


def conv3d_transpose_ncdhw_python(
    a_np: Array, w_np: Array, stride: Steps, padding: Padding, output_padding: Steps
) -> Array:
    """Three spatial axes."""
    return _transposed(a_np, w_np, stride, padding, output_padding)
