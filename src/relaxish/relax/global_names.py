"""Settling the names of module functions."""

from __future__ import annotations

from ..ir.expr import BaseFunc, GlobalVar
from ..ir.module import IRModule
from .expr import Function
from ..ir.plain import plain_str

__all__ = ["normalize_global_vars", "symbol_of"]


def normalize_global_vars(mod: IRModule) -> IRModule:
    """Public functions take the name of their ``global_symbol``; private ones in the way are renamed.

    Raises ValueError if two public functions claim one name.
    """
    public: dict[str, GlobalVar] = {}
    for var, func in mod.functions.items():
        symbol = symbol_of(func)
        if symbol is None:
            continue
        if symbol in public:
            raise ValueError(f"two functions of the module have the global_symbol '{symbol}'")
        public[symbol] = var
    used = set(public)
    renames: dict[GlobalVar, GlobalVar] = {}
    for var, func in mod.functions.items():
        symbol = symbol_of(func)
        if symbol is not None:
            if symbol != var.name_hint:
                renames[var] = GlobalVar(symbol, var.struct_info_)
        elif var.name_hint in used:
            count = 1
            while f"{var.name_hint}_{count}" in used or f"{var.name_hint}_{count}" in mod:
                count += 1
            renames[var] = GlobalVar(f"{var.name_hint}_{count}", var.struct_info_)
            used.add(renames[var].name_hint)
        else:
            used.add(var.name_hint)
    return rename_global_vars(mod, renames) if renames else mod.clone()


def symbol_of(func: BaseFunc) -> str | None:
    """The ``global_symbol`` of a function, or None if it is private."""
    symbol = func.attrs.get("global_symbol") if func.attrs is not None else None
    return None if symbol is None else plain_str(symbol)


def rename_global_vars(mod: IRModule, renames: dict[GlobalVar, GlobalVar]) -> IRModule:
    """Rename functions, in keys and in bodies; attributes stay."""
    from ..ir.functor import Mutator

    class Rename(Mutator):
        """Replaces the names."""

        def visit_GlobalVar(self, var: GlobalVar) -> GlobalVar:
            return renames.get(var, var)

        def visit_Var(self, var: object) -> object:
            return var

    rename = Rename()
    out = {renames.get(var, var): rename.visit(func) for var, func in mod.functions.items()}
    return _normalized(IRModule(out, mod.attrs, mod.global_infos))


def _normalized(mod: IRModule) -> IRModule:
    """Functions that were not in normal form yet are brought into it: what is renamed is a finished program."""
    from .block_builder import BlockBuilder

    for var, func in list(mod.functions.items()):
        if isinstance(func, Function) and func.body.struct_info_ is None:
            mod.update_func(var, BlockBuilder(mod, trusts_struct_info=False).normalize(func))
    return mod
