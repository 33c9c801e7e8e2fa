"""Statements in order of execution with the allocations they touch: where memory comes to life, and where it dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.prim import Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import Allocate, AttrStmt, BufferStore, Evaluate, Stmt
from ..base import StmtExprVisitor


class Entry:
    """A statement, or one end of a scope; ``pair`` is the distance to the other end (0 for plain statements)."""

    __slots__ = ("pair", "stmt", "touched")

    def __init__(self, stmt: Stmt | None = None) -> None:
        self.stmt = stmt
        self.pair = 0
        self.touched: list[Any] = []


class AllocInfo:
    """Position of an allocation: its statement and the number of scopes around it."""

    __slots__ = ("alloc", "buffers", "level")

    def __init__(self, alloc: Allocate, level: int) -> None:
        self.alloc = alloc
        self.level = level
        self.buffers: list[Any] = []


class LinearAccess(StmtExprVisitor):
    """Fills ``sequence`` and ``allocs``; only allocations accepted by ``wanted`` count."""

    def __init__(self, wanted: Callable[..., Any] | None = None) -> None:
        self.wanted = wanted or (lambda alloc: True)
        self.sequence: list[Entry] = []
        self.allocs: dict[Any, AllocInfo] = {}
        self.scopes: list[Entry] = []
        self.in_threads = False

    def _touch(self, pointer: PrimExpr) -> None:
        info = self.allocs.get(pointer)
        if info is not None and info.level < len(self.scopes):
            self.scopes[info.level].touched.append(pointer)

    def visit_Allocate(self, stmt: Allocate) -> None:
        if self.wanted(stmt):
            self.allocs[stmt.buffer_var] = AllocInfo(stmt, len(self.scopes))
        self.visit(stmt.extents)
        self.visit(stmt.body)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._buffer(load.buffer)
        self.visit(load.indices)

    def _buffer(self, buffer: Buffer) -> None:
        info = self.allocs.get(buffer.data)
        if info is not None and buffer not in info.buffers:
            info.buffers.append(buffer)
        self._touch(buffer.data)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.scopes.append(Entry())
        self.visit(store.value)
        self.visit(store.indices)
        self._buffer(store.buffer)
        self._leaf(store)

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self.scopes.append(Entry())
        self.visit(stmt.value)
        self._leaf(stmt)

    def _leaf(self, stmt: Stmt) -> None:
        entry = self.scopes.pop()
        if entry.touched:
            entry.stmt = stmt
            self.sequence.append(entry)

    def visit_Var(self, var: Var) -> None:
        self._touch(var)

    def _scope(self, stmt: Stmt) -> None:
        """A statement that forms one unit for the memory allocated outside of it."""
        self.scopes.append(Entry())
        begin = Entry(stmt)
        start = len(self.sequence)
        self.sequence.append(begin)
        self.default_visit(stmt)
        end = Entry(stmt)
        end.touched = self.scopes.pop().touched
        end.pair = start - len(self.sequence)
        begin.pair = -end.pair
        self.sequence.append(end)

    visit_For = visit_While = visit_IfThenElse = visit_AssertStmt = _scope

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "thread_extent" and not self.in_threads:
            self.in_threads = True
            self._scope(attr)
            self.in_threads = False
        elif attr.attr_key in ("extern_scope", "virtual_thread"):
            self._scope(attr)
        else:
            self.visit(attr.value)
            self.visit(attr.body)

    def events(self) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
        """For each statement, the allocations first and last touched there."""
        gen: dict[Any, list[Any]] = {}
        kill: dict[Any, list[Any]] = {}
        seen: set[Any] = set()
        for entry in reversed(self.sequence):
            for pointer in entry.touched:
                if pointer not in seen:
                    seen.add(pointer)
                    kill.setdefault(entry.stmt, []).append(pointer)
        seen.clear()
        for index, entry in enumerate(self.sequence):
            if entry.pair < 0:
                continue
            whole = self.sequence[index + entry.pair]
            for pointer in whole.touched:
                if pointer not in seen:
                    seen.add(pointer)
                    gen.setdefault(whole.stmt, []).append(pointer)
        return gen, kill
