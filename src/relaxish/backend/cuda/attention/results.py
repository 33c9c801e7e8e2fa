"""The end of a block: sums divided by totals, put together from its warps, and written in whole rows.

Results pass through shared memory, where operands no longer are: threads hold pieces of rows, memory wants long ones.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from .... import tir
from ....ir.expr import ExprLike
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from .block import Block, float32, only_if, pairs, register_loops, sync_threads, vector_width
from .copies import distribute_tile, wait_for_copies
from .softmax import OnlineSoftmax
from .tiling import padded

__all__ = ["Partial", "Results"]


@dataclass
class Partial:
    """The float32 outputs of a block that has seen only a part of the keys: ``[part, batch, kv head, row]``."""

    sums: Any
    logarithms: Any


def _ramp(at: tir.PrimExpr, lanes: int) -> tir.PrimExpr:
    return at if lanes == 1 else tir.Ramp(at, tir.const(1, at.dtype), lanes)


class Results:
    """Writes what a block has computed: to ``out`` from element ``start`` on, or to ``partial`` if other blocks have the
    other keys.
    """

    def __init__(
        self,
        block: Block,
        softmax: OnlineSoftmax,
        sums: tir.Buffer,
        out: tir.Buffer | None,
        partial: Partial | None,
        start: ExprLike,
    ) -> None:
        self.block, self.softmax, self.sums = block, softmax, sums
        self.out, self.partial, self.start = out, partial, start
        self.tiles = padded(block.problem.value_size) // 8

    def write(self) -> None:
        """Divide the sums by the totals of their rows and write them."""
        self.softmax.end()
        wait_for_copies(0)
        sync_threads()
        if self.block.tiling.key_warps == 1 and self.partial is None:
            self._pass_through()
        else:
            with ExitStack() as stack:
                self._add_up(stack)

    def _inverse(self, total: tir.PrimExpr) -> tir.PrimExpr:
        """The reciprocal of a row's total. A part, a sequence or a mask may leave a row no keys: its result is zero."""
        inverse = float32(1.0) / total
        if self.partial is None and self.block.problem.starts is None and self.block.problem.bias is None:
            return inverse
        return tir.Select(total == float32(0.0), float32(0.0), inverse)

    # -- each warp has whole rows ---------------------------------------------------------------------------

    def _pass_through(self) -> None:
        block, problem = self.block, self.block.problem
        pitch = block.tiling.pitch(problem.value_size)
        softmax = self.softmax
        with register_loops(softmax.count) as (row,):
            T.buffer_store(softmax.rescale, self._inverse(softmax.total[row]), [row])
        with register_loops(block.tiling.row_tiles, self.tiles, 2) as (m, tile, half):
            at = (m * self.tiles + tile) * 4 + half * 2
            place = block.own_row(m, half) * pitch + tile * 8 + block.quad * 2
            scaled = self.sums[pairs(at)] * tir.Broadcast(softmax.rescale[m * 2 + half], 2)
            T.buffer_store(block.shared, tir.Cast(f"{problem.dtype}x2", scaled), [pairs(place)])
        sync_threads()
        width = self._width()

        def piece(row: tir.PrimExpr, column: tir.PrimExpr) -> None:
            assert self.out is not None  # there are no parts
            with only_if(self._inside(row, column)):
                value = block.shared[_ramp(row * pitch + column, width)]
                T.buffer_store(self.out, value, [_ramp(self._place(row) + column, width)])

        distribute_tile(block, block.tiling.rows, padded(problem.value_size), width, piece)

    def _width(self) -> int:
        out = self.block.problem.out
        return vector_width(self.block.problem.value_size, out.batch, out.row, out.head, out.offset)

    def _inside(self, row: tir.PrimExpr, column: tir.PrimExpr) -> tir.PrimExpr:
        problem = self.block.problem
        inside = self.block.first_row + row < self.block.rows
        return (
            inside if padded(problem.value_size) == problem.value_size else tir.all(inside, column < problem.value_size)
        )

    def _place(self, row: tir.PrimExpr) -> tir.PrimExpr:
        block, out = self.block, self.block.problem.out
        query, head = block.position(block.first_row + row)
        base = block.batch * out.batch + block.kv_head * block.problem.group * out.head + out.offset + self.start
        return base + query * out.row + head * out.head

    # -- warps, and perhaps blocks, have shares of the keys ----------------------------------------------------

    def _add_up(self, stack: ExitStack) -> None:
        block, softmax, tiling = self.block, self.softmax, self.block.tiling
        rows, key_warps = tiling.rows, tiling.key_warps
        pitch = tiling.result_pitch(block.problem)
        wide = stack.enter_context(
            T.decl_buffer(
                (tiling.shared_elements(block.problem) // 2,), "float32", data=block.shared.data, scope="shared.dyn"
            )
        )
        IRBuilder.name("wide", wide)
        totals, sums = key_warps * rows, 2 * key_warps * rows
        with register_loops(tiling.row_tiles, 2) as (m, half), only_if(block.quad == 0):
            place = block.key_warp * rows + block.own_row(m, half)
            T.buffer_store(wide, softmax.largest[m * 2 + half], [place])
            T.buffer_store(wide, softmax.total[m * 2 + half], [totals + place])
        sync_threads()
        with register_loops(tiling.row_tiles, 2) as (m, half):
            self._weigh(wide, totals, m * 2 + half, block.own_row(m, half))
        with register_loops(tiling.row_tiles, self.tiles, 2) as (m, tile, half):
            at = (m * self.tiles + tile) * 4 + half * 2
            row = block.key_warp * rows + block.own_row(m, half)
            scaled = self.sums[pairs(at)] * tir.Broadcast(softmax.rescale[m * 2 + half], 2)
            T.buffer_store(wide, scaled, [pairs(sums + row * pitch + tile * 8 + block.quad * 2)])
        sync_threads()
        self._sum_of_warps(wide, sums, pitch)

    def _weigh(self, wide: tir.Buffer, totals: int, index: tir.PrimExpr, row: tir.PrimExpr) -> None:
        """The factor of this warp's sums of one row: what the whole row's largest score and total make of them."""
        softmax, key_warps, rows = self.softmax, self.block.tiling.key_warps, self.block.tiling.rows
        largest, total, shift, rescale = softmax.largest, softmax.total, softmax.shift, softmax.rescale
        # This warp's own largest score stays in `rescale` until it becomes its factor.
        T.buffer_store(rescale, largest[index], [index])
        with register_loops(key_warps) as (other,):
            T.buffer_store(largest, tir.max(largest[index], wide[other * rows + row]), [index])
        T.buffer_store(shift, softmax.shift_of(largest[index]), [index])
        T.buffer_store(total, float32(0.0), [index])
        with register_loops(key_warps) as (other,):
            weight = tir.exp2(wide[other * rows + row] * softmax.factor - shift[index])
            T.buffer_store(total, total[index] + wide[totals + other * rows + row] * weight, [index])
        T.buffer_store(
            rescale, tir.exp2(rescale[index] * softmax.factor - shift[index]) * self._inverse(total[index]), [index]
        )
        if self.partial is not None:
            first = tir.all(
                self.block.key_warp == 0, self.block.quad == 0, self.block.first_row + row < self.block.rows
            )
            with only_if(first):
                logarithm = largest[index] * softmax.factor + tir.log2(total[index])
                T.buffer_store(self.partial.logarithms, logarithm, [self._partial_row(row)])

    def _partial_row(self, row: tir.PrimExpr) -> tir.PrimExpr:
        """The number of a row among those of all parts, batches and heads."""
        block, problem = self.block, self.block.problem
        of_head = (block.part * problem.batch + block.batch) * problem.kv_heads + block.kv_head
        return of_head * problem.rows + block.first_row + row

    def _sum_of_warps(self, wide: tir.Buffer, sums: int, pitch: int) -> None:
        block, problem = self.block, self.block.problem
        width = vector_width(problem.value_size, 4) if self.partial is not None else min(4, self._width())

        def piece(row: tir.PrimExpr, column: tir.PrimExpr) -> None:
            with only_if(self._inside(row, column)):
                value: Any = None
                for warp in range(block.tiling.key_warps):
                    share = wide[_ramp(sums + (warp * block.tiling.rows + row) * pitch + column, width)]
                    value = share if value is None else value + share
                if self.partial is not None:
                    place = self._partial_row(row) * problem.value_size + column
                    T.buffer_store(self.partial.sums, value, [_ramp(place, width)])
                elif self.out is not None:
                    kind = problem.dtype if width == 1 else f"{problem.dtype}x{width}"
                    T.buffer_store(self.out, tir.Cast(kind, value), [_ramp(self._place(row) + column, width)])

        distribute_tile(block, block.tiling.rows, padded(problem.value_size), width, piece)
