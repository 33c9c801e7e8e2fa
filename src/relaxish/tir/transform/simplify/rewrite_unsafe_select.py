"""RewriteUnsafeSelect: a ``Select`` whose unused branch might fault becomes ``if_then_else``.

Before: ``T.Select(i < n, A[i], 0.0)``.
After: ``T.if_then_else(i < n, A[i], 0.0)``, which reads ``A[i]`` only where the condition holds.
"""

from __future__ import annotations

from typing import Any

from ....ir.functor import Visitor
from ....arith.effects import CallEffectKind, call_effect
from ....ir.prim import Call, Ramp, Select
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import Stmt
from ..base import SeqMutator, is_call, BodyRewrite


class _Unsafe(Visitor):
    """Whether evaluating an expression may fault or has effects."""

    def __init__(self) -> None:
        self.found = False

    def visit_BufferLoad(self, e: BufferLoad) -> None:
        self.found = True

    def visit_Select(self, e: Select) -> None:
        # Only the condition is always evaluated once the branches are guarded.
        self.visit(e.condition)

    def visit_Ramp(self, e: Ramp) -> None:
        self.found = self.found or (is_unsafe(e.base) and is_unsafe(e.stride))

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "if_then_else"):
            self.visit(e.args[0])
        elif is_call(e, "address_of"):
            load: Any = e.args[0]
            self.visit(load.indices)
        elif call_effect(e) > CallEffectKind.Pure:
            self.found = True
        else:
            self.visit(e.args)


def is_unsafe(e: PrimExpr) -> bool:
    """Whether ``e`` must not be evaluated where it is not wanted."""
    check = _Unsafe()
    check.visit(e)
    return check.found


class _SelectGuard(SeqMutator):
    """Guards selects; with ``cheap`` not those whose conditions read memory, which vector code does without branches."""

    def __init__(self, cheap: bool) -> None:
        self.cheap = cheap

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Select(self, e: Select) -> PrimExpr:
        new = self.default_visit(e)
        scalar = dt.is_scalar(new.condition.dtype)
        if not scalar or (self.cheap and is_unsafe(new.condition)):
            return new
        if is_unsafe(new.true_value) or is_unsafe(new.false_value):
            return Call(new.dtype, "tir.if_then_else", (new.condition, new.true_value, new.false_value))
        return new


def rewrite(stmt: Stmt, cheap: bool = True) -> Stmt:
    """Guard unsafe selects."""
    return _SelectGuard(cheap).visit(stmt)


class RewriteUnsafeSelect(BodyRewrite):
    """Replace ``Select`` over possibly faulting operands by ``if_then_else``.

    Before::

        B[i] = T.Select(i < n, A[i], 0.0)

    After::

        B[i] = T.if_then_else(i < n, A[i], 0.0)
    """

    def rewrite_body(self, s: Stmt) -> Stmt:
        return rewrite(s, False)
