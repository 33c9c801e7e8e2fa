"""ThreadSync: barriers between threads that write memory and threads that read it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ....arith import build as B
from ....arith import eval_set
from ....arith.functor import uses_var
from ....arith.int_set import from_min_extent, int_set_of_vector
from ....ir.expr import PrimExpr
from ....ir.functor import all_nodes
from ....ir.prim import Call, IntImm, IterVar, StringImm, Var
from ....support.sequences import of_kind
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AttrStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While
from ..base import (
    LoweringError,
    StmtExprVisitor,
    StmtMutator,
    call,
    is_call,
    pointer_scope,
    FunctionRewrite,
)

READ, WRITE, SYNC = "read", "write", "sync"


@dataclass
class Access:
    """One use of a buffer: what it touches, by which threads."""

    kind: str
    threads: tuple[Any, ...]
    buffer: Any = None
    touched: list[Any] = field(default_factory=list)
    double_buffer_write: bool = False
    only_some: bool = False
    """Whether threads of a block may skip it."""


@dataclass
class Entry:
    """A statement with its accesses."""

    stmt: Any
    accesses: list[Access] = field(default_factory=list)


class _Accesses(StmtExprVisitor):
    """Walks device code, handing each scope's statements to :meth:`summarize`."""

    def __init__(self, scope: str) -> None:
        self.sync_scope = scope
        self.scopes: list[list[Entry]] = [[]]
        self.current: Entry | None = None
        self.threads: list[Any] = []
        self.device = False
        self.conditions = 0
        self.double_buffer: Any = None

    def summarize(self, entries: list[Entry], loop: For | None) -> list[Access]:
        """The accesses of a scope as its surroundings see them."""
        raise NotImplementedError

    def _enabled(self, pointer: Var) -> bool:
        return self.device and (pointer_scope(pointer) or "global") == self.sync_scope

    def _note(self, kind: str, pointer: PrimExpr, touched: list[Any]) -> None:
        if self.current is not None:
            some = self.conditions > 0
            self.current.accesses.append(Access(kind, tuple(self.threads), pointer, touched, only_some=some))

    def _statement(self, stmt: Stmt, *parts: Any) -> None:
        self.current = Entry(stmt)
        for part in parts:
            self.visit(part)
        self._finish()

    def _finish(self) -> None:
        if self.current is not None and self.current.accesses:
            self.scopes[-1].append(self.current)
        self.current = None

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        if self._enabled(load.buffer.data):
            self._note(READ, load.buffer.data, [int_set_of_vector(i) for i in load.indices])
        self.visit(load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.current = Entry(store)
        if self._enabled(store.buffer.data):
            self._note(WRITE, store.buffer.data, [int_set_of_vector(i) for i in store.indices])
            if self.double_buffer is store.buffer.data and self.current.accesses:
                self.current.accesses[-1].double_buffer_write = True
        self.visit(store.indices)
        self.visit(store.value)
        self._finish()

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self._statement(stmt, stmt.value)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._statement(stmt, stmt.value)
        self.visit(stmt.body)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "explicit_sync":
            return  # a kernel that orders its own accesses
        if attr.attr_key == "double_buffer_write":
            saved, self.double_buffer = self.double_buffer, attr.node
            self.scopes.append([])
            self.visit(attr.body)
            accesses = self.summarize(self.scopes.pop(), None)
            for access in accesses:
                if access.kind == WRITE and access.buffer is attr.node:
                    access.double_buffer_write = True
            if accesses:
                self.scopes[-1].append(Entry(attr, accesses))
            self.double_buffer = saved
        elif attr.attr_key == "thread_extent":
            self.threads.append(attr.node)
            if self.device:
                self.visit(attr.body)
            else:
                self.device = True
                self.scopes.append([])
                self.visit(attr.body)
                # The end of a kernel is a barrier in itself.
                self.summarize(self.scopes.pop(), None)
                self.device = False
            self.threads.pop()
        else:
            self.visit(attr.body)

    def visit_For(self, loop: For) -> None:
        self.scopes.append([])
        self.visit(loop.body)
        accesses = self.summarize(self.scopes.pop(), loop)
        domain = {loop.loop_var: from_min_extent(loop.min, loop.extent)}
        for access in accesses:
            access.touched = [eval_set(t, domain) for t in access.touched]
        if accesses:
            self.scopes[-1].append(Entry(loop, accesses))

    def _branch(self, stmt: Stmt, parts: list[Any], condition: PrimExpr) -> None:
        """Statements that not all threads may come to, unless the condition is marked ``tvm_thread_invariant``."""
        counted = 0 if is_call(condition, "tvm_thread_invariant") else 1
        self.conditions += counted
        self.visit(condition)
        entry = Entry(stmt)
        for part in parts:
            self.scopes.append([])
            self.visit(part)
            entry.accesses += self.summarize(self.scopes.pop(), None)
        if entry.accesses:
            self.scopes[-1].append(entry)
        self.conditions -= counted

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        parts = [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
        self._branch(stmt, parts, stmt.condition)

    def visit_While(self, stmt: While) -> None:
        self._branch(stmt, [stmt.body], stmt.condition)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "address_of"):
            self.visit(e.args[0].indices)
        elif is_call(e, "tvm_access_ptr"):
            self._pointer(e)
        elif is_call(e, "tvm_storage_sync"):
            if self.device and self.current is not None and str(e.args[0].value) != "warp":
                self.current.accesses.append(Access(SYNC, tuple(self.threads)))
        else:
            for arg in of_kind(e.args, PrimExpr):
                self.visit(arg)

    def _pointer(self, e: Call) -> None:
        pointer, offset, extent, flag = e.args[1:5]
        if self._enabled(pointer):
            touched = [from_min_extent(offset, extent)]
            for bit, kind in ((1, READ), (2, WRITE)):
                if int(flag) & bit:
                    self._note(kind, pointer, touched)
        self.visit(offset)
        self.visit(extent)


def _conflict(earlier: Access, later: Access, loop_carry: bool) -> bool:
    """Whether two accesses may be to one place by different threads."""
    if earlier.buffer is not later.buffer:
        return False
    axes = _axes(earlier, later)
    same, by_thread = True, True
    for a, b in zip(earlier.touched, later.touched):
        point = a.min_value is a.max_value and b.min_value is b.max_value
        same = point and B.deep_equal(a.min_value, b.min_value)
        if point and axes:
            # Equal indices are one thread's own only if they tell the threads apart.
            by_thread = by_thread and uses_var(a.min_value, axes[-1]) and uses_var(b.min_value, axes[-1])
        if not (same and by_thread):
            break
    others = axes[:-1]
    if same and by_thread and all(any(uses_var(t.min_value, v) for t in later.touched) for v in others):
        return False
    return not (earlier.double_buffer_write and later.kind == READ and not loop_carry)


def _axes(earlier: Access, later: Access) -> list[Any]:
    """The thread axes that an index must tell apart to be one thread's own.

    Where every thread has written the place itself it reads what it has written, or the same from another: the innermost
    axis is all that is asked for. Where some threads write for others it is every axis of the block.
    """
    every = [axis.var for axis in later.threads]
    if any(access.kind == WRITE and access.only_some for access in (earlier, later)):
        block = [axis for axis in later.threads if str(axis.thread_tag).startswith("threadIdx.")]
        return [axis.var for axis in block if not _is_unit(axis)] or every[-1:]
    return every[-1:]


def _is_unit(axis: IterVar) -> bool:
    extent = getattr(axis.dom, "extent", None)
    return B.as_int(extent) == 1


class _Planner(_Accesses):
    """Decides before which statements a barrier is needed."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.barriers: set[Any] = set()

    def summarize(self, entries: list[Entry], loop: For | None) -> list[Access]:
        if self.sync_scope == "shared.dyn":
            self._one_buffer(entries)
        reads: list[Access] = []
        writes: list[Access] = []
        for entry in entries:
            if entry.stmt in self.barriers:
                reads, writes = [], []
            if self._needs(entry, reads, writes, False):
                if self.conditions:
                    raise LoweringError("Cannot insert syncs inside condition")
                self.barriers.add(entry.stmt)
                reads, writes = [], []
            for access in entry.accesses:
                if access.kind == SYNC:
                    reads, writes = [], []
                else:
                    (reads if access.kind == READ else writes).append(access)
        if loop is not None:
            self._carry(entries, reads, writes)
        return self._exposed(entries, loop)

    @staticmethod
    def _one_buffer(entries: list[Entry]) -> None:
        """All dynamic shared memory is one allocation in the end."""
        first = None
        for entry in entries:
            for access in entry.accesses:
                if access.buffer is not None:
                    first = first if first is not None else access.buffer
                    access.buffer = first

    @staticmethod
    def _needs(entry: Entry, reads: list[Access], writes: list[Access], carry: bool) -> bool:
        reads, writes = list(reads), list(writes)
        for access in entry.accesses:
            if access.kind == SYNC:
                reads, writes = [], []
                continue
            others = writes if access.kind == READ else reads
            if any(_conflict(other, access, carry) for other in others):
                return True
        return False

    def _carry(self, entries: list[Entry], reads: list[Access], writes: list[Access]) -> None:
        """The next iteration begins while this one's last accesses may still run."""
        for entry in entries:
            if entry.stmt in self.barriers or not (reads or writes):
                return
            if self._needs(entry, reads, writes, True):
                self.barriers.add(entry.stmt)
                return
            if any(a.kind == SYNC for a in entry.accesses):
                reads, writes = [], []

    def _exposed(self, entries: list[Entry], loop: For | None) -> list[Access]:
        """What precedes the first barrier and what follows the last."""
        head: list[Access] = []
        tail: list[Access] = []
        synced = False

        def barrier() -> None:
            nonlocal synced
            if synced:
                tail.clear()
            else:
                head.append(Access(SYNC, tuple(self.threads)))
            synced = True

        for entry in entries:
            if entry.stmt in self.barriers:
                barrier()
            for access in entry.accesses:
                if access.kind == SYNC:
                    barrier()
                else:
                    (tail if synced else head).append(access)
        out = [replace(a) for a in (*head, *tail)]
        if loop is not None:
            for access in out:
                access.double_buffer_write = False
        return out


def _barrier(scope: str) -> Evaluate:
    return Evaluate(call("int32", "tvm_storage_sync", StringImm(scope)))


class _Insert(StmtMutator):
    def __init__(self, scope: str, barriers: set[Any]) -> None:
        self.scope = scope
        self.barriers = barriers

    def visit_Stmt(self, stmt: Stmt) -> Stmt:
        made = self.default_visit(stmt)
        return SeqStmt([_barrier(self.scope), made]) if stmt in self.barriers else made


class _AfterWait(StmtMutator):
    """Copies that have arrived are visible to their own thread only; a barrier makes them everyone's."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "async_wait_queue_scope":
            return self.default_visit(attr)
        inner: Any = attr.body
        zero = IntImm("int32", 0)
        body = SeqStmt([_barrier(self.scope), inner.body])
        count = AttrStmt(zero, "async_wait_inflight_count", inner.value, body)
        return AttrStmt(zero, "async_wait_queue_scope", attr.value, count)


class _SplitBranches(StmtMutator):
    """``if c: a; b`` becomes ``if c: a`` and ``if c: b``: then a barrier can stand between."""

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        made = self.default_visit(stmt)
        body = made.then_case
        if made.else_case is not None or not isinstance(body, SeqStmt) or _reads_memory(made.condition):
            return made
        return SeqStmt([IfThenElse(made.condition, part, None) for part in body.seq])


def _reads_memory(condition: PrimExpr) -> bool:
    """Whether what the branch does may change the condition."""
    return any(isinstance(node, BufferLoad | Call) for node in all_nodes(condition))


def _plan(body: Stmt, scope: str) -> _Planner:
    planner = _Planner(scope)
    planner.visit(body)
    return planner


def synchronize(func: PrimFunc, scope: str) -> PrimFunc:
    """Insert the barriers that accesses to memory of ``scope`` need.

    Raises LoweringError where one would be needed at a place that only some threads of the block come to.
    """
    body = _AfterWait(scope).visit(func.body) if scope == "shared" else func.body
    try:
        planner = _plan(body, scope)
    except LoweringError:
        body = _SplitBranches().visit(body)
        planner = _plan(body, scope)
    if planner.barriers:
        body = _Insert(scope, planner.barriers).visit(body)
    return func if body is func.body else func.with_body(body)


class ThreadSync(FunctionRewrite):
    """Insert barriers between conflicting accesses of different threads to memory of ``storage_scope``.

    Before (``S`` shared, in threads ``t``)::

        S[t] = A[t]
        B[t] = S[31 - t]

    After::

        S[t] = A[t]
        T.tvm_storage_sync("shared")
        B[t] = S[31 - t]
    """

    storage_scope: str

    def rewrite(self, f: PrimFunc) -> PrimFunc:
        return synchronize(f, self.storage_scope)
