"""Hoisting on the way to a CPU: conditions that fill a loop body move out of the loop.

This is the quick form of HoistIfThenElse, which works statement by statement and simplifies nothing.

Before: ``for i in range(n): if c > 0: A[i] = 1``.
After: ``if c > 0: for i in range(n): A[i] = 1``.
"""

from __future__ import annotations


from ....arith.effects import is_pure
from ....arith.functor import uses_var
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ...buffer import Buffer
from ...stmt import AttrStmt, For, ForKind, IfThenElse, Stmt


class _Hoist(Mutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_For(self, loop: For) -> Stmt:
        new = self.default_visit(loop)
        inner = new.body
        if loop.kind == ForKind.THREAD_BINDING:
            return new
        if isinstance(inner, IfThenElse) and is_pure(inner.condition) and not uses_var(inner.condition, loop.loop_var):
            then = new.with_fields(body=inner.then_case)
            other = None if inner.else_case is None else new.with_fields(body=inner.else_case)
            return IfThenElse(inner.condition, then, other)
        return new

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self.default_visit(attr)


def hoist(stmt: Stmt) -> Stmt:
    """Hoist all invariant conditions that fill a loop body."""
    return _Hoist().visit(stmt)
