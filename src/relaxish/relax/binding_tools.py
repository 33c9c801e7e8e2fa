"""Replacing parameters and symbolic dimensions of a function with known values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.prim import Var as TirVar
from ..support.errors import RelaxishError
from .analysis.struct_info import bind_struct_info, tir_vars_in_struct_info
from .copying import SymbolSubstitutor
from .analysis.variables import all_vars, defined_symbolic_vars
from .expr import Constant, Expr, Function, Var, as_shape_dim, const

__all__ = ["bind_params", "bind_symbolic_vars"]


class _Bind(SymbolSubstitutor):
    """Replaces variables by expressions and symbols by scalars."""

    def __init__(self, values: dict[Var, Any], symbols: dict[TirVar, Any]) -> None:
        super().__init__(symbols)
        self.values = values

    def visit_var_(self, op: Var) -> Any:
        bound = self.values.get(op)
        return super().visit_var_(op) if bound is None else bound


def _as_value(value: Any) -> Expr:
    return value if isinstance(value, Expr) else Constant(value) if hasattr(value, "shape") else const(value)


def bind_params(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """The function without the given parameters: their uses are the given values.

    Symbolic dimensions that the values determine are replaced as well.
    """
    by_name: dict[str, list[Var]] = {}
    for param in func.params:
        by_name.setdefault(param.name_hint, []).append(param)
    values: dict[Var, Any] = {}
    symbols: dict[TirVar, Any] = {}
    for key, value in binding_map.items():
        if isinstance(key, str):
            found = by_name.get(key, [])
            if not found:
                # A module's parameters may be a superset of what one function takes.
                continue
            if len(found) > 1:
                raise RelaxishError(f"the function has {len(found)} parameters named '{key}'")
            key = found[0]
        elif key not in func.params:
            raise RelaxishError(f"'{key.name_hint}' is not a parameter of the function")
        made = _as_value(value)
        values[key] = made
        if made.struct_info_ is not None and key.struct_info_ is not None:
            if not key.struct_info_.is_base_of(made.struct_info_):
                bind_struct_info(key.struct_info_, made.struct_info_, symbols, {})
    if not values:
        return func
    return _apply(func, values, symbols)


def _apply(func: Function, values: dict[Var, Any], symbols: dict[TirVar, Any]) -> Function:
    bind = _Bind(values, symbols)
    params = [bind.visit_var_def(p) for p in func.params if p not in values]
    body = bind.visit_with_new_scope(func.body, params)
    ret = bind.visit_struct_info_node(func.ret_struct_info)
    return Function(params, body, ret, func.is_pure, func.attrs, func.span)


def bind_symbolic_vars(
    func: Function, binding_map: Mapping[Any, Any], *, missing_ok: bool = False
) -> Function:
    """The function with symbolic variables, given by name or object, replaced."""
    known = list(dict.fromkeys([*defined_symbolic_vars(func), *_used_symbols(func)]))
    symbols: dict[TirVar, Any] = {}
    for key, value in binding_map.items():
        if isinstance(key, str):
            found = [v for v in known if v.name == key]
            if len(found) > 1:
                raise RelaxishError(f"the function has {len(found)} symbolic variables named '{key}'")
        else:
            found = [key] if key in known else []
        if not found:
            if missing_ok:
                continue
            raise RelaxishError(f"the function has no symbolic variable '{getattr(key, 'name', key)}'")
        if found[0] in symbols:
            raise RelaxishError(f"symbolic variable '{found[0].name}' is bound twice")
        symbols[found[0]] = as_shape_dim(value)
    return _apply(func, {}, symbols) if symbols else func


def _used_symbols(func: Function) -> list[TirVar]:
    out: dict[TirVar, None] = {}
    for var in all_vars(func):
        if var.struct_info_ is not None:
            out.update(dict.fromkeys(tir_vars_in_struct_info(var.struct_info_)))
    return list(out)
