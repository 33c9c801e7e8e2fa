"""Looking at every access: bounds, alignment, races, reads of what nobody wrote.

Each memory that threads share has a shadow: for every few bytes a cell that says who wrote them last and who read
them since, when, and at which statement. A block barrier begins a new epoch; what happened in an earlier epoch of the
same block is in order. Within an epoch vector clocks decide. Of the readers in one epoch the first and the last are
remembered. Asynchronous readers and writers leave a ticket instead of a time; see :mod:`.groups`.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import load32, load64, store32, store64

if TYPE_CHECKING:
    from .clocks import rx_is_fenced, rx_knows, rx_resolve_suspect, rx_suspect
    from .clusters import rx_is_published
    from .fibers import rx_fault, rx_fail_with
    from .groups import rx_completion, rx_is_closed, rx_ticket


def rx_check(fiber: int, index: int, count: int, number: int) -> int:
    """Check the access of ``count`` elements from ``index`` on at a site; returns the index."""
    grid = load64(fiber + FIBER_GRID)
    site = load64(grid + SITES) + number * SITE_BYTES
    at = index * load64(site + SITE_UNIT)
    size = count * load64(site + SITE_UNIT)
    if load64(site + SITE_MEMORY) < 0:
        if index < 0 or at + size > load64(site + SITE_SIZE):
            rx_fault(fiber, FAULT_BOUNDS, number, index)
        return index
    memory = load64(load64(fiber + FIBER_BLOCK) + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES
    if index < 0 or at + size > load64(memory + MEM_SIZE):
        rx_fault(fiber, FAULT_BOUNDS, number, index)
    if at & load64(site + SITE_ALIGN):
        rx_fault(fiber, FAULT_ALIGNMENT, number, index)
    if load64(memory + MEM_SHADOW):
        rx_resolve_suspect(fiber)
        rx_check_cells(fiber, memory, at, size, load64(site + SITE_KIND), number, index)
    return index


def rx_check_strided(fiber: int, index: int, count: int, stride: int, number: int) -> int:
    """Check ``count`` elements ``stride`` apart; returns the first index."""
    i = 0
    while i < count:
        rx_check(fiber, index + i * stride, 1, number)
        i += 1
    return index


def rx_cell(memory: int, at: int) -> int:
    """The shadow cell of a byte."""
    return load64(memory + MEM_SHADOW) + (at << load64(memory + MEM_FINE) >> load64(memory + MEM_SHIFT)) * CELL_BYTES


def rx_last_cell(memory: int, end: int) -> int:
    """The last shadow cell of the bytes before ``end``."""
    place = (end << load64(memory + MEM_FINE)) - 1
    return load64(memory + MEM_SHADOW) + (place >> load64(memory + MEM_SHIFT)) * CELL_BYTES


def rx_check_nibbles(fiber: int, index: int, count: int, number: int) -> int:
    """``rx_check`` for elements of 4 bits, each of which has a cell; several fill whole bytes."""
    site = load64(load64(fiber + FIBER_GRID) + SITES) + number * SITE_BYTES
    memory = load64(load64(fiber + FIBER_BLOCK) + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES
    size = load64(site + SITE_SIZE)
    if load64(site + SITE_MEMORY) >= 0:
        size = load64(memory + MEM_SIZE)
    if index < 0 or (index + count + 1) // 2 > size:
        rx_fault(fiber, FAULT_BOUNDS, number, index)
    if count > 1 and (index % 2 or index // 2 & load64(site + SITE_ALIGN)):
        rx_fault(fiber, FAULT_ALIGNMENT, number, index)
    if load64(site + SITE_MEMORY) >= 0 and load64(memory + MEM_SHADOW):
        rx_resolve_suspect(fiber)
        cell = load64(memory + MEM_SHADOW) + index * CELL_BYTES
        last = cell + (count - 1) * CELL_BYTES
        while cell <= last:
            if load64(site + SITE_KIND) == SITE_LOAD:
                rx_check_load(fiber, memory, cell, number, index)
            else:
                rx_check_store(fiber, memory, cell, index // 2, (count + 1) // 2, number, index)
            cell += CELL_BYTES
    return index


def rx_check_cells(fiber: int, memory: int, at: int, size: int, kind: int, number: int, index: int) -> None:
    """Check and note an access in all cells that it touches."""
    cell = rx_cell(memory, at)
    last = rx_last_cell(memory, at + size)
    while cell <= last:
        if kind == SITE_LOAD:
            rx_check_load(fiber, memory, cell, number, index)
        elif kind == SITE_STORE:
            rx_check_store(fiber, memory, cell, at, size, number, index)
        elif kind == SITE_ATOMIC:
            rx_check_atomic(fiber, memory, cell, number, index)
        else:
            rx_check_async_load(fiber, memory, cell, kind, number, index)
        cell += CELL_BYTES


def rx_is_conflict(fiber: int, epoch: int, thread: int, clock: int) -> int:
    """Whether an access of somebody in this cluster is not in order with what this thread does now."""
    me = load64(fiber + FIBER_THREAD)
    if clock & TICKET and clock != PENDING:
        done = rx_completion(fiber, thread, clock)
        if done == PENDING:
            return 1
        if thread == me:
            return 0
        # When the access was begun says nothing of when it ended.
        return rx_knows(fiber, thread, done) == 0
    if thread == me:
        return 0
    if epoch < rx_epoch_since(fiber, me, thread):
        return 0
    if rx_knows(fiber, thread, clock):
        return 0
    return 1


def rx_epoch_since(fiber: int, me: int, thread: int) -> int:
    """The epoch that began with the last barrier that this thread and another one have passed together."""
    grid = load64(fiber + FIBER_GRID)
    if load64(grid + RESIDENT) == 1:
        return load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH)
    threads = load64(grid + THREADS)
    if thread // threads == me // threads:
        return load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH)
    threads = threads * load64(grid + BLOCKS_PER_CLUSTER)
    if thread // threads == me // threads:
        return load64(load64(fiber + FIBER_BLOCK) + BLOCK_COMMON)
    return load64(grid + GRID_COMMON)


def rx_check_written(fiber: int, memory: int, cell: int, number: int, index: int, how: int) -> None:
    """Report a write of others that this access is not in order with."""
    epoch = load32(cell + CELL_W_EPOCH)
    first = load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH)
    if epoch >= first:
        rx_check_pending(fiber, cell, number, index, how)
        if rx_is_conflict(fiber, epoch, load32(cell + CELL_W_THREAD), load32(cell + CELL_W_CLOCK)):
            rx_report(fiber, FAULT_RACE, cell, number, index, HOW_STORE)
        if how == HOW_LOAD and load32(cell + CELL_HOW) != WROTE_ASYNC:
            rx_check_published(fiber, cell, epoch, number, index)
    elif load64(memory + MEM_SHARED):
        if how == HOW_LOAD:
            rx_fault(fiber, FAULT_UNINITIALISED, number, index)
    elif epoch:
        rx_report(fiber, FAULT_OTHER_BLOCK, cell, number, index, HOW_STORE)


def rx_check_published(fiber: int, cell: int, epoch: int, number: int, index: int) -> None:
    """Report a read of what another block of the cluster wrote, where nothing has published it to this one."""
    if load64(load64(fiber + FIBER_GRID) + RESIDENT) == 1:
        return
    thread = load32(cell + CELL_W_THREAD)
    if epoch < rx_epoch_since(fiber, load64(fiber + FIBER_THREAD), thread):
        return
    if rx_is_published(fiber, thread, load32(cell + CELL_W_CLOCK)) == 0:
        rx_report(fiber, FAULT_UNPUBLISHED, cell, number, index, HOW_STORE)


def rx_check_pending(fiber: int, cell: int, number: int, index: int, how: int) -> None:
    """Report an asynchronous write that is under way."""
    clock = load32(cell + CELL_W_CLOCK)
    if clock & TICKET == 0:
        return
    if clock != PENDING:
        if rx_completion(fiber, load32(cell + CELL_W_THREAD), clock) != PENDING:
            return
    rx_report(fiber, FAULT_PENDING, cell, number, index, how)


def rx_report(fiber: int, kind: int, cell: int, number: int, index: int, how: int) -> None:
    """A fault that involves the last writer."""
    rx_fail_with(fiber, kind, number, index, load32(cell + CELL_W_THREAD), load32(cell + CELL_W_SITE), how)


def rx_note_read(fiber: int, cell: int, number: int, clock: int) -> None:
    """Remember a read: the first and the last thread of the epoch."""
    epoch = load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH)
    thread = load64(fiber + FIBER_THREAD)
    if load32(cell + CELL_R_EPOCH) != epoch:
        rx_keep_ticket(fiber, cell)
        store32(cell + CELL_R_EPOCH, epoch)
        store32(cell + CELL_R_THREAD, thread)
        store32(cell + CELL_R_CLOCK, clock)
        store32(cell + CELL_R_SITE, number)
    elif load32(cell + CELL_R_THREAD) == thread and (clock & TICKET or load32(cell + CELL_R_CLOCK) & TICKET == 0):
        store32(cell + CELL_R_CLOCK, clock)
        store32(cell + CELL_R_SITE, number)
    else:
        store32(cell + CELL_R2_THREAD, thread)
        store32(cell + CELL_R2_CLOCK, clock)
        store32(cell + CELL_R2_SITE, number)


def rx_keep_ticket(fiber: int, cell: int) -> None:
    """At the first read of an epoch: an asynchronous reader of an earlier one stays in the second place."""
    store32(cell + CELL_R2_THREAD, NOBODY)
    if load32(cell + CELL_R_EPOCH) < load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
        return
    clock = load32(cell + CELL_R_CLOCK)
    if clock & TICKET and load32(cell + CELL_R_THREAD) != load64(fiber + FIBER_THREAD):
        store32(cell + CELL_R2_THREAD, load32(cell + CELL_R_THREAD))
        store32(cell + CELL_R2_CLOCK, clock)
        store32(cell + CELL_R2_SITE, load32(cell + CELL_R_SITE))


def rx_check_load(fiber: int, memory: int, cell: int, number: int, index: int) -> None:
    """A read of one cell."""
    # The usual case first: written before the last barrier, read by this thread already or by nobody yet.
    rx_check_written(fiber, memory, cell, number, index, HOW_LOAD)
    rx_note_read(fiber, cell, number, load64(fiber + FIBER_CLOCK))


def rx_check_async_load(fiber: int, memory: int, cell: int, kind: int, number: int, index: int) -> None:
    """A read that goes on until its group is complete; it does not see ordinary stores before a fence."""
    rx_check_written(fiber, memory, cell, number, index, HOW_LOAD)
    if load32(cell + CELL_HOW) != WROTE_ASYNC:
        if rx_is_fenced(fiber, load32(cell + CELL_W_THREAD), load32(cell + CELL_W_CLOCK)) == 0:
            rx_report(fiber, FAULT_PROXY, cell, number, index, HOW_STORE)
    queue = STORES_READ
    if kind == SITE_PRODUCT:
        queue = PRODUCTS
    rx_note_read(fiber, cell, number, rx_ticket(fiber, queue))


def rx_check_readers(fiber: int, cell: int, number: int, index: int) -> None:
    """Report readers that may still be about to read what a store overwrites."""
    epoch = load32(cell + CELL_R_EPOCH)
    if epoch == 0:
        return
    if epoch < load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
        return
    rx_check_reader(fiber, epoch, cell + CELL_R_THREAD, number, index)
    if load32(cell + CELL_R2_THREAD) != NOBODY:
        rx_check_reader(fiber, epoch, cell + CELL_R2_THREAD, number, index)


def rx_check_reader(fiber: int, epoch: int, reader: int, number: int, index: int) -> None:
    """``reader`` is where a cell says who read it: the thread, when, and at which site."""
    clock = load32(reader + 4)
    thread = load32(reader)
    if rx_is_conflict(fiber, epoch, thread, clock):
        if clock & TICKET:
            how = clock >> TICKET_QUEUE & 7
            if rx_is_closed(fiber, thread, clock):
                how = how | HOW_CLOSED
            rx_fail_with(fiber, FAULT_READING, number, index, thread, load32(reader + 8), how)
        rx_fail_with(fiber, FAULT_RACE, number, index, thread, load32(reader + 8), HOW_LOAD)


def rx_note_write(fiber: int, cell: int, number: int, clock: int, how: int) -> None:
    """Remember a write; who read before does not matter any more."""
    store32(cell + CELL_W_EPOCH, load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH))
    store32(cell + CELL_W_CLOCK, clock)
    store32(cell + CELL_W_THREAD, load64(fiber + FIBER_THREAD))
    store32(cell + CELL_W_SITE, number)
    store32(cell + CELL_R_EPOCH, 0)
    store32(cell + CELL_HOW, how)


def rx_check_store(fiber: int, memory: int, cell: int, at: int, size: int, number: int, index: int) -> None:
    """A store to one cell. Overwriting what another thread stored is a race unless the value stays the same."""
    rx_check_readers(fiber, cell, number, index)
    epoch = load32(cell + CELL_W_EPOCH)
    thread = load32(cell + CELL_W_THREAD)
    suspect = 0
    if epoch >= load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
        rx_check_pending(fiber, cell, number, index, HOW_STORE)
        suspect = rx_is_conflict(fiber, epoch, thread, load32(cell + CELL_W_CLOCK))
    elif epoch and load64(memory + MEM_SHARED) == 0:
        suspect = 1
    if suspect and load64(fiber + SUSPECT_SIZE) == 0:
        rx_suspect(fiber, load64(memory + MEM_BASE) + at, size, number, index, thread, load32(cell + CELL_W_SITE))
    rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK), WROTE_PLAIN)


def rx_check_atomic(fiber: int, memory: int, cell: int, number: int, index: int) -> None:
    """An atomic update: in order with other atomic updates, not with plain accesses."""
    if load32(cell + CELL_HOW) != WROTE_ATOMIC:
        rx_check_readers(fiber, cell, number, index)
        rx_check_written(fiber, memory, cell, number, index, HOW_LOAD)
    rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK), WROTE_ATOMIC)


def rx_mark_pending(fiber: int, memory: int, at: int, size: int, number: int, index: int, ticket: int) -> None:
    """An asynchronous copy will write here: until it has, nobody else may touch the place."""
    if load64(memory + MEM_SHADOW) == 0:
        return
    rx_resolve_suspect(fiber)
    cell = rx_cell(memory, at)
    last = rx_last_cell(memory, at + size)
    while cell <= last:
        rx_check_readers(fiber, cell, number, index)
        if load32(cell + CELL_W_EPOCH) >= load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
            rx_check_written(fiber, memory, cell, number, index, HOW_STORE)
        elif load32(cell + CELL_W_EPOCH) and load64(memory + MEM_SHARED) == 0:
            rx_report(fiber, FAULT_OTHER_BLOCK, cell, number, index, HOW_STORE)
        rx_note_write(fiber, cell, number, ticket, WROTE_ASYNC)
        cell += CELL_BYTES


def rx_mark_written(fiber: int, memory: int, at: int, size: int, number: int, how: int) -> None:
    """An asynchronous copy has written, as this thread's doing."""
    if load64(memory + MEM_SHADOW) == 0:
        return
    cell = rx_cell(memory, at)
    last = rx_last_cell(memory, at + size)
    while cell <= last:
        rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK), how)
        cell += CELL_BYTES
    store64(fiber + SUSPECT_SIZE, 0)


def rx_check_if(fiber: int, index: int, count: int, really: int, number: int) -> int:
    """``rx_check`` of an access that happens only under a condition."""
    if really:
        rx_check(fiber, index, count, number)
    return index


def rx_check_place(fiber: int, index: int, count: int, number: int) -> int:
    """Check bounds and alignment alone."""
    site = load64(load64(fiber + FIBER_GRID) + SITES) + number * SITE_BYTES
    memory = load64(load64(fiber + FIBER_BLOCK) + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES
    at = index * load64(site + SITE_UNIT)
    if index < 0 or at + count * load64(site + SITE_UNIT) > load64(memory + MEM_SIZE):
        rx_fault(fiber, FAULT_BOUNDS, number, index)
    if at & load64(site + SITE_ALIGN):
        rx_fault(fiber, FAULT_ALIGNMENT, number, index)
    return index


def rx_index(fiber: int, index: int, count: int, number: int) -> int:
    """Substitute of ``rx_check`` in builds without checks."""
    return index


def rx_index_strided(fiber: int, index: int, count: int, stride: int, number: int) -> int:
    """Substitute of ``rx_check_strided`` in builds without checks."""
    return index


def rx_check_metadata(fiber: int, word: int, chunk: int, number: int) -> int:
    """A word of a sparse operand's metadata: two different indices for each chunk; two elements have but two forms."""
    group = 0
    while group < 8:
        bits = word >> 4 * group & 15
        if bits & 3 == bits >> 2 or (chunk == 2 and bits != 4 and bits != 14):
            rx_fault(fiber, FAULT_METADATA, number, bits)
        group += 1
    return 0
