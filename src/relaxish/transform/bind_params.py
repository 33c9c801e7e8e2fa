"""BindParams and BindSymbolicVars: fix parameters and symbolic dimensions at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.binding_tools import bind_params, bind_symbolic_vars
from ..relax.expr import Function
from ..support.errors import RelaxishError
from .base import as_module_pass, map_relax_functions, symbol_of

__all__ = ["BindParams", "BindSymbolicVars"]


def BindParams(func_name: str, params: Mapping[Any, Any]) -> Pass:  # noqa: N802  (public name of the pass)
    """Replace parameters of one function (by name or variable) with constants; they leave its signature."""

    def run(mod: IRModule) -> IRModule:
        if func_name not in mod:
            raise RelaxishError(f"BindParams: the module has no function '{func_name}'")
        out = mod.clone()
        out.update_func(out.get_global_var(func_name), bind_params(mod[func_name], params))
        return out

    return as_module_pass(run, "BindParams")


def BindSymbolicVars(  # noqa: N802  (public name of the pass)
    binding_map: Mapping[Any, Any], func_name: str | None = None
) -> Pass:
    """Replace symbolic dimensions (by name or variable) with numbers, in one function or in all public ones."""

    def run(mod: IRModule) -> IRModule:
        if func_name is not None and func_name not in mod:
            raise RelaxishError(f"BindSymbolicVars: the module has no function '{func_name}'")

        def bind(var: Any, func: Function) -> Function:
            if func_name is not None:
                return bind_symbolic_vars(func, binding_map) if var.name_hint == func_name else func
            return bind_symbolic_vars(func, binding_map, missing_ok=True) if symbol_of(func) is not None else func

        return map_relax_functions(mod, bind)

    return as_module_pass(run, "BindSymbolicVars")
