"""Matrix products in any layout: recognised by :mod:`relaxish.carver.matmul_analysis`, and what their rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...carver.matmul_analysis import (
    IterKind, IterTrait, detect_iter_traits, get_in_out_dtypes, get_index_map, make_iter_fusion_index_map,
    normalize_matmul,
)  # fmt: skip
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..analysis import get_reduction_blocks
from ..base import ILLEGAL

__all__ = [
    "IterKind", "IterTrait", "auto_inline_consumer_chain", "auto_inline_consumers", "auto_inline_producers",
    "detect_iter_traits", "get_in_out_dtypes", "get_index_map", "get_single_reduction", "make_iter_fusion_index_map", "normalize_matmul",
]  # fmt: skip


def get_single_reduction(sch: Schedule, root: BlockRV) -> BlockRV | None:
    """The only reduction block below ``root``; None if there are others, or blocks that are not spatial besides."""
    reductions = get_reduction_blocks(sch, sch.get_child_blocks(root))
    return reductions[0] if reductions is not None and len(reductions) == 1 else None


def auto_inline_producers(sch: Schedule, block: BlockRV, skip_blocks: Sequence[Any] = ()) -> None:
    """Inline producers of ``block``, theirs too, as long as any can be."""
    changed = True
    while changed:
        changed = False
        for producer in sch.get_producers(block):
            if any(sch.get(producer).same_as(sch.get(skip)) for skip in skip_blocks):
                continue
            try:
                sch.compute_inline(producer)
            except ILLEGAL:
                continue
            changed = True


def auto_inline_consumers(sch: Schedule, block: BlockRV) -> None:
    """Inline consumers of ``block`` forward, or back into it, as long as any can be."""
    changed = True
    while changed:
        changed = False
        for inline in (sch.compute_inline, sch.reverse_compute_inline):
            for consumer in sch.get_consumers(block):
                try:
                    inline(consumer)
                except ILLEGAL:
                    continue
                changed = True


def auto_inline_consumer_chain(sch: Schedule, block: BlockRV) -> None:
    """:func:`auto_inline_consumers`; if some stay because of their other producers, those are inlined first."""
    auto_inline_consumers(sch, block)
    left = sch.get_consumers(block)
    if left:
        for consumer in left:
            for producer in sch.get_producers(consumer):
                if not sch.get(producer).same_as(sch.get(block)):
                    sch.compute_inline(producer)
        auto_inline_consumers(sch, block)
