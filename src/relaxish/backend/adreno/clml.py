"""Patterns of the operators for Qualcomm's OpenCL ML. Partitioning only: relaxish has no code generator for it.

The pass ends in ``RunCodegen``, which says that ``relax.ext.openclml`` is missing, unless somebody registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import RelaxExpr
from ...ir.module import IRModule, functions_of
from ...ir.transform import Pass, Sequential
from ...op.manipulate import reshape
from ...relax.dpl import DFPattern, is_const, is_op, is_tuple_get_item, wildcard
from ...relax.expr import Call, Constant, Function, TupleGetItem, Var, VarBinding, is_call_of
from ...relax.expr_functor import PyExprMutator
from ...transform import (
    ConvertLayout, FoldBatchnormToConv2D, FoldConstant, FuseOpsByPattern, FusionPattern, MergeCompositeFunctions, Normalize,
    RunCodegen,
)  # fmt: skip
from ...transform.base import as_module_pass
from ...transform.dead_code_elimination import eliminate
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..pattern_registry import register_patterns

__all__ = ["OpenCLMLOffLoad", "append_reshape_to_batch_norm", "clml_pattern_table"]

_FLOATS = ("float32", "float16")
_LAYOUTS = {"relax.nn.conv2d": ["NCHW", "OIHW"], "relax.nn.conv2d_transpose": ["NCHW", "OIHW"]}
_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_UNARY = ("nn.softmax", "nn.relu", "clip")
_Annotated = tuple[DFPattern, dict[str, DFPattern]]


# ---- checks


def _check_conv2d(context: PatternCheckContext) -> bool:
    root = context.annotated_expr.get("root")
    if isinstance(root, Call) and root.op.name in _LAYOUTS:
        if [str(root.attrs.data_layout), str(root.attrs.kernel_layout)] != _LAYOUTS[root.op.name]:
            return False
    given = [context.annotated_expr[name] for name in ("data", "weight") if name in context.annotated_expr]
    return all(x.struct_info.dtype in _FLOATS for x in given)


def _check_pool(context: PatternCheckContext) -> bool:
    root, data = context.annotated_expr["root"], context.annotated_expr["data"]
    a = root.attrs
    sizes = [*data.struct_info.shape, *a.pool_size, *a.strides, *(a.dilation if hasattr(a, "dilation") else ())]
    if len(data.struct_info.shape) != 4 or len(a.padding) != 4:
        return False
    return all(int(s) > 0 for s in sizes if hasattr(s, "value") or isinstance(s, int)) and all(
        int(p) >= 0 for p in a.padding
    )


def _check_global_pool(context: PatternCheckContext) -> bool:
    root, data = context.annotated_expr["root"], context.annotated_expr["data"]
    return len(data.struct_info.shape) == 4 and [int(a) for a in root.attrs.axis or ()] == [2, 3]


def _check_batch_norm(context: PatternCheckContext) -> bool:
    """Constants of float32, all of one shape."""
    given = [context.annotated_expr.get(name) for name in ("gamma", "beta", "moving_mean", "moving_var")]
    if not all(isinstance(x, Constant) and x.struct_info.dtype == "float32" for x in given):
        return False
    shapes = {tuple(int(d) for d in x.struct_info.shape) for x in given if x is not None}
    return len(shapes) == 1


def _check_element_wise(context: PatternCheckContext) -> bool:
    """Tensors of one image; two of them must have one shape."""
    infos = [context.annotated_expr[name].struct_info for name in ("lhs", "rhs") if name in context.annotated_expr]
    for info in infos:
        dims = list(info.shape)
        if not dims or info.dtype == "int64" or bool(dims[0] > 1):
            return False
    if len(infos) < 2:
        return True
    left, right = (list(info.shape) for info in infos)
    return len(left) == len(right) and all(bool(a == b) for a, b in zip(left, right, strict=True))


# ---- patterns


def _convolutions() -> dict[str, _Annotated]:
    data, weight = wildcard(), wildcard()
    found: dict[str, DFPattern] = {"data": data, "weight": weight}
    return {
        "nn.conv2d": (is_op("relax.nn.conv2d")(data, weight), found),
        "pad.nn.conv2d": (is_op("relax.nn.conv2d")(is_op("relax.nn.pad")(data), weight), found),
        "nn.conv2d_transpose": (is_op("relax.nn.conv2d_transpose")(data, weight), found),
    }


def _followed(
    base: Mapping[str, _Annotated], prefix: str, op: str, extra: Mapping[str, DFPattern]
) -> dict[str, _Annotated]:
    """The patterns with an operator behind them."""
    return {
        f"{prefix}.{name}": (is_op(op)(pattern, *extra.values()), {**found, **extra})
        for name, (pattern, found) in base.items()
    }


def _conv_patterns() -> list[FusionPattern]:
    """Convolutions, with bias, batch norm, the first field of its result, and relu or clip."""
    made = _convolutions()
    made.update(_followed(made, "bias", "relax.add", {"bias": is_const()}))
    norm = {name: is_const() for name in ("bn_scale", "bn_bias", "bn_mean", "bn_var")}
    made.update(_followed(made, "bn", "relax.nn.batch_norm", norm))
    made.update({f"tuple.{n}": (is_tuple_get_item(p, 0), dict(found)) for n, (p, found) in list(made.items())})
    relu, clip = (_followed(made, name, op, {}) for name, op in (("relu", "relax.nn.relu"), ("clip", "relax.clip")))
    made.update(relu)
    made.update(clip)
    patterns = [
        FusionPattern(f"openclml.{name}", pattern, {**found, "root": pattern}, _check_conv2d)
        for name, (pattern, found) in made.items()
    ]
    return patterns[::-1]


def _batch_norm() -> FusionPattern:
    """As :func:`append_reshape_to_batch_norm` leaves it."""
    names = ("gamma", "beta", "moving_mean", "moving_var")
    found: dict[str, DFPattern] = {name: is_const() for name in names}
    norm = is_op("relax.nn.batch_norm")(wildcard(), *found.values())
    root = is_op("relax.reshape")(is_tuple_get_item(norm, 0), wildcard())
    return FusionPattern("openclml.nn.batch_norm", root, {**found, "root": root}, _check_batch_norm)


def _one(name: str, operator: str, check: Callable[..., Any], operands: Sequence[str]) -> FusionPattern:
    found: dict[str, DFPattern] = {n: wildcard() for n in operands}
    root = is_op(operator)(*found.values())
    return FusionPattern(f"openclml.{name}", root, {**found, "root": root}, check)


def clml_pattern_table() -> list[FusionPattern]:
    """All patterns, those tried first at the front."""
    return [
        *_conv_patterns(),
        _batch_norm(),
        *(_one(f"relax.{n}", f"relax.{n}", _check_element_wise, ("lhs", "rhs")) for n in _BINARY),
        *(_one(f"relax.{n}", f"relax.{n}", _check_element_wise, ("lhs",)) for n in _UNARY),
        _one("nn.max_pool2d", "relax.nn.max_pool2d", _check_pool, ("data",)),
        _one("nn.avg_pool2d", "relax.nn.avg_pool2d", _check_pool, ("data",)),
        _one("nn.global_avg_pool2d", "relax.mean", _check_global_pool, ("data",)),
        FusionPattern("openclml.reshape", is_op("relax.reshape")(wildcard(), wildcard())),
    ]


register_patterns(clml_pattern_table())


class _AppendReshape(PyExprMutator):
    """The first field of a batch norm's result is reshaped to what it is, so that a pattern has something to end in."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.norms: dict[Var, Call] = {}

    def visit_tuple_getitem_(self, op: TupleGetItem) -> RelaxExpr:
        call = self.norms.get(op.tuple_value) if isinstance(op.tuple_value, Var) else None
        if call is None or op.index != 0:
            return super().visit_tuple_getitem_(op)
        first = self.builder_.emit(TupleGetItem(self.visit_expr(op.tuple_value), 0))
        return reshape(first, call.args[0].struct_info.shape)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if is_call_of(value, "relax.nn.batch_norm"):
            self.norms[binding.var] = value
        super().visit_var_binding_(binding)


def append_reshape_to_batch_norm(mod: IRModule) -> IRModule:
    """``norm[0]`` becomes ``R.reshape(norm[0], shape)``."""
    mutator = _AppendReshape(mod)
    for var, func in functions_of(mod, Function):
        mutator.builder_.update_func(var, mutator.visit_expr(func))
    return eliminate(mutator.builder_.get(), ["main"])


def OpenCLMLOffLoad() -> Pass:
    """Convolutions, norms, pools and element-wise operators become functions for OpenCL ML, and go to its code generator.

    Raises RelaxishError where something matches and ``relax.ext.openclml`` is not registered.
    """

    def run(mod: IRModule) -> IRModule:
        passes = [
            ConvertLayout(_LAYOUTS),
            Normalize(),
            FoldBatchnormToConv2D(),
            as_module_pass(append_reshape_to_batch_norm, "AppendReshapeToBN"),
            FoldConstant(),
            FuseOpsByPattern(clml_pattern_table()),
            MergeCompositeFunctions(),
            RunCodegen(),
        ]
        out: IRModule = Sequential(passes)(mod)
        return out

    return as_module_pass(run, "OpenCLMLOffLoad")
