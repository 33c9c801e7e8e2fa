"""In which order of axes a result should lie in memory: the one that those who use it will transpose it to."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ....ir.expr import RelaxExpr
from ....relax.expr import Function, Var, VarBinding
from ....relax.expr_functor import PyExprVisitor
from .views import View, packed_strides, view_of

__all__ = ["Users"]


class Users(PyExprVisitor):
    """The uses of each variable of a function."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.bindings: dict[Any, list[VarBinding | None]] = defaultdict(list)
        self.values: dict[Any, Any] = {}
        self.variables: dict[Any, Any] = {}
        self.binding: VarBinding | None = None
        self.visit_expr(func)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.values[binding.var], self.variables[binding.value] = binding.value, binding.var
        self.binding = binding
        self.visit_expr(binding.value)
        self.binding = None

    def visit_var_(self, var: Var) -> None:
        self.bindings[var].append(self.binding)

    def visit_dataflow_var_(self, var: RelaxExpr) -> None:
        self.bindings[var].append(self.binding)

    def wants_transposed(self, value: RelaxExpr) -> bool:
        """Whether a tensor of four axes had better lie in memory with its second and third axes exchanged.

        That is so if whoever uses it exchanges them, directly or behind reshapes, and nobody wants it as it is.
        """
        var = self.variables.get(value)
        if var is None:
            return False
        whole = View.whole(var)
        if whole is None or len(whole.shape) != 4:
            return False
        a, b, c, d = whole.shape
        exchanged = packed_strides((a, c, b, d))
        other = (exchanged[0], exchanged[2], exchanged[1], exchanged[3])
        return not self._ends_packed(var, whole) and self._ends_packed(var, View(var, whole.dtype, whole.shape, other))

    def _ends_packed(self, var: RelaxExpr, view: View) -> bool:
        """Whether the tensor, if it lay in memory so, is packed after all that only rearranges it."""
        given, here = {var: view}, var
        while len(self.bindings[here]) == 1 and self.bindings[here][0] is not None:
            step = self.bindings[here][0]
            assert step is not None
            latest = view_of(step.value, self.values.get, given)
            if latest is None or latest.source is not var:
                break
            given[step.var], here = latest, step.var
        return given[here].is_packed
