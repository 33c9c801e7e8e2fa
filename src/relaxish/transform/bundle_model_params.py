"""BundleModelParams: the weights of a function become one tuple parameter."""

from __future__ import annotations


from ..relax.expr import Expr, Function, TupleGetItem, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import TupleStructInfo
from .base import map_relax_functions
from ..ir.plain import plain_int
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["BundleModelParams", "bundle_model_params", "num_input_of"]


def num_input_of(func: Function) -> int | None:
    """The attribute ``num_input``: how many leading parameters are run-time inputs. None without the attribute."""
    count = func.attrs.get("num_input")
    return None if count is None else plain_int(count)


class _Bundler(PyExprMutator):
    """Every use of a weight reads its field of the tuple, right before the use."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[Var, TupleGetItem] = {}

    def visit_var_(self, op: Var) -> Expr:
        item = self.fields.get(op)
        return super().visit_var_(op) if item is None else self.builder_.emit(item, op.name_hint)

    def bundle(self, func: Function, count: int, name: str) -> Function:
        weights = func.params[count:]
        bundled = Var(name, TupleStructInfo([w.struct_info for w in weights]))
        self.fields = {w: TupleGetItem(bundled, i) for i, w in enumerate(weights)}
        params = [*func.params[:count], bundled]
        body = self.visit_with_new_scope(func.body, params)
        return Function(params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


def bundle_model_params(func: Function, param_tuple_name: str | None = None) -> Function:
    """The function with its weights in one tuple; without ``num_input`` every parameter is an input."""
    count = num_input_of(func)
    if count is None:
        return func
    return _Bundler().bundle(func, count, param_tuple_name or "model_params")


class BundleModelParams(ModuleRewrite, opt_level=1):
    """Replace the parameters after the first ``num_input`` by one tuple, named ``model_params`` by default.

    ::

        def main(x, w):                      ->     def main(x, model_params: R.Tuple(R.Tensor(...))):
            R.func_attr({"num_input": 1})               R.func_attr({"num_input": 1})
            y = R.matmul(x, w)                          w = model_params[0]
                                                        y = R.matmul(x, w)
    """

    param_tuple_name: str | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: bundle_model_params(func, self.param_tuple_name))
