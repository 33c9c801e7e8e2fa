"""AttachGlobalSymbol: every function gets the name under which it is exported."""

from __future__ import annotations

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.expr import Function
from ..relax.global_names import rename_global_vars
from ..tir import PrimFunc
from .base import as_module_pass, symbol_of

__all__ = ["AttachGlobalSymbol"]


def _run(mod: IRModule) -> IRModule:
    changed = {}
    renames: dict[GlobalVar, GlobalVar] = {}
    for var, func in mod.functions.items():
        if not isinstance(func, (Function, PrimFunc)):
            continue
        symbol = symbol_of(func)
        if symbol is None:
            changed[var] = func.with_attr("global_symbol", var.name_hint)
        elif symbol != var.name_hint:
            renames[var] = GlobalVar(symbol, var.struct_info_)
    if not changed and not renames:
        return mod
    out = mod.clone()
    out.update(changed)
    return rename_global_vars(out, renames) if renames else out


def AttachGlobalSymbol() -> Pass:  # noqa: N802  (public name of the pass)
    """Set ``global_symbol`` on functions that have none; functions whose symbol differs from their name are renamed."""
    return as_module_pass(_run, "AttachGlobalSymbol")
