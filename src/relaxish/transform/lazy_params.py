"""LazyGetInput and LazySetOutput: weights come and results go one by one, through callbacks."""

from __future__ import annotations

from typing import Any

from ..relax.analysis.cleanup import remove_all_unused
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info
from ..relax.common_subexpr import eliminate_common_subexpr
from ..relax.expr import Binding, Call, Expr, Function, PrimValue, SeqExpr, StringImm, Tuple, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import FuncStructInfo, ObjectStructInfo, PrimStructInfo, TupleStructInfo, fields_of
from .base import map_relax_functions, symbol_of
from .bundle_model_params import num_input_of
from .to_non_dataflow import to_non_dataflow
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["LazyGetInput", "LazySetOutput"]


def _inputs_of(func: Function) -> int | None:
    """The attribute ``num_input``, checked. Raises ValueError if it is negative or more than there are parameters."""
    count = num_input_of(func)
    if count is not None and not 0 <= count <= len(func.params):
        raise ValueError(f"num_input is {count}, but the function takes {len(func.params)} parameters in total")
    return count


class _LazyInputs(PyExprMutator):
    """Each weight is asked for right before it is used."""

    def __init__(self, places: dict[Var, int], getter: Var) -> None:
        super().__init__()
        self.places = places
        self.getter = getter

    def visit_var_(self, op: Var) -> Expr:
        place = self.places.get(op)
        if place is None:
            return super().visit_var_(op)
        call = Call(self.getter, [PrimValue(place), StringImm(op.name_hint)])
        raw = self.builder_.emit(call, f"{op.name_hint}_untyped")
        return self.builder_.match_cast(raw, op.struct_info, op.name_hint)


def _get_lazily(func: Function) -> Function:
    count = _inputs_of(func) or 0
    info = FuncStructInfo([PrimStructInfo("int64"), ObjectStructInfo()], ObjectStructInfo())
    getter = Var("fget_param", info)
    params = [*func.params[:count], getter]
    known = {s for p in params[:count] for s in definable_tir_vars_in_struct_info(p.struct_info)}
    ret = func.ret_struct_info.erase(lambda s: s if s in known else None)
    lazy = _LazyInputs({p: i for i, p in enumerate(func.params[count:])}, getter)
    body = lazy.visit_with_new_scope(func.body, params)
    made = Function(params, body, ret, func.is_pure, func.attrs, func.span)
    # A weight that is used twice is asked for once.
    return remove_all_unused(eliminate_common_subexpr(made.with_attr("num_input", count + 1)))


class LazyGetInput(ModuleRewrite):
    """Public functions take ``fget_param(index, name)`` in place of their weights.

    ::

        def f(A, B):              def f(fget_param):
            C = R.add(A, B)           A_untyped = fget_param(R.prim_value(0), R.str("A"))
            return C          ->      A = R.match_cast(A_untyped, R.Tensor([16], "float32"))
                                      ...

    The callback counts as pure, so that a weight is asked for once.  The first ``num_input`` parameters stay, and the callback follows them.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: func if symbol_of(func) is None else _get_lazily(func))


class _LazyOutputs(PyExprMutator):
    """Each result is handed over as soon as it is there."""

    def __init__(self, places: dict[Var, list[int]], setter: Var) -> None:
        super().__init__()
        self.places = places
        self.setter = setter

    def hand_over(self, var: Var, value: Expr) -> None:
        for place in self.places.get(var, ()):
            self.builder_.emit(Call(self.setter, [PrimValue(place), value]), "_")

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        self.hand_over(binding.var, self.visit_expr(binding.var))


def _set_lazily(func: Function) -> Function:
    func = to_non_dataflow(func)
    count = _inputs_of(func)
    nothing = TupleStructInfo([])
    info = FuncStructInfo([PrimStructInfo("int64"), ObjectStructInfo()], nothing, purity=False)
    setter = Var("fset_output", info)
    params = list(func.params)
    params.insert(len(params) if count is None else count, setter)
    result = func.body.body
    values = fields_of(result)
    places: dict[Var, list[int]] = {}
    rest: list[tuple[int, Any]] = []
    for index, value in enumerate(values):
        if isinstance(value, Var):
            places.setdefault(value, []).append(index)
        else:
            rest.append((index, value))
    lazy = _LazyOutputs(places, setter)
    builder = lazy.builder_
    builder.begin_scope(params)
    builder.begin_binding_block()
    for param in func.params:
        lazy.hand_over(param, param)
    blocks = [builder.end_block(), *(lazy.visit_binding_block(b) for b in func.body.blocks)]
    builder.begin_binding_block()
    for index, value in rest:
        builder.emit(Call(setter, [PrimValue(index), lazy.visit_expr(value)]), "_")
    blocks.append(builder.end_block())
    done = Tuple([])
    body = builder.normalize(SeqExpr([b for b in blocks if b.bindings], done))
    builder.end_scope()
    made = Function(params, body, nothing, False, func.attrs, func.span)
    return made if count is None else made.with_attr("num_input", count + 1)


class LazySetOutput(ModuleRewrite):
    """Public functions give each result to ``fset_output(index, value)`` as soon as it is computed, and return nothing.

    ::

        def f(A, B):              def f(A, B, fset_output):
            C = R.add(A, B)           fset_output(R.prim_value(1), B)
            return (C, B)     ->      C = R.add(A, B)
                                      fset_output(R.prim_value(0), C)
                                      return R.tuple()
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: func if symbol_of(func) is None else _set_lazily(func))
