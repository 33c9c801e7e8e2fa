"""Simplification that follows what stores and assumptions put into buffers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ...arith import build as B
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import free_vars, substitute
from ...ir.expr import Range
from ...ir.prim import IntImm, Var
from ..stmt import BufferStore, Evaluate, For, IfThenElse, SeqStmt
from .base import StmtExprVisitor, is_call
from .known_values import Known, assumptions, in_context
from .simplify import StmtSimplifier


class _Written(StmtExprVisitor):
    def __init__(self) -> None:
        self.buffers: set[Any] = set()
        self.stores: list[BufferStore] = []
        self.opaque = False

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.buffers.add(store.buffer)
        self.stores.append(store)
        self.visit(store.value)

    def visit_Call(self, e: Any) -> None:
        if not is_call(e, "assume") and side_effect(e) > CallEffectKind.ReadState:
            self.opaque = True


def _written(stmt: Any) -> _Written:
    found = _Written()
    found.visit(stmt)
    return found


class KnowingSimplifier(StmtSimplifier):
    """A simplifier that also knows buffer contents.

    ``conditions`` and ``expressions`` say whether that may decide branches, and replace loads in values.
    """

    def __init__(self, conditions: bool, expressions: bool) -> None:
        super().__init__()
        self.conditions = conditions
        self.expressions = expressions
        self.facts: list[Known] = []

    # -- using what is known ---------------------------------------------------------------------------------

    def visit_PrimExpr(self, e: Any) -> Any:
        simple = super().visit_PrimExpr(e)
        return in_context(simple, self.facts, self.analyzer) if self.expressions and self.facts else simple

    def _decided(self, condition: Any) -> bool | None:
        decided = super()._decided(condition)
        if decided is None and self.conditions and self.facts:
            simple = in_context(condition, self.facts, self.analyzer)
            return bool(simple.value) if isinstance(simple, IntImm) else None
        return decided

    # -- learning --------------------------------------------------------------------------------------------

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        with ExitStack() as held:
            made = []
            for stmt in node.seq:
                made.append(self.visit(stmt))
                if isinstance(stmt, Evaluate) and is_call(stmt.value, "assume"):
                    call: Any = stmt.value
                    if side_effect(call.args[0]) <= CallEffectKind.Pure:
                        held.enter_context(self.analyzer.constraint_scope(call.args[0]))
        if all(a is b for a, b in zip(made, node.seq)):
            return node
        return SeqStmt(made) if len(made) > 1 else made[0]

    def visit_Evaluate(self, stmt: Evaluate) -> Any:
        if not is_call(stmt.value, "assume"):
            if _written(stmt).opaque:
                self.facts = []
            return self.default_visit(stmt)
        call: Any = stmt.value
        equation = call.args[0]
        load: Any = getattr(equation, "a", None)
        value: Any = getattr(equation, "b", None)
        if type(equation).__name__ == "EQ" and type(load).__name__ == "BufferLoad":
            self._learn(load.buffer, load.indices, value)
        return stmt

    def visit_BufferStore(self, store: BufferStore) -> Any:
        made: Any = super().visit_BufferStore(store)
        if isinstance(made, BufferStore):
            value = in_context(made.value, self.facts, self.analyzer)
            self._forget(made.buffer, made.indices)
            self._learn(made.buffer, made.indices, value)
        return made

    def _forget(self, buffer: Any, indices: Any = None) -> None:
        """Drop what was known of a buffer, or of the places that may be ``indices``."""
        kept = []
        for fact in self.facts:
            if fact.buffer is buffer:
                if indices is None:
                    continue
                condition = substitute(fact.condition, dict(zip(fact.index, indices)))
                if not self.analyzer.can_prove(B.not_(self.analyzer.simplify(condition))):
                    continue
            kept.append(fact)
        self.facts = kept

    def _learn(self, buffer: Any, indices: Any, value: Any) -> None:
        """``buffer[indices] == value`` from here on."""
        if side_effect(value) > CallEffectKind.Pure or any(side_effect(i) > CallEffectKind.Pure for i in indices):
            return
        index = tuple(Var(f"p{n}", i.dtype) for n, i in enumerate(indices))
        condition: Any = B.true()
        for var, at in zip(index, indices):
            condition = B.and_(condition, B.eq(var, at))
        self.facts = [*self.facts, Known(buffer, index, condition, value)]

    # -- control flow ----------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> Any:
        written = _written(loop.body)
        if written.opaque:
            self.facts = []
        kept = [f for f in self.facts if f.buffer not in written.buffers]
        own = [f for f in (self._of_iteration(f, loop, written) for f in self.facts if f.buffer in written.buffers) if f]
        self.facts = [*kept, *own]
        made = super().visit_For(loop)
        self.facts = [*kept, *self._after(loop, written)]
        return made

    @staticmethod
    def _of_iteration(fact: Known, loop: For, written: _Written) -> Known | None:
        """What a fact says of the elements that this iteration alone writes; earlier ones wrote others."""
        stores = [s for s in written.stores if s.buffer is fact.buffer]
        for position, var in enumerate(fact.index):
            if all(s.indices[position] is loop.loop_var for s in stores):
                condition = B.and_(fact.condition, B.eq(var, loop.loop_var))
                return Known(fact.buffer, fact.index, condition, fact.value)
        return None

    def _after(self, loop: For, written: _Written) -> list[Known]:
        """What holds once all iterations have run: assumptions of each, and stores that fill a box."""
        out = [f for f in assumptions(loop) if f.buffer not in written.buffers]
        ranges: dict[Any, Range] = {}
        body: Any = loop
        while isinstance(body, For):
            ranges[body.loop_var] = Range.from_min_extent(body.min, body.extent)
            body = body.body
        if not isinstance(body, BufferStore) or side_effect(body.value) > CallEffectKind.Pure:
            return out
        index = tuple(body.indices)
        if len(set(index)) != len(index) or not all(i in ranges for i in index):
            return out
        if any(v in ranges and v not in index for v in free_vars(body.value)):
            return out
        fresh = tuple(Var(v.name, v.dtype) for v in index if isinstance(v, Var))
        condition: Any = B.true()
        for var, old in zip(fresh, index):
            dom = ranges[old]
            inside = B.and_(B.le(dom.min, var), B.lt(var, B.add(dom.min, dom.extent)))
            condition = B.and_(condition, inside)
        value = substitute(body.value, dict(zip(index, fresh)))
        return [*out, Known(body.buffer, fresh, condition, value)] if not free_vars(value) else out

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        before = self.facts
        made = super().visit_IfThenElse(node)
        if isinstance(made, IfThenElse):
            # Only one of the sides has run.
            self.facts = before
            changed = _written(node)
            if changed.opaque:
                self.facts = []
            for buffer in changed.buffers:
                self._forget(buffer)
        return made
