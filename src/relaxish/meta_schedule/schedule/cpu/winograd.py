"""The transforms of Winograd's convolutions on CPUs: tiled and unrolled, their producers wherever search puts them."""

from __future__ import annotations

from ....runtime.registry import register_func
from ....tir import Schedule
from ....tir.schedule import BlockRV
from ..winograd import producer_without_matrices, tile_and_unroll

__all__ = ["data_pack", "nchw_inverse", "nhwc_inverse"]


@register_func("meta_schedule.cpu.conv2d_nhwc_winograd_data_pack")
@register_func("meta_schedule.cpu.conv2d_nchw_winograd_data_pack")
def data_pack(sch: Schedule, block: BlockRV) -> list[Schedule]:
    """Input tiles transformed; loops 2 and 3 are those over tiles and channels in either layout."""
    input_tile = producer_without_matrices(sch, block)
    padded = producer_without_matrices(sch, input_tile)
    tile_and_unroll(sch, block, (2, 3))
    for producer in (input_tile, padded):
        sch.compute_at(producer, sch.sample_compute_location(producer), preserve_unit_loops=True)
    return [sch]


@register_func("meta_schedule.cpu.conv2d_nhwc_winograd_inverse")
def nhwc_inverse(sch: Schedule, block: BlockRV) -> list[Schedule]:
    """Products transformed back to output tiles."""
    producer_without_matrices(sch, block)
    tile_and_unroll(sch, block, (2, 3))
    return [sch]


@register_func("meta_schedule.cpu.conv2d_nchw_winograd_inverse")
def nchw_inverse(sch: Schedule, block: BlockRV) -> list[Schedule]:
    """Products transformed back; channels and tiles are the outer loops here."""
    producer_without_matrices(sch, block)
    tile_and_unroll(sch, block, (0, 1))
    return [sch]
