"""LowerInitBlock: the ``init`` of a reduction block becomes a conditional at the start of its body.

Before: ``with T.init(): C[i] = 0`` then ``C[i] = C[i] + A[i, k]``.
After: ``if k == 0: C[i] = 0`` then the same update.
"""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.prim import EQ, IterVar
from ...stmt import Block, IfThenElse, Stmt
from ..base import SeqMutator, flatten_seq, BodyRewrite


class _InitBlockLowerer(SeqMutator):
    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Block(self, block: Block) -> Block:
        body = self.visit(block.body)
        if block.init is None:
            return block if body is block.body else block.with_fields(body=body)
        init: Stmt = self.visit(block.init)
        condition: Any = None
        for iv in block.iter_vars:
            if iv.iter_type == IterVar.CommReduce:
                assert iv.dom is not None
                first = EQ(iv.var, B.cast(iv.var.dtype, iv.dom.min))
                condition = first if condition is None else B.and_(condition, first)
        if condition is not None:
            init = IfThenElse(condition, init)
        return block.with_fields(body=flatten_seq([init, body]), init=None)


class LowerInitBlock(BodyRewrite):
    """Lower ``T.init()`` of reduction blocks to conditional statements."""

    def rewrite_body(self, s: Stmt) -> Stmt:
        return _InitBlockLowerer().visit(s)
