"""Race detection by vector clocks within a block barrier's epoch, and the stores under suspicion.

Where products or bulk copies read shared memory, a vector has a second half: of each thread the time up to which its
ordinary stores are visible to the asynchronous proxy, because somebody who knew of them has fenced since (PTX ISA,
"Causality order": a proxy fence lies anywhere along the path from the write to the read).
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import copy, larger_words, load8, load32, load64, store32, store64

if TYPE_CHECKING:
    from .clusters import rx_publish_barriers
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
    rx_tick(fiber, mine)
    rx_merge(vector, mine, load64(load64(fiber + FIBER_GRID) + VECTOR_WORDS))


def rx_tick(fiber: int, mine: int) -> None:
    """Advance the thread's clock: its later accesses are newer than all that others learn now."""
    clock = load64(fiber + FIBER_CLOCK)
    store32(mine + 4 * load64(fiber + FIBER_THREAD), clock)
    store64(fiber + FIBER_CLOCK, clock + 1)


def rx_acquire(fiber: int, vector: int) -> None:
    """Learn what an object shows."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine and vector:
        rx_merge(mine, vector, load64(load64(fiber + FIBER_GRID) + VECTOR_WORDS))


def rx_adopt(fiber: int, vector: int) -> None:
    """``rx_acquire`` from an object that shows all that this thread knows already."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine and vector:
        copy(mine, vector, 4 * load64(load64(fiber + FIBER_GRID) + VECTOR_WORDS))


def rx_merge(target: int, source: int, count: int) -> None:
    """The later of two times, for every thread."""
    larger_words(target, source, count)


def rx_fence_proxy(fiber: int) -> None:
    """``fence.proxy.async``: all stores that this thread knows of can be read asynchronously."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine == 0:
        return
    rx_publish_barriers(fiber, 0)
    rx_tick(fiber, mine)
    count = load64(load64(fiber + FIBER_GRID) + FIBER_COUNT)
    rx_merge(mine + 4 * count, mine, count)


def rx_is_fenced(fiber: int, thread: int, clock: int) -> int:
    """Whether a store that a thread made at a time can be read asynchronously by this one."""
    vector = load64(fiber + FIBER_VECTOR)
    count = load64(load64(fiber + FIBER_GRID) + FIBER_COUNT)
    return load32(vector + 4 * (count + thread)) >= clock


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
