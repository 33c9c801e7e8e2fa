"""Fibers and their scheduler: every thread of the running cluster has a stack and runs until it must wait."""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import *
from ..native import call_address, fill, libc_free, load64, store64, switch_stack

if TYPE_CHECKING:
    from .clocks import rx_resolve_suspect
    from .clusters import rx_end_block_thread, rx_start_sharing
    from .groups import rx_check_partial_products, rx_check_unfinished
    from .registers import rx_check_part, rx_find_starved
    from .sync import rx_answer_masks, rx_recheck_barriers


def rx_make_ready(fiber: int) -> None:
    """Put a fiber at the end of the ready queue."""
    grid = load64(fiber + FIBER_GRID)
    store64(fiber + FIBER_STATE, READY)
    store64(fiber + FIBER_NEXT, 0)
    tail = load64(grid + READY_TAIL)
    if tail:
        store64(tail + FIBER_NEXT, fiber)
    else:
        store64(grid + READY_HEAD, fiber)
    store64(grid + READY_TAIL, fiber)


def rx_take_ready(grid: int) -> int:
    """The next fiber to run, or 0."""
    fiber = load64(grid + READY_HEAD)
    if fiber:
        following = load64(fiber + FIBER_NEXT)
        store64(grid + READY_HEAD, following)
        if following == 0:
            store64(grid + READY_TAIL, 0)
    return fiber


def rx_wake(first: int) -> None:
    """Make all fibers of a waiting list ready."""
    fiber = first
    while fiber:
        following = load64(fiber + FIBER_NEXT)
        rx_make_ready(fiber)
        fiber = following


def rx_park(fiber: int) -> None:
    """Let others run until somebody makes this fiber ready."""
    rx_resolve_suspect(fiber)
    if load64(load64(fiber + FIBER_CANARY)) != CANARY:
        rx_fault(fiber, FAULT_STACK, 0, 0)
    grid = load64(fiber + FIBER_GRID)
    following = rx_take_ready(grid)
    if following == 0:
        switch_stack(fiber + FIBER_SP, load64(grid + MAIN_SP))
    elif following != fiber:
        switch_stack(fiber + FIBER_SP, load64(following + FIBER_SP))


def rx_fault(fiber: int, kind: int, site: int, index: int) -> None:
    """Note a fault and stop the launch: the fiber never runs again."""
    grid = load64(fiber + FIBER_GRID)
    if load64(grid + ERROR) == 0:
        store64(grid + ERROR, kind)
        store64(grid + ERROR_SITE, site)
        store64(grid + ERROR_FIBER, fiber)
        store64(grid + ERROR_INDEX, index)
    switch_stack(fiber + FIBER_SP, load64(grid + MAIN_SP))


def rx_fail_with(fiber: int, kind: int, site: int, index: int, other: int, other_site: int, how: int) -> None:
    """As ``rx_fault``, naming another thread."""
    grid = load64(fiber + FIBER_GRID)
    if load64(grid + ERROR) == 0:
        store64(grid + ERROR_OTHER, other)
        store64(grid + ERROR_OTHER_SITE, other_site)
        store64(grid + ERROR_HOW, how)
    rx_fault(fiber, kind, site, index)


def rx_charge(fiber: int, steps: int, site: int) -> None:
    """Take steps from the launch's budget."""
    grid = load64(fiber + FIBER_GRID)
    left = load64(grid + BUDGET) - steps
    store64(grid + BUDGET, left)
    if left < 0:
        rx_fault(fiber, FAULT_STEPS, site, 0)


def rx_spin(fiber: int, site: int) -> None:
    """One turn of a loop without known end: others run meanwhile."""
    rx_charge(fiber, SPIN_STEPS, site)
    rx_make_ready(fiber)
    rx_park(fiber)


def rx_fiber_main(fiber: int) -> None:
    """Entry function of a fiber."""
    grid = load64(fiber + FIBER_GRID)
    call_address(load64(grid + FUNCTION), fiber, load64(grid + ARGUMENTS))
    # Copies that nobody waited for are never made: who relies on them shall see it.
    rx_resolve_suspect(fiber)
    rx_check_unfinished(fiber)
    block = load64(fiber + FIBER_BLOCK)
    warp = load64(fiber + FIBER_WARP)
    store64(fiber + FIBER_STATE, ENDED)
    store64(grid + LIVE, load64(grid + LIVE) - 1)
    store64(block + BLOCK_LIVE, load64(block + BLOCK_LIVE) - 1)
    store64(warp + WARP_LIVE, load64(warp + WARP_LIVE) - 1)
    if load64(grid + CHECKED) == 0:
        rx_recheck_barriers(block)
    if load64(warp + WARP_LIVE) == 0:
        rx_check_part(fiber)
        rx_check_partial_products(fiber)
    rx_end_block_thread(fiber)
    rx_park(fiber)


def rx_start_fiber(grid: int, fiber: int, number: int) -> None:
    """Lay out a fiber's stack so that switching to it begins its function."""
    low = load64(grid + STACKS) + number * load64(grid + STACK_BYTES)
    store64(low, CANARY)
    store64(fiber + FIBER_CANARY, low)
    stack = low + load64(grid + STACK_BYTES) - 64 - 8 * load64(grid + FRAME_WORDS)
    fill(stack, 0, 8 * load64(grid + FRAME_WORDS))
    store64(stack + 8 * load64(grid + FRAME_FIBER), fiber)
    store64(stack + 8 * load64(grid + FRAME_FUNCTION), load64(grid + FIBER_MAIN))
    store64(stack + 8 * load64(grid + FRAME_ENTRY), load64(grid + ENTRY))
    store64(fiber + FIBER_SP, stack)
    store64(fiber + FIBER_ROOM, 0)
    store64(fiber + FIBER_CLOCK, 1)
    store64(fiber + FIBER_COPY_COUNT, 0)
    store64(fiber + FIBER_GROUPS, 0)
    store64(fiber + SUSPECT_SIZE, 0)
    store64(fiber + FIBER_FENCES, 0)
    store64(fiber + FIBER_PHASE, 0)
    store64(fiber + FIBER_MADE, 0)
    queue = 0
    while queue < QUEUES:
        fill(fiber + FIBER_QUEUES + queue * QUEUE_BYTES, 0, QUEUE_CLOCKS)
        queue += 1
    if load64(fiber + FIBER_REGISTERS):
        fill(load64(fiber + FIBER_REGISTERS), 0, REG_BYTES * load64(grid + REGISTER_CELLS))
    if load64(fiber + FIBER_VECTOR):
        fill(load64(fiber + FIBER_VECTOR), 0, 4 * load64(grid + VECTOR_WORDS))
    if load64(fiber + FIBER_SEEN):
        fill(load64(fiber + FIBER_SEEN), 0, 4 * load64(grid + VECTOR_WORDS))
        fill(load64(fiber + FIBER_FENCED), 0, 4 * load64(grid + VECTOR_WORDS))
    rx_make_ready(fiber)


def rx_start_block(grid: int, block: int, x: int, y: int, z: int) -> None:
    """Set up one block of the running cluster at a place of the grid."""
    threads = load64(grid + THREADS)
    store64(block + BLOCK_EPOCH, load64(grid + EPOCH))
    store64(block + BLOCK_COMMON, load64(grid + EPOCH))
    store64(block + BLOCK_LIVE, threads)
    store64(block + BLOCK_POOL, 0)
    store64(block + BLOCK_POOL_HEAD, 0)
    rx_start_sharing(grid, block)
    store64(block + BLOCK_INDEX, x)
    store64(block + BLOCK_INDEX + 8, y)
    store64(block + BLOCK_INDEX + 16, z)
    # All ones: not-a-number in every floating-point type, so that a forgotten store shows.
    fill(load64(block + BLOCK_SHARED), 255, load64(block + BLOCK_SHARED_BYTES))
    number = 0
    while number < BARS:
        bar = load64(block + BLOCK_BARRIERS) + number * BAR_BYTES
        fill(bar, 0, BAR_VECTOR)
        store64(bar + BAR_PASSED, 0)
        if load64(bar + BAR_VECTOR):
            fill(load64(bar + BAR_VECTOR), 0, 4 * load64(grid + VECTOR_WORDS))
        number += 1
    dim_x = load64(grid + BLOCK_DIM)
    dim_y = load64(grid + BLOCK_DIM + 8)
    first = load64(block + BLOCK_FIRST)
    base = (first - load64(grid + FIBERS)) // FIBER_BYTES
    number = 0
    while number < threads:
        warp = load64(block + BLOCK_WARPS) + number // 32 * WARP_BYTES
        fiber = first + number * FIBER_BYTES
        if number % 32 == 0:
            left = threads - number
            store64(warp + WARP_LANES, (1 << left) - 1)
            if left >= 32:
                store64(warp + WARP_LANES, 0xFFFFFFFF)
                left = 32
            store64(warp + WARP_LIVE, left)
            store64(warp + WARP_FIRST, fiber)
            store64(warp + WARP_REGISTERS, load64(grid + LAUNCH_REGISTERS))
            store64(warp + WARP_ADJUSTED, 0)
            store64(warp + WARP_PRODUCTS, 0)
            fill(warp + WARP_MEETINGS, 0, 32 * MEETING_BYTES)
            if load64(warp + WARP_VECTOR):
                fill(load64(warp + WARP_VECTOR), 0, 4 * load64(grid + VECTOR_WORDS))
        store64(fiber + FIBER_GRID, grid)
        store64(fiber + FIBER_BLOCK, block)
        store64(fiber + FIBER_THREAD, base + number)
        store64(fiber + FIBER_LANE, number % 32)
        store64(fiber + FIBER_WARP, warp)
        store64(fiber + FIBER_BLOCK_IDX, x)
        store64(fiber + FIBER_BLOCK_IDX + 8, y)
        store64(fiber + FIBER_BLOCK_IDX + 16, z)
        store64(fiber + FIBER_THREAD_IDX, number % dim_x)
        store64(fiber + FIBER_THREAD_IDX + 8, number // dim_x % dim_y)
        store64(fiber + FIBER_THREAD_IDX + 16, number // (dim_x * dim_y))
        rx_start_fiber(grid, fiber, base + number)
        number += 1


def rx_run_ready(grid: int) -> None:
    """Run fibers until none is ready or a fault was found."""
    going = 1
    while going:
        fiber = rx_take_ready(grid)
        if fiber == 0:
            going = 0
        else:
            switch_stack(grid + MAIN_SP, load64(fiber + FIBER_SP))
            if load64(grid + ERROR):
                going = 0


def rx_find_stuck(grid: int) -> int:
    """A fiber that waits for what will never come."""
    number = 0
    while number < load64(grid + FIBER_COUNT):
        fiber = load64(grid + FIBERS) + number * FIBER_BYTES
        if load64(fiber + FIBER_STATE) == WAITING:
            return fiber
        number += 1
    return load64(grid + FIBERS)


def rx_run_cluster(grid: int) -> int:
    """Run all fibers that are set up to their ends; returns the kind of fault."""
    while load64(grid + LIVE) > 0:
        rx_run_ready(grid)
        if load64(grid + ERROR):
            return load64(grid + ERROR)
        if load64(grid + LIVE) > 0 and rx_answer_masks(grid) == 0:
            return rx_note_deadlock(grid)
    return 0


def rx_note_deadlock(grid: int) -> int:
    """Nobody can go on: who waits for registers tells more than those who wait for that one."""
    kind = FAULT_DEADLOCK
    stuck = rx_find_starved(grid)
    if stuck:
        kind = FAULT_POOL
        store64(grid + ERROR_OTHER, load64(load64(stuck + FIBER_BLOCK) + BLOCK_POOL))
        store64(grid + ERROR_INDEX, load64(load64(stuck + FIBER_WARP) + WARP_REGISTERS))
    else:
        stuck = rx_find_stuck(grid)
    store64(grid + ERROR_FIBER, stuck)
    store64(grid + ERROR_SITE, load64(stuck + FIBER_SITE))
    store64(grid + ERROR, kind)
    return kind


def rx_begin(grid: int) -> None:
    """Nothing runs yet of the blocks that are to run together."""
    store64(grid + EPOCH, load64(grid + EPOCH) + 1)
    store64(grid + FIRST_EPOCH, load64(grid + EPOCH))
    store64(grid + GRID_COMMON, load64(grid + EPOCH))
    store64(grid + LIVE, load64(grid + FIBER_COUNT))
    store64(grid + READY_HEAD, 0)
    store64(grid + READY_TAIL, 0)
    store64(grid + BARRIERS_USED, 0)


def rx_start_cluster(grid: int, first: int, x: int, y: int, z: int) -> None:
    """Set up the blocks, from number ``first`` on, of the cluster whose place among the clusters is given."""
    size_x = load64(grid + CLUSTER_DIM)
    size_y = load64(grid + CLUSTER_DIM + 8)
    size_z = load64(grid + CLUSTER_DIM + 16)
    rank = 0
    while rank < load64(grid + BLOCKS_PER_CLUSTER):
        block = load64(grid + BLOCKS) + (first + rank) * BLOCK_BYTES
        in_x = rank % size_x
        in_y = rank // size_x % size_y
        in_z = rank // (size_x * size_y)
        rx_start_block(grid, block, x * size_x + in_x, y * size_y + in_y, z * size_z + in_z)
        number = 0
        while number < load64(grid + THREADS):
            fiber = load64(block + BLOCK_FIRST) + number * FIBER_BYTES
            store64(fiber + FIBER_RANK_IDX, in_x)
            store64(fiber + FIBER_RANK_IDX + 8, in_y)
            store64(fiber + FIBER_RANK_IDX + 16, in_z)
            number += 1
        rank += 1


def rx_run_grid(grid: int) -> int:
    """Run all blocks of a launch, cluster after cluster or all together; returns the kind of fault, 0 for none."""
    each = load64(grid + BLOCKS_PER_CLUSTER)
    started = 0
    z = 0
    while z < load64(grid + GRID_DIM + 16) // load64(grid + CLUSTER_DIM + 16):
        y = 0
        while y < load64(grid + GRID_DIM + 8) // load64(grid + CLUSTER_DIM + 8):
            x = 0
            while x < load64(grid + GRID_DIM) // load64(grid + CLUSTER_DIM):
                if started == 0:
                    rx_begin(grid)
                rx_start_cluster(grid, started, x, y, z)
                started += each
                if started == load64(grid + RESIDENT):
                    started = 0
                    fault = rx_run_cluster(grid)
                    if fault:
                        return fault
                x += 1
            y += 1
        z += 1
    rx_free_copies(grid)
    return 0


def rx_free_copies(grid: int) -> None:
    """Give back the lists of asynchronous copies that threads have made."""
    number = 0
    while number < load64(grid + FIBER_COUNT):
        copies = load64(load64(grid + FIBERS) + number * FIBER_BYTES + FIBER_COPIES)
        if copies:
            libc_free(copies)
        number += 1
