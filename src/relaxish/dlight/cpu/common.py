"""Steps that CPU rules share: inlining, parallel outer loops, vector inner loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...carver.cpu_hints import PARALLEL_WORK
from ...ir.prim import const_ints
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.errors import ScheduleError
from .collapse import collapse_axes
from .facts import BlockInfo, IterInfo, access_stride, block_info, flat_stride, is_conditional, is_costly
from .normalize import simplify_blocks

#: A note on blocks that stay stages of their own: what they compute is used again and again.
KEPT_ATTR = "relaxish.kept"
# Taking a fused index apart by sizes that only the run knows costs more than so few elements.
_SHORT_ROW = 16


def blocks_of(sch: Schedule) -> list[Any]:
    """The blocks under the root, in program order."""
    return list(sch.get_child_blocks(sch.get_block("root")))


def open_function(func: PrimFunc) -> tuple[Schedule, list[BlockInfo]] | None:
    """A schedule of ``func`` and the facts of its blocks; None when a block is not of a form rules understand."""
    sch = Schedule(func)
    infos = []
    for rv in blocks_of(sch):
        info = block_info(sch, rv)
        if info is None:
            return None
        infos.append(info)
    return (sch, infos) if infos else None


def refresh(sch: Schedule) -> list[BlockInfo]:
    """Facts of the blocks after changes; blocks with compound bindings are left out."""
    infos = [block_info(sch, rv) for rv in blocks_of(sch)]
    return [info for info in infos if info is not None]


def open_reduction(func: PrimFunc, target: Target) -> tuple[Schedule, list[BlockInfo], BlockInfo] | None:
    """A schedule of a program for a processor with its elementwise stages folded in, the facts of its blocks, and its
    one reduction; None for other programs and other devices.
    """
    if target.get_target_device_type() != 1:
        return None
    opened = open_function(func)
    if opened is None:
        return None
    sch = inline_injective(opened[0])
    infos = refresh(sch)
    reductions = [info for info in infos if info.is_reduction]
    if len(infos) != len(blocks_of(sch)) or len(reductions) != 1:
        return None
    return sch, infos, reductions[0]


def attempt(action: Callable[..., Any], *args: Any) -> bool:
    """Run a primitive; False when it does not apply."""
    try:
        action(*args)
    except ScheduleError:
        return False
    return True


def inline_injective(sch: Schedule, keep_conditional_for_reductions: bool = True) -> Schedule:
    """Fold elementwise stages into their consumers, but never work that a reduction would then repeat.

    Returns a schedule of the result with its indices simplified and runs of axes of unknown extent made one.
    """
    inlined = False
    changed = True
    while changed:
        changed = False
        for info in refresh(sch):
            if not info.is_injective or info.store is None or KEPT_ATTR in info.block.annotations:
                continue
            consumers = [block_info(sch, c) for c in sch.get_consumers(info.rv)]
            if not consumers or any(c is None for c in consumers):
                continue
            into_reduction = any(c is not None and c.is_reduction for c in consumers)
            keep = keep_conditional_for_reductions and is_conditional(info.block)
            if into_reduction and (keep or is_costly(info.block)):
                continue
            if len(consumers) > 1 and is_costly(info.block):
                continue
            if attempt(sch.compute_inline, info.rv):
                changed = inlined = True
                break
    func = sch.mod["main"]
    made = collapse_axes(simplify_blocks(func) if inlined else func)
    return sch if made is func else Schedule(made)


def work_of(info: BlockInfo) -> int | None:
    """Number of iterations; None when dynamic."""
    total = 1
    for it in info.iters:
        if it.dom is None:
            return None
        total *= it.dom
    return total


def parallel_outer(sch: Schedule, loops: list[Any], work: int | None, threads: int) -> Any | None:
    """Fuse ``loops`` and run them in parallel when there is enough to do; returns the loop."""
    if not loops:
        return None
    fused = loops[0] if len(loops) == 1 else sch.fuse(*loops)
    if threads > 1 and (work is None or work >= PARALLEL_WORK):
        sch.parallel(fused)
    return fused


def contiguous_reductions(info: BlockInfo) -> bool:
    """Whether the reduction loops together run through contiguous memory, so that one long loop can replace them."""
    inner_extent, inner_stride = 1, 1
    # What is the same for all steps of the reduction may lie anywhere.
    loads = [x for x in info.loads() if any(flat_stride(x, it.var) != 0 for it in info.reductions)]
    for it in reversed(info.reductions):
        strides = {flat_stride(load, it.var) for load in loads}
        if strides != {inner_extent * inner_stride} or it.dom is None:
            return False
        inner_extent, inner_stride = it.dom, inner_extent * inner_stride
    return bool(info.reductions)


def decompose(sch: Schedule, info: BlockInfo) -> None:
    """Take the start value of a reduction out of its innermost reduction loops."""
    depth = len(info.reductions)
    loops = sch.get_loops(info.rv)
    if depth > 1 and depth <= len(loops) and contiguous_reductions(info):
        sch.fuse(*loops[-depth:])
        depth, loops = 1, sch.get_loops(info.rv)
    if depth and depth <= len(loops):
        attempt(sch.decompose_reduction, info.rv, loops[-depth])


def schedule_elementwise(sch: Schedule, info: BlockInfo, target: Target) -> None:
    """Parallel outside, one contiguous serial loop inside, which code generation turns into vectors."""
    spatial = info.spatial
    if len(spatial) != len(info.iters) or not spatial:
        return
    loops = [it.loop for it in spatial]
    work = work_of(info)
    turned = transposed_axis(info)
    if turned is not None:
        _schedule_transpose(sch, spatial, turned, work, target)
        return
    if len(loops) == 1:
        extent = spatial[0].dom
        if extent is not None and extent >= PARALLEL_WORK and target.num_cores > 1:
            outer, _ = sch.split(loops[0], [None, 4096] if extent % 4096 == 0 else [target.num_cores, None])
            sch.parallel(outer)
        return
    inner = 2 if work is None and len(loops) > 2 and 0 < (spatial[-1].dom or 0) < _SHORT_ROW else 1
    parallel_outer(sch, loops[:-inner], work, target.num_cores)


def transposed_axis(info: BlockInfo) -> IterInfo | None:
    """The axis along which a copy reads, when it writes along another one, its last."""
    store, loads = info.store, info.loads()
    if store is None or len(loads) != 1 or store.value is not loads[0]:
        return None
    last = info.spatial[-1]
    if access_stride(store.indices, last.var) != "unit":
        return None
    jump = flat_stride(loads[0], last.var)
    if jump is None:
        # Perhaps by sizes that are known only at run time: then it is for an index of its own.
        sized = const_ints(loads[0].buffer.shape) is None
        jump = 2 if sized and last.var in tuple(loads[0].indices[:-1]) else 0
    if jump in (0, 1):
        return None
    for it in info.spatial[:-1]:
        if flat_stride(loads[0], it.var) == 1 and (it.dom is None or it.dom >= 8):
            return it
    return None


def _schedule_transpose(
    sch: Schedule, spatial: list[IterInfo], turned: IterInfo, work: int | None, target: Target
) -> None:
    """The two axes innermost, for code generation to turn tiles around; parallel over the others or over strips."""
    others = [it.loop for it in spatial[:-1] if it is not turned and it.dom != 1]
    sch.reorder(
        *[it.loop for it in spatial if it is not turned and it is not spatial[-1]], turned.loop, spatial[-1].loop
    )
    known = turned.dom or 0
    strip = next((s for s in (64, 48, 32, 16) if known % s == 0 and known > s), None)
    if others:
        parallel_outer(sch, others, work, target.num_cores)
    elif strip is not None:
        outer, _ = sch.split(turned.loop, [None, strip])
        parallel_outer(sch, [outer], work, target.num_cores)
