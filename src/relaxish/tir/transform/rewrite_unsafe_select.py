"""RewriteUnsafeSelect: a ``Select`` whose unused branch might fault becomes ``if_then_else``.

Before: ``T.Select(i < n, A[i], 0.0)``.
After: ``T.if_then_else(i < n, A[i], 0.0)``, which reads ``A[i]`` only where the condition holds.
"""

from __future__ import annotations

from typing import Any

from ...ir.functor import Mutator, Visitor
from ...ir.prim import Call, Select
from ...ir import dtype as dt
from ..stmt import Stmt
from .base import PrimFuncPass, body_pass


class _Unsafe(Visitor):
    """Whether evaluating an expression may fault or has effects."""

    def __init__(self) -> None:
        self.found = False

    def visit_BufferLoad(self, e: Any) -> None:
        self.found = True

    def visit_Select(self, e: Select) -> None:
        # Only the condition is always evaluated once the branches are guarded.
        self.visit(e.condition)
        if is_unsafe(e.true_value) and is_unsafe(e.false_value):
            self.found = True

    def visit_Call(self, e: Call) -> None:
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            self.visit(e.args[0])
            return
        if name in ("tir.address_of", "tir.call_extern", "tir.call_pure_extern", "tir.tvm_call_packed"):
            self.found = True
        for arg in e.args:
            self.visit(arg)


def is_unsafe(e: Any) -> bool:
    """Whether ``e`` must not be evaluated where it is not wanted."""
    check = _Unsafe()
    check.visit(e)
    return check.found


class _Rewrite(Mutator):
    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_Select(self, e: Select) -> Any:
        new = self.default_visit(e)
        scalar = dt.is_scalar(new.condition.dtype)
        if scalar and (is_unsafe(new.true_value) or is_unsafe(new.false_value)) and not is_unsafe(new.condition):
            return Call(new.dtype, "tir.if_then_else", (new.condition, new.true_value, new.false_value))
        return new


def rewrite(stmt: Stmt) -> Stmt:
    """Guard unsafe selects."""
    return _Rewrite().visit(stmt)  # type: ignore[no-any-return]


def RewriteUnsafeSelect() -> PrimFuncPass:  # noqa: N802
    """Replace ``Select`` over possibly faulting operands by ``if_then_else``."""
    return body_pass(rewrite, "tir.RewriteUnsafeSelect")
