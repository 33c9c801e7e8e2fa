"""The library call ``cudnn.conv2d``: operands are data, kernel and, where there is one, the bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...kernels.external import register_kernel
from ...arrays.ndarray import NDArray
from .conv import Conv2d, conv2d_shape, run_conv2d


def _conv(attrs: Mapping[str, Any]) -> Conv2d:
    strides, padding, dilation = (tuple(attrs[n]) for n in ("strides", "padding", "dilation"))
    return Conv2d(attrs["layout"], strides, padding, dilation, attrs["groups"], attrs["tf32"])


def _shape(shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    return conv2d_shape(_conv(attrs), shapes[0], shapes[1])


def _run(inputs: Sequence[NDArray], out: NDArray, attrs: Mapping[str, Any]) -> None:
    x, w, *bias = inputs
    run_conv2d(_conv(attrs), x, w, out, bias[0] if bias else None, attrs["activation"])


register_kernel("cudnn.conv2d", _shape, _run)
