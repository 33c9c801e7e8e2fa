"""Tiles products for Hopper: whole tiles that warpgroups multiply, fed by bulk copies (see ``tir.transform.lower_hopper``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dlight.base import ILLEGAL, int_of
from ...dlight.gpu.matmul_hopper import HopperConfig, normalize_product, schedule_tiles, stage_tiles
from ...ir import dtype as dt
from ...tir import Schedule
from ...tir.schedule import BlockRV
from ...tir.transform.hopper_tiles import CLUSTER, GEMM, SPLIT, STAGES, HopperError
from ...tir.transform.lower_hopper import lower_tiles
from .. import block_analysis as ba
from .schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from ..tune_context import TuneContext

__all__ = ["MultiLevelTilingHopper"]

# What tiles are multiples of: rows of an instruction, columns, bytes of the depth.
_ROWS, _COLUMNS, _DEPTH_BYTES = 64, 32, 64
_TYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")


class MultiLevelTilingHopper(ScheduleRule):
    """A sketch of whole tiles for each product that warpgroups can compute.

    Sampled: how many times 64 rows, 32 columns and 64 bytes of the depth a tile has, how many stages the ring of tiles
    has, how many warpgroups share the rows, in bands of how many rows of tiles blocks walk over the result, and
    whether blocks stay for several tiles and fetch shared columns in pairs, or how many blocks share the depth of one
    tile. Sizes are padded to whole instructions; the
    divisors of what results are the choices. Blocks that are no such product, and targets other than sm_90a, are left
    alone.
    """

    def __init__(
        self,
        stages: Sequence[int] = (3, 4, 5, 6, 8),
        warpgroups: Sequence[int] = (1, 2),
        bands: Sequence[int] = (1, 8, 16),
        persistent: Sequence[int] = (132, 0),
        clusters: Sequence[int] = (1, 2),
        splits: Sequence[int] = (1, 2, 4, 8),
    ) -> None:
        self.stages = list(stages)
        self.warpgroups = list(warpgroups)
        self.bands = list(bands)
        self.persistent = list(persistent)
        self.clusters = list(clusters)
        self.splits = list(splits)
        self._active = True

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        target = context.target
        self._active = target is not None and str(target.attrs.get("arch", "")) == "sm_90a"

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
        batch, *axes = sch.get_loops(block)
        # The ring counts steps at run time, but who takes which is settled before.
        splits = self.splits if int_of(sch.get(axes[2]).extent) is not None else [1]
        outer, inner = [], []
        for loop, unit, most in zip(axes, (_ROWS, _COLUMNS, depth), (4, 8, 4), strict=True):
            tiles, one = sch.split(loop, [None, unit])
            first, rest = sch.split(tiles, sch.sample_perfect_tile(tiles, n=2, max_innermost_factor=most))
            outer.append(first)
            inner += [rest, one]
        sch.reorder(batch, *outer, *inner)
        stage_tiles(sch, block, (batch, outer[0], outer[1], outer[2]))
        sch.annotate(outer[2], STAGES, self._choice(sch, self.stages))
        for key, values in ((GEMM, self.warpgroups), ("hopper.group", self.bands), ("hopper.persistent", self.persistent),
                            (CLUSTER, self.clusters), (SPLIT, splits)):  # fmt: skip
            sch.annotate(block, key, self._choice(sch, values))

    @staticmethod
    def _choice(sch: Schedule, values: list[int]) -> Any:
        return sch.sample_categorical(candidates=values, probs=[1.0 / len(values)] * len(values))
