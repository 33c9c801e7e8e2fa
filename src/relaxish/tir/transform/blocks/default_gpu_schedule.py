"""DefaultGPUSchedule: functions without a schedule get their data-parallel loops bound to blocks and threads."""

from __future__ import annotations

from typing import Any

from ....ir.module import IRModule, functions_of
from ....ir.prim import IterVar, const_int
from ....support.sequences import of_kind
from ....target import Target
from ...function import PrimFunc
from ...schedule.rv import BlockRV
from ...schedule.schedule import Schedule
from ..base import LoweringError
from ....ir.declared_pass import ModuleRewrite

_CPU, _HEXAGON = 1, 14
_MAX_BLOCKS = 256


def _bind(sch: Schedule, block: BlockRV, max_threads: int) -> None:
    loops = sch.get_loops(block)
    if any(sch.get(loop).thread_binding is not None for loop in loops):
        return
    iters = sch.get(block).iter_vars
    parallel = [loop for loop, iv in zip(loops, iters) if iv.iter_type == IterVar.DataPar]
    if not parallel:
        return
    fused = sch.fuse(*parallel, preserve_unit_iters=False)
    extent = sch.get(fused).extent
    size = const_int(extent, (1 << 63) - 1)
    if size > max_threads * _MAX_BLOCKS:
        outer, blocks, threads = sch.split(fused, [None, _MAX_BLOCKS, max_threads])
        sch.reorder(blocks, threads, outer)
    else:
        blocks, threads = sch.split(fused, [None, min(size, max_threads)])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")


def _leaf_blocks(sch: Schedule, func: PrimFunc, name: str) -> list[Any]:
    from ....ir.functor import all_nodes
    from ...stmt import Block

    names = [node.name_hint for node in of_kind(all_nodes(func.body), Block)]
    blocks = [sch.get_block(n, name) for n in names]
    return [b for b in blocks if not sch.get_child_blocks(b)]


def schedule(mod: IRModule) -> IRModule:
    """Schedule the functions of a module that run on a GPU."""
    from ...schedule import Schedule

    chosen: dict[str, Any] = {}
    for var, func in functions_of(mod, PrimFunc):
        if func.get_attr("tir.is_scheduled"):
            continue
        target = func.get_attr("target") or Target.current(True)
        if target is None:
            raise LoweringError("The target is missing either in the current context or in the prim_func's attribute.")
        if target.get_target_device_type() not in (_CPU, _HEXAGON):
            chosen[var.name_hint] = target
    if not chosen:
        return mod
    sch = Schedule(mod)
    for name, target in chosen.items():
        sch.work_on(name)
        for block in _leaf_blocks(sch, sch.mod[name], name):
            _bind(sch, block, int(target.max_num_threads))
    out = sch.mod.clone()
    for name in chosen:
        var = out.get_global_var(name)
        out.update_func(var, out[name].with_attr("tir.is_scheduled", True))
    return out


class DefaultGPUSchedule(ModuleRewrite):
    """Bind what no schedule has bound, so that it can run on a GPU at all.

    Before::

        for i, j in T.grid(128, 128):
            with T.block("add"): ...

    After (1024 threads at most)::

        for i_j_fused_0 in T.thread_binding(16, thread="blockIdx.x"):
            for i_j_fused_1 in T.thread_binding(1024, thread="threadIdx.x"):
                with T.block("add"): ...

    The target is the function's own, or the current one. Raises ValueError where there is neither.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return schedule(mod)
