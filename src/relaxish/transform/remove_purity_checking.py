"""RemovePurityChecking: from here on the compiler vouches for purity itself."""

from __future__ import annotations


from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op, op_name_of
from ..relax.expr import Call, Expr, Function
from ..relax.expr_functor import PyExprMutator
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["RemovePurityChecking"]


class _Unwrap(PyExprMutator):
    def visit_function_(self, op: Function) -> Expr:
        new = super().visit_function_(op)
        if new.is_pure and not new.attrs.get("relax.force_pure"):
            return new.with_attr("relax.force_pure", True)
        return new

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not op_name_of(call):
            return call
        if call.op.name in ("relax.call_pure_packed", "relax.call_inplace_packed"):
            return Call(call.args[0], call.args[1:], None, call.sinfo_args, call.span)
        if call.op.name == "relax.invoke_pure_closure":
            return Call(Op.get("relax.invoke_closure"), call.args, call.attrs, call.sinfo_args, call.span)
        return call


class RemovePurityChecking(ModuleRewrite):
    """Mark pure functions ``relax.force_pure`` and unwrap ``call_pure_packed``, ``call_inplace_packed`` and
    ``invoke_pure_closure``, so that passes below may bring in allocations and other effects.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        unwrap = _Unwrap(mod)

        def rewrite(_: GlobalVar, func: Function) -> Function:
            made: Function = unwrap.visit_expr(func)
            return made

        return map_relax_functions(mod, rewrite)
