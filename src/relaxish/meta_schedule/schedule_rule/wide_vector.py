"""Multi-level tiling for machines with very wide vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir import dtype as dt
from ...tir import Schedule
from ...tir.schedule import BlockRV, LoopRV
from ..analysis import blocks as ba
from .multi_level_tiling import MultiLevelTiling, ReuseType, TilingState

__all__ = ["MultiLevelTilingWideVector"]


class MultiLevelTilingWideVector(MultiLevelTiling):
    """Multi-level tiling whose innermost tile of the contiguous axis is always one whole vector.

    Along the last axis of the result the innermost factor is ``vector_length_in_bits`` divided by the bits of an element
    instead of a sampled one.
    """

    def __init__(
        self,
        structure: str,
        vector_length_in_bits: int,
        max_innermost_factor: int | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(structure, None, max_innermost_factor, None, reuse_read, reuse_write)
        self.vector_length_in_bits = vector_length_in_bits

    def split_loop(self, state: TilingState, loop: LoopRV, n: int, position: int) -> tuple[list[Any], list[LoopRV]]:
        sch = state.sch
        if not self._is_innermost(sch, state.block, loop):
            return super().split_loop(state, loop, n, position)
        lanes = self.vector_length_in_bits // dt.bits(sch.get(state.block).writes[0].buffer.dtype)
        extent = ba.int_extent(sch.get(loop))
        if extent is None or extent <= lanes:
            sizes = [*[1] * (n - 1), sch.get(loop).extent]
            return sizes, sch.split(loop, factors=sizes)
        outer, inner = sch.split(loop, factors=[None, lanes])
        limit = -1 if self.max_innermost_factor is None else self.max_innermost_factor
        factors = sch.sample_perfect_tile(outer, n=n - 1, max_innermost_factor=limit)
        return [*factors, lanes], [*sch.split(outer, factors=list(factors)), inner]

    @staticmethod
    def _is_innermost(sch: Schedule, block: BlockRV, loop: LoopRV) -> bool:
        """Whether the loop walks along the last dimension of the block's result."""
        place = ba.enclosing(sch, sch.get(block))[1]
        last = len(place.realize.block.writes[0].region) - 1
        return bool(place.realize.iter_values[last] is sch.get(loop).loop_var)
