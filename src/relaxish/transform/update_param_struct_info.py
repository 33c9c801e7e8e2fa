"""UpdateParamStructInfo: parameters of another kind or shape, with everything inferred anew."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..relax.expr import Expr, Function, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import StructInfo
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["UpdateParamStructInfo"]


class _Update(PyExprMutator):
    def __init__(self, mod: IRModule, sinfo_func: Callable[[Var], StructInfo | None]) -> None:
        super().__init__(mod)
        self.sinfo_func = sinfo_func

    def visit_function_(self, op: Function) -> Expr:
        params = []
        for param in op.params:
            info = self.sinfo_func(param)
            if info is None or info is param.struct_info_:
                params.append(param)
                continue
            new = self.var_remap_[param] = Var(param.name_hint, info, param.span)
            params.append(new)
        if all(a is b for a, b in zip(params, op.params)):
            return super().visit_function_(op)
        body = self.visit_with_new_scope(op.body, params)
        return Function(params, body, None, op.is_pure, op.attrs, op.span)


class UpdateParamStructInfo(ModuleRewrite):
    """Give parameters the struct info that ``sinfo_func(param)`` returns (None: unchanged) and infer the rest."""

    sinfo_func: Callable[[Var], StructInfo | None]

    def rewrite(self, mod: IRModule) -> IRModule:
        def update(_: GlobalVar, func: Function) -> Function:
            made: Function = _Update(mod, self.sinfo_func).visit_expr(func)
            return made

        return map_relax_functions(mod, update)
