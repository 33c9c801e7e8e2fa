"""Rewriting inside a scope: exchanging buffers, dropping blocks, recomputing signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.prim import FloatImm, IntImm, IterVar, Var
from ..buffer import Buffer
from ..stmt import Block, BlockRealize, For, MatchBufferRegion, SeqStmt, Stmt
from .errors import PrimitiveError
from .sref import StmtSRef
from .subst import realize_of
from .walk import unwrap

__all__ = ["BufferSwap", "ScopeRewriter", "dead_statement", "signature_of", "with_alloc"]


def dead_statement(block_sref: StmtSRef, scope: StmtSRef) -> Stmt:
    """The outermost statement that holds nothing but this block, to be taken out of a sequence."""
    node: Any = realize_of(block_sref)
    at = block_sref.parent
    while at is not None and at is not scope and at.is_loop and at.stmt.body is node:
        node = at.stmt
        at = at.parent
    assert at is not None
    body = unwrap(at.stmt.body)[1]
    if not isinstance(body, SeqStmt) or not any(part is node for part in body.seq):
        raise PrimitiveError("The block {0} is the only leaf in its scope, which cannot be removed.", [block_sref])
    return node


class ScopeRewriter(Mutator):
    """Base of rewriters over a scope block; collects the blocks it changed in ``reuse``.

    ``dead`` is a statement to drop from the sequence it stands in.
    """

    def __init__(self, dead: Stmt | None = None) -> None:
        self.dead = dead
        self.reuse: dict[Any, Any] = {}

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        parts, changed = [], False
        for part in node.seq:
            if part is self.dead:
                changed = True
                continue
            made = self.visit(part)
            changed = changed or made is not part
            parts.append(made)
        if not changed:
            return node
        return parts[0] if len(parts) == 1 else SeqStmt(parts)

    def within(self, node: For) -> For:
        """A loop that stays, with what becomes of its body."""
        body = self.visit(node.body)
        return node if body is node.body else node.with_fields(body=body)

    def visit_For(self, node: For) -> Stmt:
        return self.within(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = self.visit(node.block)
        return node if block is node.block else node.with_fields(block=block)

    def visit_Block(self, node: Block) -> Block:
        made = self.rewrite_block(node)
        if made is not node:
            self.reuse[node] = made
        return made

    def rewrite_block(self, node: Block) -> Block:
        """Replacement of a block; the default goes on inside."""
        body = self.visit(node.body)
        return node if body is node.body else node.with_fields(body=body)


class BufferSwap(Mutator):
    """Replaces buffers (and their pointers) in expressions, statements, regions and views."""

    def __init__(self, buffers: Mapping[Any, Any], reuse: dict[Any, Any] | None = None) -> None:
        self.buffers = dict(buffers)
        self.data = {old.data: new.data for old, new in buffers.items() if old.data is not new.data}
        self.reuse = reuse if reuse is not None else {}

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.data.get(node, node)

    def visit_IntImm(self, node: IntImm | FloatImm) -> PrimExpr:
        return node

    visit_FloatImm = visit_IntImm

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.buffers.get(node, node)

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def view_of(self, view: Buffer, source: Buffer) -> Buffer:
        """Replacement of a view of a buffer that becomes ``source``: it follows its memory scope."""
        from .buffers import with_scope

        return view if view.scope() == source.scope() else with_scope(view, source.scope(), view.name)

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> MatchBufferRegion:
        source = self.visit(node.source)
        if source is node.source:
            return node
        view = self.view_of(node.buffer, source.buffer)
        if view is not node.buffer:
            self.buffers[node.buffer] = view
            if view.data is not node.buffer.data:
                self.data[node.buffer.data] = view.data
        return MatchBufferRegion(view, source)

    def visit_Block(self, node: Block) -> Block:
        # Views come first: the body refers to what they become.
        matches = tuple(self.visit(m) for m in node.match_buffers)
        made = self.default_visit(node.with_fields(match_buffers=())) if matches else self.default_visit(node)
        if matches:
            made = made.with_fields(match_buffers=matches)
        if made is not node:
            self.reuse[node] = made
        return made


def signature_of(block: Block) -> Block:
    """The block with its reads and writes found anew; a reduction does not list its own result as read.

    Pointers count as accesses of the buffers that the block declared before.
    """
    from ..analysis.block_access import find_read_write_region

    buffers = {r.buffer.data: r.buffer for r in (*block.reads, *block.writes)}
    # What a block allocates is nobody else's business.
    reads, writes = (
        [r for r in part if r.buffer not in block.alloc_buffers] for part in find_read_write_region(block, buffers)
    )
    if block.init is not None:
        own = {r.buffer for r in writes}
        reads = [r for r in reads if r.buffer not in own]
    return block.with_fields(reads=tuple(reads), writes=tuple(writes))


def with_alloc(block: Block, *, add: Buffer | None = None, remove: Buffer | None = None) -> Block:
    """A block with a buffer allocated, or no longer allocated, in it."""
    allocs = tuple(b for b in block.alloc_buffers if b is not remove)
    if add is not None:
        allocs = (*allocs, add)
    return block.with_fields(alloc_buffers=allocs)
