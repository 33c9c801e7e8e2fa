"""Schedule manipulations shared by rules, postprocs and the passes."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from ..tir import PrimFunc, Schedule
from ..tir.schedule import BlockRV, LoopRV
from . import block_analysis as ba

__all__ = ["block_rv_of", "normalize_mod", "remove_weight_layout_rewrite", "schedule_for_tuning",
           "tile_with_tensor_intrin"]


def normalize_mod(mod: IRModule | PrimFunc) -> IRModule:
    """A module with exactly one function, called ``main`` and marked ``tir.noalias``."""
    if isinstance(mod, PrimFunc):
        func: PrimFunc = mod
        if not (func.attrs or {}).get("global_symbol"):
            func = func.with_attr("global_symbol", "main")
    elif isinstance(mod, IRModule):
        funcs: list[PrimFunc] = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
        if len(funcs) != 1:
            names = [gv.name_hint for gv in mod.functions]
            raise ValueError(f"tuning takes a module with exactly one PrimFunc, this one holds {names}")
        func = funcs[0]
        if func.attrs is not None and func.attrs.get("global_symbol") not in (None, "main"):
            func = func.with_attr("global_symbol", "main")
    else:
        raise TypeError(f"expected an IRModule or a PrimFunc, got {type(mod).__name__}")
    main: PrimFunc = func.with_attr("tir.noalias", True)
    return IRModule({"main": main})


def schedule_for_tuning(mod: IRModule, seed: int | None = None) -> Schedule:
    """A schedule without the expensive checks: what the rules do is legal by construction."""
    return Schedule(mod, seed=seed, debug_mask="none", error_render_level="none")


def remove_weight_layout_rewrite(mod: IRModule, skip_ndarray_rewrite: bool = True) -> IRModule:
    """Drop the blocks that repack weights, and pack the others: candidates are timed as if weights came packed."""
    mod = _packed(mod)
    if not any("layout_rewrite_preproc" in str(k) for f in mod.functions.values() if isinstance(f, PrimFunc)
               for p in ba.places(f) for k in (p.realize.block.annotations or {})):
        return mod
    from ..tir import transform

    result: IRModule = transform.RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite)(mod)
    return result


def _packed(mod: IRModule) -> IRModule:
    """The layout-free buffers in the strips a default schedule asked for; as many bytes, so arguments stay valid."""
    from ..dlight.cpu.packing import pack_function

    changed = {}
    for gv, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            continue
        free = (func.attrs or {}).get("layout_free_buffers")
        if free:
            packed = pack_function(func, frozenset(int(getattr(i, "value", i)) for i in free))
            if packed is not func:
                changed[gv] = packed
    if not changed:
        return mod
    out = mod.clone()
    out.update(changed)
    return out


def block_rv_of(sch: Schedule, name: str, func_name: str) -> BlockRV:
    """A block by name."""
    return sch.get_block(name, func_name)


def tile_with_tensor_intrin(sch: Schedule, block: BlockRV, intrin_name: str) -> LoopRV | None:
    """Split and reorder so that the innermost loops are the intrinsic's; returns its outermost, None if it fits not."""
    from ..tir import TensorIntrin
    from ..tir.schedule.analysis import get_tensorize_loop_mapping

    intrin = TensorIntrin.get(intrin_name)
    info = get_tensorize_loop_mapping(sch, block, intrin.desc) if intrin is not None else None
    if info is None:
        return None
    by_var = {sch.get(rv).loop_var: rv for rv in sch.get_loops(block)}
    suffix: dict[int, LoopRV] = {}
    inner: list[Any] = []
    for sref, desc_loop in info.loop_map.items():
        loop: Any = getattr(sref, "stmt", sref)
        total, tile = ba.int_extent(loop), ba.int_extent(desc_loop)
        if total is None or tile is None or total % tile:
            return None
        split = sch.split(by_var[loop.loop_var], factors=[None, tile])
        index = info.desc_loop_indexer[desc_loop]
        suffix[int(getattr(index, "value", index))] = split[1]
        inner.append(split[1])
    ordered = [suffix[i] for i in sorted(suffix)]
    inner_vars = {sch.get(rv).loop_var for rv in inner}
    order, meet = [], False
    for rv in sch.get_loops(block):
        if sch.get(rv).loop_var in inner_vars:
            meet = True
        elif meet:
            order.append(rv)
    sch.reorder(*order, *ordered)
    return ordered[0]
