"""Free variables and undefined buffers of a statement: use without definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.functor import Visitor
from ....ir.prim import IntImm, Let, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import Allocate, AllocateConst, AttrStmt, BufferStore, DeclBuffer, For, LetStmt, Stmt


class UseDef(Visitor):
    """Collects free variables and free buffers, in order of first use.

    ``thread_extent`` decides whether the extents of thread attributes count as uses.
    """

    def __init__(self, defined: Sequence[PrimExpr] = (), thread_extent: bool = True) -> None:
        self.defined: set[Any] = set(defined)
        self.buffers: set[Buffer] = set()
        self.thread_extent = thread_extent
        self.undefined: list[Any] = []
        self.undefined_buffers: list[Buffer] = []
        self._seen: set[Any] = set()

    def visit_Var(self, var: Var) -> None:
        if var not in self.defined and var not in self._seen:
            self._seen.add(var)
            self.undefined.append(var)

    def visit_IntImm(self, e: IntImm) -> None:
        return

    def visit_Buffer(self, buffer: Buffer) -> None:
        if buffer in self.buffers or buffer in self._seen:
            return
        self._seen.add(buffer)
        self.undefined_buffers.append(buffer)
        self._fields(buffer)

    def _fields(self, buffer: Buffer) -> None:
        self.visit(buffer.data)
        self.visit(buffer.shape)
        self.visit(buffer.strides)
        self.visit(buffer.elem_offset)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.visit(load.buffer)
        self.visit(load.indices)
        if load.predicate is not None:
            self.visit(load.predicate)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.buffer)
        self.visit(store.value)
        self.visit(store.indices)
        if store.predicate is not None:
            self.visit(store.predicate)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "thread_extent":
            if attr.node.var not in self.defined:
                self.defined.add(attr.node.var)
            if self.thread_extent:
                self.visit(attr.value)
            self.visit(attr.body)
        else:
            # The node says what the attribute is about; that is no use of it.
            self.visit(attr.value)
            self.visit(attr.body)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.defined.add(loop.loop_var)
        self.visit(loop.body)

    def visit_LetStmt(self, stmt: LetStmt | Let) -> None:
        self.visit(stmt.value)
        self.defined.add(stmt.var)
        self.visit(stmt.body)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.defined.add(stmt.buffer_var)
        self.visit(stmt.extents)
        self.visit(stmt.condition)
        self.visit(stmt.body)

    def visit_AllocateConst(self, stmt: AllocateConst) -> None:
        self.defined.add(stmt.buffer_var)
        self.visit(stmt.body)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self._fields(stmt.buffer)
        self.buffers.add(stmt.buffer)
        self.visit(stmt.body)


def undefined_vars(stmt: Stmt, defined: Sequence[PrimExpr] = ()) -> list[Any]:
    """Variables used in ``stmt`` that neither it nor ``defined`` defines."""
    found = UseDef(defined)
    found.visit(stmt)
    return found.undefined
