"""cuBLASLt on the CPU: the functions of its C interface in NumPy, for tests without a GPU.

    with use_cuda_provider("null"), use_library("cublasLt", FakeCublasLt()) as fake:
        ...
        assert fake.products[-1].m == 64

It reads and writes memory exactly as the descriptors say (column-major, leading dimensions, batch strides, transposes,
scale types), so that a wrong layout gives wrong numbers; and it refuses what the library refuses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.arrays.dtype import numpy_dtype
from ..runtime.nvidia import providers
from ..runtime.nvidia.libs import cublaslt as lt

__all__ = ["FakeCublasLt", "Product"]

_OK, _INVALID, _NOT_SUPPORTED = 0, 7, 15
_DTYPE_OF = {number: name for name, number in lt.DATA_TYPES.items()}
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_CTYPES: dict[str, Any] = {
    "compute_type": c_int32, "scale_type": c_int32, "pointer_mode": c_int32, "transa": c_int32, "transb": c_int32,
    "epilogue": c_int32, "bias_pointer": c_void_p, "a_scale_pointer": c_void_p, "b_scale_pointer": c_void_p,
    "d_scale_pointer": c_void_p, "bias_data_type": c_int32, "batch_count": c_int32, "strided_batch_offset": c_int64,
    "max_workspace_bytes": c_uint64,
}  # fmt: skip


def _content(reference: Any) -> Any:
    """What a ``ctypes.byref`` points to."""
    return reference._obj


def _address(pointer: Any) -> int:
    value = getattr(pointer, "value", pointer)
    return 0 if value is None else int(value)


@dataclass
class _Object:
    kind: str
    values: dict[str, int] = field(default_factory=dict)

    def get(self, name: str, default: int = 0) -> int:
        return self.values.get(name, default)


@dataclass(frozen=True)
class Product:
    """One product that ran, as the library saw it: column-major ``op(A) @ op(B)``."""

    m: int
    n: int
    k: int
    batch: int
    transa: bool
    transb: bool
    dtypes: tuple[str, str, str]
    epilogue: int
    stream: int


class _Matrix:
    """A layout: column-major elements, ``ld`` from column to column, ``stride`` from matrix to matrix."""

    def __init__(self, layout: _Object) -> None:
        self.dtype = _DTYPE_OF[layout.get("type")]
        self.rows, self.cols, self.ld = (layout.get(n) for n in ("rows", "cols", "ld"))
        self.batch, self.stride = layout.get("batch_count", 1), layout.get("strided_batch_offset")

    def view(self, address: int) -> np.ndarray[Any, Any]:
        """The elements at an address, [batch, row, column]."""
        kind = np.dtype(numpy_dtype(self.dtype))
        span = (self.batch - 1) * self.stride + (self.cols - 1) * self.ld + self.rows
        strides = tuple(s * kind.itemsize for s in (self.stride, 1, self.ld))
        return np.ndarray((self.batch, self.rows, self.cols), kind, _memory(address, span * kind.itemsize), 0, strides)


class FakeCublasLt:
    """A stand-in for the loaded library (``runtime.nvidia.libs.loading.use_library``).

    ``calls`` has the names of all functions called, ``products`` what was multiplied.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.products: list[Product] = []
        self.alive: dict[int, _Object] = {}
        self._next = 1

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)
        rest = name.removeprefix("cublasLt")
        for ending, method in (("SetAttribute", self._set), ("Create", self._create), ("Destroy", self._destroy)):
            if rest.endswith(ending):
                kind = rest.removesuffix(ending)

                def run(*args: Any, method: Callable[..., Any] = method, kind: str = kind, name: str = name) -> int:
                    self.calls.append(name)
                    result: int = method(kind, *args)
                    return result

                return run
        raise AttributeError(name)

    # ---- descriptors

    def _create(self, kind: str, out: Any, *args: int) -> int:
        names: dict[str, tuple[str, ...]] = {
            "MatmulDesc": ("compute_type", "scale_type"),
            "MatrixLayout": ("type", "rows", "cols", "ld"),
            "MatrixTransformDesc": ("scale_type",),
        }
        made = _Object(kind, dict(zip(names.get(kind, ()), args, strict=True)))
        if kind == "MatrixLayout" and made.get("ld") < made.get("rows"):
            return _INVALID
        self.alive[self._next] = made
        _content(out).value = self._next
        self._next += 1
        return _OK

    def _destroy(self, kind: str, handle: object) -> int:
        return _OK if self.alive.pop(_address(handle), _Object("")).kind == kind else _INVALID

    def _set(self, kind: str, handle: object, attribute: int, value: Any, nbytes: int) -> int:
        tables = {
            "MatmulDesc": lt.DESC,
            "MatrixLayout": lt.LAYOUT,
            "MatmulPreference": lt.PREFERENCE,
            "MatrixTransformDesc": lt.TRANSFORM,
        }
        name = next((n for n, number in tables[kind].items() if number == attribute), None)
        found = _content(value)
        if name is None or nbytes != ctypes.sizeof(found):
            return _INVALID
        if name in _CTYPES and ctypes.sizeof(_CTYPES[name]) != nbytes:
            return _INVALID
        self.alive[_address(handle)].values[name] = found.value or 0
        return _OK

    def cublasLtGetVersion(self) -> int:
        """The version."""
        return 130000

    # ---- products

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        handle: object,
        desc: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        wish: object,
        wanted: int,
        results: Any,
        count: Any,
    ) -> int:
        """One algorithm, unless the library has none."""
        self.calls.append("cublasLtMatmulAlgoGetHeuristic")
        code = self._refusal(desc, a, b, d)
        _content(count).value = 0 if code else 1
        if not code:
            _content(results).workspace_size = 1024
            _content(results).state = 0
            _content(results).algo[0] = self.alive[_address(desc)].get("pointer_mode")
        return code

    def _refusal(self, desc: Any, a: Any, b: Any, d: Any) -> int:
        how = self.alive[_address(desc)]
        left, right, out = (_Matrix(self.alive[_address(x)]) for x in (a, b, d))
        transposed_first = how.get("transa") == 1 and how.get("transb") == 0
        if left.dtype == "int8":
            aligned = not any(m.ld % 4 for m in (left, right, out))
            plain = how.get("epilogue", 1) == 1
            return _OK if transposed_first and aligned and plain and out.dtype == "int32" else _NOT_SUPPORTED
        if left.dtype in _FP8:
            aligned = not any(m.ld * np.dtype(numpy_dtype(m.dtype)).itemsize % 16 for m in (left, right, out))
            bias = how.get("epilogue", 1) & 4
            wide = how.get("bias_data_type") in (lt.DATA_TYPES["float16"], lt.DATA_TYPES["bfloat16"])
            return _OK if transposed_first and aligned and (not bias or wide) else _NOT_SUPPORTED
        return _OK if how.get("compute_type") != lt.COMPUTE["int32"] else _NOT_SUPPORTED

    def cublasLtMatmul(
        self, handle: object, desc: Any, alpha: Any, a: int, a_desc: Any, b: int, b_desc: Any, beta: Any, c: int | None, c_desc: Any,
        d: int, d_desc: Any, algorithm: object, workspace: int, workspace_bytes: int, stream: int,
    ) -> int:  # fmt: skip
        """``D = epilogue(alpha * op(A) @ op(B) + beta * C)`` on a stream."""
        self.calls.append("cublasLtMatmul")
        code = self._refusal(desc, a_desc, b_desc, d_desc)
        how = self.alive[_address(desc)]
        left, right, out = (_Matrix(self.alive[_address(x)]) for x in (a_desc, b_desc, d_desc))
        shapes = [
            (m.cols, m.rows) if t else (m.rows, m.cols) for m, t in zip((left, right), _transposes(how), strict=True)
        ]
        fits = shapes[0][1] == shapes[1][0] and (out.rows, out.cols) == (shapes[0][0], shapes[1][1])
        if _content(algorithm).algo[0] != how.get("pointer_mode"):
            return _NOT_SUPPORTED  # it was proposed for factors elsewhere
        if code or not fits or not left.batch == right.batch == out.batch:
            return code or _INVALID
        factors = self._factors(how, alpha, beta)
        how = _Object(how.kind, dict(how.values))  # pointers are read at the call
        self.products.append(
            Product(out.rows, out.cols, shapes[0][1], out.batch, *_transposes(how),
                    (left.dtype, right.dtype, out.dtype), how.get("epilogue", 1), _address(stream))
        )  # fmt: skip

        def run() -> None:
            _multiply(how, factors(), (left, _address(a)), (right, _address(b)), (out, _address(d)))

        _issue(_address(stream), "cublasLtMatmul", run)
        return _OK

    def _factors(self, how: _Object, alpha: Any, beta: Any) -> Callable[[], float]:
        kind = np.dtype(numpy_dtype(_DTYPE_OF[how.get("scale_type")]))
        if how.get("pointer_mode"):
            addresses = _address(alpha), _address(beta)

            def on_device() -> float:
                first, second = (float(_scalar(x, kind)) for x in addresses)
                assert second == 0
                return first

            return on_device
        value = float(_content(alpha).value)
        assert _content(beta).value == 0 and ctypes.sizeof(_content(alpha)) == kind.itemsize
        return lambda: value

    def cublasLtMatrixTransform(
        self, handle: object, desc: Any, alpha: Any, a: int, a_desc: Any, beta: Any, b: Any, b_desc: Any, c: int, c_desc: Any,
        stream: int,
    ) -> int:  # fmt: skip
        """``C = op(A)``, converted."""
        self.calls.append("cublasLtMatrixTransform")
        transposed = bool(self.alive[_address(desc)].get("transa"))
        source, target = (_Matrix(self.alive[_address(x)]) for x in (a_desc, c_desc))
        if source.dtype in _FP8 or target.dtype in _FP8:
            return _NOT_SUPPORTED

        def run() -> None:
            taken = source.view(_address(a))
            made = target.view(_address(c))
            made[...] = (taken.swapaxes(1, 2) if transposed else taken).astype(made.dtype)

        _issue(_address(stream), "cublasLtMatrixTransform", run)
        return _OK


def _transposes(how: _Object) -> tuple[bool, bool]:
    return bool(how.get("transa")), bool(how.get("transb"))


def _scalar(address: int, kind: Any) -> np.generic:
    return np.frombuffer(_memory(address, kind.itemsize), kind)[0]


def _memory(address: int, nbytes: int) -> memoryview:
    """Memory of this process."""
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


def _issue(stream: int, what: str, run: Callable[[], None]) -> None:
    """In stream order, as a kernel."""
    providers.current().driver.issue(0, stream, what, run)  # type: ignore[attr-defined]


def _multiply(how: _Object, alpha: float, *operands: tuple[_Matrix, int]) -> None:
    (left, a), (right, b), (out, d) = operands
    exact: Any = np.int64 if left.dtype == "int8" else np.float64
    sides = [
        m.view(x).astype(exact).swapaxes(1, 2) if t else m.view(x).astype(exact)
        for (m, x), t in zip(((left, a), (right, b)), _transposes(how), strict=True)
    ]
    total = (sides[0] @ sides[1]) * exact(alpha)
    for name in ("a_scale_pointer", "b_scale_pointer"):
        if how.get(name):
            total = total * float(_scalar(how.get(name), np.dtype("float32")))
    epilogue = how.get("epilogue", 1)
    if epilogue & 4:
        dtype = _DTYPE_OF[how.get("bias_data_type", lt.DATA_TYPES[out.dtype])]
        kind = np.dtype(numpy_dtype(dtype))
        taken: Any = np.frombuffer(_memory(how.get("bias_pointer"), out.rows * kind.itemsize), kind)
        total = total + taken.astype(np.float64)[None, :, None]
    if epilogue & 2:
        total = np.maximum(total, 0)
    if epilogue & 32:
        total = 0.5 * total * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3)))
    made = out.view(d)
    made[...] = total.astype(made.dtype)
