"""Normalize and NormalizeGlobalVar: the canonical form of expressions and of function names."""

from __future__ import annotations


from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Function
from ..relax.global_names import normalize_global_vars
from .base import as_module_pass, map_relax_functions

__all__ = ["Normalize", "NormalizeGlobalVar"]


def _run(mod: IRModule) -> IRModule:
    def normalize(_: GlobalVar, func: Function) -> Function:
        made: Function = BlockBuilder(mod, trusts_struct_info=False).normalize(func)
        return made

    return map_relax_functions(mod, normalize)


def Normalize() -> Pass:
    """Bring functions into A-normal form with struct info everywhere: ``f(g(x))`` becomes ``gv = g(x); f(gv)``."""
    return as_module_pass(_run, "Normalize")


def NormalizeGlobalVar() -> Pass:
    """Public functions take the name of their ``global_symbol``; private ones that stand in the way are renamed."""
    return as_module_pass(normalize_global_vars, "NormalizeGlobalVar")
