"""LowerMatchBuffer: views declared with ``T.match_buffer`` inside blocks become accesses of the buffer they view.

Before: ``sub = T.match_buffer(A[i * 4:i * 4 + 4, :], (4, 8)); sub[x, y]``.
After: ``A[i * 4 + x, y]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import Block, BufferRegion, BufferStore, For, MatchBufferRegion, Stmt
from ..base import LoweringError, SeqMutator, FunctionRewrite


class _MatchBufferLowerer(SeqMutator, Substitute):
    def __init__(self, constants: Iterable[Var] = ()) -> None:
        super().__init__({})
        self.constants = set(constants)
        self.views: dict[Buffer, BufferRegion] = {}
        self.analyzer = Analyzer()

    def visit_Block(self, block: Block) -> Block:
        for match in block.match_buffers:
            self._bind(match)
        new = self.default_visit(block)
        return new.with_fields(match_buffers=()) if block.match_buffers else new

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        return match

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def _bind(self, match: MatchBufferRegion) -> None:
        view = match.buffer
        source = match.source
        outer = self.views.get(source.buffer)
        if outer is not None:
            source = BufferRegion(outer.buffer, _compose(outer, source))
        buffer = source.buffer
        self._check(view, buffer)
        self.views[view] = source
        self._set(view.data, buffer.data, f"{view.name}.data")
        self._offset(view, source)
        lead = len(source.region) - len(view.shape)
        if view.strides:
            for k, (have, want) in enumerate(zip(view.strides, _strides(buffer)[lead:])):
                self._set(have, want, f"{view.name}.strides_{k}")
        for k, have in enumerate(view.shape):
            self._set(have, source.region[lead + k].extent, f"{view.name}.shape_{k}")

    @staticmethod
    def _check(view: Buffer, buffer: Buffer) -> None:
        for what, mine, other in (("scope", view.scope(), buffer.scope()), ("data type", view.dtype, buffer.dtype)):
            if (mine or "global") != (other or "global"):
                raise LoweringError(f"MatchBuffer {view.name} {what} mismatch: {mine} vs. {other}")
        if B.is_zero(view.elem_offset) and not B.is_zero(buffer.elem_offset):
            raise LoweringError(
                "Trying to bind a Buffer with offset into one without offset  required "
                f"elem_offset={view.elem_offset}, provided elem_offset={buffer.elem_offset}"
            )

    def _offset(self, view: Buffer, source: BufferRegion) -> None:
        offsets = source.buffer.offset_of([r.min for r in source.region])
        if len(offsets) != 1:
            # One number cannot place a view in memory of several dimensions.
            self._set(view.elem_offset, B.const(view.elem_offset.dtype, 0), f"{view.name}.elem_offset")
            return
        self._set(view.elem_offset, offsets[0], f"{view.name}.elem_offset")
        factor = B.const(view.elem_offset.dtype, view.offset_factor)
        if view.offset_factor > 1:
            rest = B.truncmod(self.visit(view.elem_offset), factor)
            if not self.analyzer.can_prove_equal(rest, B.const(rest.dtype, 0)):
                raise LoweringError(
                    f"The source elem_offset {offsets[0]} does not satisfy the offset_factor {view.offset_factor}."
                )

    def _set(self, mine: PrimExpr, value: PrimExpr, name: str) -> None:
        """Bind a variable of a view; anything else, and a variable bound before, must equal the value."""
        value = self.visit(value)
        if not isinstance(mine, Var) or mine in self.constants:
            bound = mine
        elif mine in self.values:
            bound = self.values[mine]
        else:
            self.values[mine] = value if mine.dtype == "handle" else B.cast(mine.dtype, value)
            return
        if bound is not value and not self.analyzer.can_prove_equal(bound, B.cast(bound.dtype, value)):
            raise LoweringError(f"The buffer match constraint for {name} unmet: {bound}=={value}.")

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        source = self.views.get(load.buffer)
        if source is None:
            return self.default_visit(load)
        return BufferLoad(source.buffer, _shift(source, self.visit(load.indices)), self.visit(load.predicate))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        source = self.views.get(store.buffer)
        if source is None:
            return self.default_visit(store)
        indices = _shift(source, self.visit(store.indices))
        return BufferStore(source.buffer, self.visit(store.value), indices, self.visit(store.predicate))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
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


def _shift(source: BufferRegion, indices: Sequence[PrimExpr]) -> list[Any]:
    lead = len(source.region) - len(indices)
    out = [r.min for r in source.region[:lead]]
    for r, index in zip(source.region[lead:], indices):
        out.append(r.min + index)
    return out


def _compose(source: BufferRegion, inner: BufferRegion) -> list[Any]:
    lead = len(source.region) - len(inner.region)
    out = list(source.region[:lead])
    for r, x in zip(source.region[lead:], inner.region):
        out.append(Range.from_min_extent(r.min + x.min, x.extent))
    return out


def lower(func: PrimFunc) -> PrimFunc:
    """Replace all views in a function."""
    lowering = _MatchBufferLowerer(p for p in func.params if p.dtype != "handle")
    body = lowering.visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerMatchBuffer(FunctionRewrite):
    """Remove ``match_buffer`` of blocks."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower(func)
