"""Tiles of matrix products by Hopper's warpgroups: what can be scheduled, and which the estimate of cycles prefers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..tir.transform.hopper.tiles import CLUSTER, CLUSTER_COLUMNS, EPILOGUE, GEMM, GROUP, PERSISTENT, SPLIT
from .hopper import HopperCosts, TileWork

__all__ = ["HopperConfig", "configs", "ranked", "tilings", "work_of"]

UNKNOWN_SIDE = 2048


@dataclass(frozen=True)
class HopperConfig:
    """A tile of ``rows`` x ``columns`` results, computed in steps of ``depth_bytes`` bytes of the reduction axis.

    ``warpgroups`` consumer warpgroups multiply while one producer fills a ring of ``stages`` steps. ``persistent`` blocks
    process all tiles, in bands of ``group`` rows of tiles. The blocks of a cluster fetch by multicast what they share:
    ``cluster`` of them, one below the other, columns; ``cluster_columns``, side by side, rows. Where tiles are fewer
    than processors, ``split`` blocks share the reduction axis of each tile. ``epilogue``: 0 through shared memory, 1
    straight from registers.
    """

    rows: int = 128
    columns: int = 256
    depth_bytes: int = 128
    stages: int = 4
    warpgroups: int = 2
    persistent: int = HopperCosts().processors
    group: int = 8
    cluster: int = 1
    cluster_columns: int = 1
    split: int = 1
    epilogue: int = 0

    def options(self) -> dict[str, int]:
        """The annotations of the product's block that ``LowerHopperTiles`` reads."""
        return {
            GEMM: self.warpgroups, PERSISTENT: self.persistent, GROUP: self.group, CLUSTER: self.cluster,
            CLUSTER_COLUMNS: self.cluster_columns, SPLIT: self.split, EPILOGUE: self.epilogue,
        }  # fmt: skip


# The first of equals is taken.
_TILINGS = (
    HopperConfig(), HopperConfig(rows=256, columns=128), HopperConfig(columns=192, stages=5),
    HopperConfig(rows=192, columns=128, stages=5, warpgroups=3), HopperConfig(columns=160, stages=5),
    HopperConfig(columns=128, stages=6), HopperConfig(columns=96, stages=7),
    HopperConfig(rows=64, columns=256, stages=4, warpgroups=1), HopperConfig(rows=64, columns=192, stages=6, warpgroups=1),
    HopperConfig(rows=64, columns=128, stages=8, warpgroups=1), HopperConfig(columns=64, stages=8),
    HopperConfig(rows=64, columns=96, stages=8, warpgroups=1), HopperConfig(rows=64, columns=64, stages=8, warpgroups=1),
    HopperConfig(rows=64, columns=32, stages=10, warpgroups=1),
)  # fmt: skip
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
_SPLITS = (2, 4, 8)
# Results of the largest tile that may be split: larger products have enough tiles for the whole device anyway.
_LARGEST_SPLIT = 128 * 128


def configs(
    sides: Sequence[int | None], item: int = 2, costs: HopperCosts | None = None, bulk: tuple[bool, bool] = (True, True)
) -> list[HopperConfig]:
    """Tilings for (batch, rows, columns, depth) of operands of ``item`` bytes, the fastest by the estimate first.

    Unknown sides count as 2048. ``costs`` are those of the device; an H100's if there are none. ``bulk`` says which
    operands bulk copies bring, the rows or the columns: only those can be shared by the blocks of a cluster.

    >>> best = configs([1, 4096, 4096, 4096])[0]
    >>> best.rows, best.columns, best.split
    (128, 256, 1)
    >>> configs([1, 128, 768, 3072])[0].split  # 12 tiles of 64 x 128 for 132 processors
    8
    """
    return [config for config, _ in ranked(sides, item, costs or HopperCosts(), bulk)]


def ranked(
    sides: Sequence[int | None], item: int, costs: HopperCosts, bulk: tuple[bool, bool]
) -> list[tuple[HopperConfig, float]]:
    """The same with the estimated seconds."""
    known = [n if n is not None else default for n, default in zip(sides, (1, *[UNKNOWN_SIDE] * 3), strict=True)]
    found = [
        config
        for config in tilings(sides, item, costs)
        if (bulk[0] or config.cluster_columns == 1) and (bulk[1] or config.cluster == 1)
    ]
    work = [work_of(config, known, item) for config in found]
    columns = TileWork(**{name: np.array([getattr(w, name) for w in work]) for name in vars(work[0])})
    seconds = costs.seconds(columns)
    return [(found[i], float(seconds[i])) for i in np.argsort(seconds, kind="stable")]


def tilings(sides: Sequence[int | None], item: int, costs: HopperCosts) -> Iterator[HopperConfig]:
    """All tilings of a product, in no order."""
    _, rows, columns, depth = sides
    for config in _TILINGS:
        for down, across in _CLUSTERS:
            if _divides(rows, config.rows, down) and _divides(columns, config.columns, across):
                most = costs.concurrent(down * across)
                yield replace(config, cluster=down, cluster_columns=across, persistent=most)
        if depth is None or config.rows * config.columns > _LARGEST_SPLIT:
            continue
        steps = -(-depth * item // config.depth_bytes)
        for split in _SPLITS:
            if split <= steps:
                yield replace(config, split=split, persistent=costs.processors)


def _divides(side: int | None, tile: int, blocks: int) -> bool:
    """Whether there are always whole clusters of tiles along a side."""
    return blocks == 1 or (side is not None and -(-side // tile) % blocks == 0)


def work_of(config: HopperConfig, sides: Sequence[int], item: int) -> TileWork:
    """A tiling of (batch, rows, columns, depth) as the estimate sees it."""
    batch, rows, columns, depth = sides
    return TileWork(
        config.rows, config.columns, config.depth_bytes,
        batch * math.ceil(rows / config.rows) * math.ceil(columns / config.columns),
        math.ceil(depth * item / config.depth_bytes), item, config.stages, config.cluster, config.cluster_columns,
        config.split, config.persistent, max(item, 2), config.epilogue != 0,
    )  # fmt: skip
