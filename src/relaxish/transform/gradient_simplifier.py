"""Transposes that differentiation of matrix products leaves behind.

The gradient of ``a @ b.T`` by ``b`` is ``(a.T @ g).T``, which is ``g.T @ a``; and ``b.T.T`` in the one by ``a`` is
``b``.
"""

from __future__ import annotations

from typing import Any

from ..op.linear_algebra import matmul
from ..op.manipulate import permute_dims
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.expr import Expr, Function, Var, VarBinding, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import tensor_rank

__all__ = ["simplify_gradient"]


def _rank(expr: Expr) -> int:
    info = expr.struct_info_
    return tensor_rank(info)


def _is_transpose(expr: Expr | None) -> bool:
    """Whether the expression exchanges the last two axes and keeps the others."""
    if not is_call_of(expr, "relax.permute_dims"):
        return False
    rank, axes = _rank(expr.args[0]), expr.attrs.axes
    if rank < 2:
        return False
    if axes is None:
        return rank == 2
    return [int(a) for a in axes] == [*range(rank - 2), rank - 1, rank - 2]


class _Simplifier(PyExprMutator):
    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = self.visit_expr(binding.value)
        source = value.args[0] if _is_transpose(value) else None
        before: Any = None if source is None else self.builder_.lookup_binding(source)
        if _is_transpose(before) and isinstance(before.args[0], Var):
            self.var_remap_[binding.var] = before.args[0]
            return
        if is_call_of(before, "relax.matmul") and all(_rank(arg) != 1 for arg in before.args):
            lhs, rhs = (self._transposed(arg) for arg in before.args)
            value = self.visit_expr(matmul(rhs, lhs, before.attrs.out_dtype))
        self.reemit_binding(binding, value)

    def _transposed(self, expr: Expr) -> Expr:
        """The transpose of an argument; of what was transposed before, its source."""
        before: Any = self.builder_.lookup_binding(expr)
        if _is_transpose(before):
            return before.args[0]
        rank = _rank(expr)
        return expr if rank == 1 else permute_dims(expr, [*range(rank - 2), rank - 1, rank - 2])


def simplify_gradient(func: Function) -> Function:
    """The function without transposes of transposes and of products, and without what that makes unused.

    ::

        lv = R.permute_dims(a, axes=[1, 0])
        lv1 = R.matmul(lv, g)                      ->    lv2 = R.permute_dims(g, axes=[1, 0])
        b_adjoint = R.permute_dims(lv1, axes=[1, 0])     b_adjoint = R.matmul(lv2, a)
    """
    made: Function = remove_all_unused(_Simplifier().visit_expr(func))
    return made
