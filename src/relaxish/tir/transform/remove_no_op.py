"""RemoveNoOp: statements without effect go away.

Before: ``for i in range(4): pass``, ``if c: pass``, ``x = T.evaluate(0)`` in a sequence.
After: nothing of it.
"""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import uses_var
from ...ir.functor import Mutator
from ...ir.prim import IntImm, Not
from ..stmt import (
    Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt,
)  # fmt: skip
from .base import PrimFuncPass, body_pass, is_noop, seq


class _Remove(Mutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def _effect(self, e: Any) -> Stmt:
        return Evaluate(0) if side_effect(e) <= CallEffectKind.ReadState else Evaluate(e)

    def visit_LetStmt(self, stmt: LetStmt) -> Any:
        new = self.default_visit(stmt)
        if is_noop(new.body):
            return self._effect(new.value)
        if side_effect(new.value) <= CallEffectKind.ReadState and not _stmt_uses(new.body, new.var):
            return new.body
        return new

    def visit_AttrStmt(self, stmt: AttrStmt) -> Any:
        if stmt.attr_key == "pragma_debug_skip_region":
            return Evaluate(0)
        new = self.default_visit(stmt)
        return self._effect(new.value) if is_noop(new.body) and stmt.attr_key != "async_wait_queue_scope" else new

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
        if B.is_zero(stmt.extent):
            return Evaluate(0)
        new = self.default_visit(stmt)
        return Evaluate(0) if is_noop(new.body) else new

    def visit_Allocate(self, stmt: Allocate) -> Any:
        new = self.default_visit(stmt)
        return self._unused(new)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Any:
        new = self.default_visit(stmt)
        return Evaluate(0) if is_noop(new.body) else new

    @staticmethod
    def _unused(new: Any) -> Any:
        return Evaluate(0) if is_noop(new.body) else new

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
                return Evaluate(0)
        return stmt


def _stmt_uses(stmt: Any, var: Any) -> bool:
    return uses_var(stmt, var)


def remove_no_op(stmt: Stmt) -> Stmt:
    """Remove what does nothing."""
    return _Remove().visit(stmt)  # type: ignore[no-any-return]


def RemoveNoOp() -> PrimFuncPass:  # noqa: N802
    """Remove statements without effect."""
    return body_pass(remove_no_op, "tir.RemoveNoOp")
