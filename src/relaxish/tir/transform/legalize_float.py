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

    def __init__(self, match: Any, to_wide: Any, from_wide: Any) -> None:
        self.match = match
        self.to_wide = to_wide
        self.from_wide = from_wide
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
            return self.to_wide(value, e.value.dtype, e.dtype)
        if self.match(e.dtype):
            return self.from_wide(value, e.dtype, self.storage(e.dtype))
        return e if value is e.value else Cast(e.dtype, value)

    def visit_Select(self, e: Select) -> Any:
        new = (self.visit(e.condition), self.visit(e.true_value), self.visit(e.false_value))
        return Select(*new)

    def visit_Call(self, e: Call) -> Any:
        args = self.visit(e.args)
        dtype = self.storage(e.dtype) if self.match(e.dtype) else e.dtype
        return e if args is e.args and dtype == e.dtype else Call(dtype, e.op, args, e.annotations)


def _call(op: str, dtype: str, *args: Any) -> Call:
    return Call(dtype, f"tir.{op}", args)


def bf16_to_wide(value: Any, _old: str, dtype: str) -> Any:
    """The float of ``dtype`` from bfloat16 bits: a shift into float32."""
    lanes = dt.lanes(dtype)
    u32, f32 = dt.with_lanes("uint32", lanes), dt.with_lanes("float32", lanes)
    shifted = _call("shift_left", u32, Cast(u32, value), B.const(u32, 16))
    made = _call("reinterpret", f32, shifted)
    return made if dtype == f32 else Cast(dtype, made)


def bf16_from_wide(value: Any, _new: str, storage: str) -> Any:
    """bfloat16 bits of a float, rounded to nearest even; NaN stays NaN."""
    lanes = dt.lanes(storage)
    u32, f32 = dt.with_lanes("uint32", lanes), dt.with_lanes("float32", lanes)
    value = value if value.dtype == f32 else Cast(f32, value)
    bits = _call("reinterpret", u32, value)
    upper = _call("shift_right", u32, bits, B.const(u32, 16))
    bias = _call("bitwise_and", u32, upper, B.const(u32, 1)) + B.const(u32, 0x7FFF)
    rounded = _call("shift_right", u32, bits + bias, B.const(u32, 16))
    nan = _call("isnan", dt.with_lanes("bool", lanes), value)
    return Cast(storage, Select(nan, B.const(u32, 0x7FC0), rounded))


def _legalize_storage(func: PrimFunc, match: Any, to_wide: Any, from_wide: Any) -> PrimFunc:
    storage = _Storage(match, to_wide, from_wide)
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
        lambda f: _legalize_storage(f, _is_bf16, bf16_to_wide, bf16_from_wide), "tir.BF16StorageLegalize"
    )
