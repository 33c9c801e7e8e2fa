"""Removes blocks that only compute elements for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...support.errors import ScheduleError
from ...tir.schedule import Schedule
from ..analysis import BlockInfo

__all__ = ["ILLEGAL", "try_inline", "try_inline_contiguous_spatial"]

# What a schedule raises when a primitive does not apply.
ILLEGAL = (ScheduleError, ValueError)


def try_inline(sch: Schedule, blocks: list[BlockInfo]) -> list[BlockInfo]:
    """Inline every block that can go into its consumers, else into its producer; the rest is returned."""
    rest = list(blocks)
    while True:
        gone = _first_inlined(sch.compute_inline, rest)
        if gone is None:
            gone = _first_inlined(sch.reverse_compute_inline, rest)
        if gone is None:
            return rest
        rest.pop(gone)


def _first_inlined(inline: Callable[..., Any], blocks: Sequence[BlockInfo]) -> int | None:
    for index, info in enumerate(blocks):
        try:
            inline(info.block_rv)
        except ILLEGAL:
            continue
        return index
    return None


def try_inline_contiguous_spatial(sch: Schedule, block_infos: Sequence[BlockInfo] | None) -> list[BlockInfo] | None:
    """:func:`try_inline` on each run of neighbouring spatial blocks; the others stay where they are."""
    if block_infos is None:
        return None
    result: list[BlockInfo] = []
    run: list[BlockInfo] = []
    for info in block_infos:
        if info.is_injective():
            run.append(info)
            continue
        result += try_inline(sch, run)
        run = []
        result.append(info)
    return result + try_inline(sch, run)
