"""Simplify block bodies knowing the ranges of their iterators; inlining leaves indices like ``(k // 64 + i) % 128``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator
from ...ir.prim import IntImm
from ...tir import Block, BufferLoad, BufferRegion, BufferStore, PrimFunc
from ...tir.stmt import Stmt


class _SimplifyBlocks(Mutator):
    _table = {}

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def visit_Block(self, block: Block) -> Block:
        for iter_var in block.iter_vars:
            if iter_var.dom is not None:
                self.analyzer.bind(iter_var.var, iter_var.dom, allow_override=True)
        return self.default_visit(block)

    def _indices(self, indices: Sequence[PrimExpr]) -> tuple[Any, ...]:
        return tuple(
            index if isinstance(index, IntImm) else self.analyzer.simplify(self.visit(index)) for index in indices
        )

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return BufferLoad(load.buffer, self._indices(load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return BufferStore(store.buffer, self.visit(store.value), self._indices(store.indices))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        simple = self.analyzer.simplify
        return BufferRegion(
            region.buffer, [Range.from_min_extent(simple(r.min), simple(r.extent)) for r in region.region]
        )


def simplify_blocks(func: PrimFunc) -> PrimFunc:
    """``func`` with every index inside its blocks in simplest form."""
    return func.with_body(_SimplifyBlocks().visit(func.body))
