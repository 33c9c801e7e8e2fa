"""PlanAndUpdateBufferAllocationLocation: each buffer is allocated at the innermost place that holds all its uses.

Before: the root block allocates ``B``, which only the body of loop ``i`` uses.
After: a block inside loop ``i`` allocates ``B``, so that each iteration has a small buffer of its own. What one iteration
reads of another's stays outside of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....ir import prim as P
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor
from ....ir.prim import Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, IfThenElse, Stmt
from ..base import SeqMutator, FunctionRewrite
from ..memory.carried_values import Access, in_loops, innermost_whole
from .compact_regions import is_shared_under, points
from ..simplify.regions import conjuncts


class Scope:
    """A loop or block on the way to a statement."""

    __slots__ = ("depth", "node", "parent")

    def __init__(self, parent: Scope | None, node: Stmt | None) -> None:
        self.parent = parent
        self.node = node
        self.depth: int = 0 if parent is None else parent.depth + 1


def common_scope(a: Scope | None, b: Scope) -> Scope:
    """The innermost scope that holds both."""
    if a is None:
        return b
    x: Scope = a
    while x.depth > b.depth:
        assert x.parent is not None
        x = x.parent
    while b.depth > x.depth:
        assert b.parent is not None
        b = b.parent
    while x is not b:
        assert x.parent is not None and b.parent is not None
        x, b = x.parent, b.parent
    return x


class AccessScopes(Visitor):
    """Finds the innermost common scope of all accesses of each buffer."""

    def __init__(self) -> None:
        self.scope = Scope(None, None)
        self.found: dict[Buffer, Scope] = {}
        self.by_data: dict[Any, list[Buffer]] = {}
        self.loops: dict[Any, Scope] = {}
        self.kernels: list[Scope] = []
        self.accesses: dict[Buffer, list[Access[Scope]]] = {}
        self.opaque: set[Buffer] = set()  # used by their pointers: nobody knows what for
        self.guards: frozenset[int] = frozenset()  # branches without an alternative
        self.conditions: tuple[Any, ...] = ()  # terms of predicates, in terms of loop variables
        self.bound: dict[Any, Any] = {}  # block variables in terms of loop variables

    def touch(self, buffer: Buffer, scope: Scope | None = None) -> None:
        """Note a use of ``buffer`` at the current scope."""
        self.by_data.setdefault(buffer.data, [])
        if not any(b is buffer for b in self.by_data[buffer.data]):
            self.by_data[buffer.data].append(buffer)
        self.found[buffer] = common_scope(self.found.get(buffer), scope or self.scope)

    def note(self, buffer: Buffer, region: Sequence[Range], is_write: bool) -> None:
        """Note what is read or written of ``buffer``."""
        access = Access(self.scope, in_loops(region, self.bound), is_write, self.guards, self.conditions)
        self.accesses.setdefault(buffer, []).append(access)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        saved = self.scope
        if loop.thread_binding is not None and loop.thread_binding.thread_tag.startswith("blockIdx"):
            self.kernels.append(saved)
        self.scope = self.loops[loop.loop_var] = Scope(saved, loop)
        self.visit(loop.body)
        self.scope = saved

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.visit(stmt.condition)
        before = self.guards
        if stmt.else_case is None:
            self.guards |= {id(stmt)}
        self.visit(stmt.then_case)
        self.guards = before
        if stmt.else_case is not None:
            self.visit(stmt.else_case)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        for value in realize.iter_values:
            self.visit(value)
        self.visit(realize.predicate)
        block = realize.block
        saved = self.scope
        outermost = self._reduction_scope(realize, saved)
        self.scope = Scope(saved, block)
        bound, conditions = self.bound, self.conditions
        self.conditions = (*conditions, *conjuncts(substitute(realize.predicate, bound)))
        self.bound = {**bound, **_bindings(realize, bound)}
        for match in block.match_buffers:
            self.touch(match.source.buffer)
            for is_write, regions in ((False, block.reads), (True, block.writes)):
                if any(r.buffer is match.source.buffer for r in regions):
                    self.note(match.source.buffer, match.source.region, is_write)
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)
        if outermost is not None:
            for region in block.writes:
                self.touch(region.buffer, outermost)
        self.scope, self.bound, self.conditions = saved, bound, conditions

    def _reduction_scope(self, realize: BlockRealize, here: Scope) -> Scope | None:
        """The scope just outside all loops that a reduction of this block runs over."""
        best: Scope | None = None
        for iv, value in zip(realize.block.iter_vars, realize.iter_values):
            if iv.iter_type == P.IterVar.DataPar:
                continue
            for var in _vars(value):
                loop = self.loops.get(var)
                if loop is not None and loop.parent is not None and (best is None or loop.parent.depth < best.depth):
                    best = loop.parent
        return best

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.touch(load.buffer)
        for index in load.indices:
            self.visit(index)
        self.note(load.buffer, points(load.indices), False)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.touch(store.buffer)
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        self.note(store.buffer, points(store.indices), True)

    def visit_Buffer(self, buffer: Buffer) -> None:
        return

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        return

    def visit_Var(self, var: Var) -> None:
        for buffer in self.by_data.get(var, ()):
            self.touch(buffer)
            self.opaque.add(buffer)

    def whole_scope(self, buffer: Buffer, scope: Scope) -> Scope:
        """``scope``, or the one further out where ``buffer`` has to live for what it carries between iterations."""
        if buffer in self.opaque or len(self.by_data[buffer.data]) > 1:
            return scope
        return innermost_whole(
            buffer,
            self.accesses.get(buffer, ()),
            scope,
            lambda at: at.parent,
            lambda at: at.node if isinstance(at.node, For) else None,
            lambda loop: (
                loop.thread_binding is not None and is_shared_under(buffer.scope(), loop.thread_binding.thread_tag)
            ),
        )


def _bindings(realize: BlockRealize, bound: Mapping[Any, Any]) -> dict[Any, Any]:
    values = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {iv.var: substitute(value, bound) if bound else value for iv, value in values}


def _vars(e: PrimExpr) -> list[Any]:
    from ....arith.functor import free_vars

    return free_vars(e)


def _register_allocated(body: Stmt, finder: AccessScopes) -> list[Buffer]:
    """All buffers that blocks allocate; their pointers count as uses where they appear."""
    out: list[Buffer] = []

    class Collect(Visitor):
        def visit_PrimExpr(self, e: PrimExpr) -> None:
            return

        def visit_Block(self, block: Block) -> None:
            for buffer in block.alloc_buffers:
                out.append(buffer)
                finder.by_data.setdefault(buffer.data, []).append(buffer)
            if block.init is not None:
                self.visit(block.init)
            self.visit(block.body)

    Collect().visit(body)
    return out


def _allowed(scope: Scope, buffer: Buffer, kernels: list[Scope]) -> Scope:
    """Global memory is allocated outside of all kernels; other memory right where it is used."""
    if buffer.scope().split(".")[0] in ("", "global"):
        for kernel in kernels:
            scope = common_scope(scope, kernel)
    return scope


class _Place(SeqMutator):
    def __init__(self, wanted: dict[int, list[Buffer]], moved: set[int]) -> None:
        self.wanted = wanted
        self.moved = moved
        self.inside: set[Any] = set()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, loop: For) -> Stmt:
        body = self.visit(loop.body)
        buffers = self.wanted.get(id(loop))
        if buffers:
            self.inside.update(b.data for b in buffers)
            block = Block((), (), (), "", body, None, buffers)
            block = _with_regions(block)
            body = BlockRealize((), True, block)
        return loop if body is loop.body else loop.with_fields(body=body)

    def visit_Block(self, block: Block) -> Block:
        body = self.visit(block.body)
        keep = [b for b in block.alloc_buffers if id(b) not in self.moved]
        added = self.wanted.get(id(block), [])
        buffers = tuple(b for b in (*keep, *added))
        same = len(buffers) == len(block.alloc_buffers) and all(a is b for a, b in zip(buffers, block.alloc_buffers))
        self.inside.update(b.data for b in buffers)
        reads, writes = self._outer(block.reads), self._outer(block.writes)
        if body is block.body and same and len(reads) == len(block.reads) and len(writes) == len(block.writes):
            return block
        return block.with_fields(body=body, alloc_buffers=buffers, reads=reads, writes=writes)

    def _outer(self, regions: Sequence[BufferRegion]) -> tuple[BufferRegion, ...]:
        """Regions of buffers that are not allocated inside."""
        return tuple(r for r in regions if r.buffer.data not in self.inside)


def _with_regions(block: Block) -> Block:
    """Reads and writes of a new block as seen from outside."""
    from ...analysis import block_access

    variables = {b.data: b for b in block.alloc_buffers}
    known: dict[Any, Any] = dict(variables)

    class Collect(Visitor):
        def visit_BufferLoad(self, load: BufferLoad) -> None:
            known.setdefault(load.buffer.data, load.buffer)
            self.default_visit(load)

        def visit_BufferStore(self, store: BufferStore) -> None:
            known.setdefault(store.buffer.data, store.buffer)
            self.default_visit(store)

        def visit_BufferRegion(self, region: BufferRegion) -> None:
            known.setdefault(region.buffer.data, region.buffer)

        def visit_Buffer(self, buffer: Buffer) -> None:
            return

    Collect().visit(block.body)
    reads, writes, opaque = block_access.get_block_access_region(block, known)[:3]
    inside = {id(b) for b in block.alloc_buffers}
    out_reads = [_as_seen_outside(r, inside) for r in (*reads, *opaque) if id(r.buffer) not in inside]
    out_writes = [_as_seen_outside(r, inside) for r in (*writes, *opaque) if id(r.buffer) not in inside]
    return block.with_fields(reads=tuple(out_reads), writes=tuple(out_writes))


def _as_seen_outside(region: BufferRegion, inside: set[int]) -> BufferRegion:
    """A region whose bounds do not read buffers that exist only inside the block: such dimensions count whole."""

    class Reads(Visitor):
        found = False

        def visit_BufferLoad(self, load: BufferLoad) -> None:
            self.found = self.found or id(load.buffer) in inside
            self.visit(load.indices)

        def visit_Buffer(self, buffer: Buffer) -> None:
            return

    ranges = []
    for r, size in zip(region.region, region.buffer.shape):
        reads = Reads()
        reads.visit((r.min, r.extent))
        ranges.append(Range.from_min_extent(P.const(0, size.dtype), size) if reads.found else r)
    same = all(a is b for a, b in zip(ranges, region.region))
    return region if same else BufferRegion(region.buffer, ranges)


def plan(func: PrimFunc) -> PrimFunc:
    """Move every allocation to its innermost place."""
    finder = AccessScopes()
    buffers = _register_allocated(func.body, finder)
    if not buffers:
        return func
    finder.visit(func.body)
    wanted: dict[int, list[Buffer]] = {}
    moved: set[int] = set()
    for buffer in buffers:
        scope = finder.found.get(buffer)
        if scope is None:
            moved.add(id(buffer))
            continue
        scope = _allowed(finder.whole_scope(buffer, scope), buffer, finder.kernels)
        if scope.node is None:
            continue
        moved.add(id(buffer))
        wanted.setdefault(id(scope.node), []).append(buffer)
    body = _Place(wanted, moved).visit(func.body)
    return func if body is func.body else func.with_body(body)


class PlanAndUpdateBufferAllocationLocation(FunctionRewrite):
    """Move buffer allocations to the innermost scope that holds all accesses."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return plan(func)
