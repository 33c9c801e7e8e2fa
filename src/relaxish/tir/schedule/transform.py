"""Ready-made sequences of primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..function import TensorIntrin
from . import checks
from .analysis import get_tensorize_loop_mapping
from .rv import BlockRV, LoopRV
from .schedule import Schedule

__all__ = ["tile_with_tensor_intrin"]


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Tile the loops of ``block`` that a tensor intrinsic covers and bring the tiles innermost.

    Gives the outermost of the inner loops, which ``sch.tensorize`` takes, or None when the intrinsic does not fit.
    With ``allow_padding``, loops that are no multiples of the intrinsic's are padded first, and the padding is
    inlined into what comes before and after where that is possible.
    """
    intrin = TensorIntrin.get(intrin_name)
    assert intrin is not None
    info = get_tensorize_loop_mapping(sch, block, intrin.desc, allow_padding)
    if info is None or len(info.loop_map) != len(info.desc_loop_indexer):
        return None
    if info.block_iter_paddings is not None:
        _pad(sch, block, info.block_iter_paddings)
    by_sref = {sch.sref(loop): loop for loop in sch.get_loops(block)}
    suffix: list[Any] = [None] * len(info.loop_map)
    inner = set()
    for loop_sref, desc_loop in info.loop_map.items():
        size: Any = desc_loop.extent
        _, low = sch.split(by_sref[loop_sref], [None, int(size.value)])
        inner.add(sch.sref(low))
        suffix[info.desc_loop_indexer[desc_loop]] = low
    order: list[LoopRV] = []
    met = False
    for loop in sch.get_loops(block):
        if sch.sref(loop) in inner:
            met = True
        elif met:
            order.append(loop)
    sch.reorder(*order, *suffix)
    first: LoopRV = suffix[0]
    return first


def _pad(sch: Schedule, block: BlockRV, padding: Sequence[int]) -> None:
    """Pad a block and put the copies this makes into their neighbours within the function."""
    before = {sch.sref(b) for b in sch.get_producers(block)}
    after = {sch.sref(b) for b in sch.get_consumers(block)}
    sch.pad_einsum(block, padding)
    for copy in sch.get_producers(block):
        if sch.sref(copy) in before:
            continue
        for producer in sch.get_producers(copy):
            if not checks.is_output_block(sch.sref(producer), checks.scope_root(sch.state, sch.sref(producer))):
                sch.compute_inline(producer)
    for copy in sch.get_consumers(block):
        if sch.sref(copy) in after:
            continue
        if sch.get_consumers(copy):
            sch.compute_inline(copy)
