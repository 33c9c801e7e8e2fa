"""LowerMatchBuffer: views declared with ``T.match_buffer`` inside blocks become accesses of the buffer they view.

Before: ``sub = T.match_buffer(A[i * 4:i * 4 + 4, :], (4, 8)); sub[x, y]``.
After: ``A[i * 4 + x, y]``.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir.prim import IntImm, Var
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..functor import Substitute
from ..stmt import Block, BufferRegion, BufferStore, MatchBufferRegion
from .base import LoweringError, PrimFuncPass, func_pass


class _Lower(Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.views: dict[Buffer, BufferRegion] = {}
        self.analyzer = Analyzer()

    def visit_Block(self, block: Block) -> Any:
        for match in block.match_buffers:
            self._bind(match)
        new = self.default_visit(block)
        return new.with_fields(match_buffers=()) if block.match_buffers else new

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> Any:
        return match

    def _bind(self, match: MatchBufferRegion) -> None:
        view = match.buffer
        source = self.visit(match.source)
        outer = self.views.get(source.buffer)
        if outer is not None:
            source = BufferRegion(outer.buffer, _compose(outer, source))
        self.views[view] = source
        buffer = source.buffer
        mins = [r.min for r in source.region]
        self._set(view.data, buffer.data)
        offsets = buffer.offset_of(mins)
        offset = self.analyzer.simplify(offsets[-1])
        if isinstance(view.elem_offset, Var):
            self._set(view.elem_offset, B.cast(view.elem_offset.dtype, offset))
        elif not B.is_zero(view.elem_offset) or view.offset_factor > 1:
            factor = B.const(offset.dtype, view.offset_factor)
            if not self.analyzer.can_prove_equal(B.floormod(offset, factor), B.const(offset.dtype, 0)):
                raise LoweringError(f"the view {view.name} starts at {offset}, no multiple of {view.offset_factor}")
        if view.strides:
            strides = _strides(buffer)[len(buffer.shape) - len(view.shape):]
            for have, want in zip(view.strides, strides):
                if isinstance(have, Var):
                    self._set(have, B.cast(have.dtype, want))
        extents = [r.extent for r in source.region][len(source.region) - len(view.shape):]
        for have, want in zip(view.shape, extents):
            if isinstance(have, Var):
                self._set(have, B.cast(have.dtype, want))

    def _set(self, var: Any, value: Any) -> None:
        if isinstance(var, Var):
            self.values[var] = value

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        source = self.views.get(load.buffer)
        if source is None:
            return self.default_visit(load)
        return BufferLoad(source.buffer, _shift(source, self.visit(load.indices)), self.visit(load.predicate))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        source = self.views.get(store.buffer)
        if source is None:
            return self.default_visit(store)
        indices = _shift(source, self.visit(store.indices))
        return BufferStore(source.buffer, self.visit(store.value), indices, self.visit(store.predicate))

    def visit_BufferRegion(self, region: BufferRegion) -> Any:
        new = self.default_visit(region)
        source = self.views.get(region.buffer)
        return new if source is None else BufferRegion(source.buffer, _compose(source, new))


def _strides(buffer: Buffer) -> list[Any]:
    if buffer.layout_strides:
        return list(buffer.strides)
    out: list[Any] = []
    total: Any = IntImm(buffer.shape[0].dtype, 1) if buffer.shape else IntImm("int32", 1)
    for extent in reversed(buffer.shape):
        out.append(total)
        total = B.mul(total, extent)
    return out[::-1]


def _shift(source: BufferRegion, indices: Any) -> list[Any]:
    lead = len(source.region) - len(indices)
    out = [r.min for r in source.region[:lead]]
    for r, index in zip(source.region[lead:], indices):
        out.append(r.min + index)
    return out


def _compose(source: BufferRegion, inner: BufferRegion) -> list[Any]:
    from ...ir.expr import Range

    lead = len(source.region) - len(inner.region)
    out = list(source.region[:lead])
    for r, x in zip(source.region[lead:], inner.region):
        out.append(Range.from_min_extent(r.min + x.min, x.extent))
    return out


def lower(func: PrimFunc) -> PrimFunc:
    """Replace all views in a function."""
    lowering = _Lower()
    body = lowering.visit(func.body)
    return func if body is func.body else func.with_body(body)


def LowerMatchBuffer() -> PrimFuncPass:  # noqa: N802
    """Remove ``match_buffer`` of blocks."""
    return func_pass(lower, "tir.LowerMatchBuffer")
