"""Synchronisation of threads: barriers of a block, meetings of lanes, shuffles, votes, ``activemask``."""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import load64, lowest_bit, store64

if TYPE_CHECKING:
    from .clocks import rx_acquire, rx_adopt, rx_merge, rx_release, rx_tick
    from .clusters import rx_begin_epoch, rx_publish
    from .fibers import rx_fail_with, rx_fault, rx_make_ready, rx_park, rx_wake


def rx_wait_in(fiber: int, head: int, site: int) -> None:
    """Park in the waiting list whose first fiber is stored at ``head``."""
    store64(fiber + FIBER_NEXT, load64(head))
    store64(head, fiber)
    store64(fiber + FIBER_STATE, WAITING)
    store64(fiber + FIBER_SITE, site)
    rx_park(fiber)


def rx_wake_all(head: int) -> None:
    """Make everybody in a waiting list ready."""
    first = load64(head)
    store64(head, 0)
    rx_wake(first)


# ---- barriers


def rx_open_barrier(fiber: int, bar: int) -> None:
    """All are here: let them go on. A barrier at which the whole block waits begins a new epoch."""
    block = load64(fiber + FIBER_BLOCK)
    grid = load64(fiber + FIBER_GRID)
    store64(bar + BAR_ARRIVED, 0)
    if load64(bar + BAR_EXPECTED) == load64(grid + THREADS) and load64(bar + BAR_PASSED) == 0:
        store64(grid + EPOCH, load64(grid + EPOCH) + 1)
        store64(block + BLOCK_EPOCH, load64(grid + EPOCH))
    store64(bar + BAR_PASSED, 0)
    waiter = load64(bar + BAR_HEAD)
    while waiter:
        rx_adopt(waiter, load64(bar + BAR_VECTOR))
        waiter = load64(waiter + FIBER_NEXT)
    rx_wake_all(bar + BAR_HEAD)


def rx_barrier(fiber: int, number: int, count: int, wait: int, site: int) -> None:
    """``bar.sync number, count`` (all threads of the block for count 0), or ``bar.arrive`` without waiting."""
    block = load64(fiber + FIBER_BLOCK)
    bar = load64(block + BLOCK_BARRIERS) + number * BAR_BYTES
    if number < 0 or number >= BAR_COUNT or count % 32:
        rx_fault(fiber, FAULT_BAR_NUMBER, site, number)
    expected = count
    if count == 0:
        expected = load64(load64(fiber + FIBER_GRID) + THREADS)
    if load64(bar + BAR_ARRIVED) == 0:
        store64(bar + BAR_EXPECTED, expected)
        store64(bar + BAR_SITE, site)
    elif load64(bar + BAR_EXPECTED) != expected or (number == 0 and load64(bar + BAR_SITE) != site):
        rx_fail_with(fiber, FAULT_DIVERGENCE, site, number, rx_first_thread(bar), load64(bar + BAR_SITE), 0)
    rx_release(fiber, load64(bar + BAR_VECTOR))
    store64(bar + BAR_ARRIVED, load64(bar + BAR_ARRIVED) + 1)
    if wait == 0:
        store64(bar + BAR_PASSED, load64(bar + BAR_PASSED) + 1)
    if load64(bar + BAR_ARRIVED) == expected:
        rx_open_barrier(fiber, bar)
        if wait:
            rx_adopt(fiber, load64(bar + BAR_VECTOR))
    elif wait:
        rx_wait_in(fiber, bar + BAR_HEAD, site)


def rx_first_thread(bar: int) -> int:
    """The number of a thread that waits at a barrier."""
    waiter = load64(bar + BAR_HEAD)
    if waiter == 0:
        return 0
    return load64(waiter + FIBER_THREAD)


def rx_recheck_barriers(block: int) -> None:
    """Threads that have ended count as arrived at barriers of the whole block, as they do on the device."""
    bar = load64(block + BLOCK_BARRIERS)
    waiter = load64(bar + BAR_HEAD)
    if waiter and load64(bar + BAR_ARRIVED) >= load64(block + BLOCK_LIVE):
        rx_open_barrier(waiter, bar)


def rx_grid_barrier(fiber: int, site: int) -> None:
    """A barrier of all threads of the grid, whose blocks all run together."""
    grid = load64(fiber + FIBER_GRID)
    rx_release(fiber, load64(grid + GRID_VECTOR))
    store64(grid + GRID_ARRIVED, load64(grid + GRID_ARRIVED) + 1)
    if load64(grid + GRID_ARRIVED) < load64(grid + FIBER_COUNT):
        rx_wait_in(fiber, grid + GRID_HEAD, site)
    else:
        store64(grid + GRID_ARRIVED, 0)
        store64(grid + EPOCH, load64(grid + EPOCH) + 1)
        store64(grid + GRID_COMMON, load64(grid + EPOCH))
        number = 0
        while number < load64(grid + RESIDENT):
            rx_begin_epoch(load64(grid + BLOCKS) + number * BLOCK_BYTES, load64(grid + EPOCH))
            number += 1
        rx_wake_all(grid + GRID_HEAD)
    rx_acquire(fiber, load64(grid + GRID_VECTOR))


# ---- atomic updates by which threads wait for each other


def rx_fence_memory(fiber: int) -> None:
    """``__threadfence``: what atomic updates have shown counts now, and what is known now is what they will show."""
    mine = load64(fiber + FIBER_VECTOR)
    if mine == 0 or load64(fiber + FIBER_SEEN) == 0:
        return
    words = load64(load64(fiber + FIBER_GRID) + VECTOR_WORDS)
    rx_merge(mine, load64(fiber + FIBER_SEEN), words)
    rx_publish(load64(fiber + FIBER_BLOCK), load64(fiber + FIBER_SEEN), words)
    rx_tick(fiber, mine)
    rx_merge(load64(fiber + FIBER_FENCED), mine, words)


def rx_meet_at(fiber: int, address: int) -> int:
    """An atomic update of a place: learn from those before, and show those after what a fence has settled.

    PTX ISA, "Release and acquire patterns": a fence before the one update, a fence after the other.
    """
    grid = load64(fiber + FIBER_GRID)
    if load64(fiber + FIBER_SEEN) == 0:
        return address
    place = load64(grid + ATOMIC_PLACES) + (address >> 2) % PLACE_COUNT * PLACE_BYTES
    words = load64(grid + VECTOR_WORDS)
    rx_merge(load64(fiber + FIBER_SEEN), load64(place + PLACE_VECTOR), words)
    rx_merge(load64(place + PLACE_VECTOR), load64(fiber + FIBER_FENCED), words)
    return address


def rx_warp_group(fiber: int) -> int:
    """Index of the thread's group of four warps in its block."""
    return (fiber - load64(load64(fiber + FIBER_BLOCK) + BLOCK_FIRST)) // (128 * FIBER_BYTES)


def rx_warp_in_group(fiber: int) -> int:
    """Index of the thread's warp in its group of four."""
    return (fiber - load64(load64(fiber + FIBER_BLOCK) + BLOCK_FIRST)) // (32 * FIBER_BYTES) % 4


# ---- lanes


def rx_meet(fiber: int, mask: int, site: int, action: int) -> None:
    """Wait until all lanes in ``mask`` that exist are at the same statement; the last one acts for all."""
    warp = load64(fiber + FIBER_WARP)
    wanted = mask & load64(warp + WARP_LANES)
    me = 1 << load64(fiber + FIBER_LANE)
    if wanted & me == 0:
        # The device leaves undefined what such a lane gets; reductions over a block let lanes come here idly.
        store64(fiber + FIBER_ANSWER, load64(fiber + FIBER_DEPOSIT))
        return
    meeting = warp + WARP_MEETINGS + lowest_bit(wanted) * MEETING_BYTES
    if load64(meeting + MEETING_ARRIVED) == 0:
        store64(meeting + MEETING_MASK, wanted)
        store64(meeting + MEETING_SITE, site)
    elif load64(meeting + MEETING_MASK) != wanted or load64(meeting + MEETING_SITE) != site:
        other = load64(load64(meeting + MEETING_HEAD) + FIBER_THREAD)
        rx_fail_with(fiber, FAULT_DIVERGENCE, site, mask, other, load64(meeting + MEETING_SITE), 1)
    arrived = load64(meeting + MEETING_ARRIVED) | me
    store64(meeting + MEETING_ARRIVED, arrived)
    if arrived == wanted:
        store64(meeting + MEETING_ARRIVED, 0)
        if action == ACTION_SHUFFLE:
            rx_answer_shuffle(warp, wanted)
        elif action == ACTION_BALLOT:
            rx_answer_ballot(warp, wanted)
        rx_wake_all(meeting + MEETING_HEAD)
    else:
        rx_wait_in(fiber, meeting + MEETING_HEAD, site)


def rx_answer_shuffle(warp: int, mask: int) -> None:
    """Give every lane the deposit that it asked for; its own where that lane does not take part."""
    first = load64(warp + WARP_FIRST)
    lane = 0
    while lane < 32:
        if mask & 1 << lane:
            fiber = first + lane * FIBER_BYTES
            source = load64(fiber + FIBER_SOURCE)
            if mask & 1 << source == 0:
                source = lane
            store64(fiber + FIBER_ANSWER, load64(first + source * FIBER_BYTES + FIBER_DEPOSIT))
        lane += 1


def rx_answer_ballot(warp: int, mask: int) -> None:
    """Tell every lane which lanes' flags are set."""
    first = load64(warp + WARP_FIRST)
    found = 0
    lane = 0
    while lane < 32:
        if mask & 1 << lane and load64(first + lane * FIBER_BYTES + FIBER_DEPOSIT):
            found = found | 1 << lane
        lane += 1
    lane = 0
    while lane < 32:
        if mask & 1 << lane:
            store64(first + lane * FIBER_BYTES + FIBER_ANSWER, found)
        lane += 1


def rx_sync_warp(fiber: int, mask: int, site: int) -> None:
    """``__syncwarp``: lanes meet, and each knows what the others did before."""
    rx_release(fiber, load64(load64(fiber + FIBER_WARP) + WARP_VECTOR))
    rx_meet(fiber, mask, site, ACTION_NONE)
    if load64(fiber + FIBER_VECTOR) == 0:
        return
    rx_adopt(fiber, load64(load64(fiber + FIBER_WARP) + WARP_VECTOR))
    # Nobody runs ahead and shows what it did later while others still look.
    rx_meet(fiber, mask, site, ACTION_NONE)


def rx_shuffle(fiber: int, kind: int, mask: int, value: int, lane: int, width: int, site: int) -> int:
    """The value of another lane: by number (kind 0), so many below (1), above (2), or by exclusive or (3)."""
    mine = load64(fiber + FIBER_LANE)
    first = mine - mine % width
    source = mine
    if kind == 0:
        source = first + (lane & (width - 1))
    elif kind == 1 and mine - lane >= first:
        source = mine - lane
    elif kind == 2 and mine + lane < first + width:
        source = mine + lane
    elif kind == 3 and mine ^ lane < first + width:
        source = mine ^ lane
    store64(fiber + FIBER_SOURCE, source)
    store64(fiber + FIBER_DEPOSIT, value)
    rx_meet(fiber, mask, site, ACTION_SHUFFLE)
    return load64(fiber + FIBER_ANSWER)


def rx_ballot(fiber: int, mask: int, flag: int, site: int) -> int:
    """The lanes whose flag is set."""
    store64(fiber + FIBER_DEPOSIT, flag)
    rx_meet(fiber, mask, site, ACTION_BALLOT)
    return load64(fiber + FIBER_ANSWER)


def rx_asking(warp: int, site: int) -> int:
    """The lanes of a warp that stand in ``activemask`` at one statement."""
    found = 0
    lane = 0
    while lane < 32:
        if load64(warp + WARP_LANES) & 1 << lane:
            other = load64(warp + WARP_FIRST) + lane * FIBER_BYTES
            if load64(other + FIBER_STATE) == ASKING and load64(other + FIBER_SITE) == site:
                found = found | 1 << lane
        lane += 1
    return found


def rx_answer_mask(warp: int, mask: int) -> None:
    """Tell lanes that they are the active ones."""
    lane = 0
    while lane < 32:
        if mask & 1 << lane:
            other = load64(warp + WARP_FIRST) + lane * FIBER_BYTES
            store64(other + FIBER_ANSWER, mask)
            rx_make_ready(other)
        lane += 1


def rx_active_mask(fiber: int, site: int) -> int:
    """``__activemask``: the lanes that come to this statement before any of them goes on."""
    warp = load64(fiber + FIBER_WARP)
    store64(fiber + FIBER_STATE, ASKING)
    store64(fiber + FIBER_SITE, site)
    mask = rx_asking(warp, site)
    count = 0
    rest = mask
    while rest:
        count += 1
        rest = rest & (rest - 1)
    if count == load64(warp + WARP_LIVE):
        rx_answer_mask(warp, mask)
    rx_park(fiber)
    return load64(fiber + FIBER_ANSWER)


def rx_answer_masks(grid: int) -> int:
    """When nobody can go on: those who ask for the active lanes are all there are. Returns 0 if nobody asks."""
    answered = 0
    number = 0
    while number < load64(grid + FIBER_COUNT):
        fiber = load64(grid + FIBERS) + number * FIBER_BYTES
        if load64(fiber + FIBER_STATE) == ASKING:
            warp = load64(fiber + FIBER_WARP)
            rx_answer_mask(warp, rx_asking(warp, load64(fiber + FIBER_SITE)))
            answered = 1
        number += 1
    return answered


def rx_scratch(fiber: int) -> int:
    """The warp's room for one operation of all its lanes: another one than the last time."""
    room = load64(fiber + FIBER_ROOM)
    store64(fiber + FIBER_ROOM, 1 - room)
    return load64(load64(fiber + FIBER_WARP) + WARP_SCRATCH) + room * SCRATCH_BYTES


def rx_gather(fiber: int, site: int) -> int:
    """All lanes of the warp meet for an operation that they do together."""
    rx_meet(fiber, 0xFFFFFFFF, site, ACTION_NONE)
    return 0


def rx_shared(fiber: int, offset: int) -> int:
    """The address of static shared memory; of dynamic shared memory for a negative offset."""
    start = load64(load64(fiber + FIBER_BLOCK) + BLOCK_SHARED)
    if offset < 0:
        return start
    return start + load64(load64(fiber + FIBER_GRID) + STATIC_START) + offset


def rx_elect(fiber: int, site: int) -> int:
    """Whether this lane is the first one of its warp."""
    rx_meet(fiber, 0xFFFFFFFF, site, ACTION_NONE)
    return load64(fiber + FIBER_LANE) == 0
