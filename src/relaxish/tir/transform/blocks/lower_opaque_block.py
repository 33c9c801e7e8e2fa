"""LowerOpaqueBlock: blocks disappear; their predicates, allocations and pragmas become statements.

Before: ``for i in T.thread_binding(...)``, ``with T.block(): T.where(p); C = T.alloc_buffer(...)``.
After: ``T.attr(thread_extent)``, ``C = T.allocate(...)``, ``if p: ...``; loops of one iteration vanish.
"""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.prim import IntImm, IterVar, StringImm, Var, is_one
from ...buffer import Buffer
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import Allocate, AttrStmt, Block, BlockRealize, DeclBuffer, For, ForKind, IfThenElse, Stmt  # fmt: skip
from ..base import LoweringError, SeqMutator, StmtExprVisitor, FunctionRewrite

_ALIGN = "buffer_dim_align"


def allocation_shape(buffer: Buffer) -> tuple[Any, ...]:
    """Extents to allocate; strides widen the inner dimensions."""
    if not buffer.layout_strides:
        return buffer.shape
    strides = buffer.strides
    if not B.is_one(strides[-1]) or any(not B.is_zero(B.floormod(a, b)) for a, b in zip(strides, strides[1:])):
        # Gaps between elements, or rows that are no whole number of what they hold: one flat piece of memory.
        return (B.mul(strides[0], buffer.shape[0]),)
    return (buffer.shape[0], *(B.truncdiv(a, b) for a, b in zip(strides, strides[1:])))


class _Alignments(StmtExprVisitor):
    """What blocks ask of the strides of the buffers they write, by the buffers' pointers."""

    def __init__(self) -> None:
        self.found: dict[Any, list[tuple[int, ...]]] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_Block(self, block: Block) -> None:
        for entry in block.annotations.get(_ALIGN, ()):
            index, *rest = (int(v) for v in entry)
            if index >= len(block.writes):
                continue  # the block allocates the buffer itself, which nothing else uses
            # The buffer needs no number once its allocation carries the entry.
            self.found.setdefault(block.writes[index].buffer.data, []).append((-1, *rest))
        self.default_visit(block)


def _split(annotations: dict[str, Any]) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Pragmas, by name, and all other annotations."""
    pragmas = sorted((k, _as_value(v)) for k, v in annotations.items() if k.startswith("pragma_"))
    return pragmas, {k: v for k, v in annotations.items() if not k.startswith("pragma_")}


class _OpaqueBlockLowerer(SeqMutator, Substitute):
    def __init__(self, aligned: dict[Any, list[tuple[int, ...]]]) -> None:
        super().__init__({})
        self.aligned = aligned

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        block = realize.block
        if block.iter_vars:
            raise LoweringError(f"block {block.name_hint} is not opaque; run ConvertBlocksToOpaque first")
        for buffer in block.alloc_buffers:
            if isinstance(buffer.elem_offset, Var):
                # Memory of its own begins at its first element.
                self.values[buffer.elem_offset] = IntImm(buffer.elem_offset.dtype, 0)
        body = self.visit(block.body)
        predicate = self.visit(realize.predicate)
        if not is_one(predicate):
            body = IfThenElse(predicate, body)
        for buffer in reversed(block.alloc_buffers):
            body = self._allocate(self.visit(buffer), body)
        for key, value in reversed(_split(block.annotations)[0]):
            body = AttrStmt(IntImm("int32", 0), key, value, body)
        return body

    def _allocate(self, buffer: Buffer, body: Stmt) -> Stmt:
        extents = tuple(allocation_shape(buffer))
        aligned = self.aligned.get(buffer.data)
        annotations = {_ALIGN: aligned} if aligned else None
        body = DeclBuffer(buffer, body)
        return Allocate(buffer.data, buffer.dtype, extents, IntImm("bool", 1), body, annotations)

    def visit_For(self, loop: For) -> Stmt:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        unit = B.is_one(extent) and not loop.annotations
        if unit:
            self.values[loop.loop_var] = B.cast(loop.loop_var.dtype, low)
        body = self.visit(loop.body)
        pragmas, kept = _split(loop.annotations)
        if loop.kind == ForKind.THREAD_BINDING:
            result = self._thread(loop, low, extent, body)
        elif unit:
            return body
        else:
            result = For(loop.loop_var, low, extent, loop.kind, body, None, kept, span=loop.span)
        for key, value in reversed(pragmas):
            result = AttrStmt(loop.loop_var, key, value, result)
        return result

    @staticmethod
    def _thread(loop: For, low: PrimExpr, extent: PrimExpr, body: Stmt) -> Stmt:
        binding = loop.thread_binding
        assert binding is not None
        from ....ir.expr import Range

        tag = binding.thread_tag
        iv = IterVar(Range.from_min_extent(low, extent), loop.loop_var, IterVar.ThreadIndex, tag)
        virtual = tag in ("vthread", "vthread.x", "vthread.y", "vthread.z")
        return AttrStmt(iv, "virtual_thread" if virtual else "thread_extent", extent, body)


def _as_value(value: PrimExpr | str) -> PrimExpr:
    return StringImm(value) if isinstance(value, str) else value


def lower(func: PrimFunc) -> PrimFunc:
    """Lower all blocks of a function."""
    aligned = _Alignments()
    aligned.visit(func.body)
    body = _OpaqueBlockLowerer(aligned.found).visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerOpaqueBlock(FunctionRewrite):
    """Remove blocks, leaving loops, conditionals and allocations.

    Before::

        for i in T.thread_binding(4, thread="blockIdx.x"):
            with T.block():
                T.where(i < 3)
                B = T.alloc_buffer((8,), "float32")
                ...

    After::

        i = T.launch_thread("blockIdx.x", 4)
        B = T.decl_buffer((8,), "float32")
        if i < 3: ...

    Loops of one iteration without annotations vanish; pragmas become attributes, in the order of their names.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower(func)
