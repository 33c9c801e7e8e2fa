"""The body of one piece of a partitioned loop: a copy whose blocks know which part of the range they run over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, Visitor
from ...buffer import Buffer
from ...expr import BufferLoad, IterVar, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, Stmt
from .loops import fit

__all__ = ["PieceBody"]


class PieceBody(Mutator):
    """Copies statements: inner loops get fresh variables, blocks fresh names and fresh variables.

    The block variable bound to ``loop_var`` gets the domain from ``begin`` to ``end``; what such a block accesses at
    plain block variables it declares for all of their domains.
    """

    def __init__(self, loop_var: Var, begin: PrimExpr, end: PrimExpr) -> None:
        self.loop_var, self.begin, self.end = loop_var, begin, end
        self.position: int | None = None

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_For(self, node: For) -> For:
        fresh = Var(node.loop_var.name, node.loop_var.dtype)
        body = substitute(self.visit(node.body), {node.loop_var: fresh})
        return node.with_fields(loop_var=fresh, body=body)

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        for index, value in enumerate(node.iter_values):
            if value is self.loop_var:
                self.position = index
                break
        return node.with_fields(block=self.visit(node.block))

    def visit_Block(self, node: Block) -> Block:
        position, self.position = self.position, None
        block = node.with_fields(body=self.visit(node.body), name_hint=f"{node.name_hint}_{self.loop_var.name}")
        iter_vars = tuple(self._renewed(iv, index == position) for index, iv in enumerate(block.iter_vars))
        reads, writes = block.reads, block.writes
        if position is not None and iter_vars:
            domains = {old.var: new.dom for old, new in zip(block.iter_vars, iter_vars, strict=True)}
            plain = _plain_accesses(block.body, domains)
            reads, writes = _whole(reads, plain, domains), _whole(writes, plain, domains)
        variables = {old.var: new.var for old, new in zip(block.iter_vars, iter_vars, strict=True)}
        return block.with_fields(
            iter_vars=iter_vars,
            reads=tuple(substitute(r, variables) for r in reads),
            writes=tuple(substitute(w, variables) for w in writes),
            body=substitute(block.body, variables),
            init=None if block.init is None else substitute(block.init, variables),
            match_buffers=tuple(substitute(m, variables) for m in block.match_buffers),
        )

    def _renewed(self, iv: IterVar, is_cut: bool) -> IterVar:
        dtype = iv.var.dtype
        dom = Range(fit(self.begin, dtype), fit(self.end, dtype)) if is_cut else iv.dom
        return IterVar(dom, Var(iv.var.name, dtype), iv.iter_type, iv.thread_tag)


def _plain_accesses(body: Stmt, domains: dict[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    """The first access of each buffer that is at plain block variables."""
    found: dict[Any, tuple[Any, ...]] = {}

    class Collect(Visitor):
        def visit_BufferStore(self, node: BufferStore) -> None:
            self.note(node)
            self.default_visit(node)

        def visit_BufferLoad(self, node: BufferLoad) -> None:
            self.note(node)
            self.default_visit(node)

        def note(self, access: BufferLoad | BufferStore) -> None:
            if all(isinstance(index, Var) and index in domains for index in access.indices):
                found.setdefault(access.buffer, tuple(access.indices))

    Collect().visit(body)
    return found


def _whole(
    regions: Sequence[BufferRegion], plain: dict[Any, tuple[Any, ...]], domains: dict[Any, Any]
) -> tuple[BufferRegion, ...]:
    return tuple(
        BufferRegion(r.buffer, tuple(domains[v] for v in plain[r.buffer])) if r.buffer in plain else r for r in regions
    )
