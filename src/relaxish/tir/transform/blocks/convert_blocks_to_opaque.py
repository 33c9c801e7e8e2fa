"""ConvertBlocksToOpaque: block variables are replaced by their values; blocks lose their iteration variables.

Before: ``with T.block("B"): vi = T.axis.spatial(16, i * 4 + j); B[vi] = ...``.
After: ``with T.block("B"): B[i * 4 + j] = ...``.
"""

from __future__ import annotations


from ....arith import build as B
from ....arith.functor import free_vars
from ....ir.expr import PrimExpr
from ....ir.prim import IntImm
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import Block, BlockRealize, Stmt
from ..base import LoweringError, FunctionRewrite


class _Opaque(Substitute):
    """One walk that substitutes the values of all enclosing blocks at once."""

    def __init__(self) -> None:
        super().__init__({})

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        block = realize.block
        _check_scope(realize)
        values = [self.visit(v) for v in realize.iter_values]
        predicate = self.visit(realize.predicate)
        for iv, value in zip(block.iter_vars, values):
            self.values[iv.var] = B.cast(iv.var.dtype, value) if value.dtype != iv.var.dtype else value
        new = self.visit(block)
        if new is block and not values and predicate is realize.predicate:
            return realize
        return BlockRealize((), predicate, new, span=realize.span)

    def visit_Block(self, block: Block) -> Block:
        if block.init is not None:
            raise LoweringError(f"block {block.name_hint} still has an init; run LowerInitBlock first")
        reads, writes = self.visit(block.reads), self.visit(block.writes)
        allocs = self.visit(block.alloc_buffers)
        matches = self.visit(block.match_buffers)
        body = self.visit(block.body)
        if (
            not block.iter_vars
            and reads is block.reads
            and writes is block.writes
            and body is block.body
            and allocs is block.alloc_buffers
            and matches is block.match_buffers
        ):
            return block
        return Block(
            (), reads, writes, block.name_hint, body, None, allocs, matches, block.annotations, span=block.span
        )

    def visit_IntImm(self, node: IntImm) -> PrimExpr:
        return node


def _check_scope(realize: BlockRealize) -> None:
    own = {iv.var for iv in realize.block.iter_vars}
    for var in free_vars((*realize.iter_values, realize.predicate)) if own else ():
        if var in own:
            raise LoweringError(
                f"Variable {var.name} occurs in the predicate or iter_values of a block, "
                "but isn't defined until the body of the block"
            )


def convert(func: PrimFunc) -> PrimFunc:
    """Substitute block variables in the whole body."""
    body = _Opaque().visit(func.body)
    return func if body is func.body else func.with_body(body)


class ConvertBlocksToOpaque(FunctionRewrite):
    """Substitute block iteration variables by their bindings.

    Before::

        with T.block("B"):
            vi = T.axis.spatial(16, i * 4 + j)
            T.where(i < 3)
            B[vi] = A[vi]

    After::

        with T.block("B"):
            T.where(i < 3)
            B[i * 4 + j] = A[i * 4 + j]

    Raises ValueError for a block that still has an init, or whose predicate uses its own variables.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return convert(func)
