"""Matrix products on Hopper's tensor cores: whole tiles, which :mod:`relaxish.tir.transform.hopper.lower` distributes.

The schedule says no more than what a tile is, what its operands are made of and what becomes of its result; who
fetches, who multiplies and with which instructions is the lowering's business.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...carver import recommend
from ...carver.matmul_analysis import normalize_product
from ...carver.products import Product, hopper_config
from ...carver.warpgroups import HopperConfig
from ...ir import dtype as dt
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ...tir.transform.hopper.tiles import STAGES, TILES, HopperError
from ...tir.transform.hopper.lower import bulk_operands, lower_tiles
from ..analysis import extent_of, get_max_threads_per_block, get_root_block
from ..base import ILLEGAL, int_of
from .common import GPUScheduleRule, bind_plainly
from .matmul_analysis import auto_inline_consumer_chain, auto_inline_producers, get_single_reduction

__all__ = ["HopperConfig", "MatmulHopper", "normalize_product", "schedule_tiles", "stage_tiles"]

# Products with a side this short are bound by memory and leave tensor cores idle.
_SHORTEST_SIDE = 16
_ALL = 1 << 10


def schedule_tiles(sch: Schedule, main: BlockRV, config: HopperConfig) -> None:
    """Schedule a normalised product (batch, row, column, depth) by tiles. Raises ScheduleError."""
    item = dt.bits(sch.get(main).reads[-1].buffer.dtype) // 8
    depth = config.depth_bytes // item
    sch.pad_einsum(main, [1, config.rows, config.columns, depth])
    batch, i, j, k = sch.get_loops(main)
    (i0, i1), (j0, j1), (k0, k1) = (
        sch.split(loop, [None, size]) for loop, size in ((i, config.rows), (j, config.columns), (k, depth))
    )
    sch.reorder(batch, i0, j0, k0, i1, j1, k1)
    stage_tiles(sch, main, (batch, i0, j0, k0))
    sch.annotate(k0, STAGES, config.stages)
    for key, value in config.options().items():
        sch.annotate(main, key, value)


def stage_tiles(sch: Schedule, main: BlockRV, loops: tuple[Any, Any, Any, Any]) -> None:
    """Bind the loops over tiles (batch, row, column) and bring operands and result to their places around a tile."""
    batch, i0, j0, k0 = loops
    for loop, tag in ((batch, "blockIdx.z"), (i0, "blockIdx.x"), (j0, "blockIdx.y")):
        sch.bind(loop, tag)
    sch.annotate(j0, TILES, 1)
    result = sch.cache_write(main, 0, "local")
    # Consumers first: where the last tile runs over an end they cannot be put into the write-back any more.
    auto_inline_consumer_chain(sch, result)
    sch.reverse_compute_at(result, j0, preserve_unit_loops=True)
    for index in (0, 1):
        copy = sch.cache_read(main, index, "shared.dyn")
        sch.compute_at(copy, k0, preserve_unit_loops=True)
        auto_inline_producers(sch, copy)


def _configs(product: Product, target: Target) -> list[HopperConfig]:
    """All tilings, those that carver expects most of first."""
    return [hopper_config(hint) for hint in recommend(product, target, _ALL)]


class MatmulHopper(GPUScheduleRule):
    """float16, bfloat16, float8 and int8 products by warpgroups, fed by bulk tensor copies.

    Before and after (sm_90a)::

        C[i, j] += A[i, k] * B[j, k]      ->      tiles of 128 x 256, two warpgroups multiply, a third fetches;
                                                  four tiles in flight; a block for each processor
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class; None for targets other than sm_90a and for products that do not fit."""
        if str(target.attrs.get("arch", "")) != "sm_90a" or not self.fits(func, target):
            return None
        if func.attrs is not None and "dlight.do_not_tensorize" in func.attrs:
            return None
        sch = Schedule(func)
        main = get_single_reduction(sch, get_root_block(sch))
        if main is None or not normalize_product(sch, main):
            return None
        sides = [int_of(extent_of(v)) for v in sch.get(main).iter_vars]
        if any(n is not None and n <= _SHORTEST_SIDE for n in sides[1:]):
            return None
        block = sch.get(main)
        batch, rows, columns, depth = sides
        product = Product(
            batch, rows, columns, depth, str(block.reads[-1].buffer.dtype), str(block.writes[0].buffer.dtype)
        )
        threads = get_max_threads_per_block(target)
        found = self._first(sch, main, _configs(product, target), threads)
        if found is None:
            return None
        config, made = found
        bulk = bulk_operands(made.mod["main"])
        if (config.cluster > 1 and not bulk[1]) or (config.cluster_columns > 1 and not bulk[0]):
            # It was chosen for what its blocks cannot share.
            found = self._first(sch, main, _configs(replace(product, bulk=bulk), target), threads)
        return found[1] if found is not None else made

    def _first(
        self, sch: Schedule, main: BlockRV, tried: list[HopperConfig], threads: int
    ) -> tuple[HopperConfig, Schedule] | None:
        """The first configuration that fits, and the product by it."""
        for config in tried:
            made = self._attempt(sch, main, config, threads)
            if made is not None:
                return config, made
        return None

    def _attempt(self, sch: Schedule, main: BlockRV, config: HopperConfig, threads: int) -> Schedule | None:
        attempt = sch.copy()
        try:
            schedule_tiles(attempt, main, config)
            for rv in attempt.get_child_blocks(get_root_block(attempt)):
                bind_plainly(attempt, rv, threads)
            lower_tiles(attempt.mod["main"])
        except (*ILLEGAL, HopperError):
            return None
        return attempt
