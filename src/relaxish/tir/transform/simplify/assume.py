"""RemoveAssume and RemoveStoreUndef: facts and undefined values that earlier passes needed go away.

Before: ``T.evaluate(T.assume(i < 14 or A[i] == 0))``, ``A[i] = T.undef()``.
After: neither statement.
"""

from __future__ import annotations

from typing import Any

from ....ir.op import op_name_of
from ....ir.expr import PrimExpr
from ....ir.prim import Call, Var
from ...expr import BufferLoad
from ...stmt import BufferStore, Evaluate, LetStmt, Stmt
from ..base import LoweringError, SeqMutator, StmtExprVisitor, is_call, BodyRewrite
from .remove_no_op import remove_no_op


class _RemoveAssume(SeqMutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        return Evaluate(0) if op_name_of(stmt.value) == "tir.assume" else stmt


class _HasUndef(StmtExprVisitor):
    """Whether a value depends on ``T.undef()``, directly or by a binding; ``everywhere`` looks at indices as well."""

    def __init__(self, bindings: set[Any], everywhere: bool = False) -> None:
        self.bindings = bindings
        self.everywhere = everywhere
        self.found = False

    def visit_Call(self, call: Call) -> None:
        self.found = self.found or is_call(call, "undef")
        for arg in call.args:
            self.visit(arg)

    def visit_Var(self, var: Var) -> None:
        self.found = self.found or var in self.bindings

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        if self.everywhere:
            self.visit(load.indices)


class _RemoveUndef(SeqMutator):
    def __init__(self) -> None:
        self.bindings: set[Any] = set()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def _undefined(self, value: PrimExpr) -> bool:
        look = _HasUndef(self.bindings)
        look.visit(value)
        return look.found

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        if self._undefined(stmt.value):
            self.bindings.add(stmt.var)
        return self.default_visit(stmt)

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        return Evaluate(0) if self._undefined(stmt.value) else stmt


def remove_assume(stmt: Stmt) -> Stmt:
    """Drop assumptions."""
    new = _RemoveAssume().visit(stmt)
    return stmt if new is stmt else remove_no_op(new)


def remove_store_undef(stmt: Stmt) -> Stmt:
    """Drop stores of undefined values. Raises ValueError where an undefined value is used in another way."""
    new = _RemoveUndef().visit(stmt)
    new = stmt if new is stmt else remove_no_op(new)
    left = _HasUndef(set(), everywhere=True)
    left.visit(new)
    if left.found:
        raise LoweringError(
            "Expected removal of BufferStore containing builtin::undef() to remove all instances of builtin::undef(), "
            f"but some are left in:\n{new}"
        )
    return new


class RemoveAssume(BodyRewrite):
    """Remove ``T.assume``, and what then does nothing.

    Before::

        T.evaluate(T.assume(i < 14 or A[i] == 0))
        B[i] = A[i]

    After::

        B[i] = A[i]
    """

    def rewrite_body(self, body: Stmt) -> Stmt:
        return remove_assume(body)


class RemoveStoreUndef(BodyRewrite):
    """Remove stores of values that depend on ``T.undef()``.

    Before::

        for i in range(8):
            x: T.int32 = T.undef(dtype="int32")
            A[i] = x

    After: nothing of it. Raises ValueError where an undefined value is used elsewhere, as in an index.
    """

    def rewrite_body(self, body: Stmt) -> Stmt:
        return remove_store_undef(body)
