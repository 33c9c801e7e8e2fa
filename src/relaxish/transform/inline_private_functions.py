"""InlinePrivateFunctions: private functions dissolve into their callers."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.analysis.variables import all_global_vars
from ..relax.expr import Function
from ..relax.inline import inline_functions
from .base import as_module_pass, symbol_of

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


def _run(mod: IRModule) -> IRModule:
    graph = {v.name_hint: f for v, f in mod.functions.items() if isinstance(f, Function)}
    callees = {n: [g.name_hint for g in all_global_vars(f) if g.name_hint in graph] for n, f in graph.items()}
    private = {n: f for n, f in graph.items() if symbol_of(f) is None and not _reaches_itself(n, callees)}
    if not private:
        return mod
    out: dict[Any, Any] = {}
    for var, func in mod.functions.items():
        if var.name_hint in private:
            continue
        out[var] = inline_functions(func, private) if isinstance(func, Function) else func
    return IRModule(out, mod.attrs, mod.global_infos)


def InlinePrivateFunctions() -> Pass:  # noqa: N802  (public name of the pass)
    """Inline every private graph function that is not recursive, and drop it."""
    return as_module_pass(_run, "InlinePrivateFunctions")
