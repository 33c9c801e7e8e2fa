"""The transforms of Winograd's convolutions on GPUs: a thread takes a tile of one channel and keeps it in registers."""

from __future__ import annotations

from ....runtime.registry import register_func
from ....tir import Schedule
from ....tir.schedule import BlockRV, LoopRV
from ...analysis.thread_binding import bind_spatial_loop
from ..winograd import producer_without_matrices, tile_and_unroll

__all__ = ["nchw_data_pack", "nchw_inverse", "nhwc_data_pack", "nhwc_inverse"]

_MAX_BLOCKS = 256
_MAX_THREADS = 1024


@register_func("meta_schedule.cuda.conv2d_nhwc_winograd_data_pack")
def nhwc_data_pack(sch: Schedule, data_pack: BlockRV) -> list[Schedule]:
    """Input tiles transformed."""
    input_tile = producer_without_matrices(sch, data_pack)
    padded = producer_without_matrices(sch, input_tile)
    outside = tile_and_unroll(sch, data_pack, (2, 3))
    _in_registers(sch, input_tile, padded, data_pack, outside[-1])
    _bind(sch, data_pack)
    return [sch]


@register_func("meta_schedule.cuda.conv2d_nhwc_winograd_inverse")
def nhwc_inverse(sch: Schedule, inverse: BlockRV) -> list[Schedule]:
    """Products transformed back to output tiles."""
    producer_without_matrices(sch, inverse)
    tile_and_unroll(sch, inverse, (2, 3))
    _bind(sch, inverse)
    return [sch]


@register_func("meta_schedule.cuda.conv2d_nchw_winograd_data_pack")
def nchw_data_pack(sch: Schedule, data_pack: BlockRV) -> list[Schedule]:
    """Input tiles transformed; channels and tiles become one loop over blocks and threads."""
    input_tile = producer_without_matrices(sch, data_pack)
    padded = producer_without_matrices(sch, input_tile)
    eps, nu, channel, tile, row, column = sch.get_loops(data_pack)
    sch.reorder(channel, tile, eps, nu, row, column)
    for loop in (eps, nu, row, column):
        sch.unroll(loop)
    thread = bind_spatial_loop(sch, sch.fuse(channel, tile), _MAX_BLOCKS, _MAX_THREADS)[-1]
    _in_registers(sch, input_tile, padded, data_pack, thread)
    return [sch]


@register_func("meta_schedule.cuda.conv2d_nchw_winograd_inverse")
def nchw_inverse(sch: Schedule, inverse: BlockRV) -> list[Schedule]:
    """Products transformed back by whoever writes the tile's outputs."""
    producer_without_matrices(sch, inverse)
    size = int(sch.get(inverse).writes[0].buffer.shape[2])
    output = sch.get_consumers(inverse)[0]
    _, _, height, width = sch.get_loops(output)
    row, in_row = sch.split(height, factors=[None, size])
    column, in_column = sch.split(width, factors=[None, size])
    sch.reorder(row, column, in_row, in_column)
    sch.compute_at(inverse, column, preserve_unit_loops=True)
    sch.set_scope(inverse, 0, "local")
    for loop in sch.get_loops(inverse)[6:]:
        sch.unroll(loop)
    return [sch]


def _in_registers(sch: Schedule, input_tile: BlockRV, padded: BlockRV, data_pack: BlockRV, loop: LoopRV) -> None:
    """Read each input tile to registers under ``loop``, transform it there, and write the result at once."""
    written = sch.cache_write(data_pack, 0, "local")
    sch.reverse_compute_at(written, loop, preserve_unit_loops=True)
    sch.compute_at(input_tile, loop, preserve_unit_loops=True)
    sch.set_scope(input_tile, 0, "local")
    sch.compute_inline(padded)


def _bind(sch: Schedule, block: BlockRV) -> None:
    bind_spatial_loop(sch, sch.fuse(*sch.get_loops(block)[:4]), _MAX_BLOCKS, _MAX_THREADS)
