"""Asynchronous work that ends in groups: products of warpgroups, bulk stores; and the registers that products use.

A thread closes groups (commit) and waits until all but the last few are complete. What an operation accesses in memory
gets a ticket, the number of its group, instead of a time: once the thread has waited for that group, the ticket stands
for the time of that wait. Rules: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group",
"cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "Async proxy".
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import load32, load64, store32, store64

if TYPE_CHECKING:
    from .fibers import rx_fault, rx_fail_with
    from .registers import rx_end_of_warps, rx_first_warp


def rx_ticket(fiber: int, queue: int) -> int:
    """A ticket for the open group."""
    return TICKET | queue << TICKET_QUEUE | load64(fiber + FIBER_QUEUES + queue * QUEUE_BYTES + QUEUE_COMMITTED)


def rx_completion(fiber: int, thread: int, ticket: int) -> int:
    """When a thread saw that a ticket's group is complete; PENDING if it has not."""
    owner = load64(load64(fiber + FIBER_GRID) + FIBERS) + thread * FIBER_BYTES
    queue = owner + FIBER_QUEUES + (ticket >> TICKET_QUEUE & 7) * QUEUE_BYTES
    group = ticket & TICKET_GROUP
    if group >= load64(queue + QUEUE_DONE):
        return PENDING
    if group + QUEUE_RING < load64(queue + QUEUE_DONE):
        return 0
    return load32(queue + QUEUE_CLOCKS + 4 * (group % QUEUE_RING))


def rx_is_closed(fiber: int, thread: int, ticket: int) -> int:
    """Whether a ticket's group has been closed."""
    owner = load64(load64(fiber + FIBER_GRID) + FIBERS) + thread * FIBER_BYTES
    queue = owner + FIBER_QUEUES + (ticket >> TICKET_QUEUE & 7) * QUEUE_BYTES
    return ticket & TICKET_GROUP < load64(queue + QUEUE_COMMITTED)


def rx_commit_group(fiber: int, number: int) -> None:
    """Close the open group of a queue."""
    queue = fiber + FIBER_QUEUES + number * QUEUE_BYTES
    store64(queue + QUEUE_COMMITTED, load64(queue + QUEUE_COMMITTED) + 1)


def rx_wait_groups(fiber: int, number: int, left: int) -> None:
    """Wait for all closed groups of a queue but the last ``left``."""
    queue = fiber + FIBER_QUEUES + number * QUEUE_BYTES
    limit = load64(queue + QUEUE_COMMITTED) - left
    group = load64(queue + QUEUE_DONE)
    while group < limit:
        store32(queue + QUEUE_CLOCKS + 4 * (group % QUEUE_RING), load64(fiber + FIBER_CLOCK))
        group += 1
        store64(queue + QUEUE_DONE, group)


def rx_commit_stores(fiber: int) -> None:
    """``cp.async.bulk.commit_group``."""
    rx_commit_group(fiber, STORES_READ)
    rx_commit_group(fiber, STORES_WRITE)


def rx_wait_stores(fiber: int, left: int, reading: int) -> None:
    """``cp.async.bulk.wait_group``, or with ``.read`` only until shared memory may be written again."""
    rx_wait_groups(fiber, STORES_READ, left)
    if reading == 0:
        rx_wait_groups(fiber, STORES_WRITE, left)


def rx_commit_products(fiber: int) -> None:
    """``wgmma.commit_group``."""
    rx_commit_group(fiber, PRODUCTS)


def rx_wait_products(fiber: int, left: int) -> None:
    """``wgmma.wait_group``."""
    rx_wait_groups(fiber, PRODUCTS, left)


# ---- registers


def rx_fence_products(fiber: int) -> None:
    """``wgmma.fence``: products may use what the thread did to registers before."""
    store64(fiber + FIBER_FENCES, load64(fiber + FIBER_FENCES) + 1)


def rx_is_in_flight(fiber: int, register: int) -> int:
    """Whether the last product that uses a register may be unfinished."""
    group = load32(register + REG_GROUP)
    return group > load64(fiber + FIBER_QUEUES + PRODUCTS * QUEUE_BYTES + QUEUE_DONE)


def rx_check_register(fiber: int, index: int, count: int, number: int, first: int) -> int:
    """Check an access of ordinary code to memory whose registers have their shadow from ``first`` on."""
    site = load64(load64(fiber + FIBER_GRID) + SITES) + number * SITE_BYTES
    unit = load64(site + SITE_UNIT)
    if index < 0 or (index + count) * unit > load64(site + SITE_SIZE):
        rx_fault(fiber, FAULT_BOUNDS, number, index)
    register = load64(fiber + FIBER_REGISTERS) + (first + index * unit // 4) * REG_BYTES
    last = load64(fiber + FIBER_REGISTERS) + (first + ((index + count) * unit - 1) // 4) * REG_BYTES
    stamp = load64(fiber + FIBER_FENCES) + 1
    while register <= last:
        if rx_is_in_flight(fiber, register):
            rx_report_register(fiber, FAULT_REGISTER, register, number, index)
        store32(register + REG_TOUCHED, stamp)
        store32(register + REG_TOUCHED_SITE, number)
        register += REG_BYTES
    return index


def rx_report_register(fiber: int, kind: int, register: int, number: int, index: int) -> None:
    """A fault that involves the last product that uses a register; says whether its group is closed."""
    committed = load64(fiber + FIBER_QUEUES + PRODUCTS * QUEUE_BYTES + QUEUE_COMMITTED)
    closed = load32(register + REG_GROUP) <= committed
    rx_fail_with(fiber, kind, number, index, load64(fiber + FIBER_THREAD), load32(register + REG_SITE), closed)


def rx_use_registers(fiber: int, first: int, at: int, size: int, form: int, number: int) -> None:
    """A product uses ``size`` bytes of registers from byte ``at`` of a memory on; ``form`` tells its shape and role."""
    fences = load64(fiber + FIBER_FENCES)
    me = load64(fiber + FIBER_THREAD)
    if fences == 0:
        rx_fail_with(fiber, FAULT_NO_FENCE, number, 0, me, 0, 0)
    group = load64(fiber + FIBER_QUEUES + PRODUCTS * QUEUE_BYTES + QUEUE_COMMITTED) + 1
    register = load64(fiber + FIBER_REGISTERS) + (first + at // 4) * REG_BYTES
    last = load64(fiber + FIBER_REGISTERS) + (first + (at + size - 1) // 4) * REG_BYTES
    while register <= last:
        if load32(register + REG_TOUCHED) == fences + 1:
            rx_fail_with(fiber, FAULT_NO_FENCE, number, at // 4, me, load32(register + REG_TOUCHED_SITE), 1)
        if rx_is_in_flight(fiber, register) and load32(register + REG_FORM) != form:
            if load32(register + REG_FENCES) == fences:
                rx_fail_with(fiber, FAULT_NO_FENCE, number, at // 4, me, load32(register + REG_SITE), 1)
        store32(register + REG_GROUP, group)
        store32(register + REG_SITE, number)
        store32(register + REG_FORM, form)
        store32(register + REG_FENCES, fences)
        register += REG_BYTES


def rx_check_unfinished(fiber: int) -> None:
    """A thread ends: report what it has not waited for. Bulk stores may still be writing when a kernel ends."""
    queue = 0
    while queue < STORES_WRITE:
        record = fiber + FIBER_QUEUES + queue * QUEUE_BYTES
        started = load64(record + QUEUE_STARTED)
        if started > load64(record + QUEUE_DONE):
            closed = started <= load64(record + QUEUE_COMMITTED)
            rx_fail_with(fiber, FAULT_UNFINISHED, load64(record + QUEUE_SITE), queue, 0, 0, closed)
        queue += 1


def rx_join_product(fiber: int, site: int) -> None:
    """A warp takes part in a product: the other warps of its group of four must take part in the same ones."""
    rx_started(fiber, PRODUCTS, site)
    if load64(fiber + FIBER_LANE):
        return
    warp = load64(fiber + FIBER_WARP)
    turn = load64(warp + WARP_PRODUCTS) + 1
    store64(warp + WARP_PRODUCTS, turn)
    store64(warp + WARP_PRODUCT_SITE, site)
    other = rx_first_warp(fiber, warp)
    last = other + 4 * WARP_BYTES
    if last > rx_end_of_warps(fiber):
        rx_fail_with(fiber, FAULT_PARTIAL_PRODUCT, site, 0, 0, site, 0)
    while other < last:
        if load64(other + WARP_PRODUCTS) == turn and load64(other + WARP_PRODUCT_SITE) != site:
            rx_fail_with(fiber, FAULT_PARTIAL_PRODUCT, site, 0, 0, load64(other + WARP_PRODUCT_SITE), 1)
        other += WARP_BYTES


def rx_check_operand(fiber: int, start: int, leading: int, stride: int, swizzle: int, site: int) -> None:
    """Checks of a matrix descriptor against the operand: strides are multiples of 16 bytes, and the swizzle pattern
    begins at the operand.

    ``start`` may be anywhere in the pattern's first 128 bytes. Descriptors have a field for other places; ours is 0.
    """
    pattern = swizzle // 16 - 1
    if swizzle and start >> 7 & pattern:
        rx_fault(fiber, FAULT_PATTERN, site, start)
    if start & 15 or leading & 15 or stride & 15 or leading >= 1 << 18 or stride >= 1 << 18:
        rx_fault(fiber, FAULT_PATTERN, site, start)


def rx_check_partial_products(fiber: int) -> None:
    """A warp ends: the others of its group that have ended must have taken part in as many products."""
    warp = load64(fiber + FIBER_WARP)
    mine = load64(warp + WARP_PRODUCTS)
    other = rx_first_warp(fiber, warp)
    last = other + 4 * WARP_BYTES
    while other < last and other < rx_end_of_warps(fiber):
        if load64(other + WARP_LIVE) == 0 and load64(other + WARP_PRODUCTS) != mine:
            site = load64(warp + WARP_PRODUCT_SITE)
            if load64(other + WARP_PRODUCTS) > mine:
                site = load64(other + WARP_PRODUCT_SITE)
            rx_fail_with(fiber, FAULT_PARTIAL_PRODUCT, site, 0, 0, site, 1)
        other += WARP_BYTES


def rx_started(fiber: int, number: int, site: int) -> None:
    """An operation joins the open group of a queue."""
    queue = fiber + FIBER_QUEUES + number * QUEUE_BYTES
    store64(queue + QUEUE_STARTED, load64(queue + QUEUE_COMMITTED) + 1)
    store64(queue + QUEUE_SITE, site)
