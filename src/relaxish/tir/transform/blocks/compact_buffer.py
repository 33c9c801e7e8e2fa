"""CompactBufferAllocation: buffers shrink to the region that is touched where they live.

Before: inside loop ``i`` a ``(128,)`` buffer of which iteration ``i`` touches ``[i * 8, i * 8 + 8)``.
After: an ``(8,)`` buffer, its indices shifted by ``i * 8``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IntImm
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, Block, BufferRegion, BufferStore, DeclBuffer, MatchBufferRegion, Stmt
from ..base import StmtExprMutator, StmtExprVisitor, FunctionRewrite
from .compact_regions import Region, RegionCollector
from .lower_opaque_block import allocation_shape

Alignment = dict[int, tuple[int, int]]


class _Alignments(StmtExprVisitor):
    """Collects ``buffer_dim_align``: of the blocks that write a buffer, or of its allocation."""

    def __init__(self) -> None:
        self.found: dict[Any, Alignment] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def _note(self, data: PrimExpr, item: Sequence[IntImm]) -> None:
        _, axis, factor, offset = (int(v) for v in item)
        self.found.setdefault(data, {})[axis] = (factor, offset)

    def visit_Block(self, block: Block) -> None:
        for item in block.annotations.get("buffer_dim_align", ()):
            # A buffer that nothing else uses has moved into the block, and its region out of the signature.
            if int(item[0]) < len(block.writes):
                self._note(block.writes[int(item[0])].buffer.data, item)
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        for item in stmt.annotations.get("buffer_dim_align", ()):
            self._note(stmt.buffer_var, item)
        self.visit(stmt.body)


def _aligned_strides(shape: tuple[Any, ...], wanted: Alignment) -> tuple[Any, ...]:
    """Row-major strides, each aligned to ``factor`` with remainder ``offset`` where its axis is so marked."""
    stride: Any = B.const(shape[0].dtype, 1)
    strides: list[Any] = []
    for axis in range(len(shape) - 1, -1, -1):
        factor, offset = wanted.get(axis, (0, 0))
        if factor:
            unit = B.const(stride.dtype, factor)
            missing = B.add(unit, B.const(stride.dtype, offset)) - B.floormod(stride, unit)
            stride = stride + B.floormod(missing, unit)
        strides.append(stride)
        stride = stride * shape[axis]
    return tuple(reversed(strides))


class _Compact(StmtExprMutator):
    """Replaces buffers by their smaller form and shifts every access by the start of the region."""

    def __init__(self, regions: dict[Buffer, Region], alignments: dict[Any, Alignment]) -> None:
        self.starts: dict[Any, list[Any]] = {}
        self.buffers: dict[Any, Buffer] = {}
        for buffer, region in regions.items():
            shape = tuple(r.extent for r in region)
            rank = len(shape)
            # A mark may have been made for another buffer that the block wrote then, of more dimensions.
            marks = alignments.get(buffer.data, {}).items()
            wanted = {axis % rank: mark for axis, mark in marks if -rank <= axis < rank}
            strides = _aligned_strides(shape, wanted) if wanted else ()
            self.starts[buffer.data] = [r.min for r in region]
            self.buffers[buffer.data] = buffer.with_fields(shape=shape, strides=strides)

    def _shifted(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[Any, ...]:
        return tuple(e - low for e, low in zip(indices, self.starts[buffer.data], strict=True))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made: Any = self.default_visit(load)
        new = self.buffers.get(load.buffer.data)
        return made if new is None else BufferLoad(new, self._shifted(new, made.indices), made.predicate)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made: Any = self.default_visit(store)
        new = self.buffers.get(store.buffer.data)
        return made if new is None else made.with_fields(buffer=new, indices=self._shifted(new, made.indices))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        new = self.buffers.get(region.buffer.data)
        if new is None:
            return region
        lows = self._shifted(new, [r.min for r in region.region])
        return BufferRegion(new, [Range.from_min_extent(a, r.extent) for a, r in zip(lows, region.region)])

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        source = self.visit(match.source)
        return match if source is match.source else MatchBufferRegion(match.buffer, source)

    def visit_Block(self, block: Block) -> Block:
        made: Any = self.default_visit(block)
        allocs = tuple(self.buffers.get(b.data, b) for b in block.alloc_buffers)
        return made.with_fields(alloc_buffers=allocs) if allocs != tuple(made.alloc_buffers) else made

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        return DeclBuffer(self.buffers.get(stmt.buffer.data, stmt.buffer), self.visit(stmt.body), span=stmt.span)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        made: Any = self.default_visit(stmt)
        new = self.buffers.get(stmt.buffer_var)
        if new is None or new.dtype != stmt.dtype:
            return made
        return made.with_fields(extents=tuple(allocation_shape(new)))


def compact(func: PrimFunc, is_strict: bool = True) -> PrimFunc:
    """Shrink all allocations of a function."""
    collector = RegionCollector(is_strict)
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            collector.analyzer.mark_global_non_neg_value(extent)
    regions = collector.collect(func.body)
    if not regions:
        return func
    alignments = _Alignments()
    alignments.visit(func.body)
    return func.with_body(_Compact(regions, alignments.found).visit(func.body))


class CompactBufferAllocation(FunctionRewrite):
    """Shrink every allocated buffer to the region that is touched during its life.

    Accesses are relaxed over the loops between the allocation and the access, and, for memory that the threads of
    an axis share, over that axis too. Conditions around an access narrow its region. With ``is_strict`` a region
    is cut to the bounds of the buffer, otherwise accesses are trusted to stay inside.

    Before::

        for i in range(16):
            with T.block():
                B = T.alloc_buffer((128,))
                for j in range(8): B[i * 8 + j] = A[i * 8 + j]

    After::

        for i in range(16):
            with T.block():
                B = T.alloc_buffer((8,))
                for j in range(8): B[i * 8 + j - i * 8] = A[i * 8 + j]
    """

    is_strict: bool = True

    def rewrite(self, f: PrimFunc) -> PrimFunc:
        return compact(f, self.is_strict)


__all__ = ["CompactBufferAllocation", "compact"]
