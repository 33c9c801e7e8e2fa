"""DeadCodeElimination: bindings nobody uses and functions nobody reaches."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.expr import GlobalVar
from ..ir.functor import Visitor
from ..ir.module import IRModule
from ..ir.prim import Var as TirVar
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.expr import ExternFunc, Function
from ..relax.struct_info import StructInfo
from ..tir.buffer import Buffer
from .base import map_relax_functions, symbol_of
from ..ir.declared_pass import ModuleRewrite

__all__ = ["DeadCodeElimination", "remove_unreachable"]


class _Callees(Visitor):
    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def visit_GlobalVar(self, var: GlobalVar) -> None:
        self.names[var.name_hint] = None

    def visit_StructInfo(self, info: StructInfo) -> None:
        """No functions in there."""

    def visit_Var(self, var: TirVar) -> None:
        """Nor there."""

    def visit_Buffer(self, buffer: Buffer) -> None:
        """Nor there."""


def remove_unreachable(mod: IRModule, entries: Sequence[str]) -> IRModule:
    """The module without the functions that no entry reaches."""
    reached: set[str] = set()
    stack = [name for name in entries if name in mod]
    while stack:
        name = stack.pop()
        if name in reached:
            continue
        reached.add(name)
        callees = _Callees()
        callees.visit(mod[name])
        stack.extend(n for n in callees.names if n in mod and n not in reached)
    if len(reached) == len(mod.functions):
        return mod
    return IRModule({v: f for v, f in mod.functions.items() if v.name_hint in reached}, mod.attrs, mod.global_infos)


def _entries(mod: IRModule, given: Sequence[str] | None) -> list[str]:
    names = [mod.get_global_var(name).name_hint for name in given or ()]
    names += [v.name_hint for v, f in mod.functions.items() if isinstance(f, ExternFunc) or symbol_of(f) is not None]
    return names


def eliminate(mod: IRModule, entry_functions: Sequence[str] | None = None) -> IRModule:
    """Dead bindings and unreachable functions removed."""
    entries = _entries(mod, entry_functions)
    mod = remove_unreachable(mod, entries)

    def clean(_: GlobalVar, func: Function) -> Function:
        new: Function = remove_all_unused(func)
        return new

    mod = map_relax_functions(mod, clean)
    return remove_unreachable(mod, entries)


class DeadCodeElimination(ModuleRewrite, opt_level=1):
    """Remove bindings whose value is unused and that have no side effects, then functions that no public function
    (or one of ``entry_functions``) reaches.
    """

    entry_functions: list[str] | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        return eliminate(mod, self.entry_functions)
