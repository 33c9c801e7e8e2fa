"""Facts of blocks in schedules, for the rules; see :mod:`relaxish.carver.block_facts`."""

from __future__ import annotations

from typing import Any

from ...carver.block_facts import (
    BlockInfo, IterInfo, access_stride, combiner_of, flat_stride, is_conditional, is_costly, row_axis, streams,
    vector_axis,
)  # fmt: skip
from ...ir.prim import IntImm, IterVar
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ...tir.stmt import BlockRealize

__all__ = [
    "BlockInfo", "IterInfo", "access_stride", "block_info", "combiner_of", "flat_stride", "get_root_block", "is_conditional",
    "is_costly", "row_axis", "streams", "vector_axis",
]  # fmt: skip


def block_info(sch: Schedule, rv: BlockRV) -> BlockInfo | None:
    """Facts of a block; None when its loops do not bind its iterators one to one."""
    block = sch.get(rv)
    sref = sch.get_sref(rv)
    realize = _realize_of(sch, sref)
    loops = sch.get_loops(rv)
    by_var = {sch.get(loop).loop_var: loop for loop in loops}
    kinds = {IterVar.DataPar: "S", IterVar.CommReduce: "R"}
    iters = []
    for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
        loop = by_var.get(value)
        if loop is None:
            if isinstance(value, IntImm):
                continue
            return None
        iters.append(IterInfo(kinds.get(iter_var.iter_type, "O"), iter_var.var, iter_var.dom.extent, loop))
    if len({id(it.loop) for it in iters}) != len(iters):
        return None
    order = {id(loop): i for i, loop in enumerate(loops)}
    iters.sort(key=lambda it: order[id(it.loop)])
    return BlockInfo(block.name_hint, rv, block, iters)


def _realize_of(sch: Schedule, sref: Any) -> BlockRealize:
    from ...tir.schedule.subst import realize_of

    return realize_of(sref)


def get_root_block(sch: Schedule, func_name: str = "main") -> BlockRV:
    """The root block of a function."""
    return sch.get_block("root", func_name)
