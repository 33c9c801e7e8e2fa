"""BF16StorageLegalize and FP8StorageLegalize: memory of narrow floats is memory of unsigned integers."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, Cast, Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, BufferRealize, BufferStore, DeclBuffer, Stmt
from ..base import LoweringError, is_call, pointer_scope, FunctionRewrite
from .dtype_conversion import convert_float, reinterpret, uint_of
from .legalize_compute import Match, is_bfloat16, is_float8, natively_supported
from .retyping import RetypingMutator

_PREDICATED = "Predicated buffer {} is not currently supported in data type legalizer pass."


class StorageLegalizer(RetypingMutator):
    """Retypes pointers and buffers; values stay bits from load to store."""

    convert = staticmethod(convert_float)

    def __init__(self, match: Match) -> None:
        self.match = match
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def run(self, func: PrimFunc) -> PrimFunc:
        """The function on unsigned memory."""
        if func.buffer_map:
            raise LoweringError("This pass must be called after MakePackedAPI")
        params = tuple(self._define(p) for p in func.params)
        body = self.visit(func.body)
        if body is func.body and all(a is b for a, b in zip(params, func.params)):
            return func
        return func.with_fields(params=params, body=body)

    def _define(self, var: Var) -> Var:
        element = getattr(var.type_annotation, "element_type", None)
        dtype = getattr(element, "dtype", "")
        if not dtype or not self.match(dtype):
            return var
        made = Var(var.name, PointerType(PrimType(uint_of(dtype)), pointer_scope(var)))
        self.variables[var] = made
        return made

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        made = self.buffers.get(buffer)
        if made is None:
            dtype = uint_of(buffer.dtype) if self.match(buffer.dtype) else buffer.dtype
            data = self.variables.get(buffer.data)
            if data is None and dtype != buffer.dtype:
                raise LoweringError(f"Cannot find var remap for {buffer.name}")
            made = buffer if data is None else buffer.with_fields(data=data, dtype=dtype)
            self.buffers[buffer] = made
        return made

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        if not self.match(stmt.dtype):
            return self.default_visit(stmt)
        dtype = uint_of(stmt.dtype)
        var = Var(stmt.buffer_var.name, PointerType(PrimType(dtype), pointer_scope(stmt.buffer_var)))
        self.variables[stmt.buffer_var] = var
        return self.visit(Allocate(var, dtype, stmt.extents, stmt.condition, stmt.body))

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        if self.match(stmt.buffer.dtype) and stmt.buffer.data not in self.variables:
            # The pointer is of another type, so only the view of it changes.
            self.buffers[stmt.buffer] = stmt.buffer.with_fields(dtype=uint_of(stmt.buffer.dtype))
        buffer, body = self.visit(stmt.buffer), self.visit(stmt.body)
        return stmt if buffer is stmt.buffer and body is stmt.body else DeclBuffer(buffer, body, span=stmt.span)

    def bound(self, var: Var, value: PrimExpr) -> tuple[Var, Any]:
        """Pointers get the type of the memory they point to."""
        made = self.visit(value)
        return self._define(var), made

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value, indices, buffer = (
            self._bits(self.visit(store.value)),
            self.visit(store.indices),
            self.visit(store.buffer),
        )
        if value is store.value and indices is store.indices and buffer is store.buffer:
            return store
        if store.predicate is not None:
            raise LoweringError(_PREDICATED.format("store"))
        return BufferStore(buffer, value, indices, None, span=store.span)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made: Any = self.default_visit(load)
        if made.buffer is not load.buffer and load.predicate is not None:
            raise LoweringError(_PREDICATED.format("load"))
        return made

    def visit_BufferRealize(self, stmt: BufferRealize) -> Stmt:
        raise LoweringError("Do not expect buffer realize")

    def visit_Cast(self, e: Cast) -> PrimExpr:
        if self.match(e.value.dtype) and not self.match(e.dtype):
            # What was copied into promoted memory: the bits say nothing as an integer.
            wide = dt.with_lanes("float32", dt.lanes(e.dtype))
            return B.cast(e.dtype, self.visit(self.convert(e.value, wide)))
        return self.default_visit(e)

    def visit_Call(self, e: Call) -> PrimExpr:
        if not is_call(e, "reinterpret"):
            return self.default_visit(e)
        value = self.visit(e.args[0])
        if value.dtype == e.dtype:
            return value
        if self.match(e.dtype):
            return reinterpret(uint_of(e.dtype), value)
        return e if value is e.args[0] else reinterpret(e.dtype, value)

    def _bits(self, value: PrimExpr) -> PrimExpr:
        if self.match(value.dtype) and is_call(value, "reinterpret"):
            return reinterpret(uint_of(value.dtype), value.args[0])
        return value


class BF16StorageLegalize(FunctionRewrite):
    """Keep bfloat16 in memory as uint16; for functions after BF16ComputeLegalize and MakePackedAPI.

    Before::

        A = T.decl_buffer((100,), "bfloat16", data=a)
        B[i] = A[i]

    After::

        A = T.decl_buffer((100,), "uint16", data=a)
        B[i] = A[i]

    Raises ValueError for a function that still has buffer parameters.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 0)) else StorageLegalizer(is_bfloat16).run(func)


class FP8StorageLegalize(FunctionRewrite):
    """Keep 8-bit floats in memory as uint8; for functions after FP8ComputeLegalize and MakePackedAPI.

    Before::

        A = T.decl_buffer((100,), "float8_e4m3fn", data=a)
        B[i] = A[i]

    After::

        A = T.decl_buffer((100,), "uint8", data=a)
        B[i] = A[i]

    Raises ValueError for a function that still has buffer parameters.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if natively_supported(func, (8, 9)) else StorageLegalizer(is_float8).run(func)
