"""The softmax of rows whose scores come tile by tile.

For each row a thread keeps the largest score so far and the sum of its exponentials relative to it; when the largest
grows, the sum and the weighted sum of values are scaled down. Exponentials are powers of two: the logarithm of e and the
factor of the scores are one constant, multiplied in the same instruction that subtracts the largest score.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

from contextlib import ExitStack
from math import e, log2

from .... import tir
from ....script.ir_builder import tir as T
from .block import Block, register_loops, float32, local

__all__ = ["OnlineSoftmax"]

_LOWEST = float("-inf")


class OnlineSoftmax:
    """The running maximum and sum of each row that a thread holds: two rows of every 16 of its warp."""

    def __init__(self, block: Block, stack: ExitStack) -> None:
        self.block = block
        self.factor = float32(block.problem.scale * log2(e))
        self.count = 2 * block.tiling.row_tiles
        self.tiles = block.warp_keys // 8
        self.largest = local(stack, "largest", self.count)
        self.total = local(stack, "total", self.count)
        self.shift = local(stack, "shift", self.count)
        self.rescale = local(stack, "rescale", self.count)

    def begin(self) -> None:
        """Initialise the state: no key has been seen."""
        with register_loops(self.count) as (row,):
            T.buffer_store(self.largest, float32(_LOWEST), [row])
            T.buffer_store(self.total, float32(0.0), [row])

    def shift_of(self, largest: tir.PrimExpr) -> tir.PrimExpr:
        """Subtrahend of exponents: the scaled maximum, or 0 for a row without keys, where the maximum is minus
        infinity."""
        return tir.Select(largest == float32(_LOWEST), float32(0.0), largest * self.factor)

    def _at(self, row_tile: tir.PrimExpr, tile: tir.Var, half: tir.Var) -> tir.PrimExpr:
        return (row_tile * self.tiles + tile) * 4 + half * 2

    def update(self, scores: tir.Buffer, sums: tir.Buffer, sum_tiles: int) -> None:
        """Add a tile of scores to the state and turn them into weights, in place; ``sums`` of earlier tiles are rescaled."""
        row_tiles = self.block.tiling.row_tiles
        with register_loops(row_tiles, 2) as (m, half):
            row = m * 2 + half
            # Until the end of this loop, the old maximum is kept where its factor will be.
            T.buffer_store(self.rescale, self.largest[row], [row])
            with register_loops(self.tiles, 2) as (tile, i):
                value = scores[self._at(m, tile, half) + i]
                T.buffer_store(self.largest, tir.max(self.largest[row], value), [row])
            self.block.reduce_quad(tir.max, self.largest, row)
            T.buffer_store(self.shift, self.shift_of(self.largest[row]), [row])
            T.buffer_store(self.rescale, tir.exp2(self.rescale[row] * self.factor - self.shift[row]), [row])
            T.buffer_store(self.total, self.total[row] * self.rescale[row], [row])
        with register_loops(row_tiles, self.tiles, 2, 2) as (m, tile, half, i):
            at, row = self._at(m, tile, half) + i, m * 2 + half
            T.buffer_store(scores, tir.exp2(scores[at] * self.factor - self.shift[row]), [at])
            T.buffer_store(self.total, self.total[row] + scores[at], [row])
        with register_loops(row_tiles, sum_tiles, 2, 2) as (m, tile, half, i):
            at = (m * sum_tiles + tile) * 4 + half * 2 + i
            T.buffer_store(sums, sums[at] * self.rescale[m * 2 + half], [at])

    def end(self) -> None:
        """Add up the totals of the four threads that share a row."""
        with register_loops(self.count) as (row,):
            self.block.reduce_quad(lambda a, b: a + b, self.total, row)
