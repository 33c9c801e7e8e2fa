"""RemoveAssume and RemoveStoreUndef: facts and undefined values that earlier passes needed go away.

Before: ``T.evaluate(T.assume(i < 14 or A[i] == 0))``, ``A[i] = T.undef()``.
After: neither statement.
"""

from __future__ import annotations

from typing import Any

from ...ir.functor import Mutator, Visitor
from ..stmt import BufferStore, Evaluate, Stmt
from .base import LoweringError, PrimFuncPass, body_pass
from .remove_no_op import remove_no_op


class _RemoveAssume(Mutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Evaluate(self, stmt: Evaluate) -> Any:
        return Evaluate(0) if getattr(getattr(stmt.value, "op", None), "name", "") == "tir.assume" else stmt


def _has_undef(e: Any) -> bool:
    class Find(Visitor):
        found = False

        def visit_Call(self, call: Any) -> None:
            self.found = self.found or getattr(call.op, "name", "") == "tir.undef"
            for arg in call.args:
                self.visit(arg)

    find = Find()
    find.visit(e)
    return find.found


class _RemoveUndef(Mutator):
    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_BufferStore(self, stmt: BufferStore) -> Any:
        if any(_has_undef(i) for i in stmt.indices):
            raise LoweringError("T.undef() must not be used in the indices of a store")
        return Evaluate(0) if _has_undef(stmt.value) else stmt


def remove_assume(stmt: Stmt) -> Stmt:
    """Drop assumptions."""
    new = _RemoveAssume().visit(stmt)
    return stmt if new is stmt else remove_no_op(new)


def remove_store_undef(stmt: Stmt) -> Stmt:
    """Drop stores of undefined values."""
    new = _RemoveUndef().visit(stmt)
    return stmt if new is stmt else remove_no_op(new)


def RemoveAssume() -> PrimFuncPass:  # noqa: N802
    """Remove ``T.assume``."""
    return body_pass(remove_assume, "tir.RemoveAssume")


def RemoveStoreUndef() -> PrimFuncPass:  # noqa: N802
    """Remove stores of ``T.undef()``."""
    return body_pass(remove_store_undef, "tir.RemoveStoreUndef")
