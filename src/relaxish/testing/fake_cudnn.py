"""cuDNN's convolutions on the CPU: the functions of its C interface in NumPy, for tests without a GPU.

    with use_cuda_provider("null"), use_library("cudnn", FakeCudnn()) as fake:
        ...

Memory is read and written as the descriptors say, so that a wrong layout gives wrong numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.arrays.dtype import numpy_dtype
from ..runtime.nvidia import providers
from ..runtime.nvidia.libs import cudnn as dnn

__all__ = ["FakeCudnn"]

_DTYPE_OF = {number: name for name, number in dnn.DATA_TYPES.items()}


def _address(pointer: Any) -> int:
    value = getattr(pointer, "value", pointer)
    return 0 if value is None else int(value)


class FakeCudnn:
    """A stand-in for the loaded library. ``calls`` has the names of all functions called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.alive: dict[int, Any] = {}
        self.stream = 0
        #: What algorithms that are asked for by name need.
        self.workspace_bytes = 256
        self._next = 1

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cudnn"):
            raise AttributeError(name)

        def run(*args: Any) -> int:
            self.calls.append(name)
            if name.startswith("cudnnCreate"):
                args[0]._obj.value = self._next
                self.alive[self._next] = None
                self._next += 1
            elif name.startswith("cudnnDestroy"):
                del self.alive[_address(args[0])]
            elif name.endswith("Descriptor"):
                self.alive[_address(args[0])] = list(args[1:])
            elif name in ("cudnnSetConvolutionGroupCount", "cudnnSetConvolutionMathType"):
                self.alive[_address(args[0])].append(args[1])
            else:
                raise AttributeError(name)
            return 0

        return run

    def cudnnSetStream(self, handle: object, stream: int) -> int:
        """Further work goes there."""
        self.stream = stream
        return 0

    def cudnnGetConvolutionForwardWorkspaceSize(self, *args: Any) -> int:
        """The last argument is set."""
        args[-1]._obj.value = self.workspace_bytes
        return 0

    def cudnnGetConvolutionForwardAlgorithm_v7(self, *args: Any) -> int:
        """Two algorithms, of which the first wants more memory than there is."""
        count, results = args[-2]._obj, args[-1]
        results[0].algo, results[0].status, results[0].memory = 6, 0, 1 << 40
        results[1].algo, results[1].status, results[1].memory = 1, 0, 1024
        count.value = 2
        return 0

    def cudnnConvolutionForward(self, *args: Any) -> int:
        """``y = conv(x, w)``."""
        return self._forward("cudnnConvolutionForward", args, None, None)

    def cudnnConvolutionBiasActivationForward(self, *args: Any) -> int:
        """``y = activation(conv(x, w) + bias)``."""
        bias = self._array(args[13], args[14])
        mode = self.alive[_address(args[15])][0]
        if mode == dnn.ACTIVATIONS[""] and args[7] != dnn.PRECOMPUTED_GEMM:
            return 3000
        return self._forward("cudnnConvolutionBiasActivationForward", (*args[:11], *args[16:]), bias, mode)

    def _forward(self, name: str, args: Any, bias: np.ndarray[Any, Any] | None, mode: int | None) -> int:
        self.calls.append(name)
        x, w, y = (self._array(args[i], args[i + 1], i == 4) for i in (2, 4, 11))
        conv = self.alive[_address(args[6])]

        def run() -> None:
            total = _convolve(x, w, y.shape, conv)
            if bias is not None:
                total = total + bias.astype(np.float64)
            if mode == dnn.ACTIVATIONS["relu"]:
                total = np.maximum(total, 0)
            y[...] = total.astype(y.dtype)

        providers.current().driver.issue(0, _address(self.stream), name, run)  # type: ignore[attr-defined]
        return 0

    def _array(self, desc: Any, pointer: int, is_filter: bool = False) -> np.ndarray[Any, Any]:
        """The memory as [images, channels, rows, columns], whatever its layout."""
        first, second, n, c, h, w = self.alive[_address(desc)]
        kind, form = (first, second) if is_filter else (second, first)
        dtype = np.dtype(numpy_dtype(_DTYPE_OF[kind]))
        flat = np.frombuffer((ctypes.c_char * (n * c * h * w * dtype.itemsize)).from_address(_address(pointer)), dtype)
        return (
            flat.reshape(n, c, h, w) if form == dnn.FORMATS["NCHW"] else flat.reshape(n, h, w, c).transpose(0, 3, 1, 2)
        )


def _convolve(
    x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], shape: Sequence[int], conv: Sequence[int]
) -> np.ndarray[Any, Any]:
    pad_h, pad_w, stride_h, stride_w, dil_h, dil_w, _, _, groups, *_ = conv
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)))
    filters = w.astype(np.float64).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    inputs = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    out = np.zeros((x.shape[0], groups, w.shape[0] // groups, *shape[2:]))
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = slice(i * dil_h, i * dil_h + (shape[2] - 1) * stride_h + 1, stride_h)
            columns = slice(j * dil_w, j * dil_w + (shape[3] - 1) * stride_w + 1, stride_w)
            out += np.einsum("ngchw,gkc->ngkhw", inputs[..., rows, columns], filters[..., i, j])
    return out.reshape(shape)
