"""Schedule manipulations shared by rules, postprocs and the passes."""

from __future__ import annotations


from ...ir import IRModule
from ...tir import PrimFunc, Schedule
from . import blocks as ba
from ...ir.plain import plain_int
from ...support.sequences import of_kind

__all__ = ["normalize_mod", "only_function_as_main", "remove_weight_layout_rewrite", "schedule_for_tuning"]


def normalize_mod(mod: IRModule | PrimFunc) -> IRModule:
    """A module with exactly one function, called ``main`` and marked ``tir.noalias``."""
    main = only_function_as_main(mod)["main"]
    return IRModule({"main": main.with_attr("tir.noalias", True)})


def only_function_as_main(mod: IRModule | PrimFunc) -> IRModule:
    """A module with exactly one function, called ``main``. One that is given alone is marked ``tir.noalias`` as well."""
    match mod:
        case PrimFunc():
            func: PrimFunc = mod
            if not (func.attrs or {}).get("global_symbol"):
                func = func.with_attr("global_symbol", "main")
            func = func.with_attr("tir.noalias", True)
        case IRModule():
            funcs: list[PrimFunc] = list(of_kind(mod.functions.values(), PrimFunc))
            if len(funcs) != 1:
                names = [gv.name_hint for gv in mod.functions]
                raise ValueError(f"tuning takes a module with exactly one PrimFunc, this one holds {names}")
            func = funcs[0]
            if [v.name_hint for v in mod.functions] == ["main"]:
                return mod
            if func.attrs is not None and func.attrs.get("global_symbol") not in (None, "main"):
                func = func.with_attr("global_symbol", "main")
        case _:
            raise TypeError(f"expected an IRModule or a PrimFunc, got {type(mod).__name__}")
    return IRModule({"main": func})


def schedule_for_tuning(mod: IRModule, seed: int | None = None) -> Schedule:
    """A schedule without the expensive checks: what the rules do is legal by construction."""
    return Schedule(mod, seed=seed, debug_mask="none", error_render_level="none")


def remove_weight_layout_rewrite(mod: IRModule, skip_ndarray_rewrite: bool = True) -> IRModule:
    """Drop the blocks that repack weights, and pack the others: candidates are timed as if weights came packed."""
    mod = _packed(mod)
    if not any(
        "layout_rewrite_preproc" in str(k)
        for f in mod.functions.values()
        if isinstance(f, PrimFunc)
        for p in ba.places(f)
        for k in (p.realize.block.annotations or {})
    ):
        return mod
    from ...tir import transform

    result: IRModule = transform.RemoveWeightLayoutRewriteBlock(skip_ndarray_rewrite)(mod)
    return result


def _packed(mod: IRModule) -> IRModule:
    """The layout-free buffers in the strips a default schedule asked for; as many bytes, so arguments stay valid."""
    from ...dlight.cpu.packing import pack_function

    changed = {}
    for gv, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            continue
        free = (func.attrs or {}).get("layout_free_buffers")
        if free:
            packed = pack_function(func, frozenset(plain_int(i) for i in free))
            if packed is not func:
                changed[gv] = packed
    if not changed:
        return mod
    out = mod.clone()
    out.update(changed)
    return out
