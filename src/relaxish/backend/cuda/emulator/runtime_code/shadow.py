"""Looking at every access: bounds, alignment, races, reads of what nobody wrote.

Each memory that threads share has a shadow: for every few bytes a cell that says who wrote them last and who read
them since, when, and at which statement. A block barrier begins a new epoch; what happened in an earlier epoch of the
same block is in order. Within an epoch vector clocks decide. Of the readers in one epoch the first and the last are
remembered.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import load32, load64, store32, store64

if TYPE_CHECKING:
    from .clocks import rx_knows, rx_resolve_suspect, rx_suspect
    from .fibers import rx_fail, rx_fail_with


def rx_check(fiber: int, index: int, count: int, number: int) -> int:
    """Check the access of ``count`` elements from ``index`` on at a site; returns the index."""
    grid = load64(fiber + FIBER_GRID)
    site = load64(grid + SITES) + number * SITE_BYTES
    at = index * load64(site + SITE_UNIT)
    size = count * load64(site + SITE_UNIT)
    if load64(site + SITE_MEMORY) < 0:
        if index < 0 or at + size > load64(site + SITE_SIZE):
            rx_fail(fiber, FAULT_BOUNDS, number, index)
        return index
    memory = load64(load64(fiber + FIBER_BLOCK) + BLOCK_MEMORIES) + load64(site + SITE_MEMORY) * MEM_BYTES
    if index < 0 or at + size > load64(memory + MEM_SIZE):
        rx_fail(fiber, FAULT_BOUNDS, number, index)
    if at & load64(site + SITE_ALIGN):
        rx_fail(fiber, FAULT_ALIGNMENT, number, index)
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


def rx_check_cells(fiber: int, memory: int, at: int, size: int, kind: int, number: int, index: int) -> None:
    """Check and note an access in all cells that it touches."""
    shift = load64(memory + MEM_SHIFT)
    cell = load64(memory + MEM_SHADOW) + (at >> shift) * CELL_BYTES
    last = load64(memory + MEM_SHADOW) + (at + size - 1 >> shift) * CELL_BYTES
    while cell <= last:
        if kind == SITE_LOAD:
            rx_check_load(fiber, memory, cell, number, index)
        elif kind == SITE_STORE:
            rx_check_store(fiber, memory, cell, at, size, number, index)
        else:
            rx_check_atomic(fiber, memory, cell, number, index)
        cell += CELL_BYTES


def rx_is_conflict(fiber: int, epoch: int, thread: int, clock: int) -> int:
    """Whether an access of somebody in this cluster is not in order with what this thread does now."""
    if thread == load64(fiber + FIBER_THREAD):
        return 0
    if epoch < load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH):
        return 0
    if rx_knows(fiber, thread, clock):
        return 0
    return 1


def rx_check_written(fiber: int, memory: int, cell: int, number: int, index: int, how: int) -> None:
    """Report a write of others that this access is not in order with."""
    epoch = load32(cell + CELL_W_EPOCH)
    first = load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH)
    if epoch >= first:
        if load32(cell + CELL_W_CLOCK) == PENDING:
            rx_report(fiber, FAULT_PENDING, cell, number, index, how)
        if rx_is_conflict(fiber, epoch, load32(cell + CELL_W_THREAD), load32(cell + CELL_W_CLOCK)):
            rx_report(fiber, FAULT_RACE, cell, number, index, HOW_STORE)
    elif load64(memory + MEM_SHARED):
        if how == HOW_LOAD:
            rx_fail(fiber, FAULT_UNINITIALISED, number, index)
    elif epoch:
        rx_report(fiber, FAULT_OTHER_BLOCK, cell, number, index, HOW_STORE)


def rx_report(fiber: int, kind: int, cell: int, number: int, index: int, how: int) -> None:
    """A fault that involves the last writer."""
    rx_fail_with(fiber, kind, number, index, load32(cell + CELL_W_THREAD), load32(cell + CELL_W_SITE), how)


def rx_note_read(fiber: int, cell: int, number: int) -> None:
    """Remember a read: the first and the last thread of the epoch."""
    epoch = load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH)
    thread = load64(fiber + FIBER_THREAD)
    if load32(cell + CELL_R_EPOCH) != epoch:
        store32(cell + CELL_R_EPOCH, epoch)
        store32(cell + CELL_R_THREAD, thread)
        store32(cell + CELL_R_CLOCK, load64(fiber + FIBER_CLOCK))
        store32(cell + CELL_R_SITE, number)
        store32(cell + CELL_R2_THREAD, NOBODY)
    elif load32(cell + CELL_R_THREAD) == thread:
        store32(cell + CELL_R_CLOCK, load64(fiber + FIBER_CLOCK))
        store32(cell + CELL_R_SITE, number)
    else:
        store32(cell + CELL_R2_THREAD, thread)
        store32(cell + CELL_R2_CLOCK, load64(fiber + FIBER_CLOCK))
        store32(cell + CELL_R2_SITE, number)


def rx_check_load(fiber: int, memory: int, cell: int, number: int, index: int) -> None:
    """A read of one cell."""
    # The usual case first: written before the last barrier, read by this thread already or by nobody yet.
    rx_check_written(fiber, memory, cell, number, index, HOW_LOAD)
    rx_note_read(fiber, cell, number)


def rx_check_readers(fiber: int, cell: int, number: int, index: int) -> None:
    """Report readers that may still be about to read what a store overwrites."""
    epoch = load32(cell + CELL_R_EPOCH)
    if epoch == 0:
        return
    if epoch < load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
        return
    if rx_is_conflict(fiber, epoch, load32(cell + CELL_R_THREAD), load32(cell + CELL_R_CLOCK)):
        rx_fail_with(
            fiber, FAULT_RACE, number, index, load32(cell + CELL_R_THREAD), load32(cell + CELL_R_SITE), HOW_LOAD
        )
    if load32(cell + CELL_R2_THREAD) != NOBODY:
        if rx_is_conflict(fiber, epoch, load32(cell + CELL_R2_THREAD), load32(cell + CELL_R2_CLOCK)):
            rx_fail_with(
                fiber, FAULT_RACE, number, index, load32(cell + CELL_R2_THREAD), load32(cell + CELL_R2_SITE), HOW_LOAD
            )


def rx_note_write(fiber: int, cell: int, number: int, clock: int) -> None:
    """Remember a write; who read before does not matter any more."""
    store32(cell + CELL_W_EPOCH, load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH))
    store32(cell + CELL_W_CLOCK, clock)
    store32(cell + CELL_W_THREAD, load64(fiber + FIBER_THREAD))
    store32(cell + CELL_W_SITE, number)
    store32(cell + CELL_R_EPOCH, 0)
    store32(cell + CELL_ATOMIC, 0)


def rx_check_store(fiber: int, memory: int, cell: int, at: int, size: int, number: int, index: int) -> None:
    """A store to one cell. Overwriting what another thread stored is a race unless the value stays the same."""
    rx_check_readers(fiber, cell, number, index)
    epoch = load32(cell + CELL_W_EPOCH)
    thread = load32(cell + CELL_W_THREAD)
    clock = load32(cell + CELL_W_CLOCK)
    suspect = 0
    if epoch >= load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
        if clock == PENDING:
            rx_report(fiber, FAULT_PENDING, cell, number, index, HOW_STORE)
        suspect = rx_is_conflict(fiber, epoch, thread, clock)
    elif epoch and load64(memory + MEM_SHARED) == 0:
        suspect = 1
    if suspect and load64(fiber + SUSPECT_SIZE) == 0:
        rx_suspect(fiber, load64(memory + MEM_BASE) + at, size, number, index, thread, load32(cell + CELL_W_SITE))
    rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK))


def rx_check_atomic(fiber: int, memory: int, cell: int, number: int, index: int) -> None:
    """An atomic update: in order with other atomic updates, not with plain accesses."""
    if load32(cell + CELL_ATOMIC) == 0:
        rx_check_readers(fiber, cell, number, index)
        rx_check_written(fiber, memory, cell, number, index, HOW_LOAD)
    rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK))
    store32(cell + CELL_ATOMIC, 1)


def rx_mark_pending(fiber: int, memory: int, at: int, size: int, number: int, index: int) -> None:
    """An asynchronous copy will write here: until it has, nobody else may touch the place."""
    if load64(memory + MEM_SHADOW) == 0:
        return
    rx_resolve_suspect(fiber)
    shift = load64(memory + MEM_SHIFT)
    cell = load64(memory + MEM_SHADOW) + (at >> shift) * CELL_BYTES
    last = load64(memory + MEM_SHADOW) + (at + size - 1 >> shift) * CELL_BYTES
    while cell <= last:
        rx_check_readers(fiber, cell, number, index)
        if load32(cell + CELL_W_EPOCH) >= load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
            rx_check_written(fiber, memory, cell, number, index, HOW_STORE)
        rx_note_write(fiber, cell, number, PENDING)
        cell += CELL_BYTES


def rx_mark_written(fiber: int, memory: int, at: int, size: int, number: int) -> None:
    """An asynchronous copy has written, as this thread's doing."""
    if load64(memory + MEM_SHADOW) == 0:
        return
    shift = load64(memory + MEM_SHIFT)
    cell = load64(memory + MEM_SHADOW) + (at >> shift) * CELL_BYTES
    last = load64(memory + MEM_SHADOW) + (at + size - 1 >> shift) * CELL_BYTES
    while cell <= last:
        rx_note_write(fiber, cell, number, load64(fiber + FIBER_CLOCK))
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
        rx_fail(fiber, FAULT_BOUNDS, number, index)
    if at & load64(site + SITE_ALIGN):
        rx_fail(fiber, FAULT_ALIGNMENT, number, index)
    return index


def rx_index(fiber: int, index: int, count: int, number: int) -> int:
    """What stands for ``rx_check`` where nothing is checked."""
    return index


def rx_index_strided(fiber: int, index: int, count: int, stride: int, number: int) -> int:
    """What stands for ``rx_check_strided`` where nothing is checked."""
    return index
