"""The C interface of cuBLASLt: its numbers, structures and functions, as far as matrix products need them."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

from .loading import SharedLibrary, check, load

__all__ = [
    "COMPUTE", "DATA_TYPES", "DESC", "EPILOGUES", "LAYOUT", "PREFERENCE", "STATUS", "TRANSFORM", "Descriptor",
    "HeuristicResult", "call", "check_status", "library", "matmul_desc", "matrix_layout", "preference", "transform_desc",
]  # fmt: skip

DATA_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10, "bfloat16": 14, "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}  # fmt: skip
COMPUTE = {"float16": 64, "float32": 68, "tf32": 77, "float64": 70, "int32": 72}
EPILOGUES = {"": 1, "relu": 2, "bias": 4, "bias_relu": 6, "gelu": 32, "bias_gelu": 36}
DESC = {
    "compute_type": 0, "scale_type": 1, "pointer_mode": 2, "transa": 3, "transb": 4, "epilogue": 7, "bias_pointer": 8,
    "a_scale_pointer": 17, "b_scale_pointer": 18, "d_scale_pointer": 20, "fast_accum": 25, "bias_data_type": 26,
}  # fmt: skip
LAYOUT = {"type": 0, "order": 1, "rows": 2, "cols": 3, "ld": 4, "batch_count": 5, "strided_batch_offset": 6}
PREFERENCE = {
    "max_workspace_bytes": 1, "min_alignment_a": 5, "min_alignment_b": 6, "min_alignment_c": 7, "min_alignment_d": 8,
}  # fmt: skip
TRANSFORM = {"scale_type": 0, "pointer_mode": 1, "transa": 2, "transb": 3}
STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}


class HeuristicResult(ctypes.Structure):
    """One algorithm proposed for a product."""

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace_size", c_size_t),
        ("state", c_int),
        ("waves_count", c_float),
        ("reserved", c_int * 4),
    ]


_P = c_void_p
_OUT = POINTER(c_void_p)
_CUBLASLT = SharedLibrary(
    "cublasLt",
    "nvidia-cublas",
    "cuda",
    {
        "cublasLtCreate": (c_int, (_OUT,)),
        "cublasLtDestroy": (c_int, (_P,)),
        "cublasLtGetVersion": (c_size_t, ()),
        "cublasLtMatmulDescCreate": (c_int, (_OUT, c_int, c_int)),
        "cublasLtMatmulDescDestroy": (c_int, (_P,)),
        "cublasLtMatmulDescSetAttribute": (c_int, (_P, c_int, _P, c_size_t)),
        "cublasLtMatrixLayoutCreate": (c_int, (_OUT, c_int, c_uint64, c_uint64, c_int64)),
        "cublasLtMatrixLayoutDestroy": (c_int, (_P,)),
        "cublasLtMatrixLayoutSetAttribute": (c_int, (_P, c_int, _P, c_size_t)),
        "cublasLtMatmulPreferenceCreate": (c_int, (_OUT,)),
        "cublasLtMatmulPreferenceDestroy": (c_int, (_P,)),
        "cublasLtMatmulPreferenceSetAttribute": (c_int, (_P, c_int, _P, c_size_t)),
        "cublasLtMatmulAlgoGetHeuristic": (
            c_int,
            (_P, _P, _P, _P, _P, _P, _P, c_int, POINTER(HeuristicResult), POINTER(c_int)),
        ),
        "cublasLtMatmul": (c_int, (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, c_size_t, _P)),
        "cublasLtMatrixTransformDescCreate": (c_int, (_OUT, c_int)),
        "cublasLtMatrixTransformDescDestroy": (c_int, (_P,)),
        "cublasLtMatrixTransformDescSetAttribute": (c_int, (_P, c_int, _P, c_size_t)),
        "cublasLtMatrixTransform": (c_int, (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P)),
    },
)


def library() -> ctypes.CDLL:
    """The library. Raises MissingExtraError if it is not installed."""
    return load(_CUBLASLT)


def check_status(code: int, what: str, detail: str = "") -> None:
    """Raise LibraryError unless the status is success."""
    check(code, what, STATUS, detail)


def call(name: str, *args: Any, detail: str = "") -> None:
    """Call a function that returns a status. Raises LibraryError when it is not success."""
    check_status(getattr(library(), name)(*args), name, detail)


class Descriptor:
    """An object of the library with attributes: made, filled and freed by its functions."""

    def __init__(self, kind: str, attributes: dict[str, int], *args: Any) -> None:
        self._kind = kind
        self._attributes = attributes
        self._library = library()
        self.handle = c_void_p()
        what = f"cublasLt{kind}Create"
        check_status(getattr(self._library, what)(ctypes.byref(self.handle), *args), what)
        # Freed with this object, but not at the process's end: then the library may be gone already.
        weakref.finalize(self, getattr(self._library, f"cublasLt{kind}Destroy"), self.handle).atexit = False

    def set(self, name: str, value: Any) -> None:
        """Set an attribute to a ctypes number or pointer."""
        what = f"cublasLt{self._kind}SetAttribute"
        function = getattr(self._library, what)
        code = function(self.handle, self._attributes[name], ctypes.byref(value), ctypes.sizeof(value))
        check_status(code, what, name)


def matmul_desc(compute: int, scale_type: int) -> Descriptor:
    """Descriptor of a product with these types of its arithmetic and of its scale factors."""
    return Descriptor("MatmulDesc", DESC, compute, scale_type)


def matrix_layout(dtype: str, rows: int, cols: int, ld: int, batch: int = 1, stride: int = 0) -> Descriptor:
    """A column-major matrix, or ``batch`` of them ``stride`` elements apart."""
    made = Descriptor("MatrixLayout", LAYOUT, DATA_TYPES[dtype], rows, cols, ld)
    if batch != 1:
        made.set("batch_count", c_int32(batch))
        made.set("strided_batch_offset", c_int64(stride))
    return made


def preference(workspace: int) -> Descriptor:
    """Limit of the heuristic: bytes of workspace."""
    made = Descriptor("MatmulPreference", PREFERENCE)
    made.set("max_workspace_bytes", c_uint64(workspace))
    return made


def transform_desc(scale_type: int) -> Descriptor:
    """Descriptor of a copy of a matrix into another layout."""
    return Descriptor("MatrixTransformDesc", TRANSFORM, scale_type)
