"""Values that depend on weights only."""

from __future__ import annotations


from ...ir.prim import Var as TirVar
from ..expr import Binding, Function, Var
from ..expr_functor import PyExprVisitor
from .struct_info import definable_tir_vars_in_struct_info
from .variables import free_symbolic_vars, free_vars
from ...ir.plain import plain_int

__all__ = ["computable_at_compile_time"]


class _Known(PyExprVisitor):
    """Variables, and symbolic variables, that are known once the weights are."""

    def __init__(self) -> None:
        self.vars: dict[Var, None] = {}
        self.symbols: set[TirVar] = set()

    def mark(self, var: Var) -> None:
        self.vars[var] = None
        self.symbols.update(definable_tir_vars_in_struct_info(var.struct_info))

    def visit_function_(self, op: Function) -> None:
        count = op.attrs.get("num_input")
        if count is not None:
            for param in op.params[plain_int(count) :]:
                self.mark(param)
        super().visit_function_(op)

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if all(v in self.vars for v in free_vars(value)) and self.symbols.issuperset(free_symbolic_vars(value)):
            self.mark(binding.var)
        super().visit_binding(binding)


def computable_at_compile_time(func: Function) -> list[Var]:
    """Variables that can be computed once the weights are known.

    The attribute ``num_input`` says how many leading parameters are run-time inputs; without it no parameter is a
    weight, and only what needs none is known.
    """
    known = _Known()
    known.visit_expr(func)
    return list(known.vars)
