"""Registers that warpgroups give back and ask for (``setmaxnreg``).

A block is launched with so many registers for each thread as its launch bounds allow. What warps give back goes to the
block's pool, and an increase waits until the pool has enough. All warps of a warpgroup must do the same. Rules:
PTX ISA, "setmaxnreg".
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import load64, store64

if TYPE_CHECKING:
    from .fibers import rx_fault, rx_fail_with
    from .sync import rx_meet, rx_wait_in, rx_wake_all


def rx_set_registers(fiber: int, count: int, increase: int, site: int) -> None:
    """``setmaxnreg`` by all lanes of a warp: the first one acts for them, the others wait for it."""
    if load64(load64(fiber + FIBER_GRID) + LAUNCH_REGISTERS) == 0:
        rx_fault(fiber, FAULT_NO_BOUNDS, site, count)
    rx_meet(fiber, 0xFFFFFFFF, site, ACTION_NONE)
    if load64(fiber + FIBER_LANE) == 0:
        rx_adjust_registers(fiber, count, increase, site)
    rx_meet(fiber, 0xFFFFFFFF, site, ACTION_NONE)


def rx_adjust_registers(fiber: int, count: int, increase: int, site: int) -> None:
    """Give registers of the warp to the block's pool, or take them from there, waiting until it has enough."""
    warp = load64(fiber + FIBER_WARP)
    block = load64(fiber + FIBER_BLOCK)
    have = load64(warp + WARP_REGISTERS)
    if count % 8 or count < 24 or count > 256 or (increase and count < have) or (increase == 0 and count > have):
        rx_fail_with(fiber, FAULT_BAD_COUNT, site, count, have, site, increase)
    rx_note_adjustment(fiber, warp, site)
    while increase and load64(block + BLOCK_POOL) < (count - have) * 32:
        rx_wait_in(fiber, block + BLOCK_POOL_HEAD, site)
    store64(warp + WARP_REGISTERS, count)
    store64(block + BLOCK_POOL, load64(block + BLOCK_POOL) + (have - count) * 32)
    if increase == 0:
        rx_wake_all(block + BLOCK_POOL_HEAD)


def rx_note_adjustment(fiber: int, warp: int, site: int) -> None:
    """Count it, and compare with what the other warps of the group did as their adjustment of this number."""
    turn = load64(warp + WARP_ADJUSTED) + 1
    store64(warp + WARP_ADJUSTED, turn)
    store64(warp + WARP_ADJUSTED_SITE, site)
    other = rx_first_warp(fiber, warp)
    last = other + 4 * WARP_BYTES
    while other < last and other < rx_end_of_warps(fiber):
        if load64(other + WARP_ADJUSTED) == turn and load64(other + WARP_ADJUSTED_SITE) != site:
            rx_fail_with(fiber, FAULT_PART, site, 0, 0, load64(other + WARP_ADJUSTED_SITE), 1)
        other += WARP_BYTES


def rx_first_warp(fiber: int, warp: int) -> int:
    """The first warp of the group of four that a warp is in."""
    first = load64(load64(fiber + FIBER_BLOCK) + BLOCK_WARPS)
    return first + (warp - first) // (4 * WARP_BYTES) * (4 * WARP_BYTES)


def rx_end_of_warps(fiber: int) -> int:
    """End address of the table of the block's warps."""
    warps = (load64(load64(fiber + FIBER_GRID) + THREADS) + 31) // 32
    return load64(load64(fiber + FIBER_BLOCK) + BLOCK_WARPS) + warps * WARP_BYTES


def rx_check_part(fiber: int) -> None:
    """A warp ends: the others of its group that have ended must have adjusted as often."""
    warp = load64(fiber + FIBER_WARP)
    other = rx_first_warp(fiber, warp)
    last = other + 4 * WARP_BYTES
    mine = load64(warp + WARP_ADJUSTED)
    while other < last and other < rx_end_of_warps(fiber):
        if load64(other + WARP_LIVE) == 0 and load64(other + WARP_ADJUSTED) != mine:
            site = load64(warp + WARP_ADJUSTED_SITE)
            if load64(other + WARP_ADJUSTED) > mine:
                site = load64(other + WARP_ADJUSTED_SITE)
            rx_fail_with(fiber, FAULT_PART, site, 0, 0, 0, 0)
        other += WARP_BYTES


def rx_find_starved(grid: int) -> int:
    """A fiber that waits for registers, or 0."""
    rank = 0
    while rank < load64(grid + RESIDENT):
        fiber = load64(load64(grid + BLOCKS) + rank * BLOCK_BYTES + BLOCK_POOL_HEAD)
        if fiber:
            return fiber
        rank += 1
    return 0
