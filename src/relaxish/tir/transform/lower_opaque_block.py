"""LowerOpaqueBlock: blocks disappear; their predicates, allocations and pragmas become statements.

Before: ``for i in T.thread_binding(...)``, ``with T.block(): T.where(p); C = T.alloc_buffer(...)``.
After: ``T.attr(thread_extent)``, ``C = T.allocate(...)``, ``if p: ...``; loops of one iteration vanish.
"""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...ir.prim import IntImm, IterVar, StringImm, Var
from ..buffer import Buffer
from ..function import PrimFunc
from ..functor import Substitute
from ..stmt import (
    Allocate, AttrStmt, BlockRealize, DeclBuffer, For, ForKind, IfThenElse, Stmt,
)  # fmt: skip
from .base import LoweringError, PrimFuncPass, func_pass


def allocation_shape(buffer: Buffer) -> tuple[Any, ...]:
    """Extents to allocate; strides widen the outer dimensions."""
    if not buffer.layout_strides:
        return buffer.shape
    shape = [B.mul(buffer.strides[0], buffer.shape[0])]
    for i in range(1, len(buffer.shape)):
        shape.append(buffer.strides[i - 1] // buffer.strides[i])
    if any(not B.is_zero(B.floormod(a, b)) for a, b in zip(buffer.strides, buffer.strides[1:])):
        # Rows that are no whole number of what they hold: one flat piece of memory.
        return (shape[0],)
    total = shape[0]
    return (total,) if len(shape) == 1 else (B.floordiv(total, buffer.strides[0]), *shape[1:])


class _Lower(Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.ranges: dict[Var, Any] = {}

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        block = realize.block
        if block.iter_vars:
            raise LoweringError(f"block {block.name_hint} is not opaque; run ConvertBlocksToOpaque first")
        body = self.visit(block.body)
        predicate = self.visit(realize.predicate)
        if not (isinstance(predicate, IntImm) and predicate.value):
            body = IfThenElse(predicate, body)
        for buffer in reversed(block.alloc_buffers):
            body = self._allocate(self.visit(buffer), body)
        for key, value in reversed(block.annotations.items()):
            if key.startswith("pragma_"):
                body = AttrStmt(IntImm("int32", 0), key, _as_value(self.visit(value)), body)
        return body

    @staticmethod
    def _allocate(buffer: Buffer, body: Stmt) -> Stmt:
        extents = tuple(allocation_shape(buffer))
        body = DeclBuffer(buffer, body)
        return Allocate(buffer.data, buffer.dtype, extents, IntImm("bool", 1), body)

    def visit_For(self, loop: For) -> Any:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        unit = B.is_one(extent)
        threaded = loop.kind == ForKind.THREAD_BINDING
        if unit and not threaded and not loop.annotations:
            self.values[loop.loop_var] = B.cast(loop.loop_var.dtype, low)
            return self.visit(loop.body)
        body = self.visit(loop.body)
        pragmas = [(k, v) for k, v in loop.annotations.items() if k.startswith("pragma_")]
        kept = {k: v for k, v in loop.annotations.items() if not k.startswith("pragma_")}
        if threaded:
            result = self._thread(loop, low, extent, body)
        elif unit and not kept:
            self.values[loop.loop_var] = B.cast(loop.loop_var.dtype, low)
            result = self.visit(loop.body)
        else:
            result = For(loop.loop_var, low, extent, loop.kind, body, None, kept, loop.span)
        for key, value in reversed(pragmas):
            result = AttrStmt(loop.loop_var, key, _as_value(value), result)
        return result

    @staticmethod
    def _thread(loop: For, low: Any, extent: Any, body: Stmt) -> Stmt:
        binding = loop.thread_binding
        assert binding is not None
        from ...ir.expr import Range

        tag = binding.thread_tag
        iv = IterVar(Range.from_min_extent(low, extent), loop.loop_var, IterVar.ThreadIndex, tag)
        virtual = tag == "vthread" or tag.startswith("vthread.")
        return AttrStmt(iv, "virtual_thread" if virtual else "thread_extent", extent, body)


def _as_value(value: Any) -> Any:
    return StringImm(value) if isinstance(value, str) else value


def lower(func: PrimFunc) -> PrimFunc:
    """Lower all blocks of a function."""
    body = _Lower().visit(func.body)
    return func if body is func.body else func.with_body(body)


def LowerOpaqueBlock() -> PrimFuncPass:  # noqa: N802
    """Remove blocks, leaving loops, conditionals and allocations."""
    return func_pass(lower, "tir.LowerOpaqueBlock")
