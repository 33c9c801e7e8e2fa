"""Matrix products by cuBLASLt.

The library's matrices are column-major; ours are row-major. The transpose of a row-major matrix is the same memory read
column-major, so instead of ``out = lhs @ rhs`` the library is asked for ``out^T = rhs^T @ lhs^T``: its left operand is
our right one, and its rows are our columns. A bias then is one number for each of its rows, as its epilogue wants it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int, c_int32, c_uint32, c_void_p
from dataclasses import dataclass, replace
from typing import Any

from ...device import Device
from ...arrays.ndarray import NDArray, empty
from . import cublaslt as lt
from .context import WORKSPACE_BYTES, LibraryContext, context
from .gemm_problem import Gemm, describe
from .loading import LibraryError

__all__ = ["run_gemm"]

_FP8 = ("float8_e4m3fn", "float8_e5m2")
_NOT_SUPPORTED = 15
_MAX_ALIGNMENT = 256
_NUMBERS: dict[str, Any] = {"float32": c_float, "int32": c_int32, "float64": c_double}


@dataclass
class _Operands:
    """Addresses of one call; ``scales`` are of float32 numbers on the device."""

    lhs: int
    rhs: int
    out: int
    bias: int = 0
    scales: tuple[int, ...] = ()

    def alignments(self) -> tuple[int, int, int, int]:
        """Alignment of each address in bytes (powers of two), in the library's order of matrices."""
        a, b, d = (min(x & -x, _MAX_ALIGNMENT) or _MAX_ALIGNMENT for x in (self.rhs, self.lhs, self.out))
        return a, b, d, d


class _Plan:
    """A product ready to run: descriptors of the library, and the algorithm its heuristic proposes."""

    def __init__(self, gemm: Gemm) -> None:
        self.desc = lt.matmul_desc(lt.COMPUTE[gemm.accumulator], lt.DATA_TYPES[gemm.scale_dtype])
        self.desc.set("transa", c_int32(1 if gemm.transposed_rhs else 0))
        self.desc.set("transb", c_int32(0))
        self.desc.set("epilogue", c_int32(lt.EPILOGUES[gemm.epilogue]))
        if gemm.bias_dtype:
            self.desc.set("bias_data_type", c_int32(lt.DATA_TYPES[gemm.bias_dtype]))
        rows, cols = (gemm.k, gemm.n) if gemm.transposed_rhs else (gemm.n, gemm.k)
        self.a = lt.matrix_layout(gemm.rhs_dtype, rows, cols, rows, gemm.batch, gemm.rhs_stride)
        self.b = lt.matrix_layout(gemm.lhs_dtype, gemm.k, gemm.m, gemm.k, gemm.batch, gemm.lhs_stride)
        self.c = self.d = lt.matrix_layout(gemm.out_dtype, gemm.n, gemm.m, gemm.n, gemm.batch, gemm.out_stride)
        if gemm.out_dtype in _FP8:
            # The unused summand of an 8-bit result has a wider type: the library knows no 8-bit one.
            self.c = lt.matrix_layout("bfloat16", gemm.n, gemm.m, gemm.n, gemm.batch, gemm.out_stride)
        #: The factor is on the device, and then the other one must be, too. Algorithms are proposed for one or the other.
        self.factors_on_device = bool(gemm.scales) and gemm.lhs_dtype not in _FP8
        self.desc.set("pointer_mode", c_int32(1 if self.factors_on_device else 0))
        number = _NUMBERS[gemm.scale_dtype]
        self.one, self.zero = number(1), number(0)
        self.algorithm = lt.HeuristicResult()
        self._pointers: dict[str, int] = {}

    def point(self, name: str, address: int) -> None:
        """Set a pointer of the descriptor, if it is another one than last time."""
        if self._pointers.get(name) != address:
            self.desc.set(name, c_void_p(address))
            self._pointers[name] = address

    def bind(self, gemm: Gemm, operands: _Operands) -> None:
        """Set what differs from call to call."""
        if operands.bias:
            self.point("bias_pointer", operands.bias)
        if gemm.lhs_dtype in _FP8 and operands.scales:
            self.point("a_scale_pointer", operands.scales[-1])
            if len(operands.scales) == 2:
                self.point("b_scale_pointer", operands.scales[0])

    def choose(self, where: LibraryContext, alignments: Sequence[int]) -> bool:
        """Ask the heuristic; False if the library has no algorithm for this product."""
        wish = lt.preference(WORKSPACE_BYTES)
        for name, alignment in zip("abcd", alignments, strict=True):
            if alignment < _MAX_ALIGNMENT:
                wish.set(f"min_alignment_{name}", c_uint32(alignment))
        count = c_int(0)
        code = lt.library().cublasLtMatmulAlgoGetHeuristic(
            where.handle, self.desc.handle, self.a.handle, self.b.handle, self.c.handle, self.d.handle, wish.handle, 1,
            ctypes.byref(self.algorithm), ctypes.byref(count),
        )  # fmt: skip
        if code != _NOT_SUPPORTED:
            lt.check_status(code, "cublasLtMatmulAlgoGetHeuristic")
        return code == 0 and count.value > 0 and self.algorithm.state == 0


def _create() -> c_void_p:
    handle = c_void_p()
    lt.call("cublasLtCreate", ctypes.byref(handle))
    return handle


def run_gemm(
    lhs: NDArray, rhs: NDArray, out: NDArray, *, transposed_rhs: bool = False, bias: NDArray | None = None,
    activation: str = "", scales: Sequence[NDArray] = (), tf32: bool = False,
) -> None:  # fmt: skip
    """``out = activation(scale * lhs @ op(rhs) + bias)`` on the current stream of the arrays' device.

    ``activation`` is "", "relu" or "gelu" (the tanh form) and goes with a bias; ``scales`` are none, one number for
    the product, or two, for its sides.  Raises LibraryError when cuBLAS has no algorithm for it.
    """
    where = context(out.device.device_id, lt.library(), _create)
    epilogue = "_".join(part for part in ("bias" if bias is not None else "", activation) if part)
    gemm = describe(
        lhs.shape, rhs.shape, (lhs.dtype, rhs.dtype, out.dtype), transposed_rhs, epilogue=epilogue,
        bias_dtype=bias.dtype if bias is not None else "", scales=("", "one", "both")[len(scales)], tf32=tf32,
    )  # fmt: skip
    with where.lock:
        where.make_current()
        numbers = [_as_float32(where, scale) for scale in scales]
        addresses = tuple(number.ptr for number in numbers)
        operands = _Operands(lhs.ptr, rhs.ptr, out.ptr, bias.ptr if bias is not None else 0, addresses)
        plan = _plan(where, gemm, operands)
        turned = None
        if plan is None and not transposed_rhs:
            # Of some dtypes the library only multiplies with the right side transposed: do that first.
            turned = _transposed(where, gemm, rhs)
            gemm = replace(gemm, transposed_rhs=True)
            operands.rhs = turned.ptr
            plan = _plan(where, gemm, operands)
        if plan is None:
            raise LibraryError("cuBLASLt", _NOT_SUPPORTED, lt.STATUS[_NOT_SUPPORTED], f"it has no algorithm for {gemm}")
        _launch(where, plan, gemm, operands)


def _plan(where: LibraryContext, gemm: Gemm, operands: _Operands) -> _Plan | None:
    alignments = operands.alignments()
    key = (gemm, alignments)
    if key not in where.plans:
        made = _Plan(gemm)
        made.bind(gemm, operands)
        where.plans[key] = made if made.choose(where, alignments) else None
    found: _Plan | None = where.plans[key]
    return found


def _launch(where: LibraryContext, plan: _Plan, gemm: Gemm, operands: _Operands) -> None:
    plan.bind(gemm, operands)
    stream = where.stream()
    alpha: Any = ctypes.byref(plan.one)
    beta: Any = ctypes.byref(plan.zero)
    if plan.factors_on_device:
        alpha, beta = operands.scales[0], _zero(where)
    lt.call(
        "cublasLtMatmul", where.handle, plan.desc.handle, alpha, operands.rhs, plan.a.handle, operands.lhs, plan.b.handle,
        beta, operands.out if plan.c is plan.d else None, plan.c.handle, operands.out, plan.d.handle,
        ctypes.byref(plan.algorithm), where.workspace(stream), plan.algorithm.workspace_size, stream, detail=str(gemm),
    )  # fmt: skip


def _zero(where: LibraryContext) -> int:
    """A zero on the device."""

    def make() -> Any:
        block = where.state.allocate(where.device, 4)
        where.state.driver.fill(where.device, block.address, 0, 4, where.stream())
        return block

    address: int = where.plan("zero", make).address
    return address


def _copy(where: LibraryContext, source: int, target: int, like: tuple[Any, Any], transpose: bool = False) -> None:
    """Copy a matrix to another layout or dtype."""
    desc = lt.transform_desc(lt.DATA_TYPES["float32"])
    desc.set("transa", c_int32(1 if transpose else 0))
    one, zero = c_float(1), c_float(0)
    lt.call(
        "cublasLtMatrixTransform", where.handle, desc.handle, ctypes.byref(one), source, like[0].handle,
        ctypes.byref(zero), None, None, target, like[1].handle, where.stream(),
    )  # fmt: skip


def _as_float32(where: LibraryContext, scale: NDArray) -> NDArray:
    """The number on the device as float32."""
    if scale.dtype == "float32":
        return scale
    made = empty(scale.shape, "float32", scale.device)
    _copy(where, scale.ptr, made.ptr, tuple(lt.matrix_layout(d, 1, 1, 1) for d in (scale.dtype, "float32")))  # type: ignore[arg-type]
    return made


def _transposed(where: LibraryContext, gemm: Gemm, rhs: NDArray) -> NDArray:
    """The right side with its last two axes exchanged, in memory of its own."""
    made = empty((*rhs.shape[:-2], gemm.n, gemm.k), rhs.dtype, Device(rhs.device.device_type, rhs.device.device_id))
    batch = gemm.batch if gemm.rhs_stride else 1
    # Transforms know no 8-bit floats. Times one, bytes stay what they are.
    dtype = "int8" if rhs.dtype in _FP8 else rhs.dtype
    before = lt.matrix_layout(dtype, gemm.n, gemm.k, gemm.n, batch, gemm.rhs_stride)
    after = lt.matrix_layout(dtype, gemm.k, gemm.n, gemm.k, batch, gemm.rhs_stride)
    _copy(where, rhs.ptr, made.ptr, (before, after), transpose=True)
    return made
