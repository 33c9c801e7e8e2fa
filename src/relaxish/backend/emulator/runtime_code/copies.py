"""Asynchronous copies: ``cp.async`` groups of a thread, memory barriers, bulk copies that complete on them.

A copy is made as late as the program allows: when its thread waits for its group, or when somebody waits for the
barrier it completes on. So a program that reads too early reads old data, whatever the timing of a real device.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import copy, fill, libc_free, libc_malloc, load32, load64, store32, store64

if TYPE_CHECKING:
    from .clocks import rx_acquire, rx_release
    from .clusters import rx_block_of_rank, rx_is_made_for, rx_note_maker, rx_publish_barriers
    from .fibers import rx_fail_with, rx_fault
    from .shadow import rx_mark_pending, rx_mark_written
    from .sync import rx_wait_in, rx_wake_all


# ---- cp.async


def rx_copy_room(fiber: int) -> None:
    """Make room for one more copy under way."""
    count = load64(fiber + FIBER_COPY_COUNT)
    if count == load64(fiber + FIBER_COPY_ROOM):
        room = 2 * count + 16
        larger = libc_malloc(room * COPY_BYTES)
        if count:
            copy(larger, load64(fiber + FIBER_COPIES), count * COPY_BYTES)
            libc_free(load64(fiber + FIBER_COPIES))
        store64(fiber + FIBER_COPIES, larger)
        store64(fiber + FIBER_COPY_ROOM, room)


def rx_memory_of(fiber: int, number: int) -> int:
    """The memory that a site accesses."""
    site = load64(load64(fiber + FIBER_GRID) + SITES) + number * SITE_BYTES
    return load64(load64(fiber + FIBER_BLOCK) + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES


def rx_copy_async(fiber: int, target: int, at: int, source: int, size: int, really: int, number: int) -> None:
    """``cp.async``: zeros where it does not really copy. ``at`` is the offset in bytes in the target's memory."""
    rx_copy_room(fiber)
    entry = load64(fiber + FIBER_COPIES) + load64(fiber + FIBER_COPY_COUNT) * COPY_BYTES
    store64(fiber + FIBER_COPY_COUNT, load64(fiber + FIBER_COPY_COUNT) + 1)
    store64(entry + COPY_TARGET, target)
    store64(entry + COPY_SOURCE, source * really)
    store64(entry + COPY_SIZE, size)
    store64(entry + COPY_GROUP, load64(fiber + FIBER_GROUPS))
    store64(entry + COPY_SITE, number)
    store64(entry + COPY_AT, at)
    store64(entry + COPY_MEMORY, 0)
    if load64(load64(fiber + FIBER_GRID) + CHECKED):
        memory = rx_memory_of(fiber, number)
        store64(entry + COPY_MEMORY, memory)
        rx_mark_pending(fiber, memory, at, size, number, at, PENDING)


def rx_copy_async_at(fiber: int, base: int, offset: int, source: int, size: int, really: int, number: int) -> None:
    """``rx_copy_async`` to an offset in bytes from the beginning of the target's memory."""
    rx_copy_async(fiber, base + offset, offset, source, size, really, number)


def rx_commit_copies(fiber: int) -> None:
    """``cp.async.commit_group``."""
    store64(fiber + FIBER_GROUPS, load64(fiber + FIBER_GROUPS) + 1)


def rx_finish_copies(fiber: int, left: int) -> None:
    """``cp.async.wait_group``: make all copies but those of the last ``left`` committed groups."""
    count = load64(fiber + FIBER_COPY_COUNT)
    entries = load64(fiber + FIBER_COPIES)
    limit = load64(fiber + FIBER_GROUPS) - left
    done = 0
    while done < count:
        entry = entries + done * COPY_BYTES
        if load64(entry + COPY_GROUP) >= limit:
            break
        rx_make_copy(fiber, entry)
        done += 1
    kept = 0
    while done + kept < count:
        copy(entries + kept * COPY_BYTES, entries + (done + kept) * COPY_BYTES, COPY_BYTES)
        kept += 1
    store64(fiber + FIBER_COPY_COUNT, kept)


def rx_make_copy(fiber: int, entry: int) -> None:
    """Write what a copy brings."""
    size = load64(entry + COPY_SIZE)
    if load64(entry + COPY_SOURCE):
        copy(load64(entry + COPY_TARGET), load64(entry + COPY_SOURCE), size)
    else:
        fill(load64(entry + COPY_TARGET), 0, size)
    if load64(entry + COPY_MEMORY):
        rx_mark_written(
            fiber, load64(entry + COPY_MEMORY), load64(entry + COPY_AT), size, load64(entry + COPY_SITE), WROTE_PLAIN
        )


# ---- memory barriers


def rx_mbarrier(fiber: int, address: int, site: int) -> int:
    """The barrier that an address in shared memory stands for."""
    word = load32(address)
    if load32(address + 4) != MBAR_MAGIC:
        rx_fault(fiber, FAULT_BARRIER, site, 0)
    bar = load64(load64(fiber + FIBER_GRID) + BARRIER_POOL) + word * MBAR_BYTES
    maker = load64(bar + MBAR_MAKER)
    if maker and maker != load64(fiber + FIBER_THREAD) + 1 and rx_is_made_for(fiber, bar) == 0:
        rx_fail_with(fiber, FAULT_UNSEEN_BARRIER, site, 0, maker - 1, site, 0)
    return bar


def rx_mbarrier_init(fiber: int, address: int, count: int, site: int) -> None:
    """``mbarrier.init``: the barrier's phases end after so many arrivals."""
    grid = load64(fiber + FIBER_GRID)
    if count < 1 or count > MBAR_MOST:
        rx_fault(fiber, FAULT_BARRIER, site, count)
    number = load64(grid + BARRIERS_USED)
    if load32(address + 4) == MBAR_MAGIC:
        number = load32(address)
    elif number == load64(grid + BARRIERS_MAX):
        rx_fault(fiber, FAULT_BARRIER, site, number)
    else:
        store64(grid + BARRIERS_USED, number + 1)
    store32(address, number)
    store32(address + 4, MBAR_MAGIC)
    bar = load64(grid + BARRIER_POOL) + number * MBAR_BYTES
    fill(bar, 0, MBAR_VECTOR)
    store64(bar + MBAR_COPIES, 0)
    store64(bar + MBAR_EXPECTED, count)
    store64(bar + MBAR_PENDING, count)
    if load64(bar + MBAR_VECTOR):
        fill(load64(bar + MBAR_VECTOR), 0, 4 * load64(grid + VECTOR_WORDS))
        fill(load64(bar + MBAR_DONE), 0, 4 * load64(grid + VECTOR_WORDS))
    rx_note_maker(fiber, bar)


def rx_mbarrier_init_fenced(fiber: int, address: int, count: int, site: int) -> None:
    """``mbarrier.init`` with the fence for bulk copies behind it."""
    rx_mbarrier_init(fiber, address, count, site)
    rx_publish_barriers(fiber, 0)


def rx_mbarrier_advance(grid: int, bar: int, waited: int) -> None:
    """End the phase if all have arrived; copies are made once somebody waits."""
    if load64(bar + MBAR_PENDING) > 0:
        return
    if waited or load64(bar + MBAR_HEAD):
        entry = load64(bar + MBAR_COPIES)
        store64(bar + MBAR_COPIES, 0)
        while entry:
            following = load64(entry + BULK_NEXT)
            fiber = load64(entry + BULK_FIBER)
            rx_make_bulk(bar, entry)
            entry = following
            # All pieces of a copy at once: a thread's knowledge is long.
            if entry == 0 or load64(entry + BULK_FIBER) != fiber:
                rx_release(fiber, load64(bar + MBAR_VECTOR))
    if load64(bar + MBAR_BYTES_LEFT) == 0:
        store64(bar + MBAR_PENDING, load64(bar + MBAR_EXPECTED))
        store64(bar + MBAR_PHASE, load64(bar + MBAR_PHASE) + 1)
        shown = load64(bar + MBAR_DONE)
        waiter = load64(bar + MBAR_HEAD)
        if shown:
            # What is shown from now on belongs to the next phase.
            copy(shown, load64(bar + MBAR_VECTOR), 4 * load64(grid + VECTOR_WORDS))
        while waiter:
            rx_acquire(waiter, shown)
            waiter = load64(waiter + FIBER_NEXT)
        rx_wake_all(bar + MBAR_HEAD)


def rx_mbarrier_arrive(fiber: int, address: int, count: int, expected: int, site: int) -> None:
    """``mbarrier.arrive`` by ``count`` (0 for ``expect_tx`` alone), expecting so many more bytes."""
    bar = rx_mbarrier(fiber, address, site)
    rx_release(fiber, load64(bar + MBAR_VECTOR))
    store64(bar + MBAR_BYTES_LEFT, load64(bar + MBAR_BYTES_LEFT) + expected)
    store64(bar + MBAR_PENDING, load64(bar + MBAR_PENDING) - count)
    if load64(bar + MBAR_PENDING) < 0 or load64(bar + MBAR_BYTES_LEFT) > MBAR_MOST:
        rx_fault(fiber, FAULT_BARRIER, site, count)
    rx_mbarrier_advance(load64(fiber + FIBER_GRID), bar, 0)


def rx_mbarrier_wait(fiber: int, address: int, parity: int, site: int) -> None:
    """Wait until the phase of this parity has ended."""
    bar = rx_mbarrier(fiber, address, site)
    if load64(bar + MBAR_PHASE) & 1 == parity & 1:
        rx_mbarrier_advance(load64(fiber + FIBER_GRID), bar, 1)
    if load64(bar + MBAR_PHASE) & 1 == parity & 1:
        rx_wait_in(fiber, bar + MBAR_HEAD, site)
    else:
        rx_acquire(fiber, load64(bar + MBAR_DONE))


def rx_mbarrier_test(fiber: int, address: int, parity: int, site: int) -> int:
    """Whether the phase of this parity has ended."""
    bar = rx_mbarrier(fiber, address, site)
    if load64(bar + MBAR_PHASE) & 1 == parity & 1:
        rx_mbarrier_advance(load64(fiber + FIBER_GRID), bar, 1)
    if load64(bar + MBAR_PHASE) & 1 == parity & 1:
        return 0
    rx_acquire(fiber, load64(bar + MBAR_DONE))
    return 1


def rx_mbarrier_after_copies(fiber: int, address: int, site: int) -> None:
    """``cp.async.mbarrier.arrive``: the phase lasts at least until the thread's copies so far are made."""
    bar = rx_mbarrier(fiber, address, site)
    rx_commit_copies(fiber)
    rx_finish_copies(fiber, 0)
    rx_release(fiber, load64(bar + MBAR_VECTOR))


def rx_copy_if(fiber: int, target: int, source: int, size: int, really: int) -> None:
    """A load under a condition; the target stays as it is without it."""
    if really:
        copy(target, source, size)


# ---- bulk copies


def rx_bulk_piece(
    fiber: int, rank: int, address: int, target: int, at: int, source: int, inside: int, number: int
) -> None:
    """Sixteen bytes of a copy that completes on a barrier: ``inside`` ones from the source, zeros for the others."""
    bar = rx_mbarrier(fiber, address, number)
    entry = libc_malloc(BULK_BYTES)
    store64(entry + BULK_NEXT, load64(bar + MBAR_COPIES))
    store64(bar + MBAR_COPIES, entry)
    store64(entry + BULK_TARGET, target)
    store64(entry + BULK_SOURCE, source)
    store64(entry + BULK_SIZE, 16)
    store64(entry + BULK_INSIDE, inside)
    store64(entry + BULK_FIBER, fiber)
    store64(entry + BULK_SITE, number)
    store64(entry + BULK_AT, at)
    store64(entry + BULK_MEMORY, 0)
    grid = load64(fiber + FIBER_GRID)
    if load64(grid + CHECKED):
        site = load64(grid + SITES) + number * SITE_BYTES
        block = rx_block_of_rank(fiber, rank)
        memory = load64(block + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES
        if at < 0 or at + 16 > load64(memory + MEM_SIZE):
            rx_fault(fiber, FAULT_BOUNDS, number, at // load64(site + SITE_UNIT))
        store64(entry + BULK_MEMORY, memory)
        rx_mark_pending(fiber, memory, at, 16, number, at // load64(site + SITE_UNIT), PENDING)


def rx_bulk_copy(fiber: int, address: int, base: int, at: int, source: int, size: int, number: int) -> None:
    """``cp.async.bulk``: contiguous bytes, a multiple of 16."""
    rank = load64(load64(fiber + FIBER_BLOCK) + BLOCK_RANK)
    done = 0
    while done < size:
        rx_bulk_piece(fiber, rank, address, base + at + done, at + done, source + done, 16, number)
        done += 16
    rx_bulk_issued(fiber, address, number)


def rx_bulk_issued(fiber: int, address: int, site: int) -> None:
    """All pieces of a bulk copy are known: make them at once if somebody waits already."""
    bar = rx_mbarrier(fiber, address, site)
    if load64(bar + MBAR_MAKER) and load64(bar + MBAR_PROXY) == 0:
        rx_fail_with(fiber, FAULT_UNFENCED_BARRIER, site, 0, load64(bar + MBAR_MAKER) - 1, site, 0)
    rx_mbarrier_advance(load64(fiber + FIBER_GRID), bar, 0)


def rx_make_bulk(bar: int, entry: int) -> None:
    """Write what a piece of a bulk copy brings and count its bytes."""
    fiber = load64(entry + BULK_FIBER)
    size = load64(entry + BULK_SIZE)
    inside = load64(entry + BULK_INSIDE)
    copy(load64(entry + BULK_TARGET), load64(entry + BULK_SOURCE), inside)
    fill(load64(entry + BULK_TARGET) + inside, 0, size - inside)
    if load64(entry + BULK_MEMORY):
        memory = load64(entry + BULK_MEMORY)
        rx_mark_written(fiber, memory, load64(entry + BULK_AT), size, load64(entry + BULK_SITE), WROTE_ASYNC)
    store64(bar + MBAR_BYTES_LEFT, load64(bar + MBAR_BYTES_LEFT) - size)
    libc_free(entry)
