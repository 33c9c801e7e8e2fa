"""Unrolling on the way to a CPU: loops to be written out are marked, and code generation writes them out.

Code generation binds a loop variable to each of its values, which is much cheaper than copying and simplifying the
body. Two kinds of loops are marked beside those a schedule unrolled itself:

* small loops under ``pragma_auto_unroll_max_step``, as UnrollLoop decides, but never more vector instructions than a
  loop body profits from;
* the loops of a register tile, so that its accumulators (vectors, or tiles of a matrix unit) stay in registers over
  the reduction loop around it.

Before: ``for k: for i in range(4): C[i, 0:16] += A[i, k] * B[k, 0:16]``.
After: ``for k: for i in T.unroll(4): C[i, 0:16] += A[i, k] * B[k, 0:16]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith.build import as_int
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator, all_nodes, pre_order_visit
from ....ir.prim import Call, IntImm, StringImm, Var
from ....ir.structural import same_expression
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...expr import BufferLoad
from ...limits import MAX_UNROLLED
from ...stmt import BufferStore, Evaluate, For, ForKind, Stmt, unnest
from ..base import LoweringError
from .unroll_loop import _Unroll

__all__ = ["mark_unrolled"]

# Vector instructions in one loop body: beyond that, unrolling costs compile time and instruction cache for nothing.
_MAX_BODY = 128
# Of eight matrix tiles, those that can hold results.
_RESULT_TILES = 4


def mark_unrolled(stmt: Stmt, settings: dict[str, Any], vector_bits: int = 512) -> Stmt:
    """Mark loops as unrolled; see the module."""
    marked = _Mark(settings, vector_bits).visit(stmt)
    return _RegisterTiles(vector_bits).visit(marked)


def _vectors(store: BufferStore, vector_bits: int) -> int:
    """Native vectors that one store writes."""
    dtype = store.value.dtype
    return max(1, dt.lanes(dtype) * dt.bits(dt.element_of(dtype)) // vector_bits)


class _Mark(_Unroll):
    """UnrollLoop's decisions, carried out as marks."""

    def __init__(self, settings: dict[str, Any], vector_bits: int) -> None:
        super().__init__(settings)
        self.vector_bits = vector_bits

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        self.steps += _vectors(stmt, self.vector_bits)
        return stmt

    def visit_For(self, loop: For) -> Stmt:
        body = self.visit(loop.body)
        if body is not loop.body:
            loop = loop.with_fields(body=body)
        extent = self._extent(loop)
        if loop.kind == ForKind.UNROLLED and extent < 0:
            raise LoweringError(f"Cannot unroll non-constant loop {loop.loop_var.name}")
        small = self.steps * extent <= min(self.max_step, _MAX_BODY) or extent <= min(self.max_extent, _MAX_BODY)
        auto = (
            loop.kind == ForKind.SERIAL
            and extent >= 0
            and self.normal_loops == 0
            and self.unroll_depth <= self.max_depth
            and small
            and self.steps * extent <= MAX_UNROLLED
        )
        if extent > 0 and loop.kind in (ForKind.SERIAL, ForKind.UNROLLED):
            self.steps *= extent
        if loop.kind == ForKind.UNROLLED:
            self.unroll_depth += 1
            return loop
        if auto and (self.explicit or extent <= 1):
            self.unroll_depth += 1
            return loop.with_fields(kind=ForKind.UNROLLED)
        self.normal_loops += 1
        return loop


class _RegisterTiles(Mutator):
    """Marks the loops between a reduction loop and the vector update it repeats."""

    def __init__(self, vector_bits: int) -> None:
        self.vector_bits = vector_bits
        self.registers = 32 if vector_bits >= 512 else 16

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_For(self, loop: For) -> Stmt:
        nest, update = unnest(loop)
        if isinstance(update, BufferStore) and self._accumulates(update):
            room = self.registers // _vectors(update, self.vector_bits)
            tile = self._tile(nest, update.indices, room)
        elif (product := _tile_product(update)) is not None:
            tile = self._tile(nest, product.args[1:3], _RESULT_TILES)
        else:
            return self.default_visit(loop)
        if tile is None:
            return loop
        body: Stmt = update
        for position in range(len(nest) - 1, -1, -1):
            marked = position in tile and nest[position].kind == ForKind.SERIAL
            kind = ForKind.UNROLLED if marked else nest[position].kind
            body = nest[position].with_fields(body=body, kind=kind)
        return body

    @staticmethod
    def _accumulates(store: BufferStore) -> bool:
        if dt.lanes(store.value.dtype) == 1:
            return False
        loads = of_kind(all_nodes(store.value), BufferLoad)
        return any(
            load.buffer.data is store.buffer.data
            and all(same_expression(a, b) for a, b in zip(load.indices, store.indices, strict=True))
            for load in loads
        )

    @staticmethod
    def _tile(nest: list[For], place: Sequence[PrimExpr], room: int) -> set[int] | None:
        """Positions of the loops inside the innermost reduction loop that has some, if their tile fits.

        ``place`` are the expressions that say where the update goes.
        """
        used: set[Any] = set()

        def look(item: PrimExpr) -> bool:
            if isinstance(item, Var):
                used.add(item)
            return True

        for index in place:
            pre_order_visit(index, look)
        moving = [loop.loop_var in used and not _is_one(loop.extent) for loop in nest]
        inside = [i for i, moves in enumerate(moving) if moves]
        if not inside:
            return None
        outer = [i for i in range(inside[-1]) if not moving[i] and not _is_one(nest[i].extent)]
        if not outer:
            return None
        tile = set(range(outer[-1] + 1, len(nest)))
        size = 1
        for position in tile:
            extent = nest[position].extent
            if not isinstance(extent, IntImm):
                return None
            size *= extent.value
        return tile if size <= room else None


def _tile_product(stmt: Stmt) -> Call | None:
    """The multiplication of AMX tiles that a statement is; None for others."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    if (
        isinstance(call, Call)
        and call.args
        and isinstance(call.args[0], StringImm)
        and call.args[0].value.startswith("amx.tdp")
    ):
        return call
    return None


def _is_one(extent: PrimExpr) -> bool:
    return as_int(extent) == 1
