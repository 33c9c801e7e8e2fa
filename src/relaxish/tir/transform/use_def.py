"""Which variables and buffers a statement uses without defining them."""

from __future__ import annotations

from typing import Any

from ...ir.functor import Visitor
from ..buffer import Buffer
from ..stmt import AttrStmt


class UseDef(Visitor):
    """Collects free variables and free buffers, in order of first use.

    ``thread_extent`` decides whether the extents of thread attributes count as uses.
    """

    def __init__(self, defined: Any = (), thread_extent: bool = True) -> None:
        self.defined: set[Any] = set(defined)
        self.buffers: set[Buffer] = set()
        self.thread_extent = thread_extent
        self.undefined: list[Any] = []
        self.undefined_buffers: list[Buffer] = []
        self._seen: set[Any] = set()

    def visit_Var(self, var: Any) -> None:
        if var not in self.defined and var not in self._seen:
            self._seen.add(var)
            self.undefined.append(var)

    def visit_IntImm(self, e: Any) -> None:
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

    def visit_BufferLoad(self, load: Any) -> None:
        self.visit(load.buffer)
        self.visit(load.indices)
        if load.predicate is not None:
            self.visit(load.predicate)

    def visit_BufferStore(self, store: Any) -> None:
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

    def visit_For(self, loop: Any) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.defined.add(loop.loop_var)
        self.visit(loop.body)

    def visit_LetStmt(self, stmt: Any) -> None:
        self.visit(stmt.value)
        self.defined.add(stmt.var)
        self.visit(stmt.body)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, stmt: Any) -> None:
        self.defined.add(stmt.buffer_var)
        self.visit(stmt.extents)
        self.visit(stmt.condition)
        self.visit(stmt.body)

    def visit_AllocateConst(self, stmt: Any) -> None:
        self.defined.add(stmt.buffer_var)
        self.visit(stmt.body)

    def visit_DeclBuffer(self, stmt: Any) -> None:
        self._fields(stmt.buffer)
        self.buffers.add(stmt.buffer)
        self.visit(stmt.body)


def undefined_vars(stmt: Any, defined: Any = ()) -> list[Any]:
    """Variables used in ``stmt`` that neither it nor ``defined`` defines."""
    found = UseDef(defined)
    found.visit(stmt)
    return found.undefined
