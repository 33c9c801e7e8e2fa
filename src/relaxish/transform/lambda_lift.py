"""LambdaLift: local functions move to the module; what they capture becomes a closure."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..ir.op import op_name_of
from ..relax.analysis.variables import free_vars
from ..relax.call_forms import invoke_closure, invoke_pure_closure, make_closure
from ..relax.copying import copy_with_new_vars
from ..relax.expr import Call, Expr, Function, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import FuncStructInfo, is_pure_function
from .lambda_names import names_of_local_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["LambdaLift"]


class _Lifter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.names = names_of_local_functions(mod)
        #: Local functions that capture nothing: their name in the module.
        self.plain: dict[Var, GlobalVar] = {}
        #: Variables that hold closures, and whether the call that made each was pure.
        self.closures: dict[Var, bool] = {}
        #: Module functions that return closures.
        self.makers: set[str] = set()
        #: Capturing functions that call themselves: their name, and what they pass on to themselves.
        self.recursive: dict[Var, tuple[GlobalVar, list[Var]]] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.value, Function):
            self._lift(binding, binding.value)
            return
        value = self.visit_expr(binding.value)
        if isinstance(binding.value, Var) and binding.value in self.closures:
            self.closures[binding.var] = self.closures[binding.value]
        elif self._makes_closure(value):
            self.closures[binding.var] = _is_pure(value)
        self.reemit_binding(binding, value)

    def _makes_closure(self, value: Any) -> bool:
        """Whether a value is a new closure, or the result of a function that returns one."""
        if not isinstance(value, Call):
            return False
        if op_name_of(value):
            return value.op.name == "relax.make_closure"
        return isinstance(value.op, GlobalVar) and value.op.name_hint in self.makers

    def _lift(self, binding: VarBinding, func: Function) -> None:
        free = free_vars(func)
        captured = [v for v in free if v is not binding.var and v not in self.plain]
        name = GlobalVar(self.names[func])
        inner = [Var(v.name_hint, v.struct_info, v.span) for v in captured]
        infos = [v.struct_info for v in (*func.params, *inner)]
        name.struct_info_ = FuncStructInfo(infos, func.ret_struct_info, func.is_pure)
        if not captured:
            self.plain[binding.var] = name
        elif binding.var in free:
            self.recursive[binding.var] = name, inner
        lifted = self._lifted(func, captured, inner)
        self.recursive.pop(binding.var, None)
        if self._returns_closure(lifted):
            self.makers.add(name.name_hint)
        lifted = copy_with_new_vars(lifted)
        self.builder_.update_func(name, lifted)
        if captured:
            closure = self.builder_.normalize(make_closure(name, [self.visit_expr(v) for v in captured]))
            self.closures[binding.var] = True
            self.reemit_binding(binding, closure)

    def _lifted(self, func: Function, captured: list[Var], inner: list[Var]) -> Function:
        """The function with what it captures as trailing parameters."""
        saved = dict(self.var_remap_)
        self.var_remap_.update(zip(captured, inner))
        params = [*(self.visit_var_def(p) for p in func.params), *inner]
        body = self.visit_with_new_scope(func.body, params)
        self.var_remap_ = saved
        if body is func.body and all(a is b for a, b in zip(params, func.params)) and not inner:
            return func
        return Function(params, body, None, func.is_pure, func.attrs, func.span)

    def _returns_closure(self, func: Function) -> bool:
        result = func.body.body
        return self._makes_closure(self.builder_.lookup_binding(result))

    def top(self, name: str, func: Function) -> Function:
        """A function of the module with its local functions lifted."""
        new: Function = self.visit_expr(func)
        if self._returns_closure(new):
            self.makers.add(name)
        return new

    def visit_var_(self, op: Var) -> Expr:
        return self.plain.get(op) or super().visit_var_(op)

    def visit_call_(self, op: Call) -> Expr:
        callee = op.op
        if callee in self.recursive:
            name, extra = self.recursive[callee]
            args = [*(self.visit_expr(a) for a in op.args), *extra]
            return Call(name, args, op.attrs, op.sinfo_args, op.span)
        if callee not in self.closures:
            return super().visit_call_(op)
        invoke = invoke_pure_closure if self.closures[callee] else invoke_closure
        return invoke(self.visit_expr(callee), [self.visit_expr(a) for a in op.args], op.struct_info)


def _is_pure(call: Call) -> bool:
    """Whether the call that makes a closure is pure."""
    if op_name_of(call):
        return True  # R.make_closure
    info = call.op.struct_info_
    return is_pure_function(info)


class LambdaLift(ModuleRewrite):
    """Lift local functions to the module.

    ::

        def main(x, y):                      def main_inner(x1, y1): ...
            def inner(x1, y1): ...    ->     def main(x, y):
            z = inner(x, y)                      z = cls.main_inner(x, y)

    Those that capture variables become closures: ``R.make_closure`` where they were defined and
    ``R.invoke_pure_closure`` (or ``R.invoke_closure``) where they are called.  A lifted function is called
    ``<function>_<variable>`` where that is unique, unless it carries a ``global_symbol``.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        lifter = _Lifter(mod)
        for var, func in functions_of(mod, Function):
            new = lifter.top(var.name_hint, func)
            if new is not func:
                lifter.builder_.update_func(var, new)
        return lifter.builder_.get()
