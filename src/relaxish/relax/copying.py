"""Fresh copies of functions: new variables everywhere, or new symbolic variables only."""

from __future__ import annotations

from typing import Any

from ..ir.expr import PrimExpr
from ..ir.prim import Var as TirVar
from .analysis.variables import defined_symbolic_vars
from .expr import DataflowVar, Function, Var
from .expr_functor import PyExprMutator
from .scalars import rename_prim, substitute_prim
from .struct_info import StructInfo

__all__ = ["SymbolSubstitutor", "copy_with_new_vars", "renew_symbolic_vars"]


class SymbolSubstitutor(PyExprMutator):
    """Replaces symbolic variables throughout."""

    def __init__(self, mapping: dict[TirVar, Any]) -> None:
        super().__init__()
        self.mapping = mapping

    def visit_prim_expr(self, value: PrimExpr) -> PrimExpr:
        return substitute_prim(value, self.mapping)


class _Rename(PyExprMutator):
    """Replaces symbolic variables by others; expressions keep their form."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.mapping = {v: type(v)(v.name, v.dtype) for v in defined_symbolic_vars(func)}

    def visit_prim_expr(self, value: PrimExpr) -> PrimExpr:
        return rename_prim(value, self.mapping)


def renew_symbolic_vars(func: Function) -> Function:
    """The function with fresh symbolic variables, so that it shares none with its callers."""
    rename = _Rename(func)
    made: Function = rename.visit_expr(func) if rename.mapping else func
    return made


class _Renew(_Rename):
    """Also makes every bound variable a fresh one."""

    def visit_var_def_(self, var: Var) -> Var:
        info = var.struct_info_
        kind = DataflowVar if var.is_dataflow else Var  # subclasses are made in ways of their own
        made = kind(var.name_hint, None if info is None else self.visit_struct_info_node(info), var.span)
        self.var_remap_[var] = made
        return made

    def visit_struct_info_node(self, info: StructInfo) -> StructInfo:
        return info.map(self.visit_prim_expr, self._shape_var)

    def with_struct_info(self, var: Var, struct_info: StructInfo | None) -> Var:
        return var


def copy_with_new_vars(func: Function) -> Function:
    """A copy in which every bound variable, symbolic ones included, is fresh."""
    renew = _Renew(func)
    params = [renew.visit_var_def_(p) for p in func.params]
    body = renew.visit_with_new_scope(func.body, params)
    ret = renew.visit_struct_info_node(func.ret_struct_info)
    return Function(params, body, ret, func.is_pure, func.attrs, func.span)
