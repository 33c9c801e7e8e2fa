"""RemoveWeightLayoutRewriteBlock: the block that repacks a weight goes; the function takes the packed weight.

Before: parameter ``W``; a block marked ``meta_schedule.layout_rewrite_preproc`` copies ``W`` to ``W_packed``.
After: parameter ``W_packed`` of the packed shape, no copy.  For building candidates whose weights are packed ahead.
"""

from __future__ import annotations

from typing import Any

from ...ir.functor import Mutator
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, Evaluate, For, SeqStmt
from .base import PrimFuncPass, func_pass, is_noop, seq

KEY = "meta_schedule.layout_rewrite_preproc"


class _Remove(Mutator):
    def __init__(self) -> None:
        self.pairs: list[tuple[Buffer, Buffer]] = []

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        block = realize.block
        if KEY in block.annotations:
            self.pairs.append((block.reads[0].buffer, block.writes[0].buffer))
            return Evaluate(0)
        return self.default_visit(realize)

    def visit_For(self, loop: For) -> Any:
        new = self.default_visit(loop)
        return Evaluate(0) if is_noop(new.body) else new

    def visit_SeqStmt(self, stmt: SeqStmt) -> Any:
        new = self.default_visit(stmt)
        return stmt if new is stmt else seq(list(new.seq))

    def visit_Block(self, block: Block) -> Any:
        new = self.default_visit(block)
        packed = {id(b) for _, b in self.pairs}
        kept = tuple(b for b in new.alloc_buffers if id(b) not in packed)
        return new if len(kept) == len(new.alloc_buffers) else new.with_fields(alloc_buffers=kept)


def remove(func: PrimFunc) -> PrimFunc:
    """Remove all repacking blocks of a function."""
    remover = _Remove()
    body = remover.visit(func.body)
    if not remover.pairs:
        return func
    buffer_map = dict(func.buffer_map)
    for original, packed in remover.pairs:
        for param, buffer in buffer_map.items():
            if buffer is original:
                buffer_map[param] = packed
    return PrimFunc(func.params, body, func.ret_type, buffer_map, func.attrs, func.span)


def RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite: bool = False) -> PrimFuncPass:  # noqa: N802
    """Remove blocks that repack weights; constant data is left to the caller with ``skip_ndarray_rewrite``."""
    del skip_ndarray_rewrite
    return func_pass(remove, "tir.RemoveWeightLayoutRewriteBlock")
