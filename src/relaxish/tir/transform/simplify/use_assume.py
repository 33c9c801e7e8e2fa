"""UseAssumeToReduceBranches: computing with assumed padding as well, instead of asking for each element."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....arith.effects import CallEffectKind, side_effect
from ....ir.expr import PrimExpr
from ....ir.prim import Call
from ...buffer import Buffer
from ...function import PrimFunc
from ...stmt import BufferStore, Stmt
from ..base import StmtExprVisitor, is_call, FunctionRewrite
from .buffer_flow import BufferFlow, in_context, read_variables
from .simplify import AnalyzerMutator


class _UseAssume(AnalyzerMutator):
    def __init__(self, flow: BufferFlow) -> None:
        super().__init__()
        self.flow = flow

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value: Any = store.value
        if not is_call(value, "if_then_else") or side_effect(value.args[0]) > CallEffectKind.Pure:
            return store
        condition, then, other = value.args
        for kept, padding, where in ((then, other, B.not_(condition)), (other, then, condition)):
            with self.analyzer.constraint_scope(self.analyzer.rewrite_simplify(where)):
                there = in_context(kept, self.flow.before(store), self.analyzer)
                if B.deep_equal(there, self.analyzer.simplify(padding)):
                    return store.with_fields(value=kept)
        return store


class _Assumes(StmtExprVisitor):
    found = False

    def visit_Call(self, e: Call) -> None:
        self.found = self.found or is_call(e, "assume")


def use_assumptions(func: PrimFunc) -> PrimFunc:
    """Remove conditional values of a function whose two sides agree by assumption."""
    assumes = _Assumes()
    assumes.visit(func.body)
    if not assumes.found:
        return func
    flow = BufferFlow(read_variables(func.body))
    flow.visit(func.body)
    body = _UseAssume(flow).visit(func.body)
    return func if body is func.body else func.with_body(body)


class UseAssumeToReduceBranches(FunctionRewrite):
    """Drop ``T.if_then_else`` where the value computed from assumed padding is the other side anyway.

    Before (``A`` assumed to be 0 beyond 14)::

        B[i] = T.if_then_else(i < 14, A[i] * 2.0, 0.0)

    After::

        B[i] = A[i] * 2.0
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return use_assumptions(func)
