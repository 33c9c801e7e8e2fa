"""Tile sizes of matrix products on Hopper's tensor cores, chosen by an estimate of their cycles (H100)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from ...tir.transform.hopper_tiles import CLUSTER, GEMM, SPLIT

__all__ = ["HopperConfig", "configs"]

_PROCESSORS = 132
_UNKNOWN_SIDE = 2048


@dataclass(frozen=True)
class HopperConfig:
    """A tile of ``rows`` x ``columns`` results, computed in steps of ``depth_bytes`` bytes of the reduction axis.

    ``warpgroups`` consumer warpgroups multiply while one producer fills a ring of ``stages`` steps. ``persistent`` blocks
    process all tiles, in bands of ``group`` rows of tiles; the blocks of a ``cluster`` fetch the columns that they share
    by multicast. Where tiles are fewer than processors, ``split`` blocks share the reduction axis of each tile.
    """

    rows: int = 128
    columns: int = 256
    depth_bytes: int = 128
    stages: int = 4
    warpgroups: int = 2
    persistent: int = _PROCESSORS
    group: int = 8
    cluster: int = 1
    split: int = 1

    def options(self) -> dict[str, int]:
        """The annotations of the product's block that ``LowerHopperTiles`` reads."""
        return {
            GEMM: self.warpgroups, "hopper.persistent": self.persistent, "hopper.group": self.group,
            CLUSTER: self.cluster, SPLIT: self.split,
        }  # fmt: skip


# Tilings, with the fraction of peak throughput that their products can reach.
_TILINGS = (
    (HopperConfig(cluster=2), 1.0), (HopperConfig(rows=256, columns=128), 0.98), (HopperConfig(columns=192, stages=5, cluster=2), 0.97),
    (HopperConfig(columns=128, stages=6, cluster=2), 0.9), (HopperConfig(columns=64, stages=8), 0.7),
    (HopperConfig(rows=64, columns=256, stages=4, warpgroups=1), 0.8),
    (HopperConfig(rows=64, columns=128, stages=6, warpgroups=1), 0.7),
    (HopperConfig(rows=64, columns=64, stages=8, warpgroups=1), 0.5),
    (HopperConfig(rows=64, columns=32, stages=10, warpgroups=1), 0.4),
)  # fmt: skip
# Blocks that share a reduction -> blocks that run concurrently: a cluster stays within one group of 16 or 18 processors.
_CONCURRENT = {1: 132, 2: 132, 4: 128, 8: 112}
# Results of the largest tile that may be split: larger products have enough tiles for the whole device anyway.
_LARGEST_SPLIT = 128 * 128
_FMA_PER_CYCLE = 2048  # of one processor, with 16-bit operands
_BYTES_INTO_PROCESSOR = 56  # per cycle
_BYTES_FROM_L2 = 4000  # per cycle, for all processors together
_LATENCY = 900  # cycles from the request for a tile to its arrival
_START = 1500  # cycles from the launch to the first products
_CLUSTER_BARRIER = 1000  # cycles
_CLUSTER_BYTES = 32  # per cycle, between the shared memories of a cluster
_RESULTS_OUT = 24  # per cycle, of one processor


def configs(sides: list[int | None], item: int = 2) -> list[HopperConfig]:
    """Tilings for (batch, rows, columns, depth) of operands of ``item`` bytes, the fastest by the estimate first.

    All tiles of a wave take equally long, so the estimate is the number of waves times the cycles of a tile; these are
    bound by its products or by the rate at which operands arrive. Unknown sides count as 2048.

    >>> best = configs([1, 4096, 4096, 4096])[0]
    >>> best.rows, best.columns, best.split
    (128, 256, 1)
    >>> configs([1, 128, 768, 3072])[0].split  # 12 tiles of 128 x 64 for 132 processors
    8
    """
    defaults = (1, _UNKNOWN_SIDE, _UNKNOWN_SIDE, _UNKNOWN_SIDE)
    known = [n if n is not None else default for n, default in zip(sides, defaults, strict=True)]
    found = [(_cycles(config, share, known, item), config) for config, share in _candidates(sides, item)]
    return [config for _, config in sorted(found, key=lambda pair: pair[0])]


def _candidates(sides: list[int | None], item: int) -> Iterator[tuple[HopperConfig, float]]:
    depth = sides[3]
    for config, share in _TILINGS:
        yield config, share
        if depth is None or config.rows * config.columns > _LARGEST_SPLIT:
            continue
        steps = -(-depth * item // config.depth_bytes)
        for split in (2, 4, 8):
            if split <= steps:
                yield replace(config, split=split, cluster=1), share


def _cycles(config: HopperConfig, share: float, sides: list[int], item: int) -> float:
    """Estimated cycles of a product; ``share`` is the fraction of peak throughput that the tiling reaches."""
    batch, rows, columns, depth = sides
    size, width = config.rows * config.columns, config.depth_bytes
    blocks = batch * -(-rows // config.rows) * -(-columns // config.columns) * config.split
    running = min(blocks, _CONCURRENT[config.split])
    steps = ceil(ceil(depth * item / width) / config.split)
    whole, fetched = config.rows + config.columns, config.rows + config.columns / config.cluster
    from_l2 = fetched * width * running / _BYTES_FROM_L2
    fill = max(whole * width / _BYTES_INTO_PROCESSOR, from_l2, _LATENCY / config.stages)
    products = size * width / (_FMA_PER_CYCLE * 2) / share
    waves = -(-blocks // _CONCURRENT[config.split])
    out = size / config.split / _RESULTS_OUT
    if config.split > 1:
        out += _CLUSTER_BARRIER + 2 * 4 * size / _CLUSTER_BYTES
    return waves * (steps * max(fill, products) + out) + _START
