"""StorageRewrite: allocations leave serial loops, and memory that is free is used again.

Before: ``a = allocate(64); use a; b = allocate(64); use b``.
After: one allocation serves both where their uses do not overlap.
"""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...ir.functor import Mutator, Visitor
from ...ir.prim import IntImm, Var
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, DeclBuffer, For, ForKind, SeqStmt, Stmt
from .base import PrimFuncPass, func_pass


class _Uses(Visitor):
    """First and last top-level statement, within one attach scope, that mentions each pointer."""

    def __init__(self, pointers: set[Any]) -> None:
        self.pointers = pointers
        self.seen: set[Any] = set()

    def visit_Var(self, var: Any) -> None:
        if var in self.pointers:
            self.seen.add(var)

    def visit_BufferLoad(self, load: Any) -> None:
        self.visit(load.buffer.data)
        for index in load.indices:
            self.visit(index)

    def visit_BufferStore(self, store: Any) -> None:
        self.visit(store.buffer.data)
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)

    def visit_Buffer(self, buffer: Any) -> None:
        return


def _scope_of(var: Var) -> str:
    return getattr(var.type_annotation, "storage_scope", "") or "global"


class _Lift(Mutator):
    """Takes allocations of constant size out to the body of the function or of the nearest parallel region."""

    def __init__(self) -> None:
        self.found: list[list[Allocate]] = []

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def attach(self, body: Stmt) -> Stmt:
        """Lift within ``body`` and put the allocations around it."""
        self.found.append([])
        inner = self.visit(body)
        allocs = self.found.pop()
        if not allocs:
            return inner  # type: ignore[no-any-return]
        inner, allocs = share(inner, allocs)
        for alloc in reversed(allocs):
            inner = alloc.with_fields(body=inner)
        return inner  # type: ignore[no-any-return]

    def visit_For(self, loop: For) -> Any:
        if loop.kind in (ForKind.PARALLEL, ForKind.THREAD_BINDING):
            body = self.attach(loop.body)
            return loop if body is loop.body else loop.with_fields(body=body)
        return self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key in ("thread_extent", "virtual_thread") or attr.attr_key.startswith("pragma_parallel"):
            body = self.attach(attr.body)
            return attr if body is attr.body else attr.with_fields(body=body)
        return self.default_visit(attr)

    def visit_Allocate(self, alloc: Allocate) -> Any:
        constant = all(isinstance(e, IntImm) for e in alloc.extents)
        if constant and isinstance(alloc.condition, IntImm) and alloc.condition.value:
            self.found[-1].append(alloc)
            return self.visit(alloc.body)
        return self.default_visit(alloc)


def _touched(stmt: Any, pointers: set[Any]) -> set[Any]:
    uses = _Uses(pointers)
    uses.visit(stmt)
    return uses.seen


def _sequence(stmt: Any) -> list[Any]:
    """The top-level statements inside declarations."""
    while isinstance(stmt, DeclBuffer) or (isinstance(stmt, AttrStmt) and stmt.attr_key != "thread_extent"):
        stmt = stmt.body
    return _flat(stmt)


def _flat(stmt: Any) -> list[Any]:
    if isinstance(stmt, SeqStmt):
        return [x for s in stmt.seq for x in _flat(s)]
    if isinstance(stmt, DeclBuffer):
        return _flat(stmt.body)
    return [stmt]


def share(body: Stmt, allocs: list[Allocate]) -> tuple[Stmt, list[Allocate]]:
    """Let later allocations use the memory of earlier ones that are done; equal type and scope only."""
    if len(allocs) < 2:
        return body, allocs
    pointers = {a.buffer_var for a in allocs}
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, stmt in enumerate(_sequence(body)):
        for var in _touched(stmt, pointers):
            first.setdefault(var, i)
            last[var] = i
    order = sorted((a for a in allocs if a.buffer_var in first), key=lambda a: first[a.buffer_var])
    live: list[tuple[int, Allocate, int]] = []
    merged: dict[Any, Any] = {}
    sizes: dict[Any, int] = {}
    for alloc in order:
        size = 1
        for e in alloc.extents:
            size *= B.as_int(e) or 1
        home = None
        for i, (end, owner, _) in enumerate(live):
            same = owner.dtype == alloc.dtype and _scope_of(owner.buffer_var) == _scope_of(alloc.buffer_var)
            if end < first[alloc.buffer_var] and same and not alloc.annotations and not owner.annotations:
                if home is None or abs(sizes[owner.buffer_var] - size) < abs(sizes[live[home][1].buffer_var] - size):
                    home = i
        if home is None:
            live.append((last[alloc.buffer_var], alloc, size))
            sizes[alloc.buffer_var] = size
        else:
            owner = live[home][1]
            merged[alloc.buffer_var] = owner.buffer_var
            sizes[owner.buffer_var] = max(sizes[owner.buffer_var], size)
            live[home] = (last[alloc.buffer_var], owner, size)
    if not merged:
        return body, [a for a in allocs if a.buffer_var in first]
    owners = [owner for _, owner, _ in live]
    made = [a.with_fields(extents=(B.const("int32", sizes[a.buffer_var]),)) for a in owners]
    return _Retarget(merged).visit(body), made


class _Retarget(Mutator):
    def __init__(self, merged: dict[Any, Any]) -> None:
        self.merged = merged
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Var(self, var: Any) -> Any:
        return self.merged.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        data = self.merged.get(buffer.data)
        if data is None:
            return buffer
        if buffer not in self.buffers:
            self.buffers[buffer] = buffer.with_fields(data=data)
        return self.buffers[buffer]


def rewrite(func: PrimFunc) -> PrimFunc:
    """Lift and share the allocations of a function."""
    if not _allocates(func.body):
        return func
    body = _Lift().attach(func.body)
    return func if body is func.body else func.with_body(body)


def _allocates(body: Any) -> bool:
    class Find(Visitor):
        found = False

        def visit_PrimExpr(self, e: Any) -> None:
            return

        def visit_Allocate(self, stmt: Any) -> None:
            self.found = True

    find = Find()
    find.visit(body)
    return find.found


def StorageRewrite() -> PrimFuncPass:  # noqa: N802
    """Lift allocations out of serial loops and share memory."""
    return func_pass(rewrite, "tir.StorageRewrite")


__all__ = ["StorageRewrite", "rewrite"]
