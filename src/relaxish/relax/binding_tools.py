"""Replacing parameters and symbolic dimensions of a function with known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.expr import PrimExpr
from ..ir.prim import Var as TirVar
from ..runtime.arrays.ndarray import NDArray
from ..support.errors import RelaxishError
from .analysis.variables import defined_symbolic_vars, free_symbolic_vars
from .copying import SymbolSubstitutor
from .expr import Constant, Expr, Function, PrimValue, Var, as_shape_dim, const
from .struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

__all__ = ["bind_params", "bind_symbolic_vars", "substitute_params"]


class _Bind(SymbolSubstitutor):
    """Replaces variables by expressions and symbols by scalars."""

    def __init__(self, values: dict[Var, Any], symbols: dict[TirVar, Any]) -> None:
        super().__init__(symbols)
        self.values = values

    def visit_var_(self, op: Var) -> Expr:
        bound = self.values.get(op)
        return super().visit_var_(op) if bound is None else bound


def _as_value(value: Expr | PrimExpr | NDArray | np.ndarray[Any, Any] | float) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, PrimExpr) or (isinstance(value, int) and not isinstance(value, bool)):
        return PrimValue(value)
    return Constant(value) if isinstance(value, NDArray) else const(value)


def _param_of(func: Function, key: Var | str) -> Var:
    """The parameter that a key of a binding map stands for."""
    if isinstance(key, str):
        found = [p for p in func.params if p.name_hint == key]
        if not found:
            raise RelaxishError(
                f'Function does not have parameter with name "{key}".  Function parameters are named '
                f"{[p.name_hint for p in func.params]}"
            )
        if len(found) > 1:
            raise RelaxishError(f'Function contains multiple parameters with name "{key}".')
        return found[0]
    if not isinstance(key, Var):
        raise RelaxishError(
            f"Expected bound parameter to be a relax.Var or a string, but received {type(key).__name__}"
        )
    if not any(p is key for p in func.params):
        raise RelaxishError(
            f"Function does not use Relax variable {key} as a parameter.  Function parameters are {func.params}"
        )
    return key


def bind_params(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """The function without the given parameters: their uses are the given values.

    Symbolic dimensions that the values determine are replaced as well.  Raises RelaxishError for a key that names no
    parameter, several, or one that is bound already.
    """
    values: dict[Var, Any] = {}
    for key, value in binding_map.items():
        param = _param_of(func, key)
        if param in values:
            raise RelaxishError(f"Remap of variable {param} was defined multiple times")
        values[param] = _as_value(value)
    return substitute_params(func, values) if values else func


def substitute_params(func: Function, values: dict[Var, Any]) -> Function:
    """The function without these parameters; symbolic dimensions become what the values say of them."""
    symbols: dict[TirVar, Any] = {}
    for param, value in values.items():
        _bind_dims(param.struct_info, value.struct_info, symbols)
    return _apply(func, values, symbols)


def _bind_dims(param: StructInfo, value: StructInfo, symbols: dict[TirVar, Any]) -> None:
    """Record what the symbolic dimensions of a parameter stand for; later values win."""
    known = param.dims() if isinstance(param, TensorStructInfo) else getattr(param, "values", None)
    if known is not None and isinstance(param, (TensorStructInfo, ShapeStructInfo)):
        if not isinstance(value, type(param)):
            raise RelaxishError(f"Cannot bind expression with struct type {value} to variable with struct type {param}")
        given = value.dims() if isinstance(value, TensorStructInfo) else value.values
        if given is None:
            return
        if len(known) != len(given):
            raise RelaxishError(f"Cannot bind shape {given} of dimension {len(given)} to {known} of {len(known)}")
        symbols.update((dim, new) for dim, new in zip(known, given) if isinstance(dim, TirVar))
    elif isinstance(param, PrimStructInfo) and isinstance(param.value, TirVar):
        if not isinstance(value, PrimStructInfo):
            raise RelaxishError(f"Cannot bind expression with struct type {value} to variable with struct type {param}")
        if value.value is not None:
            symbols[param.value] = value.value
    elif isinstance(param, TupleStructInfo):
        if not isinstance(value, TupleStructInfo) or len(value.fields) != len(param.fields):
            raise RelaxishError(f"Cannot bind expression with struct type {value} to variable with struct type {param}")
        for inner, given_field in zip(param.fields, value.fields):
            _bind_dims(inner, given_field, symbols)


def _apply(func: Function, values: dict[Var, Any], symbols: dict[TirVar, Any]) -> Function:
    bind = _Bind(values, symbols)
    params = [bind.visit_var_def(p) for p in func.params if p not in values]
    body = bind.visit_with_new_scope(func.body, params)
    ret = bind.visit_struct_info_node(func.ret_struct_info)
    return Function(params, body, ret, func.is_pure, func.attrs, func.span)


def bind_symbolic_vars(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """The function with symbolic variables, given by name or object, replaced.

    Raises RelaxishError for a key that stands for no symbolic variable, for several or for one that is bound already,
    and if what is put in brings symbolic variables that nothing defines.
    """
    if not binding_map:
        return func
    known = defined_symbolic_vars(func)
    symbols: dict[TirVar, Any] = {}
    for key, value in binding_map.items():
        symbol = _symbol_of(known, key)
        if symbol in symbols:
            raise RelaxishError(f"Remap of variable {symbol.name} was defined multiple times")
        symbols[symbol] = as_shape_dim(value)
    made = _apply(func, {}, symbols)
    undefined = [v.name for v in free_symbolic_vars(made)]
    if undefined:
        raise RelaxishError(
            "Resulting function should not have any undefined symbolic variables, "
            f"but TIR variables {undefined} were undefined."
        )
    return made


def _symbol_of(known: Sequence[TirVar], key: TirVar | str) -> TirVar:
    """The symbolic variable that a key of a binding map stands for."""
    names = [v.name for v in known]
    if isinstance(key, str):
        found = [v for v in known if v.name == key]
        if not found:
            raise RelaxishError(
                f'Function does not use symbolic var with name "{key}".  Function has symbolic variables {names}'
            )
        if len(found) > 1:
            raise RelaxishError(f'Function contains multiple symbolic variables with name "{key}".')
        return found[0]
    if not isinstance(key, TirVar):
        raise RelaxishError(
            f"Expected symbolic variable to be a tir.Var or a string name, but {key} is a {type(key).__name__}"
        )
    if not any(v is key for v in known):
        raise RelaxishError(
            f"Function does not use variable {key.name} as a symbolic variable.  Function has symbolic variables {names}"
        )
    return key
