"""Copies of boxes of tensors between global and shared memory (TMA), 16 bytes at a time."""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import copy, load32, load64, store64

if TYPE_CHECKING:
    from .clusters import rx_block_of_rank, rx_check_alive, rx_in_block, rx_use_remote
    from .copies import rx_bulk_issued, rx_bulk_piece, rx_memory_of
    from .fibers import rx_fault
    from .groups import rx_started, rx_ticket
    from .shadow import rx_cell, rx_check_cells, rx_check_place, rx_last_cell, rx_mark_pending, rx_report


def rx_swizzled(address: int, width: int) -> int:
    """Byte address in a swizzled tile."""
    if width == 0:
        return address
    return address ^ ((address >> 7 & width // 16 - 1) << 4)


def rx_box_pieces(tensor: int) -> int:
    """Pieces of 16 bytes in the box of a tensor map."""
    count = load64(tensor + MAP_BOX) * load64(tensor + MAP_ELEMENT) // 16
    i = 1
    while i < load64(tensor + MAP_RANK):
        count = count * load64(tensor + MAP_BOX + 8 * i)
        i += 1
    return count


def rx_piece_source(tensor: int, piece: int, first: int) -> int:
    """The address in global memory of the row that a piece of a box is in; 0 if the row is outside of the tensor.

    ``first`` holds the coordinates of the box.
    """
    row = piece // (load64(tensor + MAP_BOX) * load64(tensor + MAP_ELEMENT) // 16)
    address = load64(tensor + MAP_ADDRESS)
    i = 1
    while i < load64(tensor + MAP_RANK):
        size = load64(tensor + MAP_BOX + 8 * i)
        index = load64(first + 8 * i) + row % size
        row = row // size
        if index < 0 or index >= load64(tensor + MAP_SIZES + 8 * i):
            return 0
        address += index * load64(tensor + MAP_STRIDES + 8 * i)
        i += 1
    return address


def rx_piece_column(tensor: int, piece: int, first: int) -> int:
    """First element, in its row, of a piece."""
    across = load64(tensor + MAP_BOX) * load64(tensor + MAP_ELEMENT) // 16
    return load64(first) + piece % across * 16 // load64(tensor + MAP_ELEMENT)


def rx_piece_inside(tensor: int, column: int) -> int:
    """Number of leading bytes of a piece that are inside of the tensor; negative columns are all outside."""
    left = (load64(tensor + MAP_SIZES) - column) * load64(tensor + MAP_ELEMENT)
    if column < 0 or left < 0:
        left = 0
    if left > 16:
        left = 16
    return left


def rx_tma_load(
    fiber: int, base: int, at: int, tensor: int, barrier: int, mask: int, c0: int, c1: int, c2: int, c3: int, c4: int,
    site: int, from_site: int,
) -> None:  # fmt: skip
    """Start a copy of a box to this block's shared memory, or to that of all blocks in a mask."""
    if mask == 0:
        mask = 1 << load64(load64(fiber + FIBER_BLOCK) + BLOCK_RANK)
    first = rx_coordinates(fiber, c0, c1, c2, c3, c4)
    if load64(load64(fiber + FIBER_GRID) + CHECKED):
        rx_tma_load_check(fiber, tensor, first, from_site)
    rank = 0
    while mask >> rank:
        if mask >> rank & 1:
            there = barrier
            to = base
            if load64(load64(fiber + FIBER_GRID) + BLOCKS_PER_CLUSTER) > 1:
                rx_check_alive(fiber, rank, site)
                there = rx_in_block(fiber, barrier, rank)
                to = rx_in_block(fiber, base, rank)
            rx_tma_load_to(fiber, rank, to, at, tensor, there, first, site)
        rank += 1


def rx_tma_load_check(fiber: int, tensor: int, first: int, site: int) -> None:
    """Global memory that a copy reads, where the kernel also writes it."""
    memory = rx_memory_of(fiber, site)
    if load64(memory + MEM_SHADOW) == 0:
        return
    element = load64(tensor + MAP_ELEMENT)
    piece = 0
    count = rx_box_pieces(tensor)
    while piece < count:
        source = rx_piece_source(tensor, piece, first)
        column = rx_piece_column(tensor, piece, first)
        inside = rx_piece_inside(tensor, column)
        if source and inside:
            at = source + column * element - load64(memory + MEM_BASE)
            rx_check_cells(fiber, memory, at, inside, SITE_LOAD, site, at // element)
            rx_check_global(fiber, memory, at, inside, site, at // element)
        piece += 1


def rx_check_global(fiber: int, memory: int, at: int, size: int, site: int, index: int) -> None:
    """Report what ordinary stores of this launch wrote: bulk copies see it behind a ``fence.proxy.async`` of global memory.

    No intrinsic is one; that of shared memory is not.
    """
    cell = rx_cell(memory, at)
    last = rx_last_cell(memory, at + size)
    while cell <= last:
        if load32(cell + CELL_W_EPOCH) >= load64(load64(fiber + FIBER_GRID) + FIRST_EPOCH):
            if load32(cell + CELL_HOW) != WROTE_ASYNC:
                rx_report(fiber, FAULT_GLOBAL_PROXY, cell, site, index, HOW_STORE)
        cell += CELL_BYTES


def rx_tma_load_to(fiber: int, rank: int, base: int, at: int, tensor: int, barrier: int, first: int, site: int) -> None:
    """Start a copy to the shared memory of one block."""
    width = load64(tensor + MAP_SWIZZLE)
    piece = 0
    count = rx_box_pieces(tensor)
    while piece < count:
        place = rx_swizzled(at + 16 * piece, width)
        source = rx_piece_source(tensor, piece, first)
        column = rx_piece_column(tensor, piece, first)
        inside = rx_piece_inside(tensor, column)
        if source == 0:
            inside = 0
        source += column * load64(tensor + MAP_ELEMENT)
        rx_bulk_piece(fiber, rank, barrier, base + place, place, source, inside, site)
        piece += 1
    rx_bulk_issued(fiber, barrier, site)


def rx_tma_store(
    fiber: int, base: int, at: int, tensor: int, c0: int, c1: int, c2: int, c3: int, c4: int, site: int, to_site: int
) -> None:  # fmt: skip
    """Copy a box from shared memory; what is outside of the tensor stays.

    The bytes move at once, but the places read and written are under way until the thread has waited for them.
    ``site`` reads shared memory, ``to_site`` writes the tensor.
    """
    first = rx_coordinates(fiber, c0, c1, c2, c3, c4)
    width = load64(tensor + MAP_SWIZZLE)
    element = load64(tensor + MAP_ELEMENT)
    checked = load64(load64(fiber + FIBER_GRID) + CHECKED)
    if checked:
        rx_check_place(fiber, at, 1, site)
        rx_started(fiber, STORES_READ, site)
    piece = 0
    count = rx_box_pieces(tensor)
    while piece < count:
        place = rx_swizzled(at + 16 * piece, width)
        target = rx_piece_source(tensor, piece, first)
        column = rx_piece_column(tensor, piece, first)
        inside = rx_piece_inside(tensor, column)
        if target and inside:
            target += column * element
            if checked:
                rx_tma_store_read(fiber, place, inside, site)
                rx_tma_store_mark(fiber, target, inside, element, to_site)
            copy(target, base + place, inside)
        piece += 1


def rx_tma_store_read(fiber: int, place: int, size: int, site: int) -> None:
    """Shared memory that a bulk store is reading."""
    memory = rx_memory_of(fiber, site)
    if place + size > load64(memory + MEM_SIZE):
        rx_fault(fiber, FAULT_BOUNDS, site, place)
    if load64(memory + MEM_SHADOW):
        rx_check_cells(fiber, memory, place, size, SITE_BULK_READ, site, place)


def rx_tma_store_mark(fiber: int, target: int, size: int, element: int, site: int) -> None:
    """Global memory that a bulk store is writing."""
    memory = rx_memory_of(fiber, site)
    at = target - load64(memory + MEM_BASE)
    rx_mark_pending(fiber, memory, at, size, site, at // element, rx_ticket(fiber, STORES_WRITE))


def rx_coordinates(fiber: int, c0: int, c1: int, c2: int, c3: int, c4: int) -> int:
    """Coordinates in a row of words; they stay until the next copy of the thread."""
    words = fiber + FIBER_COORDINATES
    store64(words, c0)
    store64(words + 8, c1)
    store64(words + 16, c2)
    store64(words + 24, c3)
    store64(words + 32, c4)
    return words


def rx_cluster_read(fiber: int, target: int, base: int, at: int, rank: int, site: int) -> None:
    """Sixteen bytes from the shared memory of a block of the cluster."""
    grid = load64(fiber + FIBER_GRID)
    if load64(grid + CHECKED):
        rx_use_remote(fiber, rank, site)
        rx_check_place(fiber, at, 16, site)
        number = load64(load64(grid + SITES) + site * SITE_BYTES + SITE_MEMORY)
        memory = load64(rx_block_of_rank(fiber, rank) + BLOCK_MEMORIES) + number * MEM_BYTES
        if load64(memory + MEM_SHADOW):
            rx_check_cells(fiber, memory, at, 16, SITE_LOAD, site, at)
    copy(target, rx_in_block(fiber, base, rank) + at, 16)
