"""Normalize and NormalizeGlobalVar: the canonical form of expressions and of function names."""

from __future__ import annotations


from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Function
from ..relax.global_names import normalize_global_vars
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["Normalize", "NormalizeGlobalVar"]


class Normalize(ModuleRewrite):
    """Bring functions into A-normal form with struct info everywhere: ``f(g(x))`` becomes ``gv = g(x); f(gv)``."""

    def rewrite(self, mod: IRModule) -> IRModule:
        def normalize(_: GlobalVar, func: Function) -> Function:
            made: Function = BlockBuilder(mod, trusts_struct_info=False).normalize(func)
            return made

        return map_relax_functions(mod, normalize)


class NormalizeGlobalVar(ModuleRewrite):
    """Public functions take the name of their ``global_symbol``; private ones that stand in the way are renamed."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return normalize_global_vars(mod)
