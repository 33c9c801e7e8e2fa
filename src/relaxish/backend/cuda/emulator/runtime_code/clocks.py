"""Who knows of whose accesses: vector clocks within a block barrier's epoch, and stores under suspicion."""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import copy, load8, load32, load64, store32, store64

if TYPE_CHECKING:
    from .fibers import rx_fail_with


def rx_knows(fiber: int, thread: int, clock: int) -> int:
    """Whether this thread has synchronised with what another one did at a time."""
    vector = load64(fiber + FIBER_VECTOR)
    if vector == 0 or clock == PENDING:
        return 0
    return load32(vector + 4 * thread) >= clock


def rx_release(fiber: int, vector: int) -> None:
    """Add what this thread did and knows to what an object shows."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine == 0 or vector == 0:
        return
    count = load64(load64(fiber + FIBER_GRID) + FIBER_COUNT)
    store32(mine + 4 * load64(fiber + FIBER_THREAD), load64(fiber + FIBER_CLOCK))
    store64(fiber + FIBER_CLOCK, load64(fiber + FIBER_CLOCK) + 1)
    rx_merge(vector, mine, count)


def rx_acquire(fiber: int, vector: int) -> None:
    """Learn what an object shows."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine and vector:
        rx_merge(mine, vector, load64(load64(fiber + FIBER_GRID) + FIBER_COUNT))


def rx_merge(target: int, source: int, count: int) -> None:
    """The later of two times, for every thread."""
    i = 0
    while i < count:
        if load32(source + 4 * i) > load32(target + 4 * i):
            store32(target + 4 * i, load32(source + 4 * i))
        i += 1


def rx_resolve_suspect(fiber: int) -> None:
    """Report the last store as a race if it changed what another thread had stored."""
    size = load64(fiber + SUSPECT_SIZE)
    if size == 0:
        return
    store64(fiber + SUSPECT_SIZE, 0)
    address = load64(fiber + SUSPECT_ADDRESS)
    i = 0
    while i < size:
        if load8(address + i) != load8(fiber + SUSPECT_OLD + i):
            rx_fail_with(
                fiber,
                FAULT_RACE,
                load64(fiber + SUSPECT_SITE),
                load64(fiber + SUSPECT_INDEX),
                load64(fiber + SUSPECT_OTHER),
                load64(fiber + SUSPECT_OTHER_SITE),
                HOW_STORE,
            )
        i += 1


def rx_suspect(fiber: int, address: int, size: int, site: int, index: int, other: int, other_site: int) -> None:
    """Remember what a store is about to overwrite."""
    if size > SUSPECT_ROOM:
        size = SUSPECT_ROOM
    store64(fiber + SUSPECT_ADDRESS, address)
    store64(fiber + SUSPECT_SIZE, size)
    store64(fiber + SUSPECT_SITE, site)
    store64(fiber + SUSPECT_INDEX, index)
    store64(fiber + SUSPECT_OTHER, other)
    store64(fiber + SUSPECT_OTHER_SITE, other_site)
    copy(fiber + SUSPECT_OLD, address, size)
