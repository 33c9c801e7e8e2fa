"""AttachGlobalSymbol: every function gets the name under which it is exported."""

from __future__ import annotations

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..relax.expr import Function
from ..relax.global_names import rename_global_vars
from ..tir import PrimFunc
from .base import symbol_of
from ..ir.plain import plain_str
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AttachGlobalSymbol"]


class AttachGlobalSymbol(ModuleRewrite):
    """Make ``global_symbol`` the function's name in the module; private functions become public.

    With the module attribute ``system_lib_prefix`` PrimFuncs get, and are called by, names with that prefix.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        given = mod.attrs.get("system_lib_prefix") if mod.attrs is not None else None
        prefix = "" if given is None else plain_str(given)
        changed = {}
        renames: dict[GlobalVar, GlobalVar] = {}
        for var, func in mod.functions.items():
            if not isinstance(func, (Function, PrimFunc)):
                continue
            symbol = prefix + var.name_hint if isinstance(func, PrimFunc) else var.name_hint
            if symbol_of(func) == symbol:
                continue
            changed[var] = func.with_attr("global_symbol", symbol)
            if symbol != var.name_hint:
                renames[var] = GlobalVar(symbol, var.struct_info_)
        if not changed:
            return mod
        out = mod.clone()
        out.update(changed)
        return rename_global_vars(out, renames) if renames else out
