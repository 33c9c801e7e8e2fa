"""InjectPTXAsyncCopy and InjectPTXLDG32: copies from global memory by the instructions made for them."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....ir.prim import Add, Broadcast, FloatImm, IntImm, Ramp, Var
from ....ir.transform import PassContext
from ...buffer import decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, BufferStore, Evaluate, SeqStmt, Stmt
from ..base import LoweringError, StmtMutator, call, is_call, BodyRewrite, FunctionRewrite

_ASYNC_BYTES = (4, 8, 16)


def _element_bytes(pointer: Var) -> tuple[str, int]:
    """The element type a pointer was declared with, and its size."""
    element = getattr(pointer.type_annotation, "element_type", None)
    dtype = getattr(element, "dtype", "")
    return dtype, dt.bits(dtype) * dt.lanes(dtype) // 8 if dtype else 0


def _is_zero(e: PrimExpr) -> bool:
    if isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, (FloatImm, IntImm)) and e.value == 0


def _base(e: PrimExpr) -> PrimExpr | None:
    """The first lane of consecutive indices, also where the offset in a merged pool is added."""
    match e:
        case Ramp():
            return e.base
        case Add() if isinstance(e.a, Ramp) and isinstance(e.b, Broadcast):
            return Add(e.a.base, e.b.value)
    return None


class _AsyncCopy(StmtMutator):
    def __init__(self) -> None:
        self.inside = False

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "async_scope":
            return self.default_visit(attr)
        if self.inside:
            raise LoweringError("Nested async scopes not supported")
        self.inside = True
        body = self.visit(attr.body)
        self.inside = False
        return body

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        if not self.inside or store.buffer.scope() not in ("shared", "shared.dyn"):
            return store
        value: Any = store.value
        if isinstance(value, BufferLoad):
            return self._copy(value, store, None) or store
        if is_call(value, "if_then_else") and isinstance(value.args[1], BufferLoad) and _is_zero(value.args[2]):
            # Lanes that the instruction leaves out are filled with zeros.
            return self._copy(value.args[1], store, value.args[0]) or store
        return store

    @staticmethod
    def _copy(load: BufferLoad, store: BufferStore, predicate: PrimExpr | None) -> Stmt | None:
        if load.buffer.scope() != "global" or len(load.indices) != 1 or len(store.indices) != 1:
            return None
        source: Any = load.indices[0]
        target: Any = store.indices[0]
        lanes = dt.lanes(source.dtype)
        nbytes = lanes * dt.bits(load.buffer.dtype) * dt.lanes(load.buffer.dtype) // 8
        if nbytes not in _ASYNC_BYTES:
            return None
        factor = 1
        target_type, _ = _element_bytes(store.buffer.data)
        source_type, size = _element_bytes(load.buffer.data)
        if target_type and source_type and target_type != source_type:
            # A pool of bytes: its offsets are counted in bytes.
            factor = size
        if lanes != 1:
            source = source.base if isinstance(source, Ramp) else None
            target = _base(target)
            if isinstance(predicate, Broadcast):
                predicate = predicate.value
            if source is None or target is None:
                return None
        offset = target if factor == 1 else B.mul(target, B.const(target.dtype, factor))
        args = [store.buffer.data, offset, load.buffer.data, source, IntImm("int32", nbytes)]
        if predicate is not None:
            args.append(predicate)
        return Evaluate(call(store.buffer.dtype, "ptx_cp_async", *args))


class InjectPTXAsyncCopy(BodyRewrite):
    """Turn copies from global to shared memory inside ``async_scope`` into ``cp.async``.

    Before::

        with T.attr(0, "async_scope", 1):
            A_shared[i] = A[i]                  # float32, 4 bytes

    After::

        T.ptx_cp_async("float32", A_shared.data, i, A.data, i, 4)

    Copies of 4, 8 or 16 bytes qualify; ``T.if_then_else(p, A[i], 0.0)`` becomes a predicated copy.
    """

    def rewrite_body(self, s: Stmt) -> Stmt:
        return _AsyncCopy().visit(s)


class _Ldg32(StmtMutator):
    def __init__(self) -> None:
        self.addresses = decl_buffer([2], "int32", "addr", scope="local")
        self.predicate = decl_buffer([1], "bool", "predicate", scope="local")
        self.started = False
        self.declared = False

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        self.started = True
        made: Any = self.default_visit(stmt)
        if self.declared:
            return made
        self.declared = True
        for buffer in (self.addresses, self.predicate):
            made = Allocate(buffer.data, buffer.dtype, buffer.shape, IntImm("bool", 1), made)
        return made

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value: Any = store.value
        if not is_call(value, "if_then_else") or not self.started:
            return store
        predicate, load, other = value.args
        if not isinstance(load, BufferLoad):
            load, other = other, load
        if not isinstance(load, BufferLoad) or load.buffer.scope() != "global" or len(load.indices) != 1:
            return store
        if isinstance(load.indices[0], Ramp) or len(store.indices) != 1:
            return store
        source, target = (BufferLoad(self.addresses, [i]) for i in (0, 1))
        copy = call(
            store.buffer.dtype, "ptx_ldg32", store.buffer.data, BufferLoad(self.predicate, [0]),
            BufferLoad(load.buffer, [source]), target,
        )  # fmt: skip
        return SeqStmt([
            BufferStore(self.addresses, load.indices[0], [0]),
            BufferStore(self.addresses, store.indices[0], [1]),
            BufferStore(self.predicate, predicate, [0]),
            BufferStore(store.buffer, other, [target]),
            Evaluate(copy),
        ])  # fmt: skip


class InjectPTXLDG32(FunctionRewrite):
    """Turn ``A_local[j] = T.if_then_else(p, A[i], 0.0)`` into a store of the other value and a predicated 32-bit load.

    Before::

        A_local[j] = T.if_then_else(p, A[i], T.float32(0))

    After::

        addr[0] = i
        addr[1] = j
        predicate[0] = p
        A_local[addr[1]] = T.float32(0)
        T.ptx_ldg32(A_local.data, predicate[0], A[addr[0]], addr[1])
    """

    enable_ptx_ldg32: bool = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if not self.enable_ptx_ldg32:
            return func
        body = _Ldg32().visit(func.body)
        return func if body is func.body else func.with_body(body)
