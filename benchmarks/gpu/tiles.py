"""Matrix products with a tiling of our choice, for canaries and for the calibration table."""

from __future__ import annotations

from typing import Any

__all__ = ["scheduled"]


def scheduled(module: Any, config: Any) -> Any:
    """A product's program by tiles of ``config`` (HopperConfig). Raises RelaxishError where the tiling does not fit it."""
    from relaxish import IRModule, tir
    from relaxish.dlight.analysis import get_root_block
    from relaxish.dlight.gpu.matmul_analysis import get_single_reduction
    from relaxish.dlight.gpu.matmul_hopper import normalize_product, schedule_tiles
    from relaxish.support.errors import RelaxishError

    sch = tir.Schedule(module["main"])
    main = get_single_reduction(sch, get_root_block(sch))
    if main is None or not normalize_product(sch, main):
        raise RelaxishError("this program is no matrix product")
    schedule_tiles(sch, main, config)
    return IRModule({"main": sch.mod["main"].with_attr("global_symbol", "main")})
