"""The C interface of cuDNN: its numbers, structures and functions, as far as convolutions need them."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

from .loading import SharedLibrary, check, load

__all__ = [
    "ACTIVATIONS",
    "CROSS_CORRELATION",
    "DATA_TYPES",
    "FORMATS",
    "MATH",
    "AlgorithmResult",
    "Descriptor",
    "call",
    "library",
]

DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 4, "bfloat16": 9}
FORMATS = {"NCHW": 0, "NHWC": 1}
MATH = {"default": 0, "tensor_op": 1, "tensor_op_allow_conversion": 2, "fma": 3}
ACTIVATIONS = {"relu": 1, "": 5}
CROSS_CORRELATION = 1
PRECOMPUTED_GEMM = 1
_STATUS = {
    1001: "NOT_INITIALIZED",
    2000: "BAD_PARAM",
    3000: "NOT_SUPPORTED",
    4000: "INTERNAL_ERROR",
    5000: "EXECUTION_FAILED",
}
STATUS = {code + i: f"CUDNN_STATUS_{name}" for code, name in _STATUS.items() for i in range(20)}


class AlgorithmResult(ctypes.Structure):
    """One algorithm proposed for a convolution."""

    _fields_ = [
        ("algo", c_int),
        ("status", c_int),
        ("time", c_float),
        ("memory", c_size_t),
        ("determinism", c_int),
        ("math_type", c_int),
        ("reserved", c_int * 3),
    ]


_P, _OUT = c_void_p, POINTER(c_void_p)
_CUDNN = SharedLibrary(
    "cudnn",
    "nvidia-cudnn-cu13",
    "cudnn",
    {
        "cudnnCreate": (c_int, (_OUT,)),
        "cudnnSetStream": (c_int, (_P, _P)),
        **{
            f"cudnnCreate{kind}Descriptor": (c_int, (_OUT,))
            for kind in ("Tensor", "Filter", "Convolution", "Activation")
        },
        **{
            f"cudnnDestroy{kind}Descriptor": (c_int, (_P,))
            for kind in ("Tensor", "Filter", "Convolution", "Activation")
        },
        "cudnnSetTensor4dDescriptor": (c_int, (_P, *[c_int] * 6)),
        "cudnnSetFilter4dDescriptor": (c_int, (_P, *[c_int] * 6)),
        "cudnnSetConvolution2dDescriptor": (c_int, (_P, *[c_int] * 8)),
        "cudnnSetConvolutionGroupCount": (c_int, (_P, c_int)),
        "cudnnSetConvolutionMathType": (c_int, (_P, c_int)),
        "cudnnSetActivationDescriptor": (c_int, (_P, c_int, c_int, c_double)),
        "cudnnGetConvolutionForwardAlgorithm_v7": (
            c_int,
            (_P, _P, _P, _P, _P, c_int, POINTER(c_int), POINTER(AlgorithmResult)),
        ),
        "cudnnGetConvolutionForwardWorkspaceSize": (c_int, (_P, _P, _P, _P, _P, c_int, POINTER(c_size_t))),
        "cudnnConvolutionForward": (c_int, (_P, _P, _P, _P, _P, _P, _P, c_int, _P, c_size_t, _P, _P, _P)),
        "cudnnConvolutionBiasActivationForward": (
            c_int,
            (_P, _P, _P, _P, _P, _P, _P, c_int, _P, c_size_t, _P, _P, _P, _P, _P, _P, _P, _P),
        ),
    },
    opens=("nvrtc", "cublasLt"),
)


def library() -> ctypes.CDLL:
    """The library. Raises MissingExtraError if it is not installed."""
    return load(_CUDNN)


def call(name: str, *args: Any, detail: str = "") -> None:
    """Call a function that returns a status. Raises LibraryError when it is not success."""
    check(getattr(library(), name)(*args), name, STATUS, detail)


class Descriptor:
    """An object of the library: made, filled by its function ``setter`` and freed."""

    def __init__(self, kind: str, setter: str, *args: Any) -> None:
        self.handle = c_void_p()
        call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.handle))
        # Freed with this object, but not at the process's end: then the library may be gone already.
        free = getattr(library(), f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, free, self.handle).atexit = False
        call(setter, self.handle, *args)
