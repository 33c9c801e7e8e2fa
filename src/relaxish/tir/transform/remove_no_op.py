"""RemoveNoOp: statements without effect go away.

Before: ``for i in range(4): pass``, ``if c: pass``, ``x = T.evaluate(0)`` in a sequence.
After: nothing of it.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, eval_set
from ...arith import build as B
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import uses_var
from ...arith.int_set import from_min_extent
from ...ir.functor import Mutator, Visitor
from ...ir.prim import IntImm, Not
from ..stmt import (
    Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt,
)  # fmt: skip
from .base import PrimFuncPass, body_pass, is_noop, seq


class _Remove(Mutator):
    def __init__(self) -> None:
        self.ranges: dict[Any, Any] = {}

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    @staticmethod
    def _effect(*values: Any) -> Stmt:
        """What evaluating the values does, apart from their results."""
        return seq([Evaluate(e) for e in values if side_effect(e) > CallEffectKind.ReadState])

    def visit_LetStmt(self, stmt: LetStmt) -> Any:
        new = self.default_visit(stmt)
        if is_noop(new.body):
            return self._effect(new.value)
        if _stmt_uses(new.body, new.var):
            return new
        effect = self._effect(new.value)
        return new.body if is_noop(effect) else SeqStmt([effect, new.body])

    def visit_AttrStmt(self, stmt: AttrStmt) -> Any:
        if stmt.attr_key == "pragma_debug_skip_region":
            return Evaluate(0)
        if stmt.attr_key == "async_wait_queue_scope" and isinstance(stmt.body, AttrStmt):
            count = stmt.body.value
            if Analyzer().can_prove(B.lt(count, B.const(count.dtype, 0))):
                # Counts that depend on a loop variable may fall below zero once it is unrolled: nothing to wait for.
                return self.visit(stmt.body.body)
        new = self.default_visit(stmt)
        return self._effect(new.value) if is_noop(new.body) else new

    def visit_IfThenElse(self, stmt: IfThenElse) -> Any:
        new = self.default_visit(stmt)
        if isinstance(new.condition, IntImm):
            return new.then_case if new.condition.value else (new.else_case or Evaluate(0))
        if new.else_case is not None and is_noop(new.else_case):
            new = IfThenElse(new.condition, new.then_case, None)
        if is_noop(new.then_case):
            if new.else_case is None:
                return self._effect(new.condition)
            return IfThenElse(Not(new.condition), new.else_case, None)
        return new

    def visit_For(self, stmt: For) -> Any:
        if not isinstance(stmt.extent, IntImm):
            top = eval_set(stmt.extent, self.ranges).max_value
            if top.dtype != "handle" and Analyzer().can_prove(B.le(top, B.const(top.dtype, 0))):
                return Evaluate(0)
        elif stmt.extent.value <= 0:
            return Evaluate(0)
        self.ranges[stmt.loop_var] = from_min_extent(stmt.min, stmt.extent)
        new = self.default_visit(stmt)
        del self.ranges[stmt.loop_var]
        return self._effect(new.min, new.extent) if is_noop(new.body) else new

    def visit_Allocate(self, stmt: Allocate) -> Any:
        new = self.default_visit(stmt)
        return self._effect(*new.extents) if is_noop(new.body) else new

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Any:
        new = self.default_visit(stmt)
        if is_noop(new.body):
            return Evaluate(0)
        return new if _uses_buffer(new.body, new.buffer) else new.body

    def visit_Evaluate(self, stmt: Evaluate) -> Any:
        if isinstance(stmt.value, IntImm):
            return stmt
        return Evaluate(0) if side_effect(stmt.value) <= CallEffectKind.ReadState else stmt

    def visit_SeqStmt(self, stmt: SeqStmt) -> Any:
        new = self.default_visit(stmt)
        if any(is_noop(s) for s in new.seq) or len(new.seq) < 2:
            return seq(list(new.seq))
        return new

    def visit_BufferStore(self, stmt: BufferStore) -> Any:
        value: Any = stmt.value
        if type(value).__name__ == "BufferLoad" and value.buffer is stmt.buffer and value.predicate is None:
            if all(map(B.deep_equal, value.indices, stmt.indices)):
                return self._effect(*stmt.indices)
        return stmt


def _uses_buffer(body: Any, buffer: Any) -> bool:
    """Whether ``body`` accesses a buffer by that declaration."""

    class Find(Visitor):
        found = False

        def visit_Buffer(self, other: Any) -> None:
            self.found = self.found or other is buffer

        def visit_IntImm(self, e: Any) -> None:
            return

    find = Find()
    find.visit(body)
    return find.found


def _stmt_uses(stmt: Any, var: Any) -> bool:
    return uses_var(stmt, var)


def remove_no_op(stmt: Stmt) -> Stmt:
    """Remove what does nothing."""
    return _Remove().visit(stmt)  # type: ignore[no-any-return]


def RemoveNoOp() -> PrimFuncPass:  # noqa: N802
    """Remove statements without effect.

    Before::

        for i in range(16):
            if i < 8: T.evaluate(0)
            else: A[i] = 42
        x: T.int32 = 5

    After::

        for i in range(16):
            if not (i < 8): A[i] = 42
    """
    return body_pass(remove_no_op, "tir.RemoveNoOp")
