"""Dead stores: elements of buffers that are written again before anything reads them, by a walk against the order of
execution."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....arith.analyzer import Analyzer
from ....arith.effects import CallEffectKind, side_effect
from ....arith.functor import substitute, uses_var
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Var
from ...buffer import Buffer
from ...stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip
from ..base import StmtExprVisitor, is_call
from .buffer_flow import Axes, TouchedRegions, pure
from .regions import Where, conjuncts, joined, negations, new_analyzer, point, project, refine, subtract_all

Unused = list[tuple[Any, Where]]
"""Buffers with the elements whose present values nobody will read."""

_MOST = 48


class DeadStores(StmtExprVisitor):
    """Walks a program backwards; :meth:`is_dead` then tells whether a store could be left out."""

    def __init__(self) -> None:
        self.axes = Axes()
        self.analyzer = new_analyzer()
        self.unused: Unused = []
        self._after: dict[Any, Unused] = {}

    def is_dead(self, store: BufferStore, context: Stmt, analyzer: Analyzer) -> bool:
        """Whether the value of ``store`` at ``context`` is overwritten or dropped before anything reads it."""
        if not all(pure(i) for i in store.indices):
            return False
        values = dict(zip(self.axes(store.buffer), store.indices))
        whole: Any = B.false()
        for buffer, where in self._after.get(context, ()):
            if buffer is store.buffer:
                condition = substitute(joined(where), values)
                if analyzer.can_prove(condition):
                    return True
                whole = B.or_(whole, condition)
        return bool(analyzer.can_prove(whole))

    # -- reads -----------------------------------------------------------------------------------------------

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        found = TouchedRegions(self.axes, self.analyzer, True)
        found.visit(e)
        self._read(found)

    def _read(self, found: TouchedRegions) -> None:
        if found.opaque:
            self.unused = []
        self.unused = self._without(self.unused, found.found)

    def _without(self, unused: Unused, reads: Unused) -> Unused:
        out: Unused = []
        for buffer, where in unused:
            mine = [w for b, w in reads if b.data is buffer.data]
            if not mine:
                out.append((buffer, where))
            elif all(b is buffer for b, _ in reads if b.data is buffer.data):
                out += [(buffer, piece) for piece in subtract_all(where, mine, self.analyzer)]
        return out[:_MOST]

    # -- statements ------------------------------------------------------------------------------------------

    def visit_Stmt(self, stmt: Stmt) -> None:
        self._after[stmt] = self.unused
        self.default_visit(stmt)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._after[store] = self.unused
        if all(pure(i) for i in store.indices) and store.predicate is None:
            self.unused = [*self.unused, (store.buffer, point(self.axes(store.buffer), store.indices))][-_MOST:]
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self._after[stmt] = self.unused
        if is_call(stmt.value, "assume"):
            # What is assumed of an element must stay true of it.
            loads = TouchedRegions(self.axes, self.analyzer, True)
            loads.visit(stmt.value.args[0])
            self._read(loads)
        elif side_effect(stmt.value) > CallEffectKind.ReadState:
            self.unused = []
        else:
            self.visit(stmt.value)

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        self._after[stmt] = self.unused
        for part in reversed(stmt.seq):
            self.visit(part)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._after[stmt] = self.unused
        self.visit(stmt.body)
        values = {stmt.var: stmt.value}
        made = (
            [(b, tuple(substitute(c, values) for c in w)) for b, w in self.unused] if pure(stmt.value) else self.unused
        )
        self.unused = [(b, w) for b, w in made if not uses_var(w, stmt.var)]
        self.visit(stmt.value)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        self._after[stmt] = self.unused
        self.visit(stmt.body)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self._after[stmt] = self.unused
        self.visit(stmt.body)
        self.visit(stmt.condition)

    def visit_While(self, stmt: While) -> None:
        self.unused = []
        self._after[stmt] = []
        self.visit(stmt.body)
        self.unused = []

    def visit_Allocate(self, stmt: Allocate) -> None:
        self._local(stmt, stmt.buffer_var)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self._after[stmt] = self.unused
        self.visit(stmt.body)

    def visit_Block(self, block: Block) -> None:
        self.unused = [*self.unused, *((b, ()) for b in block.alloc_buffers)]
        self.visit(block.body)
        if block.init is not None:
            self.visit(block.init)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self._after[realize] = self.unused
        self.visit(realize.block)
        values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values)}
        self.unused = [(b, tuple(substitute(c, values) for c in w)) for b, w in self.unused]

    def _local(self, stmt: Allocate, pointer: PrimExpr) -> None:
        """Memory that ends with a statement: nobody reads its last values."""
        self._after[stmt] = self.unused
        buffers: list[Any] = []

        class Find(StmtExprVisitor):
            def visit_Buffer(self, buffer: Buffer) -> None:
                if buffer.data is pointer and buffer not in buffers:
                    buffers.append(buffer)

        Find().visit(stmt.body)
        if len(buffers) == 1:
            self.unused = [*self.unused, (buffers[0], ())]
        self.visit(stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self._after[stmt] = end = self.unused
        self.visit(stmt.then_case)
        then, self.unused = self.unused, end
        if stmt.else_case is not None:
            self.visit(stmt.else_case)
        other = self.unused
        both = [u for u in then if u in other]
        if pure(stmt.condition):
            both += self._under([u for u in then if u not in both], conjuncts(stmt.condition))
            held: list[Any] = []
            for part in conjuncts(stmt.condition):
                for negated in negations(part, self.analyzer):
                    both += self._under([u for u in other if u not in then], [*held, negated])
                held.append(part)
        self.unused = both[:_MOST]
        self.visit(stmt.condition)

    def _under(self, unused: Unused, conditions: list[Any]) -> Unused:
        out: Unused = []
        for buffer, where in unused:
            made = refine((*where, *conditions), self.analyzer)
            if made is not None:
                out.append((buffer, made))
        return out

    # -- loops -----------------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> None:
        self._after[loop] = end = self.unused
        var, low = loop.loop_var, loop.min
        high = self.analyzer.simplify(low + loop.extent)
        self.analyzer.bind(var, Range.from_min_extent(low, loop.extent), True)
        reads = TouchedRegions(self.axes, self.analyzer, True)
        reads.visit(loop.body)
        self.unused = []
        self.visit(loop.body)
        mine = self.unused
        if reads.opaque:
            self.unused = []
            self.visit(loop.body)
            self.analyzer.unbind(var)
            self.unused = []
            return
        later = self._project(reads.found, var, var + 1, high, True)
        self.unused = [*self._without(end, later), *self._written(mine, reads.found, var, var + 1, high)]
        self.visit(loop.body)
        self.analyzer.unbind(var)
        every = self._project(reads.found, var, low, high, True)
        self.unused = [*self._without(end, every), *self._written(mine, reads.found, var, low, high)][:_MOST]

    def _project(self, regions: Unused, var: Var, low: PrimExpr, high: PrimExpr, over: bool) -> Unused:
        out: Unused = []
        fresh = Var(var.name, var.dtype)
        for buffer, where in regions:
            made = project(tuple(substitute(c, {var: fresh}) for c in where), fresh, low, high, self.analyzer, over)
            if made is not None:
                out.append((buffer, made.where))
        return out

    def _written(self, mine: Unused, reads: Unused, var: Var, low: PrimExpr, high: PrimExpr) -> Unused:
        """What the iterations in ``[low, high)`` write before any of them reads it."""
        out: Unused = []
        fresh = Var(var.name, var.dtype)
        for buffer, where in mine:
            renamed = tuple(substitute(c, {var: fresh}) for c in where)
            with self.analyzer.constraint_scope(B.and_(B.le(low, fresh), B.lt(fresh, high))):
                pieces = self._without([(buffer, renamed)], self._project(reads, var, low, fresh, True))
            for _, piece in pieces:
                made = project(piece, fresh, low, high, self.analyzer, False)
                if made is not None:
                    out.append((buffer, made.where))
        return out


__all__ = ["DeadStores"]
