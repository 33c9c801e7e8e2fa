"""Applying a trace tuned on one fused variant of an operator to another that has the same anchor block.

Say ``conv2d`` was tuned and ``conv2d + add + relu`` is compiled. Blocks only the second has are inlined first; then the
trace is repeated, leaving out instructions about blocks only the first had; a block that is still unscheduled at the
end, the fused epilogue, runs in parallel by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..target import Target
from ..tir import ForKind, Schedule
from ..tir.analysis import find_anchor_block
from ..tir.schedule import BlockRV, Instruction, LoopRV, ScheduleError, Trace
from ..tir.schedule.analysis import has_block
from ..tir.schedule.instruction import map_rvs
from .analysis import blocks as ba
from .schedule_rule import AutoBind
from .defaults import CPU_KINDS, auto_inline_of

__all__ = ["schedule_using_anchor_trace"]


def schedule_using_anchor_trace(sch: Schedule, anchor_trace: Trace, target: Target) -> None:
    """Schedule ``sch`` as ``anchor_trace`` did another variant of the same operator."""
    _inline_others(sch, anchor_trace, target)
    left = _apply(sch, anchor_trace)
    if not left:
        return
    if len(left) > 1:
        names = ", ".join(str(sch.get(b).name_hint) for b in left)
        raise ValueError(f"the anchor trace leaves several blocks unscheduled: {names}")
    _schedule_last(sch, left[0], target)


def _block_names(sch: Schedule) -> list[str]:
    """Names of the blocks below the root, producers first."""
    var = sch.func_working_on
    return [p.realize.block.name_hint for p in ba.places(sch.mod[var]) if p.scope is not None]


# ---- what the trace knows nothing of


def _inline_others(sch: Schedule, anchor_trace: Trace, target: Target) -> None:
    """Inline elementwise blocks behind the anchor that the trace does not name."""
    named = {str(inst.attrs[0]) for inst in anchor_trace.insts if inst.kind.name == "GetBlock"}
    anchor = find_anchor_block(sch.mod)
    before = _ancestors(sch, sch.get_block(_name_of(anchor))) if anchor is not None else set()
    rule = auto_inline_of(target)
    for name in _block_names(sch):
        if name in before or name in named or not has_block(sch, name):
            continue
        block = sch.get_block(name)
        if ba.is_spatial(sch.get(block)):
            rule.apply(sch, block)


def _name_of(anchor: Any) -> str:
    return str(getattr(anchor, "stmt", anchor).name_hint)


def _ancestors(sch: Schedule, block: BlockRV) -> set[str]:
    """A block and everything it is computed from, by name."""
    found = {str(sch.get(block).name_hint)}
    for producer in sch.get_producers(block):
        found |= _ancestors(sch, producer)
    return found


# ---- repeating the trace


def _apply(sch: Schedule, anchor_trace: Trace) -> list[BlockRV]:
    """Repeat what can be repeated; the blocks that are still unscheduled then."""
    depth = {name: len(sch.get_loops(sch.get_block(name))) for name in _block_names(sch)}
    mapped: dict[Any, Any] = {}
    foreign: set[Any] = set()
    for inst in anchor_trace.insts:
        absent = inst.kind.name == "GetBlock" and not has_block(sch, str(inst.attrs[0]))
        if absent or any(rv in foreign for rv in _references(inst.inputs)):
            foreign.update(rv for rv in inst.outputs if isinstance(rv, (BlockRV, LoopRV)))
            continue
        outputs = _repeat(sch, inst, mapped, anchor_trace.decisions)
        if inst.kind.name == "GetChildBlocks":
            # The variant may have more blocks; those of the tuned program come first.
            outputs = outputs[: len(inst.outputs)]
        mapped.update(zip(inst.outputs, outputs, strict=True))
    return [sch.get_block(name) for name in _block_names(sch) if name in depth and not _is_scheduled(sch, name, depth)]


def _references(value: object) -> Iterable[Any]:
    match value:
        case list() | tuple():
            for item in value:
                yield from _references(item)
        case BlockRV() | LoopRV():
            yield value


def _repeat(sch: Schedule, inst: Instruction, mapped: Mapping[Any, Any], decisions: Mapping[Any, Any]) -> list[Any]:
    """Run one instruction on the variant's own blocks and loops."""
    inputs = [map_rvs(x, lambda rv: mapped.get(rv, rv)) for x in inst.inputs]
    other = {"ComputeInline": "ReverseComputeInline", "ReverseComputeInline": "ComputeInline"}.get(inst.kind.name)
    try:
        return sch._run(inst.kind, inputs, inst.attrs, decisions.get(inst))
    except ScheduleError:
        if other is None:
            raise
        # What went into its producer there may have to go into its consumer here, or the other way round.
        return sch._run(other, inputs, inst.attrs)


def _is_scheduled(sch: Schedule, name: str, depth: Mapping[str, int]) -> bool:
    loops = sch.get_loops(sch.get_block(name))
    return len(loops) != depth[name] or any(sch.get(loop).kind != ForKind.SERIAL for loop in loops)


def _schedule_last(sch: Schedule, block: BlockRV, target: Target) -> None:
    producers = sch.get_producers(block)
    if len(producers) == 1 and ba.is_spatial(sch.get(producers[0])):
        try:
            sch.reverse_compute_inline(block)  # the epilogue goes into the cache-write stage of the anchor
            return
        except ScheduleError:
            pass  # it reads more than its own element: a nest by itself
    if target.kind.name in CPU_KINDS:
        sch.parallel(sch.fuse(*sch.get_loops(block)))
    else:
        threads = int(target.attrs.get("max_threads_per_block") or 1024)
        AutoBind(256, [32, 64, 128, 256, 512, 1024], threads).apply(sch, block)
