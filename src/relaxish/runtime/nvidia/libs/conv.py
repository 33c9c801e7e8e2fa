"""Two-dimensional convolutions by cuDNN, with bias and relu in the same call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass
from typing import Any

from ....support.errors import RelaxishError
from ...arrays.ndarray import NDArray
from . import cudnn as dnn
from .context import WORKSPACE_BYTES, LibraryContext, context
from .loading import LibraryError

__all__ = ["Conv2d", "conv2d_shape", "run_conv2d"]

_CANDIDATES = 8


@dataclass(frozen=True)
class Conv2d:
    """A convolution in one layout for data and kernel ("NCHW" with "OIHW", "NHWC" with "OHWI").

    ``padding`` is symmetric, rows then columns. ``tf32``: float32 factors may be rounded for tensor cores.
    """

    layout: str
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int = 1
    tf32: bool = False

    def sizes(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        """Images (or filters), channels, rows and columns of an array in the layout."""
        if self.layout == "NCHW":
            n, c, h, w = shape
        else:
            n, h, w, c = shape
        return n, c, h, w


def conv2d_shape(conv: Conv2d, x: Sequence[int], w: Sequence[int]) -> tuple[int, ...]:
    """The shape of the result."""
    n, _, *image = conv.sizes(x)
    k, _, *window = conv.sizes(w)
    h, v = (
        (size + 2 * pad - (dilation * (taps - 1) + 1)) // stride + 1
        for size, taps, pad, stride, dilation in zip(
            image, window, conv.padding, conv.strides, conv.dilation, strict=True
        )
    )
    return (n, k, h, v) if conv.layout == "NCHW" else (n, h, v, k)


class _Plan:
    """A convolution ready to run."""

    def __init__(
        self, where: LibraryContext, conv: Conv2d, shapes: Sequence[tuple[int, ...]], dtype: str, activation: str | None
    ) -> None:
        kind, form = dnn.DATA_TYPES[dtype], dnn.FORMATS[conv.layout]
        x, w, y = shapes
        self.x = dnn.Descriptor("Tensor", "cudnnSetTensor4dDescriptor", form, kind, *conv.sizes(x))
        self.y = dnn.Descriptor("Tensor", "cudnnSetTensor4dDescriptor", form, kind, *conv.sizes(y))
        self.w = dnn.Descriptor("Filter", "cudnnSetFilter4dDescriptor", kind, form, *conv.sizes(w))
        self.bias = dnn.Descriptor("Tensor", "cudnnSetTensor4dDescriptor", form, kind, 1, conv.sizes(y)[1], 1, 1)
        self.conv = dnn.Descriptor(
            "Convolution", "cudnnSetConvolution2dDescriptor", *conv.padding, *conv.strides, *conv.dilation,
            dnn.CROSS_CORRELATION, dnn.DATA_TYPES["float32"],
        )  # fmt: skip
        dnn.call("cudnnSetConvolutionGroupCount", self.conv.handle, conv.groups)
        math = dnn.MATH["tensor_op" if dtype == "float16" else "default" if conv.tf32 else "fma"]
        dnn.call("cudnnSetConvolutionMathType", self.conv.handle, math)
        self.activation = None
        if activation is not None:
            mode = dnn.ACTIVATIONS[activation]
            self.activation = dnn.Descriptor("Activation", "cudnnSetActivationDescriptor", mode, 0, 0.0)
        # Without an activation the fused call knows one algorithm only.
        fixed = dnn.PRECOMPUTED_GEMM if activation == "" else None
        self.algorithm, self.workspace_bytes = self._choose(where, conv, fixed)

    def _choose(self, where: LibraryContext, conv: Conv2d, fixed: int | None) -> tuple[int, int]:
        """An algorithm and its workspace: the best proposed one that fits, or the one asked for."""
        given = (where.handle, self.x.handle, self.w.handle, self.conv.handle, self.y.handle)
        if fixed is not None:
            size = ctypes.c_size_t()
            dnn.call("cudnnGetConvolutionForwardWorkspaceSize", *given, fixed, ctypes.byref(size), detail=str(conv))
            if size.value > WORKSPACE_BYTES:
                raise LibraryError(
                    "cuDNN", 3000, dnn.STATUS[3000],
                    f"its algorithm for {conv} needs {size.value} bytes of workspace, more than the {WORKSPACE_BYTES} there are",
                )  # fmt: skip
            return fixed, size.value
        results = (dnn.AlgorithmResult * _CANDIDATES)()
        count = c_int(0)
        dnn.call(
            "cudnnGetConvolutionForwardAlgorithm_v7",
            *given,
            _CANDIDATES,
            ctypes.byref(count),
            results,
            detail=str(conv),
        )
        for found in results[: count.value]:
            if found.status == 0 and found.memory <= WORKSPACE_BYTES:
                return int(found.algo), int(found.memory)
        raise LibraryError("cuDNN", 3000, dnn.STATUS[3000], f"it has no algorithm for {conv}")


def _create() -> c_void_p:
    handle = c_void_p()
    dnn.call("cudnnCreate", ctypes.byref(handle))
    return handle


def run_conv2d(
    conv: Conv2d, x: NDArray, w: NDArray, out: NDArray, bias: NDArray | None = None, activation: str = ""
) -> None:
    """``out = activation(conv(x, w) + bias)`` on the current stream; ``activation`` is "" or "relu" and goes with a bias.

    Raises LibraryError when cuDNN has no algorithm for it.
    """
    where = context(out.device.device_id, dnn.library(), _create)
    shapes = (x.shape, w.shape, out.shape)
    if out.shape != conv2d_shape(conv, x.shape, w.shape):
        raise RelaxishError(f"the result of {conv} on {x.shape} and {w.shape} has not the shape {out.shape}")
    with where.lock:
        where.make_current()
        mode = activation if bias is not None else None
        key = (conv, shapes, x.dtype, mode)
        plan: Any = where.plan(key, lambda: _Plan(where, conv, shapes, x.dtype, mode))
        stream = where.stream()
        dnn.call("cudnnSetStream", where.handle, stream)
        one, zero = ctypes.byref(c_float(1)), ctypes.byref(c_float(0))
        head = (where.handle, one, plan.x.handle, x.ptr, plan.w.handle, w.ptr, plan.conv.handle, plan.algorithm,
                where.workspace(stream), plan.workspace_bytes, zero, plan.y.handle, out.ptr)  # fmt: skip
        if bias is None:
            dnn.call("cudnnConvolutionForward", *head, detail=str(conv))
        else:
            # The summand (with factor zero) is the result's own memory.
            dnn.call(
                "cudnnConvolutionBiasActivationForward", *head, plan.bias.handle, bias.ptr, plan.activation.handle,
                plan.y.handle, out.ptr, detail=str(conv),
            )  # fmt: skip
