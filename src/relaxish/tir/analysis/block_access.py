"""Buffer regions that a block reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...arith.build import as_int
from ...ir.op import op_name_of
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Visitor
from ...arith.functor import free_vars
from ...arith.int_set import IntervalSet
from ...ir.prim import Call, Let, Not, Ramp, Var, const, const_int, is_one
from ...ir.primops import max_, min_
from ..buffer import Buffer
from ..expr import BufferLoad
from ..functor import substitute
from ..stmt import Allocate, Block, BlockRealize, BufferRegion, BufferStore, For, IfThenElse, LetStmt, MatchBufferRegion

__all__ = ["get_block_access_region", "get_block_read_write_region"]


class _Detector(Visitor):
    """Collects accesses in order of first occurrence; loops inside the block are relaxed."""

    def __init__(self, buffer_var_map: Mapping[Any, Any], only_known: bool = True) -> None:
        from ...arith import Analyzer

        self.by_var = dict(buffer_var_map)
        self.only_known = only_known
        self.loops: dict[Any, Any] = {}
        self.lets: dict[Any, Any] = {}
        self.matches: dict[Any, Any] = {}
        self.reads: dict[Any, Any] = {}
        self.writes: dict[Any, Any] = {}
        self.opaques: dict[Any, Any] = {}
        self.analyzer = Analyzer()

    def _touch(self, table: dict[Any, Any], buffer: Buffer, region: list[Range]) -> None:
        from ..schedule.region import evaluate_region, union_sets

        if self.only_known and buffer.data not in self.by_var:
            return
        match = self.matches.get(buffer)
        if match is not None:
            buffer, region = match.source.buffer, _through_match(match, region)
        if self.lets:
            region = [
                Range.from_min_extent(substitute(r.min, self.lets), substitute(r.extent, self.lets)) for r in region
            ]
        if self._is_point(region):
            box: Any = [(r.min, r.min) for r in region]  # one access, no loop: the indices stay as they are written
        else:
            box = evaluate_region(region, self.loops, const(True, "bool"), self.analyzer)
        known = table.get(buffer)
        table[buffer] = box if known is None else union_sets(known, box, self.analyzer)

    def _is_point(self, region: list[Range]) -> bool:
        if any(not is_one(r.extent) for r in region):
            return False
        return not self.loops or not any(v in self.loops for r in region for v in free_vars(r.min))

    def visit_For(self, node: For) -> None:
        self.loops[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        self.default_visit(node)
        self.loops.pop(node.loop_var, None)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        with self._assuming(node.condition):
            self.visit(node.then_case)
        if node.else_case is not None:
            with self._assuming(Not(node.condition)):
                self.visit(node.else_case)

    @contextmanager
    def _assuming(self, condition: PrimExpr) -> Iterator[None]:
        """Loops run only as far as a condition around the accesses lets them."""
        from ..transform.simplify.condition_bounds import solve_condition

        saved = dict(self.loops)
        if any(v in self.loops for v in free_vars(condition)):
            domains = {v: IntervalSet(r.min, r.min + r.extent - 1) for v, r in self.loops.items()}
            for var, bound in (solve_condition(condition, domains, {}) or {}).items():
                if var in self.loops:
                    self.loops[var] = self._overlap(self.loops[var], bound)
        try:
            yield
        finally:
            self.loops = saved

    def _overlap(self, a: Range, b: Range) -> Range:
        low = self.analyzer.simplify(max_(a.min, b.min))
        high = self.analyzer.simplify(min_(a.min + a.extent, b.min + b.extent))
        return Range.from_min_extent(low, self.analyzer.simplify(high - low))

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.visit(node.value)
        self.lets[node.var] = substitute(node.value, self.lets)
        self.visit(node.body)
        del self.lets[node.var]

    visit_Let = visit_LetStmt

    def visit_Var(self, node: Var) -> None:
        buffer = self.by_var.get(node)
        if buffer is not None:
            full = [Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape]
            self._touch(self.opaques, buffer, full)

    def visit_Allocate(self, node: Allocate) -> None:
        self.default_visit(node)
        for table in (self.reads, self.writes, self.opaques):  # nobody outside knows this memory
            for buffer in [b for b in table if b.data is node.buffer_var]:
                del table[buffer]

    def visit_Buffer(self, node: Buffer) -> None:
        pass

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._touch(self.reads, node.buffer, [_point(i) for i in node.indices])
        self.visit(node.indices)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._touch(self.writes, node.buffer, [_point(i) for i in node.indices])
        self.visit(node.value)
        self.visit(node.indices)

    def visit_Call(self, node: Call) -> None:
        name = op_name_of(node)
        if name == "tir.tvm_access_ptr":
            data = node.args[1]
            buffer = self.by_var.get(data)
            if buffer is not None:
                mask = const_int(node.args[4], 3) & 3
                full = [Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape]
                table = {1: self.reads, 2: self.writes, 3: self.opaques}.get(mask)
                if table is not None:
                    self._touch(table, buffer, full)
            return
        if name == "tir.if_then_else":
            condition, then, other = node.args
            self.visit(condition)
            with self._assuming(condition):
                self.visit(then)
            with self._assuming(Not(condition)):
                self.visit(other)
            return
        self.default_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        block = node.block
        values = {iv.var: v for iv, v in zip(block.iter_vars, node.iter_values, strict=True)}
        for table, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for item in regions:
                bound = [
                    Range.from_min_extent(substitute(r.min, values), substitute(r.extent, values)) for r in item.region
                ]
                self._touch(table, item.buffer, bound)

    def run(self, block: Block) -> None:
        """Collect the accesses of a block's own body."""
        for match in block.match_buffers:
            if match.source.buffer.data in self.by_var or not self.only_known:
                self.by_var[match.buffer.data] = match.buffer
                self.matches[match.buffer] = match
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)

    def regions(self, table: Mapping[Any, Any]) -> list[BufferRegion]:
        """The boxes as regions, clipped to the buffers where they are more than a point."""
        out = []
        for buffer, box in table.items():
            dims = []
            for (low, high), extent in zip(box, buffer.shape, strict=True):
                dims.append(self._range(low, high, extent))
            out.append(BufferRegion(buffer, tuple(dims)))
        return out

    def _range(self, low: PrimExpr, high: PrimExpr, extent: PrimExpr) -> Range:
        if low is high:
            return Range.from_min_extent(low, const(1, low.dtype))
        if "inf" in str(type(low).__name__).lower() or _infinite(low) or _infinite(high):
            return Range.from_min_extent(const(0, extent.dtype), extent)
        size = self.analyzer.simplify(high - low + 1)
        if as_int(size) == 1:
            return Range.from_min_extent(low, const(1, low.dtype))
        return Range.from_min_extent(self.analyzer.simplify(low), size)


def _infinite(expr: PrimExpr) -> bool:
    return isinstance(expr, Var) and expr.name in ("pos_inf", "neg_inf")


def _point(index: PrimExpr) -> Range:
    if isinstance(index, Ramp) and const_int(index.stride, 0) > 0:
        lanes = index.lanes
        return Range.from_min_extent(index.base, (lanes - 1) * index.stride + 1)
    return Range.from_min_extent(index, const(1, index.dtype))


def _through_match(match: MatchBufferRegion, region: list[Range]) -> list[Range]:
    """A region of a matched view as a region of the buffer it views."""
    source = match.source.region
    offset = len(source) - len(region)
    out = [Range.from_min_extent(r.min, r.extent) for r in source[:offset]]
    for have, want in zip(source[offset:], region, strict=True):
        out.append(Range.from_min_extent(have.min + want.min, want.extent))
    return out


def get_block_access_region(block: Block, buffer_var_map: Mapping[Any, Any]) -> list[list[BufferRegion]]:
    """[reads, writes, opaque accesses] of a block's body, in order of occurrence.

    ``buffer_var_map`` maps pointer variables to the buffers they belong to: accesses of other buffers do not count,
    and uses of bare pointers are opaque accesses of the whole buffer.
    """
    detector = _Detector(buffer_var_map)
    detector.run(block)
    if block.init is not None:
        # What a reduction reads of its own result is the init's value, not an input of the block.
        for buffer in detector.writes:
            detector.reads.pop(buffer, None)
    return [detector.regions(t) for t in (detector.reads, detector.writes, detector.opaques)]


def get_block_read_write_region(block: Block, buffer_var_map: Mapping[Any, Any]) -> list[list[BufferRegion]]:
    """[reads, writes] of a block, opaque accesses counted as both."""
    return _read_write(block, _Detector(buffer_var_map))


def find_read_write_region(block: Block, buffer_var_map: Mapping[Any, Any]) -> list[list[BufferRegion]]:
    """As :func:`get_block_read_write_region`, with the accesses of all buffers; the map serves bare pointers."""
    return _read_write(block, _Detector(buffer_var_map, only_known=False))


def _read_write(block: Block, detector: _Detector) -> list[list[BufferRegion]]:
    detector.run(block)
    reads, writes = detector.regions(detector.reads), detector.regions(detector.writes)
    for region in detector.regions(detector.opaques):
        reads.append(region)
        writes.append(region)
    return [reads, writes]
