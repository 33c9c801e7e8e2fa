"""LazyTransformParams: the function that prepares weights fetches, prepares and hands over one weight at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..op.vm import kill_object
from ..relax.analysis.variables import direct_uses
from ..relax.expr import Call, ExternFunc, Function, PrimValue, SeqExpr, Tuple, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import ObjectStructInfo, TupleStructInfo
from .base import as_module_pass, map_relax_functions
from .bundle_model_params import num_input_of
from .to_non_dataflow import to_non_dataflow

__all__ = ["LazyTransformParams"]


class _Lazy(PyExprMutator):
    def __init__(self, get: str | None, put: str | None, get_extra: Sequence[Any], put_extra: Sequence[Any]) -> None:
        super().__init__()
        self.get = get
        self.put = put
        self.get_extra = list(get_extra)
        self.put_extra = list(put_extra)
        self.fields: dict[Var, int] = {}
        self.bundle: Var | None = None
        self.places: dict[Var, list[int]] = {}
        self.last_use: dict[Var, Any] = {}
        self.loaded: dict[Var, Var] = {}

    def fetch(self, index: int, like: Var) -> Var:
        """One weight by the getter, checked."""
        call = Call(ExternFunc(str(self.get)), [*self.get_extra, PrimValue(index)], None, [ObjectStructInfo()])
        return self.builder_.match_cast(self.builder_.emit(call), like.struct_info)

    def visit_var_(self, op: Var) -> Any:
        if op in self.fields and self.get is not None:
            if op not in self.loaded:
                self.loaded[op] = self.fetch(self.fields[op], op)
            return self.loaded[op]
        return super().visit_var_(op)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if self.get is not None and isinstance(value, TupleGetItem) and value.tuple_value is self.bundle:
            self.var_remap_[binding.var] = self.fetch(value.index, binding.var)
        else:
            super().visit_var_binding_(binding)
        self.hand_over(binding.var)
        self.drop_after(binding)

    def hand_over(self, var: Var) -> None:
        """Give a finished weight to the setter."""
        for index in self.places.get(var, ()):
            args = [*self.put_extra, PrimValue(index), self.visit_expr(var)]
            self.builder_.emit(Call(ExternFunc(str(self.put)), args, None, [ObjectStructInfo()]), "_")

    def drop_after(self, binding: VarBinding) -> None:
        """Free fetched weights after their last use."""
        for var in dict.fromkeys((*direct_uses(binding.value), binding.var)):
            fetched = self.loaded.get(var) or (self.var_remap_.get(var) if var in self.last_use else None)
            if fetched is not None and self.last_use.get(var) is binding and self.get is not None:
                self.builder_.emit(kill_object(fetched), "_")


def _liveness(func: Function, weights: set[Var]) -> dict[Var, Any]:
    last: dict[Var, Any] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            for used in direct_uses(binding.value):
                if used in weights:
                    last[used] = binding
    return last


def _transform(func: Function, lazy: _Lazy) -> Function:
    func = to_non_dataflow(func)
    count = num_input_of(func) or 0
    params = list(func.params)
    weights = params[count:]
    if lazy.get is not None:
        if len(weights) == 1 and isinstance(weights[0].struct_info, TupleStructInfo):
            lazy.bundle = weights[0]
        else:
            lazy.fields = {p: i for i, p in enumerate(weights)}
        params = params[:count]
    fetched = set(lazy.fields)
    result = func.body.body
    known = {b.var: b.value for block in func.body.blocks for b in block.bindings}
    for var, value in known.items():
        if lazy.bundle is not None and isinstance(value, TupleGetItem) and value.tuple_value is lazy.bundle:
            fetched.add(var)
    returned = known.get(result, result)
    outputs = returned.fields if isinstance(returned, Tuple) else (result,)
    ended: set[Var] = set()
    if lazy.put is not None:
        for index, value in enumerate(outputs):
            lazy.places.setdefault(value, []).append(index)
            ended.add(value)
    lazy.last_use = {v: b for v, b in _liveness(func, fetched).items() if v not in ended}
    builder = lazy.builder_
    builder.begin_scope(params)
    builder.begin_binding_block()
    for param in func.params:
        lazy.hand_over(param)
    blocks = [builder.end_block()]
    for block in func.body.blocks:
        builder.begin_binding_block()
        for binding in block.bindings:
            if not (lazy.put is not None and binding.var is result and isinstance(binding.value, Tuple)):
                lazy.visit_binding(binding)
        blocks.append(builder.end_block())
    final: Any = Tuple([]) if lazy.put is not None else None
    if final is None:
        builder.begin_binding_block()
        final = lazy.visit_expr(result)
        blocks.append(builder.end_block())
    body = builder.normalize(SeqExpr([b for b in blocks if b.bindings], final))
    builder.end_scope()
    return Function(params, body, None, False, func.attrs, func.span)


def LazyTransformParams(  # noqa: N802  (public name of the pass)
    fget_item: str | None = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[Any] | None = None,
    extra_set_item_params: Sequence[Any] | None = None,
) -> Pass:
    """Functions named ``*transform_params`` fetch weights by the packed function ``fget_item(index)`` when needed and
    give results to ``fset_item(index, value)`` when done.

    ::

        def main_transform_params(params):       def main_transform_params():
            w = params[0]                            lv = R.call_packed("get_item", R.prim_value(0), ...)
            wt = R.permute_dims(w)          ->       w = R.match_cast(lv, R.Tensor((16, 8), "float32"))
            gv = (wt,)                               wt = R.permute_dims(w)
            return gv                                _ = R.call_packed("set_item", R.prim_value(0), wt, ...)
                                                     _1 = R.vm.kill_object(w)
                                                     return R.tuple()

    None for either leaves that side as it is.  The extra parameters go before the index.
    """

    def run(mod: IRModule) -> IRModule:
        def rewrite(var: Any, func: Function) -> Function:
            if not var.name_hint.endswith("transform_params"):
                return func
            lazy = _Lazy(fget_item, fset_item, extra_get_item_params or (), extra_set_item_params or ())
            return _transform(func, lazy)

        return map_relax_functions(mod, rewrite)

    return as_module_pass(run, "LazyTransformParams")
