"""LazyTransformParams: the function that prepares weights fetches, prepares and hands over one weight at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..op.vm import kill_object
from ..relax.analysis.variables import defined_symbolic_vars, direct_uses
from ..relax.expr import (
    BindingBlock,
    Call,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import ObjectStructInfo, PrimStructInfo, ShapeStructInfo, StructInfo, TupleStructInfo
from ..support.errors import RelaxishError
from .base import map_relax_functions
from .bundle_model_params import num_input_of
from .to_non_dataflow import to_non_dataflow
from ..ir.declared_pass import ModuleRewrite

__all__ = ["LazyTransformParams"]


def _packed(name: str, args: Sequence[Any]) -> Call:
    return Call(ExternFunc(name), args, None, [ObjectStructInfo()])


class _Fetch(PyExprMutator):
    """Weights come from the getter: those of a tuple at each projection, others at their first use."""

    def __init__(self, getter: str, extra: Sequence[Any]) -> None:
        super().__init__()
        self.getter = getter
        self.extra = list(extra)
        self.bundle: Var | None = None
        self.weights: dict[Var, int] = {}

    def run(self, func: Function, count: int) -> SeqExpr:
        """The body of the function, of whose parameters all but ``count`` are weights."""
        weights = func.params[count:]
        if len(weights) == 1 and isinstance(weights[0].struct_info, TupleStructInfo):
            self.bundle = weights[0]
        else:
            self.weights = {var: index for index, var in enumerate(weights)}
        body: SeqExpr = self.visit_with_new_scope(func.body, func.params[:count])
        return body

    def _get(self, index: int) -> Expr:
        return self.builder_.emit(_packed(self.getter, [*self.extra, PrimValue(index)]))

    def visit_var_(self, op: Var) -> Expr:
        index = self.weights.pop(op, None)
        if index is not None:
            self.builder_.emit_normalized(MatchCast(op, self._get(index), op.struct_info))
        return super().visit_var_(op)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        if op.tuple_value is not self.bundle:
            return super().visit_tuple_getitem_(op)
        return self.builder_.match_cast(self._get(op.index), op.struct_info)


class _HandOver(PyExprMutator):
    """Results go to the setter, and fetched weights are freed, right after their last use."""

    def __init__(self, setter: str, extra: Sequence[Any], result: Var, outputs: dict[Any, list[int]]) -> None:
        super().__init__()
        self.setter = setter
        self.extra = list(extra)
        self.result = result
        self.outputs = outputs
        self.fetched: set[Var] = set()
        self.ends: dict[Var, list[Var]] = {}

    def run(self, body: SeqExpr, params: Sequence[Var]) -> SeqExpr:
        """The body that returns nothing."""
        leaves = [
            VarBinding(Var("_", ObjectStructInfo()), self._set(index, expr))
            for expr, places in self.outputs.items()
            if not isinstance(expr, Var)
            for index in places
        ]
        if leaves:
            body = SeqExpr([*body.blocks, BindingBlock(leaves)], body.body, body.span)
        new: SeqExpr = self.visit_with_new_scope(body, params)
        return new

    def _set(self, index: int, value: Expr) -> Call:
        return _packed(self.setter, [*self.extra, PrimValue(index), value])

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if binding.var is self.result:
            self.var_remap_[binding.var] = self.builder_.emit(Tuple([]))
            return
        super().visit_var_binding_(binding)
        for var in self.ends.get(binding.var, ()):
            value = self.visit_expr(var)
            for index in self.outputs.get(var, ()):
                self.builder_.emit(self._set(index, value), "_")
            if var in self.fetched:
                self.builder_.emit(kill_object(value), "_")


def _last_uses(func: Function, result: Var) -> dict[Var, list[Var]]:
    """From the variable of a binding to the variables of no use after it, itself included."""
    ends: dict[Var, list[Var]] = {}
    ended: set[Var] = set()
    here: list[Var] = []
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            if binding.var is result:
                continue
            if isinstance(binding, VarBinding):
                here = ends[binding.var] = []
            # What a match_cast uses last ends at the binding that follows it.
            for var in direct_uses(binding.value):
                if var not in ended:
                    here.append(var)
                    ended.add(var)
            if isinstance(binding, VarBinding) and binding.var not in ended:
                here.append(binding.var)
                ended.add(binding.var)
    return ends


def _symbol_holders(params: Sequence[Var]) -> Iterator[Var]:
    """Parameters for the scalars and shapes among the weights, which define symbolic variables."""

    def leaves(info: StructInfo) -> Iterator[StructInfo]:
        if isinstance(info, TupleStructInfo):
            for item in info.fields:
                yield from leaves(item)
        else:
            yield info

    for param in params:
        for info in leaves(param.struct_info):
            if isinstance(info, (PrimStructInfo, ShapeStructInfo)):
                yield Var("symbolic_var_holder", info)


def _transform(
    func: Function, getter: str, setter: str | None, get_extra: Sequence[Any], set_extra: Sequence[Any]
) -> Function:
    func = to_non_dataflow(func)
    count = num_input_of(func) or 0
    params = [*func.params[:count], *get_extra, *set_extra]
    if defined_symbolic_vars(func):
        params += _symbol_holders(func.params[count:])
    body = _Fetch(getter, get_extra).run(func, count)
    if setter is not None:
        result = func.body.body
        bindings = {b.var: b.value for block in func.body.blocks for b in block.bindings}
        returned = bindings.get(result)
        outputs: dict[Any, list[int]] = {}
        if returned is not None:
            if not isinstance(returned, Tuple):
                raise RelaxishError("a function that transforms weights returns a tuple that it makes")
            for index, item in enumerate(returned.fields):
                outputs.setdefault(item, []).append(index)
        hand = _HandOver(setter, set_extra, result, outputs)
        bundle = func.params[count] if len(func.params) > count else None
        hand.fetched = {v for v, e in bindings.items() if isinstance(e, TupleGetItem) and e.tuple_value is bundle}
        hand.ends = _last_uses(func, result)
        body = hand.run(body, params)
    made = Function(params, body, ObjectStructInfo(), False, func.attrs, func.span)
    return made.without_attr("relax.force_pure") if "relax.force_pure" in made.attrs else made


class LazyTransformParams(ModuleRewrite):
    """Functions named ``*transform_params`` fetch weights by the packed function ``fget_item(index)`` when needed and
    give results to ``fset_item(index, value)`` when done.

    ::

        def main_transform_params(params):       def main_transform_params():
            w = params[0]                            gv = R.call_packed("get_item", R.prim_value(0), ...)
            wt = R.permute_dims(w)          ->       gv1 = R.match_cast(gv, R.Tensor((16, 8), "float32"))
            gv = (wt,)                               w = gv1
            return gv                                wt = R.permute_dims(w)
                                                     _ = R.vm.kill_object(w)
                                                     _1 = R.call_packed("set_item", R.prim_value(0), wt, ...)
                                                     gv2 = R.tuple()
                                                     return gv2

    Without ``fset_item`` the results are returned.  The extra parameters go before the index.

    Raises AssertionError if ``fget_item`` is None.
    """

    fget_item: str = "get_item"
    fset_item: str | None = "set_item"
    extra_get_item_params: Sequence[Any] | None = None
    extra_set_item_params: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.fget_item is None:
            raise AssertionError("transforming set_item only is not supported")

    def rewrite(self, mod: IRModule) -> IRModule:
        extras = list(self.extra_get_item_params or ()), list(self.extra_set_item_params or ())

        def lazily(var: GlobalVar, func: Function) -> Function:
            wanted = var.name_hint.endswith("transform_params")
            return _transform(func, self.fget_item, self.fset_item, *extras) if wanted else func

        return map_relax_functions(mod, lazily)
