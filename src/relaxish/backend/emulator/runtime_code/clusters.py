"""Clusters: their barrier, what one block may know and use of another, and what must be over before a block ends.

Rules: PTX ISA, "barrier.cluster", "mbarrier.init", "fence.mbarrier_init"; CUDA programming guide, "Distributed shared
memory": a block's shared memory may be used by others only while it runs. An arrival at another block's ``mbarrier`` is
emitted without a release for the cluster: it orders reads before it (nobody overwrites what has been read), but does not
publish writes. These are published by the cluster's barrier.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import copy, fill, load32, load64, store32, store64

if TYPE_CHECKING:
    from .clocks import rx_acquire, rx_knows, rx_merge, rx_release
    from .fibers import rx_fail_with, rx_fault
    from .shadow import rx_epoch_since
    from .sync import rx_wait_in, rx_wake_all


def rx_block_of_rank(fiber: int, rank: int) -> int:
    """A block of the thread's cluster."""
    block = load64(fiber + FIBER_BLOCK)
    return block + (rank - load64(block + BLOCK_RANK)) * BLOCK_BYTES


def rx_rank(fiber: int) -> int:
    """The block's rank in its cluster."""
    return load64(load64(fiber + FIBER_BLOCK) + BLOCK_RANK)


def rx_in_block(fiber: int, address: int, rank: int) -> int:
    """The place in another block's shared memory that corresponds to one in this block's."""
    other = rx_block_of_rank(fiber, rank)
    return address - load64(load64(fiber + FIBER_BLOCK) + BLOCK_SHARED) + load64(other + BLOCK_SHARED)


# ---- the barrier of the cluster


def rx_cluster_barrier(fiber: int) -> int:
    """The barrier of all threads of the cluster is kept with the first block's, after the numbered ones."""
    return load64(rx_block_of_rank(fiber, 0) + BLOCK_BARRIERS) + BAR_COUNT * BAR_BYTES


def rx_cluster_arrive(fiber: int, meets: int, site: int) -> None:
    """Arrive at the cluster's barrier, publishing what was done; ``meets`` where nothing lies before the wait."""
    bar = rx_cluster_barrier(fiber)
    rx_release(fiber, load64(bar + BAR_VECTOR))
    rx_count_arrival(fiber, bar, meets, site)


def rx_cluster_arrive_relaxed(fiber: int, site: int) -> None:
    """Arrive at the cluster's barrier; what was done before is in no order with what others do behind it."""
    rx_count_arrival(fiber, rx_cluster_barrier(fiber), 0, site)


def rx_count_arrival(fiber: int, bar: int, meets: int, site: int) -> None:
    """The last thread opens the barrier. Where all came to meet, what all did before is in order: a new epoch."""
    grid = load64(fiber + FIBER_GRID)
    if load64(fiber + FIBER_PHASE) and load64(grid + CHECKED):
        rx_fault(fiber, FAULT_TURNS, site, 1)
    store64(fiber + FIBER_PHASE, load64(bar + BAR_EXPECTED) + 1)
    store64(bar + BAR_ARRIVED, load64(bar + BAR_ARRIVED) + 1)
    store64(bar + BAR_PASSED, load64(bar + BAR_PASSED) + 1 - meets)
    if load64(bar + BAR_ARRIVED) < load64(grid + THREADS) * load64(grid + BLOCKS_PER_CLUSTER):
        return
    if load64(bar + BAR_PASSED) == 0:
        store64(grid + EPOCH, load64(grid + EPOCH) + 1)
        rank = 0
        while rank < load64(grid + BLOCKS_PER_CLUSTER):
            rx_begin_epoch(rx_block_of_rank(fiber, rank), load64(grid + EPOCH))
            rank += 1
    store64(bar + BAR_ARRIVED, 0)
    store64(bar + BAR_PASSED, 0)
    store64(bar + BAR_EXPECTED, load64(bar + BAR_EXPECTED) + 1)
    if load64(bar + BAR_VECTOR):
        # Who waits late shall not learn what others did before they arrive the next time.
        copy(load64(bar + BAR_BYTES + BAR_VECTOR), load64(bar + BAR_VECTOR), 4 * load64(grid + VECTOR_WORDS))
    rx_wake_all(bar + BAR_HEAD)


def rx_begin_epoch(block: int, epoch: int) -> None:
    """Begin an epoch: all earlier accesses of the cluster's blocks are ordered before later ones."""
    store64(block + BLOCK_EPOCH, epoch)
    store64(block + BLOCK_COMMON, epoch)


def rx_cluster_wait(fiber: int, site: int) -> None:
    """Wait until the cluster's barrier has opened since this thread arrived at it."""
    bar = rx_cluster_barrier(fiber)
    grid = load64(fiber + FIBER_GRID)
    if load64(fiber + FIBER_PHASE) == 0 and load64(grid + CHECKED):
        rx_fault(fiber, FAULT_TURNS, site, 0)
    if load64(bar + BAR_EXPECTED) + 1 == load64(fiber + FIBER_PHASE):
        rx_wait_in(fiber, bar + BAR_HEAD, site)
    store64(fiber + FIBER_PHASE, 0)
    rx_acquire(fiber, load64(bar + BAR_BYTES + BAR_VECTOR))
    rx_publish(load64(fiber + FIBER_BLOCK), load64(bar + BAR_BYTES + BAR_VECTOR), load64(grid + VECTOR_WORDS))


# ---- what was written in other blocks


def rx_publish(block: int, vector: int, words: int) -> None:
    """A block learns what others have written."""
    if vector and load64(block + BLOCK_SHOWN):
        rx_merge(load64(block + BLOCK_SHOWN), vector, words)


def rx_is_published(fiber: int, thread: int, clock: int) -> int:
    """Whether a write of a thread of the cluster is visible in this thread's block."""
    block = load64(fiber + FIBER_BLOCK)
    if load64(block + BLOCK_SHOWN) == 0:
        return 1
    threads = load64(load64(fiber + FIBER_GRID) + THREADS)
    if thread // threads == load64(fiber + FIBER_THREAD) // threads:
        return 1
    return load32(load64(block + BLOCK_SHOWN) + 4 * thread) >= clock


# ---- how long a block must stay


def rx_start_sharing(grid: int, block: int) -> None:
    """Nobody has used a block's shared memory from outside."""
    if load64(block + BLOCK_REMOTE):
        words = 4 * load64(grid + VECTOR_WORDS)
        fill(load64(block + BLOCK_REMOTE), 0, words)
        fill(load64(block + BLOCK_KNOWN), 0, words)
        fill(load64(block + BLOCK_SHOWN), 0, words)


def rx_check_alive(fiber: int, rank: int, site: int) -> None:
    """Report the use of the shared memory of a block that has ended."""
    other = rx_block_of_rank(fiber, rank)
    if load64(other + BLOCK_LIVE) == 0 and load64(load64(fiber + FIBER_GRID) + CHECKED):
        rx_fail_with(load64(other + BLOCK_FIRST), FAULT_EXITED, site, 0, load64(fiber + FIBER_THREAD), site, 0)


def rx_use_remote(fiber: int, rank: int, site: int) -> None:
    """The thread uses the shared memory of a block: one that has ended has none, and it must not end too early."""
    other = rx_block_of_rank(fiber, rank)
    if load64(other + BLOCK_REMOTE) == 0 or other == load64(fiber + FIBER_BLOCK):
        return
    rx_check_alive(fiber, rank, site)
    me = load64(fiber + FIBER_THREAD)
    store32(load64(other + BLOCK_REMOTE) + 4 * me, load64(fiber + FIBER_CLOCK))
    store32(load64(other + BLOCK_REMOTE_SITES) + 4 * me, site)


def rx_arrive_remote(fiber: int, address: int, rank: int, site: int) -> int:
    """The address of a barrier in another block, at which the thread is about to arrive."""
    rx_use_remote(fiber, rank, site)
    return rx_in_block(fiber, address, rank)


def rx_end_block_thread(fiber: int) -> None:
    """A thread has ended. The last one of a block takes its shared memory along: see who may still use it."""
    grid = load64(fiber + FIBER_GRID)
    block = load64(fiber + FIBER_BLOCK)
    if load64(grid + CHECKED) == 0:
        return
    known = load64(block + BLOCK_KNOWN)
    if known:
        rx_merge(known, load64(fiber + FIBER_VECTOR), load64(grid + FIBER_COUNT))
    if load64(block + BLOCK_LIVE):
        return
    rx_check_loading(fiber, block)
    if known == 0:
        return
    remote = load64(block + BLOCK_REMOTE)
    thread = 0
    while thread < load64(grid + FIBER_COUNT):
        if load32(remote + 4 * thread) > load32(known + 4 * thread):
            site = load32(load64(block + BLOCK_REMOTE_SITES) + 4 * thread)
            rx_fail_with(fiber, FAULT_EXITED, site, 0, thread, site, 1)
        thread += 1


def rx_check_loading(fiber: int, block: int) -> None:
    """Report a bulk copy into the shared memory of a block that has ended: nobody has waited for it."""
    grid = load64(fiber + FIBER_GRID)
    first = load64(block + BLOCK_SHARED)
    bar = load64(grid + BARRIER_POOL)
    last = bar + load64(grid + BARRIERS_USED) * MBAR_BYTES
    while bar < last:
        entry = load64(bar + MBAR_COPIES)
        while entry:
            target = load64(entry + BULK_TARGET)
            if target >= first and target < first + load64(block + BLOCK_SHARED_BYTES):
                thread = load64(load64(entry + BULK_FIBER) + FIBER_THREAD)
                rx_fail_with(fiber, FAULT_LOADING, load64(entry + BULK_SITE), 0, thread, load64(entry + BULK_SITE), 0)
            entry = load64(entry + BULK_NEXT)
        bar += MBAR_BYTES


# ---- memory barriers that others have made


def rx_note_maker(fiber: int, bar: int) -> None:
    """A thread has made a memory barrier; others may use it once they know of that."""
    grid = load64(fiber + FIBER_GRID)
    store64(bar + MBAR_FENCED, 0)
    store64(bar + MBAR_PROXY, 0)
    store64(bar + MBAR_MAKER, 0)
    if load64(fiber + FIBER_VECTOR) and load64(grid + CHECKED):
        store64(bar + MBAR_MAKER, load64(fiber + FIBER_THREAD) + 1)
        store64(bar + MBAR_MADE, load64(fiber + FIBER_CLOCK))
        store64(bar + MBAR_MADE_EPOCH, load64(load64(fiber + FIBER_BLOCK) + BLOCK_EPOCH))
        store64(fiber + FIBER_MADE, load64(fiber + FIBER_MADE) + 1)


def rx_publish_barriers(fiber: int, cluster: int) -> None:
    """A fence after ``mbarrier.init``: for bulk copies, and with ``cluster`` for the threads of the cluster, too."""
    if load64(fiber + FIBER_MADE) == 0:
        return
    grid = load64(fiber + FIBER_GRID)
    opened = load64(rx_cluster_barrier(fiber) + BAR_EXPECTED) + 1
    bar = load64(grid + BARRIER_POOL)
    last = bar + load64(grid + BARRIERS_USED) * MBAR_BYTES
    while bar < last:
        if load64(bar + MBAR_MAKER) == load64(fiber + FIBER_THREAD) + 1:
            store64(bar + MBAR_PROXY, 1)
            if cluster and load64(bar + MBAR_FENCED) == 0:
                store64(bar + MBAR_FENCED, opened)
        bar += MBAR_BYTES
    if cluster:
        store64(fiber + FIBER_MADE, 0)


def rx_fence_barriers(fiber: int) -> None:
    """``fence.mbarrier_init``: behind the cluster's next barrier, even a relaxed one, others see them."""
    rx_publish_barriers(fiber, 1)


def rx_is_made_for(fiber: int, bar: int) -> int:
    """Whether a thread that did not make a memory barrier knows that it has been made."""
    maker = load64(bar + MBAR_MAKER) - 1
    me = load64(fiber + FIBER_THREAD)
    if load64(bar + MBAR_MADE_EPOCH) < rx_epoch_since(fiber, me, maker):
        return 1
    if rx_knows(fiber, maker, load64(bar + MBAR_MADE)):
        return 1
    fenced = load64(bar + MBAR_FENCED)
    if fenced == 0 or load64(fiber + FIBER_PHASE):
        return 0
    return load64(rx_cluster_barrier(fiber) + BAR_EXPECTED) >= fenced
