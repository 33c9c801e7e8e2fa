"""ReduceBranchingThroughOvercompute: where one side of a branch does all that the other does, only it stays."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....arith.effects import CallEffectKind, side_effect
from ....ir.expr import PrimExpr
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...function import PrimFunc
from ...stmt import Evaluate, IfThenElse, Stmt
from ..base import StmtMutator, options, FunctionRewrite
from .buffer_flow import BufferFlow
from .dead_stores import DeadStores
from .remove_no_op import Remover
from .simplify import AnalyzerMutator


class _AddElse(StmtMutator):
    """Gives every branch another side, so that what is known there can be asked for."""

    def __init__(self) -> None:
        self.added: set[Any] = set()

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        made: Any = self.default_visit(stmt)
        if made.else_case is not None:
            return made
        nothing = Evaluate(0)
        self.added.add(nothing)
        return IfThenElse(made.condition, made.then_case, nothing, span=made.span)


class _DropElse(StmtMutator):
    def __init__(self, added: set[Any]) -> None:
        self.added = added

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        made: Any = self.default_visit(stmt)
        return (
            IfThenElse(made.condition, made.then_case, None, span=made.span) if made.else_case in self.added else made
        )


class _Reduce(AnalyzerMutator):
    def __init__(self, flow: BufferFlow | None, dead: DeadStores | None) -> None:
        super().__init__()
        self.flow = flow
        self.dead = dead

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        made = super().visit_IfThenElse(stmt)
        if not isinstance(made, IfThenElse) or side_effect(stmt.condition) > CallEffectKind.Pure:
            return made
        if made.else_case is not None and self._covers(made.else_case, made.condition, made.then_case, stmt.then_case):
            return made.else_case
        if self._covers(made.then_case, B.not_(made.condition), made.else_case, stmt.else_case):
            return made.then_case
        return made

    def _covers(self, general: Stmt, condition: PrimExpr, special: Stmt | None, place: Stmt | None) -> bool:
        """Whether ``general`` does just what ``special`` does where ``condition`` holds."""
        with self.analyzer.constraint_scope(self.analyzer.rewrite_simplify(condition)):
            simple = Remover(self.analyzer, self.flow, None, place).visit(general)
            if self.dead is not None and not same_expression(simple, special):
                simple = Remover(self.analyzer, None, self.dead, place).visit(simple)
        return same_expression(simple, special)


def overcompute(func: PrimFunc, dataflow: bool) -> PrimFunc:
    """Remove branches of a function whose other side would do nothing anyway."""
    fill = _AddElse()
    body = fill.visit(func.body)
    flow: BufferFlow | None = None
    dead: DeadStores | None = None
    if dataflow:
        flow, dead = BufferFlow(), DeadStores()
        flow.visit(body)
        dead.visit(body)
    body = _DropElse(fill.added).visit(_Reduce(flow, dead).visit(body))
    return func if same_expression(body, func.body) else func.with_body(body)


DEFAULTS = {"use_dataflow_analysis": False}


class ReduceBranchingThroughOvercompute(FunctionRewrite):
    """Run one side of a branch always, if that is known to have the same result.

    Before::

        for i in range(16):
            if i > 0:
                B[0] = B[0] + i

    After::

        for i in range(16):
            B[0] = B[0] + i

    The option ``tir.ReduceBranchingThroughOvercompute`` turns on ``use_dataflow_analysis``: what ``T.assume`` and
    earlier stores say of buffers counts, and what later stores overwrite does not matter.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        chosen = options("tir.ReduceBranchingThroughOvercompute", DEFAULTS)
        return overcompute(func, bool(chosen["use_dataflow_analysis"]))
