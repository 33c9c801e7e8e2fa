"""Regions a compute block reads and writes, found from its loads and stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import Range
from ..ir.expr import PrimExpr
from ..ir.functor import Visitor
from ..tir import Buffer, BufferRegion, IntImm, Stmt, const
from ..tir.expr import BufferLoad
from ..tir.stmt import BufferStore

__all__ = ["block_regions"]


class _Collector(Visitor):
    def __init__(self) -> None:
        self.reads: list[tuple[Buffer, list[list[Any]]]] = []
        self.writes: list[tuple[Buffer, list[list[Any]]]] = []

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        _add(self.reads, load.buffer, load.indices)
        for index in load.indices:
            self.visit(index)

    def visit_BufferStore(self, store: BufferStore) -> None:
        _add(self.writes, store.buffer, store.indices)
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)

    def visit_Buffer(self, buffer: Buffer) -> None:
        """Declarations are no accesses."""


def _add(table: list[tuple[Buffer, list[list[Any]]]], buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
    for known, points in table:
        if known is buffer:
            points.append(list(indices))
            return
    table.append((buffer, [list(indices)]))


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    if a is b:
        return True
    from ..ir.structural import same_expression

    return same_expression(a, b)


def _cover(points: list[Any]) -> Range:
    """The smallest range that holds all ``points``."""
    from ..arith import Analyzer

    first = points[0]
    distinct = [first]
    for point in points[1:]:
        if not any(_same(point, known) for known in distinct):
            distinct.append(point)
    one = const(1, str(first.dtype))
    if len(distinct) == 1:
        return Range.from_min_extent(first, one)
    from ..tir import max as tir_max
    from ..tir import min as tir_min

    analyzer = Analyzer()
    low = high = first
    for point in distinct[1:]:
        gap = analyzer.simplify(point - low)
        if isinstance(gap, IntImm):
            low = point if gap.value < 0 else low
        else:
            low = tir_min(low, point)
        gap = analyzer.simplify(point - high)
        if isinstance(gap, IntImm):
            high = point if gap.value > 0 else high
        else:
            high = tir_max(high, point)
    return Range.from_min_extent(analyzer.simplify(low), analyzer.simplify(high + one - low))


def _regions(table: list[tuple[Buffer, list[list[Any]]]]) -> list[BufferRegion]:
    return [
        BufferRegion(buffer, [_cover([p[d] for p in points]) for d in range(len(points[0]))])
        for buffer, points in table
    ]


def block_regions(body: Stmt, init: Stmt | None) -> tuple[list[BufferRegion], list[BufferRegion]]:
    """``(reads, writes)`` of a block; with an ``init``, what it reduces into does not count as read."""
    found = _Collector()
    if init is not None:
        found.visit(init)
    found.visit(body)
    reads = found.reads
    if init is not None:
        written = {id(buffer) for buffer, _ in found.writes}
        reads = [(b, p) for b, p in reads if id(b) not in written]
    return _regions(reads), _regions(found.writes)
