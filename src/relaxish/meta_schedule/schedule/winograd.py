"""Shared parts of the rules for Winograd's convolutions on CPUs and GPUs (see ``topi.nn.conv2d_winograd_nhwc``).

Both transforms are six loops deep: two over the tiles and channels, two over the elements of a result, two of the
reduction. The first two are tiled; the others are short and unrolled, so that the constant matrices fold away.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tir import Schedule
from ...tir.schedule import BlockRV, LoopRV

__all__ = ["producer_without_matrices", "tile_and_unroll"]

_LARGEST_INNER = 64


def producer_without_matrices(sch: Schedule, block: BlockRV) -> BlockRV:
    """The producer of a block's data, after inlining those that read nothing (the transform's matrix)."""
    found: list[BlockRV] = []
    for producer in sch.get_producers(block):
        if sch.get(producer).reads:
            found.append(producer)
        else:
            sch.compute_inline(producer)
    if len(found) != 1:
        raise ValueError(f"a Winograd transform has one producer of data, this one {len(found)}")
    return found[0]


def tile_and_unroll(sch: Schedule, block: BlockRV, tiled: Sequence[int]) -> list[LoopRV]:
    """Split the two loops numbered ``tiled`` in two, the inner parts inside, and unroll the other four.

    The result is the four loops outside, outermost first.
    """
    loops = sch.get_loops(block)
    if len(loops) != 6:
        raise ValueError(f"a Winograd transform has six loops, this one {len(loops)}")
    halves = []
    for number in tiled:
        factors = sch.sample_perfect_tile(loops[number], n=2, max_innermost_factor=_LARGEST_INNER)
        halves.append(sch.split(loops[number], factors=factors))
    short = [loop for number, loop in enumerate(loops) if number not in tiled]
    for loop in short:
        sch.unroll(loop)
    outside = [half[part] for part in range(2) for half in halves]
    sch.reorder(*outside, *short)
    return outside
