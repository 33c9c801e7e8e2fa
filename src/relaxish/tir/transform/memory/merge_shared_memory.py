"""MergeSharedMemoryAllocations: all shared memory of a kernel is one allocation of bytes."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, IntImm, Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AccessT, Allocate, AttrStmt, BufferStore, DeclBuffer, Stmt
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    config,
    is_call,
    pointer_scope,
    FunctionRewrite,
)
from .linear_access import LinearAccess

_MATCH_RANGE = 16


def _nbytes(dtype: str) -> int:
    return (dt.bits(dtype) * dt.lanes(dtype) + 7) // 8


class _Slot:
    """A piece of the pool: in each layer, allocations one after another; layers are alive at different times."""

    def __init__(self, bits: int, layers: list[list[Any]]) -> None:
        self.bits = bits
        self.layers = layers


class _Plan:
    """Assigns allocations to slots by when they are alive."""

    def __init__(self, allocs: dict[Any, Allocate]) -> None:
        self.allocs = allocs
        self.free: list[_Slot] = []
        self.symbolic: list[_Slot] = []
        self.home: dict[Any, _Slot] = {}
        self.small: list[_Slot] = []

    def run(self, access: LinearAccess) -> None:
        """Walk the statements in order, freeing and allocating."""
        gen, kill = access.events()
        for entry in access.sequence:
            if entry.pair >= 0:
                for pointer in gen.get(entry.stmt, ()):
                    self.home[pointer] = self._find(self.allocs[pointer])
            if entry.pair <= 0:
                for pointer in kill.get(entry.stmt, ()):
                    self._release(pointer)

    def slots(self) -> list[_Slot]:
        """All slots, small ones first."""
        return [*self.small, *self.free, *self.symbolic]

    def _release(self, pointer: PrimExpr) -> None:
        slot = self.home.get(pointer)
        if slot is None or 0 < slot.bits <= 32:
            return
        if slot.bits:
            position = len([s for s in self.free if s.bits <= slot.bits])
            self.free.insert(position, slot)
        else:
            self.symbolic.append(slot)

    def _find(self, alloc: Allocate) -> _Slot:
        size = 1
        for extent in alloc.extents:
            size *= B.as_int(extent) or 0
        bits = size * dt.bits(alloc.dtype) * dt.lanes(alloc.dtype)
        mine = [alloc.buffer_var]
        if 0 < bits <= 32:
            self.small.append(_Slot(bits, [mine]))
            return self.small[-1]
        if not bits:
            if self.symbolic:
                slot = self.symbolic.pop(0)
                slot.layers.append(mine)
                return slot
            return _Slot(0, [mine])
        for slot in self.free:
            if bits <= slot.bits <= bits * _MATCH_RANGE:
                self.free.remove(slot)
                slot.layers.append(mine)
                return slot
        return self._join(bits, mine)

    def _join(self, bits: int, mine: list[Any]) -> _Slot:
        """Smaller free slots side by side, where no single one is large enough."""
        taken: list[_Slot] = []
        total = 0
        for slot in reversed([s for s in self.free if s.bits < bits]):
            taken.append(slot)
            total += slot.bits
            if total >= bits:
                break
        layers: list[list[Any]] = []
        for slot in taken:
            self.free.remove(slot)
            for i, layer in enumerate(slot.layers):
                if i == len(layers):
                    layers.append([])
                layers[i] += layer
        return _Slot(max(total, bits), [*layers, mine])


class _Collect(StmtExprVisitor):
    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.found: dict[Any, Allocate] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_Allocate(self, stmt: Allocate) -> None:
        if pointer_scope(stmt.buffer_var) == self.scope:
            self.found[stmt.buffer_var] = stmt
        self.visit(stmt.body)


class _Merge(StmtExprMutator):
    def __init__(self, allocs: dict[Any, Allocate], plan: _Plan, scope: str) -> None:
        self.allocs = allocs
        self.plan = plan
        name = "buf_dyn_shmem" if scope == "shared.dyn" else "buf_shmem"
        self.pool = Var(name, PointerType(PrimType("uint8"), scope))
        self.offsets: dict[Any, Any] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.allocated = False

    def _lay_out(self) -> PrimExpr:
        """Byte offsets of all allocations; returns the size of the pool."""
        total: Any = IntImm("int32", 0)
        slots = self.plan.slots()
        depth = max((len(s.layers) for s in slots), default=0)
        align = [0] * depth
        for slot in slots:
            for i, layer in enumerate(slot.layers):
                for pointer in layer:
                    align[i] = max(align[i], _nbytes(self.allocs[pointer].dtype))
        for slot in slots:
            widest: Any = IntImm("int32", 0)
            for i, layer in enumerate(slot.layers):
                inner: Any = IntImm("int32", 0)
                step = IntImm("int32", align[i])
                for pointer in layer:
                    alloc = self.allocs[pointer]
                    self.offsets[pointer] = total + inner
                    inner = inner + alloc.extents[0] * _nbytes(alloc.dtype)
                    inner = inner + B.floormod(B.sub(step, B.floormod(inner, step)), step)
                widest = B.maximum(widest, inner) if not B.is_zero(widest) else inner
            total = total + widest
        return total

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "thread_extent" or self.allocated:
            return self.default_visit(attr)
        self.allocated = True
        size = self._lay_out()
        body = Allocate(self.pool, "uint8", [size], IntImm("bool", 1), self.visit(attr.body))
        return attr.with_fields(body=body)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        return self.visit(stmt.body) if stmt.buffer_var in self.allocs else self.default_visit(stmt)

    def _remap(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            self.buffers[buffer] = buffer.with_fields(data=self.pool)
        return self.buffers[buffer]

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        buffer = self._remap(stmt.buffer) if stmt.buffer.data in self.allocs else stmt.buffer
        return stmt.with_fields(buffer=buffer, body=self.visit(stmt.body))

    def _offset(self, pointer: PrimExpr, dtype: str) -> PrimExpr:
        return B.floordiv(self.offsets[pointer], IntImm("int32", _nbytes(dtype)))

    def _access(self, made: AccessT) -> AccessT:
        buffer = made.buffer
        if buffer.data not in self.allocs:
            return made
        if len(made.indices) != 1:
            raise LoweringError(
                "MergeSharedMemoryAllocations expects flat memory buffers, and is to be run after FlattenBuffer"
            )
        index = made.indices[0] + self._offset(buffer.data, buffer.dtype)
        return made.with_fields(buffer=self._remap(buffer), indices=(index,))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self.default_visit(store))

    def visit_Call(self, e: Call) -> PrimExpr:
        if is_call(e, "tvm_access_ptr") and e.args[1] in self.allocs:
            kind, pointer, offset, extent, mask = e.args
            offset = self._offset(pointer, kind.dtype) + self.visit(offset)
            return e.with_fields(args=(kind, self.pool, offset, self.visit(extent), mask))
        if is_call(e, "ptx_cp_async") and e.args[0] in self.allocs:
            pointer, offset, *rest = e.args
            offset = self._offset(pointer, e.dtype) + self.visit(offset)
            # The pool is counted in bytes.
            return e.with_fields(args=(self.pool, offset * _nbytes(e.dtype), *self.visit(tuple(rest))))
        return self.default_visit(e)

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.pool if var in self.allocs else var


def merge(func: PrimFunc) -> PrimFunc:
    """Merge the shared memory of a function: dynamic always, static with ``tir.merge_static_smem``."""
    body = func.body
    for scope in ("shared.dyn", "shared"):
        if scope == "shared" and not config("tir.merge_static_smem", False):
            continue
        collect = _Collect(scope)
        collect.visit(body)
        if len(collect.found) < 2:
            continue
        access = LinearAccess(lambda a, s=scope: pointer_scope(a.buffer_var) == s)
        access.visit(body)
        plan = _Plan(collect.found)
        plan.run(access)
        body = _Merge(collect.found, plan, scope).visit(body)
    return func if body is func.body else func.with_body(body)


class MergeSharedMemoryAllocations(FunctionRewrite):
    """Merge allocations of dynamic shared memory into one; memory that is free is used again.

    Before::

        A = T.allocate([64], "float32", "shared.dyn")
        B = T.allocate([64], "float32", "shared.dyn")
        A[t] = ...
        B[t] = A[63 - t]

    After::

        buf_dyn_shmem = T.allocate([512], "uint8", "shared.dyn")
        A_1[t] = ...                     # A_1, B_1: views of buf_dyn_shmem
        B_1[t + 64] = A_1[63 - t]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return merge(func)
