"""BF16 and FP8 legalisation: arithmetic in a wider float, storage as unsigned integers.

Compute, before: ``C[i] = A[i] + B[i]`` in bfloat16; after: both operands cast to float32, the sum cast back.
Storage, after: buffers of ``uint16`` whose values are shifted into float32 and rounded back by bit operations.
"""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...ir import dtype as dt
from ...ir.functor import Mutator
from ...ir.prim import And, BinaryOp, Broadcast, Call, Cast, CmpOp, FloatImm, Or, Select
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, BufferStore
from .base import PrimFuncPass, func_pass
from .dtype_conversion import FORMATS, narrow, widen


def _is_bf16(dtype: str) -> bool:
    return dt.code(dtype) == "bfloat"


def _is_fp8(dtype: str) -> bool:
    return dtype.startswith(("float8", "e4m3_float8", "e5m2_float8"))


class _Compute(Mutator):
    """Promotes arithmetic on a narrow float; loads, stores and selects keep it."""

    def __init__(self, match: Any, promote: str) -> None:
        self.match = match
        self.promote = promote

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def _wide(self, e: Any) -> Any:
        if not self.match(e.dtype):
            return e
        dtype = dt.with_lanes(self.promote, dt.lanes(e.dtype))
        if type(e) is Cast and e.value.dtype == dtype:
            return e.value
        if type(e) is FloatImm:
            return FloatImm(dtype, e.value)
        if type(e) is Broadcast:
            return Broadcast(self._wide(e.value), e.lanes)
        return Cast(dtype, e)

    def visit_BinaryOp(self, e: BinaryOp) -> Any:
        a, b = self.visit(e.a), self.visit(e.b)
        if isinstance(e, (And, Or)) or not self.match(e.a.dtype):
            return e if a is e.a and b is e.b else type(e)(a, b)
        made = type(e)(self._wide(a), self._wide(b))
        return made if isinstance(e, CmpOp) else Cast(e.dtype, made)

    def visit_Call(self, e: Call) -> Any:
        args = tuple(self.visit(a) for a in e.args)
        name = getattr(e.op, "name", "")
        plain = name in ("tir.if_then_else", "tir.reinterpret") or not name.startswith("tir.") or "call" in name
        if plain or not self.match(e.dtype) or "mma" in name or "amx" in name:
            return e if all(a is b for a, b in zip(args, e.args)) else e.with_fields(args=args)
        wide = dt.with_lanes(self.promote, dt.lanes(e.dtype))
        made = Call(wide, e.op, tuple(self._wide(a) for a in args), e.annotations)
        return Cast(e.dtype, made)

    def visit_Cast(self, e: Cast) -> Any:
        value = self.visit(e.value)
        if self.match(value.dtype) and not self.match(e.dtype) and not e.dtype.startswith(self.promote):
            return Cast(e.dtype, self._wide(value))
        # A round trip through the narrow type of something just promoted.
        if type(value) is Cast and self.match(value.dtype) and value.value.dtype == e.dtype:
            return value.value
        return e if value is e.value else Cast(e.dtype, value)


class _Storage(Mutator):
    """Replaces a narrow float in memory by an unsigned integer of its width."""

    def __init__(self, match: Any) -> None:
        self.match = match
        self.buffers: dict[Buffer, Buffer] = {}

    def storage(self, dtype: str) -> str:
        """The integer type of the same width."""
        return dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype))

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        if not self.match(buffer.dtype):
            return buffer
        if buffer not in self.buffers:
            self.buffers[buffer] = buffer.with_fields(dtype=self.storage(buffer.dtype))
        return self.buffers[buffer]

    def visit_FloatImm(self, e: FloatImm) -> Any:
        if not self.match(e.dtype):
            return e
        import numpy as np

        bits = np.array(e.value, dt.numpy_dtype(e.dtype)).view(f"uint{dt.bits(e.dtype)}")
        return B.const(self.storage(e.dtype), int(bits))

    def visit_BufferLoad(self, e: BufferLoad) -> Any:
        indices = self.visit(e.indices)
        buffer = self.visit(e.buffer)
        if buffer is e.buffer and indices is e.indices:
            return e
        return BufferLoad(buffer, indices, self.visit(e.predicate))

    def visit_BufferStore(self, e: BufferStore) -> Any:
        value, indices, buffer = self.visit(e.value), self.visit(e.indices), self.visit(e.buffer)
        if value is e.value and indices is e.indices and buffer is e.buffer:
            return e
        return BufferStore(buffer, value, indices, self.visit(e.predicate), e.span)

    def visit_Allocate(self, e: Allocate) -> Any:
        body = self.visit(e.body)
        dtype = self.storage(e.dtype) if self.match(e.dtype) else e.dtype
        return e if body is e.body and dtype == e.dtype else e.with_fields(dtype=dtype, body=body)

    def visit_Cast(self, e: Cast) -> Any:
        value = self.visit(e.value)
        if self.match(e.value.dtype):
            return to_wide(value, e.value.dtype, e.dtype)
        if self.match(e.dtype):
            return from_wide(value, e.dtype, self.storage(e.dtype))
        return e if value is e.value else Cast(e.dtype, value)

    def visit_Select(self, e: Select) -> Any:
        new = (self.visit(e.condition), self.visit(e.true_value), self.visit(e.false_value))
        return Select(*new)

    def visit_Call(self, e: Call) -> Any:
        args = self.visit(e.args)
        dtype = self.storage(e.dtype) if self.match(e.dtype) else e.dtype
        return e if args is e.args and dtype == e.dtype else Call(dtype, e.op, args, e.annotations)


def to_wide(value: Any, old: str, dtype: str) -> Any:
    """The float of ``dtype`` from the bits of a narrow one."""
    goal = dtype if dt.element_of(dtype) in FORMATS else dt.with_lanes("float32", dt.lanes(dtype))
    made = widen(value, old, goal)
    return made if goal == dtype else Cast(dtype, made)


def from_wide(value: Any, new: str, _storage: str) -> Any:
    """The bits of a narrow float, rounded to nearest even."""
    if dt.element_of(value.dtype) not in FORMATS:
        value = Cast(dt.with_lanes("float32", dt.lanes(value.dtype)), value)
    return narrow(value, new)


def _legalize_storage(func: PrimFunc, match: Any) -> PrimFunc:
    storage = _Storage(match)
    buffer_map = {p: storage.visit_Buffer(b) for p, b in func.buffer_map.items()}
    body = storage.visit(func.body)
    if body is func.body and all(buffer_map[p] is b for p, b in func.buffer_map.items()):
        return func
    return PrimFunc(func.params, body, func.ret_type, buffer_map, func.attrs, func.span)


def legalize_compute(func: PrimFunc, match: Any, promote: str) -> PrimFunc:
    """Promote arithmetic on matching floats."""
    body = _Compute(match, promote).visit(func.body)
    return func if body is func.body else func.with_body(body)


def BF16ComputeLegalize() -> PrimFuncPass:  # noqa: N802
    """Compute bfloat16 arithmetic in float32."""
    return func_pass(lambda f: legalize_compute(f, _is_bf16, "float32"), "tir.BF16ComputeLegalize")


def FP8ComputeLegalize(promote_dtype_str: str = "float32") -> PrimFuncPass:  # noqa: N802
    """Compute 8-bit float arithmetic in a wider type."""
    return func_pass(lambda f: legalize_compute(f, _is_fp8, promote_dtype_str), "tir.FP8ComputeLegalize")


def BF16StorageLegalize() -> PrimFuncPass:  # noqa: N802
    """Keep bfloat16 in memory as uint16."""
    return func_pass(
        lambda f: _legalize_storage(f, _is_bf16), "tir.BF16StorageLegalize"
    )


def FP8StorageLegalize() -> PrimFuncPass:  # noqa: N802
    """Keep 8-bit floats in memory as uint8.

    Before::

        A: T.Buffer((16,), "float8_e4m3fn"); B[i] = T.Cast("float32", A[i])

    After::

        A: T.Buffer((16,), "uint8"); B[i] = T.reinterpret("float32", <bits of A[i] spread by shifts>)
    """
    return func_pass(lambda f: _legalize_storage(f, _is_fp8), "tir.FP8StorageLegalize")
