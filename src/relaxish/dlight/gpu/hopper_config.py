"""How products are cut into tiles on Hopper's tensor cores, and what a cut is expected to cost."""

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
    """A tile of ``rows`` x ``columns`` results, ``depth_bytes`` of the depth at a time.

    ``persistent`` blocks walk over the result in bands of ``group`` rows of tiles; ``cluster`` blocks fetch the
    columns they share together. Where tiles are few, ``split`` blocks share the depth of each.
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
        """Annotations of the product's block."""
        return {
            GEMM: self.warpgroups, "hopper.persistent": self.persistent, "hopper.group": self.group,
            CLUSTER: self.cluster, SPLIT: self.split,
        }  # fmt: skip


# Tilings, with the share of the peak that their products can reach.
_TILINGS = (
    (HopperConfig(cluster=2), 1.0), (HopperConfig(rows=256, columns=128), 0.98), (HopperConfig(columns=192, stages=5, cluster=2), 0.97),
    (HopperConfig(columns=128, stages=6, cluster=2), 0.9), (HopperConfig(columns=64, stages=8), 0.7),
    (HopperConfig(rows=64, columns=256, stages=4, warpgroups=1), 0.8),
    (HopperConfig(rows=64, columns=128, stages=6, warpgroups=1), 0.7),
    (HopperConfig(rows=64, columns=64, stages=8, warpgroups=1), 0.5),
    (HopperConfig(rows=64, columns=32, stages=10, warpgroups=1), 0.4),
)  # fmt: skip
# Blocks that share a depth -> blocks at work at once: clusters stay within groups of 16 or 18 processors.
_AT_ONCE = {1: 132, 2: 132, 4: 128, 8: 112}
# Results that blocks may hold to share a depth: more tiles than this fill the device anyway.
_LARGEST_SPLIT = 128 * 128
# Multiplications with addition in a cycle of one processor, of 16-bit operands.
_PRODUCTS = 2048
# Bytes a cycle: into one processor, and out of the second-level cache for all of them.
_INTO_ONE, _FROM_CACHE = 56, 4000
# Cycles: from asking for a tile to having it; from the launch to the first products; to meet in a cluster.
_LATENCY, _START, _MEETING = 900, 1500, 1000
# Bytes a cycle through the shared memory of a cluster's blocks; results a cycle that go out.
_EXCHANGE, _OUT = 32, 24


def configs(sides: list[int | None], item: int = 2) -> list[HopperConfig]:
    """Tilings for (batch, rows, columns, depth) of operands of ``item`` bytes, the one that needs the least time first.

    All tiles of a round take equally long, so what counts is how many rounds it takes, and how fast tiles come in.

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
    batch, rows, columns, depth = sides
    size, width = config.rows * config.columns, config.depth_bytes
    blocks = batch * -(-rows // config.rows) * -(-columns // config.columns) * config.split
    at_work = min(blocks, _AT_ONCE[config.split])
    steps = ceil(ceil(depth * item / width) / config.split)
    whole, fetched = config.rows + config.columns, config.rows + config.columns / config.cluster
    fill = max(whole * width / _INTO_ONE, fetched * width * at_work / _FROM_CACHE, _LATENCY / config.stages)
    products = size * width / (_PRODUCTS * 2) / share
    rounds = -(-blocks // _AT_ONCE[config.split])
    out = size / config.split / _OUT
    if config.split > 1:
        out += _MEETING + 2 * 4 * size / _EXCHANGE
    return rounds * (steps * max(fill, products) + out) + _START
