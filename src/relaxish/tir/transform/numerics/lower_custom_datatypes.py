"""LowerCustomDatatypes: operations on types that users brought along become what those registered for them."""

from __future__ import annotations

from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....ir.op import op_name_of
from ....ir.prim import BinaryOp, Call, Cast, CmpOp, FloatImm, Var
from ....ir.transform import PassContext
from ....ir.types import PointerType, PrimType
from ....runtime.registry import get_global_func
from ....target.datatype import lowered_dtype
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Stmt
from ..base import LoweringError, StmtExprMutator, FunctionRewrite


def is_custom(dtype: str) -> bool:
    """Whether a type is a user's own."""
    return dtype.startswith("custom[")


def _name(dtype: str) -> str:
    """The name of a type in the registry of lowering functions."""
    code = dt.code(dtype)
    return code[7:-1] if is_custom(dtype) else code


class _CustomDatatypeLowerer(StmtExprMutator):
    def __init__(self, target: str) -> None:
        self.target = target
        self.pointers: dict[Any, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def _lowered(self, what: str, kind: str, e: PrimExpr) -> PrimExpr:
        rule = get_global_func(f"tvm.datatype.lower.{self.target}.{what}", allow_missing=True)
        if rule is None:
            raise LoweringError(f"{kind} lowering function for target {self.target} not found: {what}")
        return rule(e)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        source, result = e.value.dtype, e.dtype
        made = self.default_visit(e)
        if not (is_custom(source) or is_custom(result)):
            return made
        return self._lowered(f"Cast.{_name(result)}.{_name(source)}", "Cast", made)

    def visit_FloatImm(self, e: FloatImm) -> PrimExpr:
        return self._lowered(f"FloatImm.{_name(e.dtype)}", "FloatImm", e) if is_custom(e.dtype) else e

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        made = self._operands(e)
        return (
            self._lowered(f"{type(e).__name__}.{_name(e.dtype)}", type(e).__name__, made)
            if is_custom(e.dtype)
            else made
        )

    def visit_CmpOp(self, e: CmpOp) -> PrimExpr:
        # A comparison gives a truth value, which is no custom type: it compares the bits.
        return self._operands(e)

    def _operands(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        made = type(e)(a, b)
        if is_custom(e.dtype):
            object.__setattr__(made, "dtype", e.dtype)
        return made

    def visit_Call(self, e: Call) -> PrimExpr:
        made: Any = self.default_visit(e)
        if not is_custom(e.dtype):
            return made
        if not op_name_of(e):
            raise LoweringError("Lowering non-intrinsic Calls not implemented")
        return self._lowered(f"Call.intrin.{e.op.name}.{_name(e.dtype)}", "Intrinsic", made)

    # -- memory ----------------------------------------------------------------------------------------------

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.pointers.get(var, var)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        if not is_custom(stmt.dtype):
            return self.default_visit(stmt)
        dtype = lowered_dtype(stmt.dtype)
        pointer = self.pointers[stmt.buffer_var] = Var(stmt.buffer_var.name, PointerType(PrimType(dtype)))
        extents, condition, body = self.visit(stmt.extents), self.visit(stmt.condition), self.visit(stmt.body)
        return Allocate(pointer, dtype, extents, condition, body, stmt.annotations)

    def _buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            made = buffer
            if is_custom(buffer.dtype):
                data = self.pointers.get(buffer.data, buffer.data)
                made = buffer.with_fields(data=data, dtype=f"uint{dt.bits(buffer.dtype)}")
            self.buffers[buffer] = made
        return self.buffers[buffer]

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        body, buffer = self.visit(stmt.body), self._buffer(stmt.buffer)
        return stmt if body is stmt.body and buffer is stmt.buffer else DeclBuffer(buffer, body)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        indices, buffer = self.visit(load.indices), self._buffer(load.buffer)
        return (
            load if indices is load.indices and buffer is load.buffer else BufferLoad(buffer, indices, load.predicate)
        )

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value, indices, buffer = self.visit(store.value), self.visit(store.indices), self._buffer(store.buffer)
        if value is store.value and indices is store.indices and buffer is store.buffer:
            return store
        return BufferStore(buffer, value, indices, store.predicate, span=store.span)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        made = self.default_visit(attr)
        pointer = self.pointers.get(attr.node) if isinstance(attr.node, Var) else None
        return made if pointer is None else AttrStmt(pointer, made.attr_key, made.value, made.body)


def lower(func: PrimFunc, _mod: IRModule, _ctx: PassContext) -> PrimFunc:
    """Lower the custom types of one function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError("LowerCustomDatatypes: Require the target attribute")
    body = _CustomDatatypeLowerer(target.kind.name).visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerCustomDatatypes(FunctionRewrite):
    """Lower operations on custom data types by the functions registered with ``target.datatype.register_op``.

    Before (``Add`` on ``posites2`` registered as a call of ``Posit32es2Add``)::

        x: T.custom[posites2]32 = T.Cast("custom[posites2]32", a) + T.Cast("custom[posites2]32", b)

    After::

        x = T.call_pure_extern("uint32", "Posit32es2Add", T.call_pure_extern("uint32", "FloatToPosit32es2", a), ...)

    Memory of custom types becomes memory of unsigned integers.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return lower(func, mod, ctx)
