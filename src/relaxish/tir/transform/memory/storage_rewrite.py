"""StorageRewrite: allocations leave loops, memory that is free is used again, vector types are made explicit."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import (
    AccessT, Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, ForKind, IfThenElse, Stmt, While,
)  # fmt: skip
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    config,
    merge_nest,
    pointer_scope,
    FunctionRewrite,
)
from .linear_access import AllocInfo, Entry, LinearAccess
from .pointer_value_type import rewrite_pointer_types

_MATCH_RANGE = 16
_REGISTER_SCOPES = ("warp", "local", "wmma", "m16n8k8", "metal")


def _scope(alloc: Allocate) -> str:
    return pointer_scope(alloc.buffer_var) or "global"


def _bits(alloc: Allocate) -> int:
    """Size in bits; 0 if it is not constant."""
    size = dt.bits(alloc.dtype) * dt.lanes(alloc.dtype)
    for extent in alloc.extents:
        size *= B.as_int(extent) or 0
    return size


class _Memory:
    """One allocation of the result, and the allocations of the program that share it."""

    def __init__(self, attach: Stmt | None, scope: str, bits: int, element: str) -> None:
        self.attach = attach
        self.scope = scope
        self.bits = bits
        self.element = element
        self.allocs: list[Allocate] = []
        self.var: Any = None
        self.nest: list[Stmt] = []


class _InPlace(StmtExprVisitor):
    """Whether a statement that writes ``target`` may do so in the memory of ``source``, which it reads last."""

    def check(self, stmt: Stmt | None, target: PrimExpr, source: PrimExpr) -> bool:
        """Every element of ``source`` is read only to store the same element of ``target``."""
        if not isinstance(stmt, (AttrStmt, For, IfThenElse, While, BufferStore)):
            return False
        self.target, self.source, self.fine = target, source, True
        self.store: BufferStore | None = None
        self.visit(stmt)
        return self.fine

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key in ("extern_scope", "volatile_scope"):
            self.fine = False
            return
        self.visit(attr.body)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.indices)
        saved, self.store = self.store, store if store.buffer.data is self.target else self.store
        self.visit(store.value)
        self.store = saved

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        pointer = load.buffer.data
        if pointer is self.target:
            self.fine = False
        elif pointer is self.source:
            mine = () if self.store is None else self.store.indices
            if len(mine) != len(load.indices) or not all(map(B.deep_equal, mine, load.indices)):
                self.fine = False
        self.visit(load.indices)

    def visit_Var(self, var: Var) -> None:
        if var is self.target or var is self.source:
            self.fine = False


class _Plan:
    """Decides which allocations share memory, and where that memory is allocated."""

    def __init__(self, allocs: dict[Any, AllocInfo], reuse: bool, exact: bool) -> None:
        self.allocs = allocs
        self.reuse = reuse
        self.exact = exact
        self.home: dict[Any, _Memory] = {}
        self.all: list[_Memory] = []
        self.free: list[_Memory] = []
        self.symbolic: list[_Memory] = []
        self.threads: Any = None

    def run(self, sequence: list[Entry], gen: dict[Any, list[Any]], kill: dict[Any, list[Any]]) -> None:
        """Walk the statements in order of execution."""
        inplace: set[Any] = set()
        for entry in sequence:
            born, dying = gen.get(entry.stmt, []), kill.get(entry.stmt, [])
            if entry.pair >= 0:
                for pointer in born:
                    home = self._in_place(entry.stmt, pointer, dying, inplace) if len(born) <= 2 else None
                    home = home or self._find(self.allocs[pointer].alloc)
                    home.allocs.append(self.allocs[pointer].alloc)
                    self.home[pointer] = home
            self._enter(entry.stmt)
            if entry.pair <= 0:
                for pointer in dying:
                    if pointer not in inplace:
                        self._release(self.home[pointer])

    def _in_place(self, stmt: Stmt | None, pointer: PrimExpr, dying: list[Any], inplace: set[Any]) -> _Memory | None:
        alloc = self.allocs[pointer].alloc
        for source in dying:
            memory = self.home.get(source)
            if memory is None or source in inplace:
                continue
            fits = memory.scope == _scope(alloc) and memory.attach is self.threads and memory.bits == _bits(alloc)
            if fits and memory.element == dt.element_of(alloc.dtype) and _InPlace().check(stmt, pointer, source):
                inplace.add(source)
                return memory
        return None

    def _enter(self, stmt: Stmt | None) -> None:
        """Memory of a thread scope or parallel loop belongs to it alone."""
        if isinstance(stmt, AttrStmt):
            key = stmt.attr_key
            if not (key in ("thread_extent", "virtual_thread") or key.startswith("pragma_")):
                return
        elif not (isinstance(stmt, For) and stmt.kind == ForKind.PARALLEL):
            return
        elif self.threads is not None and self.threads is not stmt:
            return
        if self.threads is None:
            self.threads = stmt
        elif self.threads is stmt:
            self.free = [m for m in self.free if m.attach is not stmt]
            self.symbolic = [m for m in self.symbolic if m.attach is not stmt]
            self.threads = None

    def _find(self, alloc: Allocate) -> _Memory:
        bits, scope = _bits(alloc), _scope(alloc)
        plain = "." not in scope
        registers = scope.startswith(_REGISTER_SCOPES) or dt.is_handle(alloc.dtype)
        small = plain and (registers or 0 < bits <= 32)
        # An operand of a matrix unit is by rows or by columns for good: two of them are not one.
        if self.reuse and not small and len(alloc.extents) == 1 and not scope.startswith("wmma.matrix_"):
            found = self._constant(alloc, bits, scope) if bits else self._symbolic(alloc, scope)
            if found is not None:
                return found
        made = _Memory(self.threads, scope, bits, dt.element_of(alloc.dtype))
        self.all.append(made)
        return made

    def _constant(self, alloc: Allocate, bits: int, scope: str) -> _Memory | None:
        """The smallest free memory that is large enough, else the largest that is too small."""
        larger = [m for m in self.free if bits <= m.bits <= bits * _MATCH_RANGE]
        smaller = [m for m in reversed(self.free) if bits // _MATCH_RANGE <= m.bits < bits]
        for memory in (*larger, *smaller):
            if memory.attach is not self.threads or memory.scope != scope:
                continue
            if memory.bits < bits and memory.element != dt.element_of(alloc.dtype):
                continue
            if self.exact and memory.element != alloc.dtype:
                continue
            memory.bits = max(bits, memory.bits)
            self.free.remove(memory)
            return memory
        return None

    def _symbolic(self, alloc: Allocate, scope: str) -> _Memory | None:
        for memory in self.symbolic:
            same = memory.attach is self.threads and memory.scope == scope
            if same and memory.element == dt.element_of(alloc.dtype):
                self.symbolic.remove(memory)
                return memory
        return None

    def _release(self, memory: _Memory) -> None:
        if "." not in memory.scope:
            first = memory.allocs[0]
            if memory.scope.startswith(_REGISTER_SCOPES) or dt.is_handle(first.dtype) or 0 < memory.bits <= 32:
                return
        if memory.bits:
            position = len([m for m in self.free if m.bits <= memory.bits])
            self.free.insert(position, memory)
        else:
            self.symbolic.append(memory)


class _StorageRewriter(StmtExprMutator):
    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.analyzer = Analyzer()
        self.buffers: dict[Buffer, Buffer] = {}
        self.hoisted: set[Buffer] = set()
        self.attached: list[tuple[Any, list[_Memory]]] = []
        for memory in plan.all:
            for place, group in self.attached:
                if place is memory.attach:
                    group.append(memory)
                    break
            else:
                self.attached.append((memory.attach, [memory]))
            self._allocate(memory)

    def _allocate(self, memory: _Memory) -> None:
        first = memory.allocs[0]
        memory.var = first.buffer_var
        dtype = max((a.dtype for a in memory.allocs), key=dt.lanes)
        if dt.lanes(dtype) == dt.lanes(first.dtype):
            dtype = first.dtype
        same = all(
            a.dtype == first.dtype and len(a.extents) == len(first.extents)
            and all(map(B.deep_equal, a.extents, first.extents))
            for a in memory.allocs
        )  # fmt: skip
        if same:
            memory.nest.append(
                Allocate(memory.var, dtype, first.extents, first.condition, Evaluate(0), first.annotations)
            )
            if isinstance(first.body, DeclBuffer):
                memory.nest.append(DeclBuffer(self._remap(first.body.buffer, memory.var), Evaluate(0)))
                self.hoisted.add(first.body.buffer)
            return
        size: Any = None
        for alloc in memory.allocs:
            bits = alloc.extents[0] * (dt.bits(alloc.dtype) * dt.lanes(alloc.dtype))
            size = bits if size is None else B.maximum(size, bits)
        unit = B.const(size.dtype, dt.bits(dtype) * dt.lanes(dtype))
        even = self.analyzer.can_prove(B.eq(B.floormod(size, unit), B.const(size.dtype, 0)))
        size = B.floordiv(size, unit)
        if not even:
            size = size + B.const(size.dtype, 1)
        memory.nest.append(Allocate(memory.var, dtype, [self.analyzer.simplify(size)], IntImm("bool", 1), Evaluate(0)))

    def _remap(self, buffer: Buffer, var: Var) -> Buffer:
        if buffer not in self.buffers:
            new = buffer if buffer.data is var else buffer.with_fields(data=var, name=var.name)
            self.buffers[buffer] = new
        return self.buffers[buffer]

    def attach(self, place: Stmt | None, body: Stmt) -> Stmt:
        """Put the allocations that belong to ``place`` around its body."""
        for where, group in self.attached:
            if where is place:
                for memory in reversed(group):
                    body = merge_nest(memory.nest, body)
        return body

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        return self.visit(stmt.body) if stmt.buffer_var in self.plan.allocs else self.default_visit(stmt)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        if stmt.buffer in self.hoisted:
            return self.visit(stmt.body)
        body = self.visit(stmt.body)
        home = self.plan.home.get(stmt.buffer.data)
        if home is None and stmt.buffer.data in self.plan.allocs:
            return body  # nobody uses the allocation, which is gone
        buffer = stmt.buffer if home is None else self._remap(stmt.buffer, home.var)
        return stmt if body is stmt.body and buffer is stmt.buffer else DeclBuffer(buffer, body)

    def _access(self, made: AccessT) -> AccessT:
        home = self.plan.home.get(made.buffer.data)
        if home is None:
            return made
        buffer = self._remap(made.buffer, home.var)
        return made if buffer is made.buffer else made.with_fields(buffer=buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self.default_visit(store))

    def visit_Var(self, var: Var) -> PrimExpr:
        home = self.plan.home.get(var)
        return var if home is None else home.var

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        made = self.default_visit(attr)
        body = self.attach(attr, made.body)
        return made if body is made.body else made.with_fields(body=body)

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind == ForKind.VECTORIZED:
            raise LoweringError("VectorizeLoop before LiftStorageAlloc")
        made = self.default_visit(loop)
        body = self.attach(loop, made.body)
        return made if body is made.body else made.with_fields(body=body)


def _dynamic_shared(allocs: dict[Any, AllocInfo]) -> int:
    return sum(pointer_scope(a.alloc.buffer_var) == "shared.dyn" for a in allocs.values())


def rewrite(func: PrimFunc) -> PrimFunc:
    """Rewrite the memory of a function."""
    access = LinearAccess()
    access.visit(func.body)
    if access.allocs:
        # Shared memory that is merged into one pool is planned there.
        reuse = _dynamic_shared(access.allocs) <= 1 and not config("tir.merge_static_smem", False)
        target = func.get_attr("target")
        exact = target is not None and target.kind.name in ("vulkan", "webgpu")
        plan = _Plan(access.allocs, reuse, exact)
        plan.run(access.sequence, *access.events())
        rewriting = _StorageRewriter(plan)
        body = rewriting.attach(None, rewriting.visit(func.body))
        func = func if body is func.body else func.with_body(body)
    return rewrite_pointer_types(
        func, params=False, buffer_map=False, allocate=True, lets=True, constants=False, shuffle=False,
    )  # fmt: skip


class StorageRewrite(FunctionRewrite):
    """Lift allocations out of loops, share memory between values that are not alive together.

    Before::

        A = T.allocate([200], "float32")
        A[...] = ...
        B = T.allocate([200], "float32")
        B[...] = A[...]                      # the last use of A, element by element
        C = T.allocate([200], "float32")
        C[...] = B[...]

    After: one allocation holds all three. Allocations accessed only by aligned vectors become vectors.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return rewrite(func)
