"""Shared parts of passes that change the types of variables and buffers."""

from __future__ import annotations

from typing import Any

from ....ir.expr import PrimExpr
from ....ir.prim import Let, Var
from ...buffer import Buffer
from ...stmt import AttrStmt, LetStmt, Stmt
from ..base import StmtExprMutator

__all__ = ["RetypingMutator"]


class RetypingMutator(StmtExprMutator):
    """Puts the new variables and buffers in the place of the old ones.

    A subclass fills ``variables`` and ``buffers``, and says in :meth:`bound` what a ``let`` binds.
    """

    variables: dict[Var, Var]
    buffers: dict[Buffer, Buffer]

    def bound(self, var: Var, value: PrimExpr) -> tuple[Var, Any]:
        """The new variable and value of a ``let``."""
        raise NotImplementedError

    def visit_Var(self, var: Var) -> Var:
        return self.variables.get(var, var)

    def visit_Let(self, e: Let | LetStmt) -> PrimExpr | Stmt:
        var, value = self.bound(e.var, e.value)
        body = self.visit(e.body)
        same = value is e.value and var is e.var and body is e.body
        return e if same else e.with_fields(var=var, value=value, body=body)

    visit_LetStmt = visit_Let

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        made: Any = self.default_visit(attr)
        match attr.node:
            case Buffer() if attr.node in self.buffers:
                return made.with_fields(node=self.buffers[attr.node])
            case Var() if attr.node in self.variables:
                return made.with_fields(node=self.variables[attr.node])
        return made
