"""LowerDeviceStorageAccessInfo, CombineContextCall, LegalizePackedCalls: the last steps before code generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, IntImm, StringImm, Var
from ....runtime.registry import get_global_func
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, Evaluate, For, ForKind, LetStmt, stmt_seq, Stmt
from ..host.arg_binder import ARR_DATA, ARR_DEVICE_ID, ARR_DEVICE_TYPE
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtMutator,
    call,
    is_call,
    pointer_scope,
    FunctionRewrite,
)

# Scope tags that are ordinary memory of their kind.
_PLAIN_TAGS = ("", ".dyn", ".workspace", ".barrier", ".vtcm")
_ABOUT = "tvm.info.mem."
"""What is known of a special memory is what the global function of this name and its scope gives: attributes with
``unit_bits`` (of one address) and ``head_address`` (where it begins, an expression or None)."""


def _address(pointer: Var, dtype: str, offset: PrimExpr) -> Call:
    if dt.lanes(dtype) != 1:
        offset = offset * B.const(offset.dtype, dt.lanes(dtype))
    one = B.const(offset.dtype, 1)
    view = Buffer(pointer, dt.element_of(dtype), [offset + one], [], 0, pointer.name, 0, 0, "")
    return call("handle", "address_of", BufferLoad(view, [offset]))


class _Access(StmtExprMutator):
    def __init__(self) -> None:
        self.special: dict[Any, Any] = {}

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        scope = pointer_scope(stmt.buffer_var)
        tag = scope[scope.index(".") :] if "." in scope else ""
        if tag in _PLAIN_TAGS or scope.startswith(("wmma", "m16n8k8", "texture", "global.texture", "metal")):
            return self.default_visit(stmt)
        about = get_global_func(_ABOUT + scope, allow_missing=True)
        if about is None:
            raise LoweringError(f"Cannot find memory info of {scope}: register a global function {_ABOUT}{scope}")
        info = about()
        self.special[stmt.buffer_var] = info
        body = self.visit(stmt.body)
        head = info.get("head_address")
        return LetStmt(stmt.buffer_var, head, body) if head is not None else body

    def visit_Call(self, e: Call) -> PrimExpr:
        if not is_call(e, "tvm_access_ptr"):
            return self.default_visit(e)
        kind, pointer, offset = e.args[0], e.args[1], self.visit(e.args[2])
        if e.dtype == "handle" or pointer not in self.special:
            return _address(pointer, kind.dtype, offset)
        unit = int(self.special[pointer].get("unit_bits", 8))
        size = dt.bits(kind.dtype) * dt.lanes(kind.dtype)
        if unit % size:
            raise LoweringError(f"a unit of {unit} bits of {pointer.name}'s memory is not a multiple of {kind.dtype}")
        return B.cast(e.dtype, B.floordiv(offset, B.const(offset.dtype, unit // size)))


class LowerDeviceStorageAccessInfo(FunctionRewrite):
    """Lower ``T.tvm_access_ptr`` and allocations in special memories.

    Before::

        T.call_extern("f", T.tvm_access_ptr(T.type_annotation("float32"), A.data, 16, 8, 1))

    After::

        T.call_extern("f", T.address_of(A[16]))
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        body = _Access().visit(func.body)
        return func if body is func.body else func.with_body(body)


class _Combine(StmtExprMutator):
    def __init__(self) -> None:
        self.known: list[tuple[Any, Var]] = []

    def visit_Call(self, e: Call) -> PrimExpr:
        if not is_call(e, "tvm_thread_context"):
            return self.default_visit(e)
        value = e.args[0]
        for expr, var in self.known:
            if B.deep_equal(expr, value):
                return var
        self.known.append((value, Var("ctx_cache_", value.dtype)))
        return self.known[-1][1]

    def around(self, stmt: Stmt) -> Stmt:
        """Rewrite a body and bind its contexts once, outside of it."""
        saved, self.known = self.known, []
        made = self.visit(stmt)
        for value, var in self.known:
            made = LetStmt(var, value, made)
        self.known = saved
        return made

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key in ("thread_extent", "coproc_uop_scope"):
            return attr.with_fields(body=self.around(attr.body))
        return self.default_visit(attr)

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind == ForKind.PARALLEL:
            return loop.with_fields(body=self.around(loop.body))
        return self.default_visit(loop)


class CombineContextCall(FunctionRewrite):
    """Bind the context that several calls ask for once, outside of them.

    Before::

        T.call_extern("f", T.tvm_thread_context(c)); T.call_extern("g", T.tvm_thread_context(c))

    After::

        with T.LetStmt(c) as ctx_cache_: T.call_extern("f", ctx_cache_); T.call_extern("g", ctx_cache_)
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        body = _Combine().around(func.body)
        return func if body is func.body else func.with_body(body)


class _Legalize(StmtMutator):
    def __init__(self, params: Sequence[PrimExpr]) -> None:
        self.params = set(params)
        self.count = 0

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        e: Any = stmt.value
        if not is_call(e, "tvm_call_cpacked"):
            return stmt
        args: list[Any] = [e.args[0]]
        slots: list[Var] = []
        stmts: list[Any] = []
        for arg in e.args[1:]:
            if isinstance(arg, Var) and arg in self.params:
                args.append(arg)
                continue
            slot = Var(f"tvm_value_{self.count}", "handle")
            self.count += 1
            for field, value in (
                (ARR_DATA, arg),
                (ARR_DEVICE_TYPE, IntImm("int32", 1)),
                (ARR_DEVICE_ID, IntImm("int32", 0)),
            ):
                place = (slot, IntImm("int32", 0), IntImm("int32", field))
                stmts.append(Evaluate(call("handle", "tvm_struct_set", *place, value)))
            slots.append(slot)
            args.append(slot)
        stmts.append(Evaluate(Call(e.dtype, e.op, tuple(args))))
        body: Any = stmt_seq(*stmts)
        for slot in slots:
            body = LetStmt(slot, call("handle", "tvm_stack_alloca", StringImm("array"), IntImm("int32", 1)), body)
        return body


class LegalizePackedCalls(FunctionRewrite):
    """Put arguments of packed calls that are no parameters of the function into array descriptors on the stack.

    Before::

        T.call_cpacked("f", A.data)

    After::

        with T.LetStmt(T.tvm_stack_alloca("array", 1)) as tvm_value_0:
            T.tvm_struct_set(tvm_value_0, 0, 1, A.data)     # data
            T.tvm_struct_set(tvm_value_0, 0, 10, 1)         # device type: CPU
            T.tvm_struct_set(tvm_value_0, 0, 9, 0)          # device id
            T.call_cpacked("f", tvm_value_0)
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        body = _Legalize(func.params).visit(func.body)
        return func if body is func.body else func.with_body(body)
