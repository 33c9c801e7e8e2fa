"""FoldBatchnormToConv2D: the scale of a batch norm goes into the weights of the convolution before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..op.binary import add, divide, multiply, subtract
from ..op.manipulate import reshape
from ..op.unary import sqrt
from ..relax.dpl import DFPattern, is_const, is_op, is_tuple_get_item, rewrite_call, wildcard
from ..relax.expr import Call, Expr, Function, PrimValue
from ..tir import FloatImm
from .base import as_module_pass, map_relax_functions

__all__ = ["FoldBatchnormToConv2D"]


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _fold(func: Function) -> Function:
    data, weight = wildcard(), is_const()
    gamma, beta, mean, variance = (is_const() for _ in range(4))
    conv_pattern = is_op("relax.nn.conv2d")(data, weight)
    norm_pattern = is_op("relax.nn.batch_norm")(conv_pattern, gamma, beta, mean, variance)

    def rewrite(expr: Expr, matched: Mapping[DFPattern, Any]) -> Expr:
        conv, norm = matched[conv_pattern], matched[norm_pattern]
        layout, channels = str(_plain(conv.attrs.kernel_layout)), matched[gamma].struct_info.dims()[0]
        if layout not in ("OIHW", "IOHW") or _plain(conv.attrs.data_layout) != "NCHW":
            return expr
        if int(_plain(norm.attrs.axis)) != 1 or not _plain(norm.attrs.scale) or not _plain(norm.attrs.center):
            return expr
        epsilon = PrimValue(FloatImm("float32", float(_plain(norm.attrs.epsilon))))
        scale = divide(matched[gamma], sqrt(add(matched[variance], epsilon)))
        shift = subtract(matched[beta], multiply(matched[mean], scale))
        factor = reshape(scale, (channels, 1, 1, 1) if layout == "OIHW" else (1, channels, 1, 1))
        scaled = Call(conv.op, (matched[data], multiply(matched[weight], factor)), conv.attrs)
        return add(scaled, reshape(shift, (1, channels, 1, 1)))  # type: ignore[no-any-return]

    return rewrite_call(is_tuple_get_item(norm_pattern, 0), rewrite, func)


def _run(mod: IRModule) -> IRModule:
    return map_relax_functions(mod, lambda _, func: func if func.attrs.get("Primitive") else _fold(func))


def FoldBatchnormToConv2D() -> Pass:  # noqa: N802  (public name of the pass)
    """Scale the constant weights of a convolution instead of its result.

    ::

        lv = R.nn.conv2d(x, W)                            s = gamma / R.sqrt(variance + epsilon)
        lv1 = R.nn.batch_norm(lv, gamma, beta,       ->   lv = R.nn.conv2d(x, W * R.reshape(s, ...))
                              mean, variance)             gv = lv + R.reshape(beta - mean * s, ...)
        gv = lv1[0]

    FoldConstant then computes the new weights.
    """
    return as_module_pass(_run, "FoldBatchnormToConv2D")
