"""LiftTransformParams: what is computed from weights alone moves into a function that runs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.analysis.compile_time import computable_at_compile_time
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..relax.analysis.variables import direct_uses
from ..relax.block_builder import BlockBuilder
from ..relax.copying import copy_with_new_vars
from ..relax.expr import (
    Call,
    DataflowBlock,
    Function,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.struct_info import TupleStructInfo
from ..support.errors import RelaxishError
from .base import as_module_pass, symbol_of

__all__ = ["LiftTransformParams"]


class _Split:
    """Which bindings of a function move, and which values cross from one side to the other."""

    def __init__(self, func: Function) -> None:
        self.func = func
        count = func.attrs["num_input"]
        self.num_input = int(getattr(count, "value", count))
        self.weights = list(func.params[self.num_input :])
        candidates = set(computable_at_compile_time(func))
        self.lifted: list[Any] = []
        self.kept: list[tuple[Any, Any]] = []
        stopped: set[Var] = set()
        for block in func.body.blocks:
            for binding in block.bindings:
                if binding.var in candidates and not _stops(binding, stopped):
                    self.lifted.append(binding)
                else:
                    stopped.add(binding.var)
                    self.kept.append((block, binding))
        self.moved = {b.var for b in self.lifted}
        self.outputs = self._outputs()

    def _outputs(self) -> list[Var]:
        """Lifted values and weights that the rest still uses, in order of definition."""
        used: set[Var] = set()
        for _, binding in self.kept:
            used.update(direct_uses(binding.value))
        used.update(direct_uses(self.func.body.body))
        order = [*self.weights, *(b.var for b in self.lifted)]
        return [v for v in order if v in used]


def _stops(binding: Any, stopped: set[Var]) -> bool:
    value = binding.value
    if isinstance(value, Call) and isinstance(value.op, Op):
        if value.op.name == "relax.builtin.stop_lift_params":
            return True
    return any(v in stopped for v in direct_uses(value))


def _drop_marker(value: Any) -> Any:
    """``stop_lift_params(x)`` has done its work."""
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "relax.builtin.stop_lift_params":
        return value.args[0]
    return value


def _transform_function(split: _Split) -> Function:
    """The function from a tuple of weights to the tuple of what the run-time function needs."""
    params = Var("params", TupleStructInfo([w.struct_info for w in split.weights]))
    bindings: list[Any] = [VarBinding(w, TupleGetItem(params, i)) for i, w in enumerate(split.weights)]
    bindings += split.lifted
    result = Tuple(list(split.outputs))
    out = Var("gv", result.struct_info)
    block = DataflowBlock([*bindings, VarBinding(out, result)])
    symbols = {v for w in split.weights for v in definable_tir_vars_in_struct_info(w.struct_info)}
    used = {v for b in split.lifted for v in tir_vars_in_struct_info(b.var.struct_info)}
    if used - symbols:
        raise RelaxishError("LiftTransformParams: a lifted value depends on symbolic variables no weight defines")
    body = SeqExpr([block], out)
    body.struct_info_ = out.struct_info_
    made = Function([params], body, out.struct_info_, True, {"num_input": 0})
    return made


def _runtime_function(split: _Split) -> Function:
    """The function of the inputs and the transformed weights."""
    func = split.func
    params = list(func.params[: split.num_input])
    renamed: list[Var] = []
    bindings: list[Any] = []
    for index, var in enumerate(split.outputs):
        if var in split.moved:
            param = Var(f"transformed_param_{index}", var.struct_info)
            bindings.append(VarBinding(var, param))
        else:
            param = var
        renamed.append(param)
    blocks: list[Any] = []
    for block in func.body.blocks:
        kept = [_unmarked(b) for owner, b in split.kept if owner is block]
        if not blocks:
            kept = [*bindings, *kept]
        if kept:
            blocks.append(type(block)(kept, block.span))
    body = SeqExpr(blocks, func.body.body, func.body.span)
    body.struct_info_ = func.body.struct_info_
    attrs = {k: v for k, v in func.attrs.items()}
    return Function([*params, *renamed], body, func.ret_struct_info, func.is_pure, attrs, func.span)


def _unmarked(binding: Any) -> Any:
    if isinstance(binding, MatchCast):
        return binding
    value = _drop_marker(binding.value)
    return binding if value is binding.value else VarBinding(binding.var, value, binding.span)


def _lift(mod: IRModule, func: Function) -> tuple[Function, Function]:
    from .canonicalize_bindings import canonicalize_function

    split = _Split(func)
    transform = copy_with_new_vars(_transform_function(split))
    runtime = copy_with_new_vars(_runtime_function(split))
    builder = BlockBuilder(mod)
    return builder.normalize(canonicalize_function(transform)), builder.normalize(canonicalize_function(runtime))


def LiftTransformParams(shared_transform: bool | Sequence[str] = False) -> Pass:  # noqa: N802  (public name)
    """Split functions with the attribute ``num_input``.

    ``main(x, w)`` that computes ``R.permute_dims(w)`` becomes ``main(x, wt)`` plus
    ``main_transform_params(params)``, which takes the tuple of weights and returns the tuple that ``main`` now
    takes after its inputs.  ``R.builtin.stop_lift_params`` marks values that stay.
    """
    if shared_transform:
        raise NotImplementedError("LiftTransformParams(shared_transform=...) is not implemented yet")

    def run(mod: IRModule) -> IRModule:
        out = mod.clone()
        for var, func in mod.functions.items():
            if not isinstance(func, Function) or func.attrs.get("num_input") is None:
                continue
            transform, runtime = _lift(mod, func)
            name = f"{var.name_hint}_transform_params"
            if symbol_of(func) is not None:
                transform = transform.with_attr("global_symbol", name)
            out.update_func(var, runtime)
            out[name] = transform
        return out

    return as_module_pass(run, "LiftTransformParams")

