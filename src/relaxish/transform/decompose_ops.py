"""DecomposeOpsForInference and DecomposeOpsForTraining: composite operators in terms of simple ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.expr import Call, Constant, Function, ShapeExpr, Tuple, const
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_function
from ..relax.struct_info import TensorStructInfo
from .base import as_module_pass, map_relax_functions

__all__ = ["DecomposeOpsForInference", "DecomposeOpsForTraining"]


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return op_function(name)(*args, **kwargs)


def _expand(data: Any, value: Any, axis: int) -> Any:
    ndim = data.struct_info.ndim
    return _op("expand_dims", value, [i for i in range(ndim) if i != axis % ndim])


def _eps(info: TensorStructInfo, value: float) -> Constant:
    return const(float(value), info.dtype)


def _batch_norm_inference(builder: Any, call: Call) -> Any:
    data, gamma, beta, mean, variance = call.args
    axis = int(getattr(call.attrs.axis, "value", call.attrs.axis))
    info = data.struct_info
    emit = builder.emit
    centred = emit(_op("subtract", data, emit(_expand(data, mean, axis))))
    shifted = emit(_op("add", emit(_expand(data, variance, axis)), _eps(info, _number(call.attrs.epsilon))))
    out = emit(_op("divide", centred, emit(_op("sqrt", shifted))))
    if _flag(call.attrs.get("scale", True)):
        out = emit(_op("multiply", out, emit(_expand(data, gamma, axis))))
    if _flag(call.attrs.get("center", True)):
        out = emit(_op("add", out, emit(_expand(data, beta, axis))))
    return Tuple([out, mean, variance])


def _batch_norm_training(builder: Any, call: Call) -> Any:
    data, gamma, beta, mean, variance = call.args
    attrs = call.attrs
    axis = int(getattr(attrs.axis, "value", attrs.axis)) % data.struct_info.ndim
    axes = [i for i in range(data.struct_info.ndim) if i != axis]
    emit = builder.emit
    data_mean = emit(_op("mean", data, axes))
    data_var = emit(_op("variance", data, axes))
    scratch = Call(call.op, (data, gamma, beta, data_mean, data_var), attrs)
    result = _batch_norm_inference(builder, scratch).fields[0]
    momentum = _eps(data.struct_info, _number(attrs.momentum))
    keep = _eps(data.struct_info, 1.0 - _number(attrs.momentum))

    def blend(old: Any, new: Any) -> Any:
        return emit(_op("add", emit(_op("multiply", keep, old)), emit(_op("multiply", momentum, new))))

    return Tuple([result, blend(mean, data_mean), blend(variance, data_var)])


def _layer_norm_training(builder: Any, call: Call) -> Any:
    data, gamma, beta = call.args
    attrs = call.attrs
    axes = list(attrs.get_int_tuple("axes"))
    emit = builder.emit
    mean = emit(_op("mean", data, axes, True))
    variance = emit(_op("variance", data, axes, True))
    centred = emit(_op("subtract", data, mean))
    shifted = emit(_op("add", variance, _eps(data.struct_info, _number(attrs.epsilon))))
    out = emit(_op("divide", centred, emit(_op("sqrt", shifted))))
    if _flag(attrs.get("scale", True)):
        out = emit(_op("multiply", out, gamma))
    if _flag(attrs.get("center", True)):
        out = emit(_op("add", out, beta))
    return out


def _number(value: Any) -> float:
    return float(getattr(value, "value", value))


def _flag(value: Any) -> bool:
    return bool(getattr(value, "value", value))


def _dropout(_: Any, call: Call) -> Any:
    return Tuple([call.args[0], _op("ones_like", call.args[0])])


def _tensor_to_shape(builder: Any, call: Call) -> Any:
    """A shape from a tensor of known length: a run-time conversion and a match_cast that names its dimensions."""
    from ..ir.prim import Var as TirVar
    from ..relax.call_forms import call_pure_packed
    from ..relax.struct_info import ShapeStructInfo

    (tensor,) = call.args
    if isinstance(tensor, Constant):
        return ShapeExpr([int(v) for v in tensor.data.numpy()])
    known = call.struct_info_ if call.struct_info_ is not None else builder.normalize(call).struct_info
    if known.ndim < 0:
        return call
    packed = call_pure_packed("vm.builtin.tensor_to_shape", tensor, sinfo_args=known)
    value = builder.emit(packed)
    symbols = [TirVar(f"x_{i}" if known.ndim > 1 else "x", "int64") for i in range(known.ndim)]
    builder.match_cast(value, ShapeStructInfo(symbols))
    return ShapeExpr(symbols)


_INFERENCE: dict[str, Callable[..., Any]] = {
    "relax.nn.batch_norm": _batch_norm_inference,
    "relax.nn.dropout": _dropout,
    "relax.tensor_to_shape": _tensor_to_shape,
}
_TRAINING: dict[str, Callable[..., Any]] = {
    "relax.nn.batch_norm": _batch_norm_training,
    "relax.nn.layer_norm": _layer_norm_training,
    "relax.tensor_to_shape": _tensor_to_shape,
}


class _Decomposer(PyExprMutator):
    def __init__(self, mod: IRModule, rules: dict[str, Callable[..., Any]]) -> None:
        super().__init__(mod)
        self.rules = rules

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if not isinstance(call.op, Op):
            return call
        rule = self.rules.get(call.op.name)
        return call if rule is None else rule(self.builder_, call)


def _make(name: str, rules: dict[str, Callable[..., Any]], func_name: str | None) -> Pass:
    def run(mod: IRModule) -> IRModule:
        decomposer = _Decomposer(mod, rules)

        def decompose(var: Any, func: Function) -> Function:
            if func_name is not None and var.name_hint != func_name:
                return func
            made: Function = decomposer.visit_expr(func)
            return made

        return map_relax_functions(mod, decompose)

    return as_module_pass(run, name)


def DecomposeOpsForInference(func_name: str | None = None) -> Pass:  # noqa: N802  (public name of the pass)
    """Rewrite operators that mean something simpler at inference.

    Batch norm becomes ``(x - mean) / sqrt(var + eps) * gamma + beta``, dropout its input, ``tensor_to_shape`` a
    conversion plus a match_cast.
    """
    return _make("DecomposeOpsForInference", _INFERENCE, func_name)


def DecomposeOpsForTraining(func_name: str | None = None) -> Pass:  # noqa: N802  (public name of the pass)
    """Rewrite composite operators for training: batch norm with the statistics of the batch and updated running
    ones, layer norm in terms of mean and variance.
    """
    return _make("DecomposeOpsForTraining", _TRAINING, func_name)
