"""Applying a trace tuned on one fused variant of an operator to another."""

from __future__ import annotations

from typing import Any

from ..target import Target
from ..tir import PrimFunc, Schedule
from ..tir.schedule import BlockRV, ScheduleError, Trace
from . import block_analysis as ba

__all__ = ["schedule_using_anchor_trace"]


def _block_names(sch: Schedule) -> list[tuple[str, str]]:
    return [(p.realize.block.name_hint, gv.name_hint) for gv, f in sch.mod.functions.items() if isinstance(f, PrimFunc)
            for p in ba.places(f) if p.scope is not None]


def schedule_using_anchor_trace(sch: Schedule, anchor_trace: Trace, target: Target) -> None:
    """Repeat the trace where its blocks exist, then inline what is left and run the rest in parallel.

    The anchor block (the reduction) is what both variants share; instructions about blocks only the tuned variant has
    are left out, together with everything that depends on them.
    """
    for name, func_name in _block_names(sch):
        block = sch.get_block(name, func_name)
        node = sch.get(block)
        if ba.is_spatial(node) and sch.get_consumers(block):
            try:
                sch.compute_inline(block)
            except ScheduleError:
                continue
    known = {name for name, _ in _block_names(sch)}
    roots = {p.realize.block.name_hint for f in sch.mod.functions.values() if isinstance(f, PrimFunc)
             for p in ba.places(f) if p.scope is None}
    mapped: dict[Any, Any] = {}
    lost: set[Any] = set()
    for inst in anchor_trace.insts:
        kind = inst.kind.name
        if kind == "EnterPostproc":
            continue
        flat = [x for x in _flatten(inst.inputs)]
        if any(x in lost for x in flat if not isinstance(x, (int, str, float, type(None)))) or (
                kind == "GetBlock" and inst.attrs[0] not in known | roots):
            lost.update(inst.outputs)
            continue
        try:
            from ..tir.schedule.instruction import map_rvs

            inputs = [map_rvs(x, lambda rv: mapped.get(rv, rv)) for x in inst.inputs]
            outputs = sch._run(inst.kind, inputs, inst.attrs, anchor_trace.decisions.get(inst))
        except ScheduleError:
            lost.update(inst.outputs)
            continue
        mapped.update(zip(inst.outputs, outputs, strict=True))
        known.update(sch.get(x).name_hint for x in outputs if isinstance(x, BlockRV))
    _rest(sch)


def _flatten(items: Any) -> list[Any]:
    out: list[Any] = []
    for x in items:
        out += _flatten(x) if isinstance(x, (list, tuple)) else [x]
    return out


def _rest(sch: Schedule) -> None:
    for name, func_name in _block_names(sch):
        block = sch.get_block(name, func_name)
        loops = sch.get_loops(block)
        if loops and not any(ba.has_annotation_or_binding(sch.get(x)) for x in loops) and ba.is_spatial(sch.get(block)):
            sch.parallel(loops[0])
