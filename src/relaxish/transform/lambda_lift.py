"""LambdaLift: local functions move to the module; what they capture becomes a closure."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.analysis.variables import free_vars
from ..relax.call_forms import invoke_closure, invoke_pure_closure, make_closure
from ..relax.expr import Call, Function, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import FuncStructInfo
from .base import as_module_pass

__all__ = ["LambdaLift"]


class _Lifter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.owner = ""
        self.plain: dict[Var, GlobalVar] = {}
        self.closures: dict[Var, FuncStructInfo] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if not isinstance(binding.value, Function):
            super().visit_var_binding_(binding)
            return
        func = binding.value
        captured = [v for v in free_vars(func) if v is not binding.var and v not in self.plain]
        name = GlobalVar(self.builder_.get_unique_name(f"{self.owner}_{binding.var.name_hint}"))
        if captured:
            self._lift_closure(binding, func, captured, name)
            return
        name.struct_info_ = func.struct_info_
        self.plain[binding.var] = name
        self.builder_.update_func(name, self._strip(self.visit_expr(func)))

    def _lift_closure(self, binding: VarBinding, func: Function, captured: list[Var], name: GlobalVar) -> None:
        """The captured values become trailing parameters."""
        fresh = [Var(v.name_hint, v.struct_info) for v in captured]
        saved = dict(self.var_remap_)
        self.var_remap_.update(zip(captured, fresh))
        params = [self.visit_var_def(p) for p in func.params]
        if binding.var in free_vars(func):
            raise NotImplementedError("LambdaLift of a recursive function that captures variables")
        body = self.visit_with_new_scope(func.body, [*params, *fresh])
        self.var_remap_ = saved
        lifted = Function([*params, *fresh], body, func.ret_struct_info, func.is_pure, {})
        name.struct_info_ = lifted.struct_info_
        self.builder_.update_func(name, lifted)
        self.closures[binding.var] = func.struct_info_
        args = [self.visit_expr(v) for v in captured]
        self.reemit_binding(binding, self.builder_.normalize(make_closure(name, args)))

    def _strip(self, func: Function) -> Function:
        return func.without_attr("global_symbol") if "global_symbol" in func.attrs else func

    def visit_var_(self, op: Var) -> Any:
        return self.plain[op] if op in self.plain else super().visit_var_(op)

    def visit_call_(self, op: Call) -> Any:
        info = self.closures.get(op.op) if isinstance(op.op, Var) else None
        call = super().visit_call_(op)
        if info is None:
            return call
        invoke = invoke_pure_closure if info.purity else invoke_closure
        return invoke(call.op, list(call.args), op.struct_info)


def _run(mod: IRModule) -> IRModule:
    lifter = _Lifter(mod)
    for var, func in list(mod.functions.items()):
        if isinstance(func, Function):
            lifter.owner = var.name_hint
            new = lifter.visit_expr(func)
            if new is not func:
                lifter.builder_.update_func(var, new)
    return lifter.builder_.get()


def LambdaLift() -> Pass:  # noqa: N802  (public name of the pass)
    """Lift local functions to the module. Those that capture variables become closures: ``R.make_closure`` where
    they were defined and ``R.invoke_pure_closure`` where they are called.
    """
    return as_module_pass(_run, "LambdaLift")
