"""Simplification that follows what stores and assumptions put into buffers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ....arith.functor import substitute
from ....ir.expr import PrimExpr
from ....ir.prim import IntImm
from ...stmt import Block, Evaluate, SeqStmt, Stmt
from ..base import flatten_seq, is_call
from .buffer_flow import BufferFlow, Fact, in_context, pure, read_variables
from .regions import conjuncts
from .simplify import StmtSimplifier


class KnowingSimplifier(StmtSimplifier):
    """A simplifier that also knows buffer contents.

    ``conditions`` and ``expressions`` say whether that may decide branches, and replace loads in values.
    """

    def __init__(self, conditions: bool, expressions: bool) -> None:
        super().__init__()
        self.conditions = conditions
        self.expressions = expressions
        self.flow = BufferFlow()
        self.facts: list[Fact] = []

    def run(self, stmt: Stmt) -> Stmt:
        """Simplify a statement."""
        self.flow = BufferFlow(read_variables(stmt))
        self.flow.visit(stmt)
        return super().run(stmt)

    def visit(self, x: Any) -> Any:
        saved = self.facts
        if isinstance(x, (Stmt, Block)) and self.flow.knows(x):
            self.facts = self.flow.before(x)
        made = super().visit(x)
        self.facts = saved
        return made

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        simple = super().visit_PrimExpr(e)
        return in_context(simple, self.facts, self.analyzer) if self.expressions and self.facts else simple

    def _decided(self, condition: PrimExpr) -> bool | None:
        decided = super()._decided(condition)
        if decided is None and self.conditions and self.facts:
            simple = in_context(substitute(condition, self.lets), self.facts, self.analyzer)
            return bool(simple.value) if isinstance(simple, IntImm) else None
        return decided

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        return stmt if is_call(stmt.value, "assume") else self.default_visit(stmt)

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        with ExitStack() as held:
            made = []
            for stmt in node.seq:
                made.append(self.visit(stmt))
                assumed = getattr(stmt, "value", None)
                if is_call(assumed, "assume"):
                    for condition in conjuncts(assumed.args[0]):
                        if pure(condition):
                            held.enter_context(self.analyzer.constraint_scope(condition))
        return node if all(a is b for a, b in zip(made, node.seq)) else flatten_seq(made)
