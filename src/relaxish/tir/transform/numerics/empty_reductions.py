"""FillEmptyReductions: a reduction over no elements leaves its start in the result.

The start of a reduction is written in its first step, and a loop of extent zero has none: the result would be whatever
memory held.  Such a loop becomes one step that only writes the start.
"""

from __future__ import annotations


from ....arith.build import as_int
from ....ir.expr import PrimExpr, Range
from ....ir.functor import all_nodes
from ....ir.node import Node
from ....ir.prim import IterVar, Var
from ...function import PrimFunc
from ...functor import pre_order_visit
from ...stmt import BlockRealize, For, Stmt
from ..base import StmtMutator, FunctionRewrite

__all__ = ["FillEmptyReductions", "fill_empty_reductions", "has_empty_loop"]


def _is_zero(extent: PrimExpr) -> bool:
    return as_int(extent) == 0


def has_empty_loop(func: PrimFunc) -> bool:
    """Whether a loop or an axis of a block is known to have no steps."""
    loops = (node.dom if isinstance(node, IterVar) else node for node in all_nodes(func.body))
    return any(isinstance(loop, (For, Range)) and _is_zero(loop.extent) for loop in loops)


class _Fill(StmtMutator):
    def __init__(self) -> None:
        self.emptied: set[Var] = set()

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        block = realize.block
        empty = [
            iv.iter_type == IterVar.CommReduce and iv.dom is not None and _is_zero(iv.dom.extent)
            for iv in block.iter_vars
        ]
        if block.init is None or not any(empty):
            return self.default_visit(realize)
        values, axes = [], []
        for iv, value in zip(block.iter_vars, realize.iter_values):
            if iv.iter_type == IterVar.CommReduce:
                pre_order_visit(value, self._note)
                continue
            values.append(value)
            axes.append(iv)
        block = block.with_fields(iter_vars=tuple(axes), body=block.init, init=None, reads=())
        return realize.with_fields(iter_values=tuple(values), block=block)

    def _note(self, node: Node) -> bool:
        if isinstance(node, Var):
            self.emptied.add(node)
        return True

    def visit_For(self, loop: For) -> Stmt:
        made = self.default_visit(loop)
        if loop.loop_var in self.emptied and isinstance(made.body, (For, BlockRealize)):
            return made.body  # every step would write the same start
        return made


def fill_empty_reductions(func: PrimFunc) -> PrimFunc:
    """``func`` with the starts of its reductions over nothing written."""
    if not has_empty_loop(func):
        return func
    body = _Fill().visit(func.body)
    return func if body is func.body else func.with_body(body)


class FillEmptyReductions(FunctionRewrite):
    """Write the start of reductions over axes of extent zero."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return fill_empty_reductions(func)
