"""DecomposeOpsForInference and DecomposeOpsForTraining: composite operators in terms of simple ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..ir.transform import Pass
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Function, MatchCast, ShapeExpr, Tuple, TupleGetItem, Var, const
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_function
from .base import map_relax_functions
from ..ir.plain import plain_bool, plain_float
from ..ir.declared_pass import ModuleRewrite, StepsPass

__all__ = ["DecomposeOpsForInference", "DecomposeOpsForTraining"]


def _op(name: str, *args: Any, **kwargs: Any) -> Expr:
    return op_function(name)(*args, **kwargs)


def _expand(data: Expr, value: Expr, axis: int) -> Expr:
    ndim = data.struct_info.ndim
    return _op("expand_dims", value, [i for i in range(ndim) if i != axis % ndim])


def _normalised(call: Call, data: Expr, mean: Expr, variance: Expr, spread: Callable[[Any], Any]) -> Expr:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta``; ``spread`` fits a parameter to the data."""
    attrs = call.attrs
    epsilon = const(_number(attrs.epsilon), data.struct_info.dtype)
    out = _op("divide", _op("subtract", data, mean), _op("sqrt", _op("add", variance, epsilon)))
    if _flag(attrs.get("scale", True)):
        out = _op("multiply", out, spread(call.args[1]))
    return _op("add", out, spread(call.args[2])) if _flag(attrs.get("center", True)) else out


def _batch_norm_inference(_: BlockBuilder, call: Call) -> Expr:
    data, _, _, mean, variance = call.args
    axis = int(_number(call.attrs.axis))

    def spread(value: Expr) -> Expr:
        return _expand(data, value, axis)

    return Tuple([_normalised(call, data, spread(mean), spread(variance), spread), mean, variance])


def _batch_norm_training(_: BlockBuilder, call: Call) -> Expr:
    """Batch norm by the statistics of the batch; the moving ones blend with them."""
    data, gamma, beta, mean, variance = call.args
    info = data.struct_info
    axis = int(_number(call.attrs.axis)) % info.ndim
    axes = [i for i in range(info.ndim) if i != axis]
    momentum = _number(call.attrs.momentum)
    new, keep = const(momentum, info.dtype), const(1 - momentum, info.dtype)
    data_mean, data_var = _op("mean", data, axes), _op("variance", data, axes)

    def blend(old: Expr, now: Expr) -> Expr:
        return _op("add", _op("multiply", keep, old), _op("multiply", new, now))

    norm = Call(call.op, (data, gamma, beta, data_mean, data_var), call.attrs, call.sinfo_args, call.span)
    return Tuple([TupleGetItem(norm, 0), blend(mean, data_mean), blend(variance, data_var)])


def _layer_norm_training(_: Any, call: Call) -> Expr:
    data = call.args[0]
    axes = list(call.attrs.get_int_tuple("axes"))
    mean, variance = _op("mean", data, axes, True), _op("variance", data, axes, True)
    return _normalised(call, data, mean, variance, lambda value: value)


def _number(value: float) -> float:
    return plain_float(value)


def _flag(value: bool) -> bool:
    return plain_bool(value)


def _tensor_to_shape(builder: BlockBuilder, call: Call) -> Expr:
    """A shape from a tensor of known length: a run-time conversion and a match_cast that names its dimensions."""
    from ..ir.prim import Var as TirVar
    from ..relax.call_forms import call_pure_packed
    from ..relax.struct_info import ShapeStructInfo

    (tensor,) = call.args
    known = call.struct_info_ if call.struct_info_ is not None else builder.normalize(call).struct_info
    if known.ndim < 0:
        return call
    packed = call_pure_packed("vm.builtin.tensor_to_shape", tensor, sinfo_args=known)
    value = builder.emit(packed)
    symbols = [TirVar("x", "int64") for _ in range(known.ndim)]
    shape = ShapeStructInfo(symbols)
    builder.emit_normalized(MatchCast(Var("y", shape), value, shape))
    return ShapeExpr(symbols)


def _batch_norm_unless_training(builder: BlockBuilder, call: Call) -> Expr:
    return call if _flag(call.attrs.get("training", False)) else _batch_norm_inference(builder, call)


_INFERENCE: dict[str, Callable[..., Any]] = {
    "relax.nn.batch_norm": _batch_norm_inference,
    "relax.tensor_to_shape": _tensor_to_shape,
}
_AS_WRITTEN = {**_INFERENCE, "relax.nn.batch_norm": _batch_norm_unless_training}
_TRAINING: dict[str, Callable[..., Any]] = {
    "relax.nn.batch_norm": _batch_norm_training,
    "relax.nn.layer_norm": _layer_norm_training,
}


class _Decomposer(PyExprMutator):
    def __init__(self, mod: IRModule, rules: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(mod)
        self.rules = rules

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not op_name_of(call):
            return call
        rule = self.rules.get(call.op.name)
        return call if rule is None else rule(self.builder_, call)


class DecomposeOpsForInference(ModuleRewrite):
    """Rewrite operators that mean something simpler at inference.

    Batch norm becomes ``(x - mean) / sqrt(var + eps) * gamma + beta``, ``tensor_to_shape`` a
    conversion plus a match_cast. Dropout stays: LegalizeOps takes it away.
    """

    func_name: str | None = None
    rules: ClassVar[Mapping[str, Callable[..., Any]]] = _INFERENCE

    def rewrite(self, mod: IRModule) -> IRModule:
        decomposer = _Decomposer(mod, self.rules)

        def decompose(var: GlobalVar, func: Function) -> Function:
            return decomposer.visit_expr(func) if self.func_name in (None, var.name_hint) else func

        return map_relax_functions(mod, decompose)


class _DecomposeOps(DecomposeOpsForInference, name="DecomposeOps"):
    """The rules of inference that training has, too."""


class _MutateOpsForTraining(DecomposeOpsForInference, name="MutateOpsForTraining"):
    """The rules of training alone."""

    rules = _TRAINING


class DecomposeOpsAsWritten(DecomposeOpsForInference):
    """Like DecomposeOpsForInference, but batch norms that ask for the statistics of the batch keep asking."""

    rules = _AS_WRITTEN


class DecomposeOpsForTraining(StepsPass):
    """Rewrite composite operators for training: batch norm with the statistics of the batch and updated running
    ones, layer norm in terms of mean and variance.
    """

    func_name: str | None = None

    def steps(self) -> list[Pass]:
        return [_MutateOpsForTraining(self.func_name), _DecomposeOps(self.func_name)]
