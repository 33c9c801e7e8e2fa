"""LiftTransformParams: what is computed from weights alone moves into a function that runs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.module import IRModule, functions_of
from ..ir.transform import PassContext
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..relax.analysis.variables import contains_impure_call, direct_uses
from ..relax.binding_tools import substitute_params
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import call_pure_packed
from ..relax.copying import copy_with_new_vars
from ..relax.expr import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_call_of,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import prim_vars
from ..relax.struct_info import ShapeStructInfo, TupleStructInfo, fields_of
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from ..tir import IntImm
from .bundle_model_params import bundle_model_params, num_input_of
from .canonicalize_bindings import canonicalize_function
from .shared_weight_transform import SharedPlan, plan_shared
from ..ir.declared_pass import ModuleRewrite

__all__ = ["LiftTransformParams", "Plan"]

_CONSUME = "relax.lift_transform_params.consume_params"


def _is_stop(value: Expr) -> bool:
    return is_call_of(value, "relax.builtin.stop_lift_params")


class Plan:
    """Division of one function: the bindings that move, and the values that cross from one side to the other."""

    def __init__(self, func: Function, *, shared: bool = False) -> None:
        self.func = func
        count = num_input_of(func)
        self.num_input = len(func.params) if count is None else count
        self.weights = list(func.params[self.num_input :])
        self.liftable: set[Any] = set(self.weights)
        #: What depends on a weight. Other liftable values (``R.zeros(...)``) are computed where they are needed.
        self.from_weights: set[Var] = set(self.weights)
        if not shared:
            for weight in self.weights:
                self.liftable.update(definable_tir_vars_in_struct_info(weight.struct_info))
        self.lifted: list[Any] = []
        for block in of_kind(func.body.blocks, DataflowBlock):
            for binding in block.bindings:
                if self._can_lift(binding):
                    self.liftable.add(binding.var)
                    self.lifted.append(binding)
                    if any(v in self.from_weights for v in direct_uses(binding.value)):
                        self.from_weights.add(binding.var)
        self.settle()

    def _can_lift(self, binding: Binding) -> bool:
        value = binding.value
        if _is_stop(value) or isinstance(value, ExternFunc) or contains_impure_call(value):
            return False
        if not all(v in self.liftable for v in direct_uses(value)):
            return False
        return all(v in self.liftable for v in tir_vars_in_struct_info(binding.var.struct_info))

    def settle(self) -> None:
        """Derive what the run-time function needs from which bindings move."""
        moved = {b.var for b in self.lifted if b.var in self.from_weights}
        self.kept = [(block, b) for block in self.func.body.blocks for b in block.bindings if b.var not in moved]
        used: set[Any] = set()
        for _, binding in self.kept:
            uses = direct_uses(binding.value)
            used.update(uses)
            used.update(s for v in uses for s in tir_vars_in_struct_info(v.struct_info))
            used.update(_symbols_of(binding))
        used.update(direct_uses(self.func.body.body))
        used.update(tir_vars_in_struct_info(self.func.ret_struct_info))
        self.used = used
        self.outputs = [v for v in self.candidates if v in used]

    @property
    def candidates(self) -> list[Var]:
        """Values that may cross: the weights, then values computed from them."""
        return [*self.weights, *(b.var for b in self.lifted if b.var in self.from_weights)]

    @property
    def symbols(self) -> list[Any]:
        """Symbolic variables that only the weights define but the run-time function needs."""
        have: set[Any] = set()
        for value in (*self.func.params[: self.num_input], *self.outputs):
            have.update(definable_tir_vars_in_struct_info(value.struct_info))
        every = [s for p in self.func.params for s in definable_tir_vars_in_struct_info(p.struct_info)]
        return [s for s in dict.fromkeys(every) if s in self.used and s not in have]


def _symbols_of(binding: VarBinding) -> list[Any]:
    out = list(tir_vars_in_struct_info(binding.var.struct_info))
    value = binding.value
    for arg in value.args if isinstance(value, Call) else (value,):
        for leaf in fields_of(arg):
            for scalar in (
                leaf.values if isinstance(leaf, ShapeExpr) else [leaf.value] if isinstance(leaf, PrimValue) else []
            ):
                out += prim_vars(scalar)
    if isinstance(value, Call):
        out += [s for info in value.sinfo_args for s in tir_vars_in_struct_info(info)]
    return out


def transform_function(
    weights: Sequence[Var], lifted: Sequence[Any], outputs: Sequence[Var], symbols: Sequence[Any]
) -> Function:
    """The function from the tuple of weights to the tuple of what the run-time functions need."""
    results = [ShapeExpr(symbols), *outputs] if symbols else list(outputs)
    result = Tuple(results)
    out = Var("gv", result.struct_info)
    bindings = [b if b.var.is_dataflow else _as_dataflow(b) for b in lifted]
    renamed = {old.var: new.var for old, new in zip(lifted, bindings) if old.var is not new.var}
    body = SeqExpr([DataflowBlock([*bindings, VarBinding(out, result)])], out)
    body.struct_info_ = out.struct_info_
    func = Function(weights, body, out.struct_info_, True, {"num_input": 0})
    if renamed:
        func = _Rename(renamed).visit_expr(func)
    return remove_all_unused(_finish(bundle_model_params(copy_with_new_vars(func), "params")))


def _as_dataflow(binding: Any) -> Binding:
    var = DataflowVar(binding.var.name_hint, binding.var.struct_info)
    if isinstance(binding, MatchCast):
        return MatchCast(var, binding.value, binding.struct_info, binding.span)
    return VarBinding(var, binding.value, binding.span)


class _Rename(PyExprMutator):
    def __init__(self, renamed: dict[Var, Any]) -> None:
        super().__init__()
        self.renamed = renamed

    def visit_var_(self, op: Var) -> Expr:
        return self.renamed.get(op) or super().visit_var_(op)


def runtime_function(plan: Plan, outputs: Sequence[Var | None], symbols: Sequence[Any]) -> Function:
    """The function of the inputs and of the transformed weights; ``outputs`` may hold variables of no use here."""
    func = plan.func
    params: list[Var] = list(func.params[: plan.num_input])
    if symbols:
        params.append(Var("vars_from_compile_time_params", ShapeStructInfo(list(symbols))))
    renamed: dict[Var, Any] = {}
    for index, var in enumerate(outputs):
        assert var is not None
        param = Var(f"transformed_param_{index}", var.struct_info)
        renamed[var] = param
        params.append(param)
    for _, binding in plan.kept:
        if _is_stop(binding.value):
            source = binding.value.args[0]
            renamed[binding.var] = renamed.get(source, source)
    blocks: list[Any] = []
    for block in func.body.blocks:
        kept = [b for owner, b in plan.kept if owner is block and not _is_stop(b.value)]
        if kept:
            blocks.append(type(block)(kept, block.span))
    body = SeqExpr(blocks, func.body.body, func.body.span)
    body.struct_info_ = func.body.struct_info_
    made = Function(params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)
    return _finish(copy_with_new_vars(_Rename(renamed).visit_expr(made)))


def _finish(func: Function) -> Function:
    made: Function = BlockBuilder().normalize(canonicalize_function(func))
    return made


class _Consume(PyExprMutator):
    """Drops each weight from the tuple as soon as it has been read, so that its memory can go."""

    def __init__(self, params: Var) -> None:
        super().__init__()
        self.params = params
        self.read: dict[int, Var] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if not isinstance(value, TupleGetItem) or value.tuple_value is not self.params:
            super().visit_var_binding_(binding)
            return
        if value.index in self.read:
            self.reemit_binding(binding, self.read[value.index])
            return
        super().visit_var_binding_(binding)
        bound: Any = self.visit_expr(binding.var)
        self.read[value.index] = bound
        reset = call_pure_packed(
            "vm.builtin.tuple_reset_item",
            value.tuple_value,
            PrimValue(IntImm("int32", value.index)),
            sinfo_args=TupleStructInfo([]),
        )
        self.builder_.emit(reset)


def _composed(first: Function, second: Function) -> Function:
    """The function that computes ``second`` of the tuple that ``first`` gives."""
    rest = substitute_params(second, {second.params[0]: first.body.body}).body
    body = SeqExpr([*first.body.blocks, *rest.blocks], rest.body)
    body.struct_info_ = rest.struct_info_
    made = Function(first.params, body, rest.struct_info_, first.is_pure, first.attrs, first.span)
    whole: Function = remove_all_unused(_finish(made))
    return whole


def _publish(out: IRModule, name: str, func: Function) -> None:
    """Add a transforming function; one of that name that is there already runs before it."""
    if name in out:
        func = _composed(out[name], copy_with_new_vars(func))
    if bool(PassContext.current().config.get(_CONSUME, False)):
        func = _Consume(func.params[0]).visit_expr(func)
    out[name] = func.with_attr("global_symbol", name)


def _targets(mod: IRModule, names: Sequence[str] | None) -> dict[Any, Function]:
    """The named functions, or all that say how many inputs they have, by name.

    Raises RelaxishError for a name that is no such function's.
    """
    if not names:
        found = {
            var: func
            for var, func in functions_of(mod, Function)
            if num_input_of(func) is not None and not var.name_hint.endswith("transform_params")
        }
        return dict(sorted(found.items(), key=lambda item: item[0].name_hint))
    chosen: dict[Any, Function] = {}
    for name in names:
        if name not in mod:
            raise RelaxishError(f"LiftTransformParams: the module has no function named '{name}'")
        func = mod[name]
        if not isinstance(func, Function):
            raise RelaxishError(f"LiftTransformParams: '{name}' is no graph function but a {type(func).__name__}")
        if num_input_of(func) is None:
            raise RelaxishError(f"LiftTransformParams: function '{name}' does not have the attribute num_input")
        chosen[mod.get_global_var(name)] = func
    return chosen


def _lift_each(mod: IRModule, names: Sequence[str] | None) -> IRModule:
    out = mod.clone()
    for var, func in _targets(mod, names).items():
        plan = Plan(func)
        symbols = plan.symbols
        transform = transform_function(plan.weights, plan.lifted, plan.outputs, symbols)
        out.update_func(var, runtime_function(plan, plan.outputs, symbols))
        _publish(out, f"{var.name_hint}_transform_params", transform)
    return out


def _lift_shared(mod: IRModule, names: Sequence[str] | None) -> IRModule:
    chosen = {var: Plan(func, shared=True) for var, func in _targets(mod, names).items()}
    if not chosen:
        return mod
    shared: SharedPlan = plan_shared({var.name_hint: plan for var, plan in chosen.items()})
    out = mod.clone()
    for var, plan in chosen.items():
        own = shared.variables_of(var.name_hint)
        out.update_func(var, runtime_function(plan, own.outputs, own.symbols))
    first = shared.variables_of(next(iter(chosen)).name_hint)
    transform = transform_function(first.weights, first.lifted, first.outputs, first.symbols)
    _publish(out, "transform_params", transform)
    return out


class LiftTransformParams(ModuleRewrite):
    """Split functions with the attribute ``num_input``.

    ::

        def main(x, w):                           def main(x, transformed_param_0):
            R.func_attr({"num_input": 1})             R.func_attr({"num_input": 1})
            wt = R.permute_dims(w)         ->         y = R.matmul(x, transformed_param_0)
            y = R.matmul(x, wt)
                                                  def main_transform_params(params: R.Tuple(...)):
                                                      R.func_attr({"num_input": 0})
                                                      w = params[0]
                                                      wt = R.permute_dims(w)
                                                      gv = (wt,)

    ``R.builtin.stop_lift_params`` marks values that stay.  With ``shared_transform`` (True: all functions with
    ``num_input``; or their names) the functions take the same weights, and one ``transform_params`` computes what all
    of them compute from those.  The PassContext option ``relax.lift_transform_params.consume_params`` lets the
    transforming function drop each weight from the tuple once it is read.
    """

    shared_transform: bool | Sequence[str] = False

    def rewrite(self, mod: IRModule) -> IRModule:
        if isinstance(self.shared_transform, bool):
            return _lift_shared(mod, None) if self.shared_transform else _lift_each(mod, None)
        return _lift_shared(mod, list(self.shared_transform))
