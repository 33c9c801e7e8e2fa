"""InlinePrivateFunctions: private functions dissolve into their callers."""

from __future__ import annotations

from ..ir.module import IRModule, functions_of
from ..relax.analysis.variables import all_global_vars
from ..relax.expr import Function
from ..relax.inline import inline_functions
from .base import symbol_of
from ..ir.declared_pass import ModuleRewrite

__all__ = ["InlinePrivateFunctions"]


def _reaches_itself(name: str, callees: dict[str, list[str]]) -> bool:
    seen: set[str] = set()
    stack = list(callees.get(name, ()))
    while stack:
        current = stack.pop()
        if current == name:
            return True
        if current not in seen:
            seen.add(current)
            stack.extend(callees.get(current, ()))
    return False


class InlinePrivateFunctions(ModuleRewrite):
    """Inline every private graph function that is not recursive, and drop it."""

    def rewrite(self, mod: IRModule) -> IRModule:
        graph = {v.name_hint: f for v, f in functions_of(mod, Function)}
        callees = {n: [g.name_hint for g in all_global_vars(f) if g.name_hint in graph] for n, f in graph.items()}
        private = {n: f for n, f in graph.items() if symbol_of(f) is None and not _reaches_itself(n, callees)}
        if not private:
            return mod
        inlined = {
            var: inline_functions(func, private) if isinstance(func, Function) else func
            for var, func in mod.functions.items()
        }
        kept = {var for var in inlined if var.name_hint not in private}
        waiting = list(kept)
        while waiting:
            # A function that is not only called (a closure is made of it) cannot go.
            func = inlined[waiting.pop()]
            for used in all_global_vars(func) if isinstance(func, Function) else ():
                if used in inlined and used not in kept:
                    kept.add(used)
                    waiting.append(used)
        return IRModule({v: f for v, f in inlined.items() if v in kept}, mod.attrs, mod.global_infos)
