"""Kernels of the field that rely on warps in lockstep, and what is compiled in their place."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule, functions_of
from ...ir.structural import structural_equal
from ...tir import PrimFunc
from .sampling import gpu_multinomial_from_uniform

__all__ = ["without_lockstep"]

_SAMPLING = "gpu_multinomial_from_uniform"


def without_lockstep(mod: IRModule) -> IRModule:
    """The module with its sampling kernel, if it is the one ``DispatchSampling`` puts there, in the form without races.

    The graph level keeps the field's kernel, which other programs are compared with; code is made of this one.
    """
    changed: dict[Any, PrimFunc] = {}
    for var, func in functions_of(mod, PrimFunc):
        if not var.name_hint.startswith(_SAMPLING):
            continue
        prob, draws, rows, ids = (str(func.buffer_map[p].dtype) for p in func.params)
        bare = func.without_attr("global_symbol")
        known = gpu_multinomial_from_uniform(prob, draws, rows, ids).without_attr("global_symbol")
        if structural_equal(PrimFunc(bare.params, bare.body, bare.ret_type, bare.buffer_map, known.attrs), known):
            made = gpu_multinomial_from_uniform(prob, draws, rows, ids, lockstep=False)
            changed[var] = PrimFunc(made.params, made.body, made.ret_type, made.buffer_map, func.attrs)
    if not changed:
        return mod
    out = mod.clone()
    out.update(changed)
    return out
