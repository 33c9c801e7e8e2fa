"""Completion of parsed tensor functions: the root block, and access regions that were not written down."""

from __future__ import annotations

from typing import Any

from .... import tir
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....tir.analysis.block_access import get_block_access_region
from ....tir.analysis.structure import contains_block
from ....tir.function import PrimFunc
from ....tir.stmt import Block, BlockRealize, DeclBuffer, Stmt

__all__ = ["DETECT_ACCESS", "complete"]

DETECT_ACCESS = "tir.script_parsing_detect_access"


def _needs_root(body: Stmt, root_buffers: list[Any]) -> bool:
    if root_buffers:
        return True
    if isinstance(body, tir.BlockRealize):
        return bool(body.block.iter_vars)
    return contains_block(body)


class _Completer(Mutator):
    """Fills in missing reads and writes, inner blocks first; the outermost block keeps none."""

    def __init__(self, buffers: dict[Any, Any]) -> None:
        super().__init__()
        self.buffers = buffers
        self.outermost = True

    def visit_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        for value in node.iter_values:
            if not dt.is_int(value.dtype):
                raise TypeError(f"BlockRealize iter_value expected a IntImm, but got {value.dtype}")
        return self.default_visit(node)

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_DeclBuffer(self, node: DeclBuffer) -> DeclBuffer:
        data = node.buffer.data
        if data in self.buffers:
            return self.default_visit(node)
        self.buffers[data] = node.buffer
        made = self.default_visit(node)
        del self.buffers[data]
        return made

    def visit_Block(self, node: Block) -> Block:
        local = [*node.alloc_buffers, *[m.buffer for m in node.match_buffers]]
        for buffer in local:
            self.buffers[buffer.data] = buffer
        is_root, self.outermost = self.outermost, False
        body = self.visit(node.body)
        init = self.visit(node.init) if node.init is not None else None
        self.outermost = is_root
        # What the block allocates is not an access that others see.
        for buffer in local:
            self.buffers.pop(buffer.data, None)
        mask = node.annotations.get(DETECT_ACCESS)
        if mask is None:
            if body is node.body and init is node.init:
                return node
            return node.with_fields(body=body, init=init)
        annotations = {k: v for k, v in node.annotations.items() if k != DETECT_ACCESS}
        block = node.with_fields(body=body, init=init, annotations=annotations)
        return self._with_accesses(block, int(mask), is_root)

    def _with_accesses(self, block: Block, mask: int, is_root: bool) -> Block:
        reads, writes, opaque = get_block_access_region(block, self.buffers)
        if opaque:
            raise ValueError(
                "Can not auto detect buffer access region from tir.Load, tir.Store or direct access by buffer "
                "data. Please annotation the access region manually"
            )
        if is_root:
            return block
        changes: dict[str, Any] = {}
        if mask & 1:
            changes["reads"] = reads
        if mask & 2:
            changes["writes"] = writes
        return block.with_fields(**changes)


def complete(func: PrimFunc, root_buffers: list[Any]) -> PrimFunc:
    """Wrap the body in a root block where one is implied, and infer what the blocks read and write."""
    body = func.body
    if _needs_root(body, root_buffers):
        root = tir.Block((), (), (), "root", body, None, root_buffers)
        body = tir.BlockRealize((), True, root)
    buffers = {b.data: b for b in func.buffer_map.values()}
    buffers.update({b.data: b for b in root_buffers})
    body = _Completer(buffers).visit(body)
    if body is func.body:
        return func
    return tir.PrimFunc(func.params, body, func.ret_type, func.buffer_map, func.attrs, func.span)
