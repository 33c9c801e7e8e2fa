"""LambdaLift: local functions move to the module; what they capture becomes a closure."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.analysis.variables import free_vars
from ..relax.call_forms import invoke_closure, invoke_pure_closure, make_closure
from ..relax.copying import copy_with_new_vars
from ..relax.expr import Call, Function, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import FuncStructInfo
from .base import as_module_pass

__all__ = ["LambdaLift"]


class _Lifter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.owner = ""
        self.depth = 0
        # Local functions that capture nothing: their name in the module, and how deep they were bound.
        self.plain: dict[Var, tuple[GlobalVar, int]] = {}
        self.closures: set[Var] = set()
        self.makers: set[str] = set()
        self.recursive: dict[Var, tuple[GlobalVar, list[Var]]] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.value, Function):
            self._lift(binding, binding.value)
            return
        value = self.visit_expr(binding.value)
        if self._gives_closure(value):
            self.closures.add(binding.var)
        self.reemit_binding(binding, value)

    def _gives_closure(self, value: Any) -> bool:
        """Whether a value is a closure, or the result of a function that returns one."""
        if not isinstance(value, Call):
            return isinstance(value, Var) and value in self.closures
        if isinstance(value.op, Op):
            return value.op.name == "relax.make_closure"
        callee = self.builder_.lookup_binding(value.op) if isinstance(value.op, Var) else value.op
        return isinstance(callee, GlobalVar) and callee.name_hint in self.makers

    def _lift(self, binding: VarBinding, func: Function) -> None:
        free = free_vars(func)
        captured = [v for v in free if v is not binding.var and v not in self.plain]
        name = GlobalVar(self.builder_.get_unique_name(f"{self.owner}_{binding.var.name_hint}"))
        inner = [Var(v.name_hint, v.struct_info) for v in captured]
        infos = [v.struct_info for v in (*func.params, *inner)]
        name.struct_info_ = FuncStructInfo(infos, func.ret_struct_info, func.is_pure)
        if binding.var in free:
            self.recursive[binding.var] = (name, inner)
        lifted = self._lifted(func, captured, inner, name.name_hint)
        name.struct_info_ = None
        self.builder_.update_func(name, lifted)
        if not captured:
            self.plain[binding.var] = (name, self.depth)
            self.reemit_binding(binding, name)
            return
        args = [self.visit_expr(v) for v in captured]
        self.closures.add(binding.var)
        self.reemit_binding(binding, self.builder_.normalize(make_closure(name, args)))

    def _lifted(self, func: Function, captured: list[Var], inner: list[Var], name: str) -> Function:
        """The function with what it captures as trailing parameters."""
        saved = dict(self.var_remap_)
        self.var_remap_.update(zip(captured, inner))
        self.depth += 1
        params = [*(self.visit_var_def(p) for p in func.params), *inner]
        body = self.visit_with_new_scope(func.body, params)
        self.depth -= 1
        self.var_remap_ = saved
        returned = self.builder_.lookup_binding(body.body) if isinstance(body.body, Var) else None
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol"}
        ret = func.ret_struct_info
        if self._gives_closure(returned):
            self.makers.add(name)
            ret = None
        return copy_with_new_vars(Function(params, body, ret, func.is_pure, attrs, func.span))

    def visit_var_(self, op: Var) -> Any:
        known = self.plain.get(op)
        if known is not None and known[1] != self.depth:
            return known[0]
        if op in self.recursive and not self.recursive[op][1] and op not in self.plain:
            return self.recursive[op][0]
        return super().visit_var_(op)

    def visit_call_(self, op: Call) -> Any:
        callee = op.op
        if isinstance(callee, Var) and callee in self.recursive and callee not in (*self.plain, *self.closures):
            name, extra = self.recursive[callee]
            return Call(name, [*(self.visit_expr(a) for a in op.args), *extra], op.attrs, op.sinfo_args, op.span)
        call = super().visit_call_(op)
        if not isinstance(callee, Var) or callee not in self.closures:
            return call
        info = callee.struct_info_
        invoke = invoke_pure_closure if isinstance(info, FuncStructInfo) and info.purity else invoke_closure
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
    """Lift local functions to the module.

    ::

        def main(x, y):                      def main_inner(x1, y1): ...
            def inner(x1, y1): ...    ->     def main(x, y):
            z = inner(x, y)                      inner = cls.main_inner
                                                 z = inner(x, y)

    Those that capture variables become closures: ``R.make_closure`` where they were defined and
    ``R.invoke_pure_closure`` (or ``R.invoke_closure``) where they are called.
    """
    return as_module_pass(_run, "LambdaLift")
