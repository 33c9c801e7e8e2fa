"""Tiles products for Hopper: whole tiles that warpgroups multiply, fed by bulk copies (see ``tir.transform.lower_hopper``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...carver import HopperCosts, costs_of
from ...dlight.base import ILLEGAL, int_of
from ...dlight.gpu.matmul_hopper import HopperConfig, normalize_product, schedule_tiles, stage_tiles
from ...ir import dtype as dt
from ...tir import Schedule
from ...tir.schedule import BlockRV, LoopRV
from ...tir.schedule.rv import ExprRV
from ...tir.stmt import For
from ...tir.transform.hopper.tiles import (
    CLUSTER,
    CLUSTER_COLUMNS,
    EPILOGUE,
    GEMM,
    GROUP,
    PERSISTENT,
    SPLIT,
    STAGES,
    HopperError,
)
from ...tir.transform.hopper.lower import lower_tiles
from ..analysis import blocks as ba
from .schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["MultiLevelTilingHopper"]

# What tiles are multiples of: rows of an instruction, columns, bytes of the depth; and the most of each in a tile.
_ROWS, _COLUMNS, _DEPTH_BYTES = 64, 32, 64
_MOST_ROWS, _MOST_COLUMNS, _MOST_DEPTH = 4, 8, 4
_TYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")


class MultiLevelTilingHopper(ScheduleRule):
    """A sketch of whole tiles for each product that warpgroups can compute.

    Sampled: how many times 64 rows, 32 columns and 64 bytes of the depth a tile has, how many stages the ring of tiles
    has, how many warpgroups share the rows, in bands of how many rows of tiles blocks walk over the result, how many
    blocks stay for all tiles, how many of them fetch shared columns and shared rows together, or share the depth of one
    tile, and whether results leave through shared memory. Sides are padded to whole instructions. Tiles of any number of
    instructions may be drawn, 160 or 192 columns of 4096, too: the last tile of a side then runs over its end. Blocks
    that are no such product, and targets other than sm_90a, are left alone.

    ``persistent`` is None for what the target's processors can take of clusters of any size.
    """

    def __init__(
        self,
        stages: Sequence[int] = (3, 4, 5, 6, 8),
        warpgroups: Sequence[int] = (1, 2, 3),
        bands: Sequence[int] = (1, 4, 8, 12, 16),
        persistent: Sequence[int] | None = None,
        clusters: Sequence[int] = (1, 2, 4),
        cluster_columns: Sequence[int] = (1, 2, 4),
        splits: Sequence[int] = (1, 2, 4, 8),
        epilogues: Sequence[int] = (0, 1),
    ) -> None:
        self.persistent = None if persistent is None else list(persistent)
        self.splits = list(splits)
        self.stages = list(stages)
        self.choices = {
            GEMM: list(warpgroups), GROUP: list(bands), CLUSTER: list(clusters), CLUSTER_COLUMNS: list(cluster_columns),
            EPILOGUE: list(epilogues),
        }  # fmt: skip
        self._active = True
        self._costs = HopperCosts()

    def _initialize_with_tune_context(self, context: Task) -> None:
        target = context.target
        self._active = target is not None and str(target.attrs.get("arch", "")) == "sm_90a"
        self._costs = costs_of(target)

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        place = ba.enclosing(sch, sch.get(block))[1]
        if not self._active or place.scope is None or not ba.needs_multi_level_tiling(place):
            return [sch]
        made = self._sketch(sch, block)
        # The original stays, so that later rules can try the instructions of single warps.
        return [sch] if made is None else [made, sch]

    def _sketch(self, sch: Schedule, block: BlockRV) -> Schedule | None:
        if any(region.buffer.dtype not in _TYPES for region in sch.get(block).reads):
            return None
        made = sch.copy()
        try:
            if not normalize_product(made, block) or not self._lowers(made, block):
                return None
            self._tile(made, block)
        except ILLEGAL:
            return None
        return made

    @staticmethod
    def _lowers(sch: Schedule, block: BlockRV) -> bool:
        """Whether the smallest tile fits the hardware; larger ones are a matter of decisions."""
        attempt = sch.copy()
        try:
            schedule_tiles(attempt, block, HopperConfig(_ROWS, _COLUMNS, _DEPTH_BYTES, stages=2, warpgroups=1))
            for func in attempt.mod.functions.values():
                lower_tiles(func)
        except (*ILLEGAL, HopperError):
            return False
        return True

    def _tile(self, sch: Schedule, block: BlockRV) -> None:
        item = dt.bits(sch.get(block).reads[-1].buffer.dtype) // 8
        depth = _DEPTH_BYTES // item
        sch.annotate(block, ba.TILING_KEY, "SSRSSR")
        sch.pad_einsum(block, [1, _ROWS, _COLUMNS, depth])
        batch, i, j, k = sch.get_loops(block)
        # The ring counts steps at run time, but who takes which is settled before.
        splits = self.splits if int_of(sch.get(k).extent) is not None else [1]
        i0, *inner = self._side(sch, i, _ROWS, _MOST_ROWS)
        j0, *others = self._side(sch, j, _COLUMNS, _MOST_COLUMNS)
        steps, one = sch.split(k, [None, depth])
        k0, k1 = sch.split(steps, sch.sample_perfect_tile(steps, n=2, max_innermost_factor=_MOST_DEPTH))
        sch.reorder(batch, i0, j0, k0, *inner, *others, k1, one)
        stage_tiles(sch, block, (batch, i0, j0, k0))
        sch.annotate(k0, STAGES, self._choice(sch, self.stages))
        blocks = self.persistent
        if blocks is None:
            blocks = [*sorted({self._costs.concurrent(team) for team in (1, 4, 8)}, reverse=True), 0]
        for key, values in {**self.choices, PERSISTENT: blocks, SPLIT: splits}.items():
            sch.annotate(block, key, self._choice(sch, values))

    def _side(self, sch: Schedule, loop: For, unit: int, most: int) -> list[LoopRV]:
        """A side of the result as tiles of up to ``most`` units, where it has so many."""
        extent = int_of(sch.get(loop).extent)
        if extent is not None:
            most = min(most, extent // unit)
        return sch.split(loop, [None, self._choice(sch, list(range(1, most + 1))), unit])

    @staticmethod
    def _choice(sch: Schedule, values: list[int]) -> ExprRV:
        return sch.sample_categorical(candidates=values, probs=[1.0 / len(values)] * len(values))
