"""Modules of one matrix product, with what may follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.module import IRModule
from ...op.binary import add
from ...op.linear_algebra import matmul
from ...op.manipulate import permute_dims
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Var
from ...relax.struct_info import TensorStructInfo

__all__ = ["get_relax_matmul_module"]


def get_relax_matmul_module(
    x_shape: Sequence[Any],
    y_shape: Sequence[Any],
    in_dtype: str,
    out_dtype: str,
    transposed_y: bool = False,
    bias_shape: Sequence[Any] | None = None,
    activation: Callable[[Any], Any] | None = None,
    residual_bin_op: Callable[[Any, Any], Any] | None = None,
    residual_activation: Callable[[Any], Any] | None = None,
) -> IRModule:
    """``main(x, y[, bias])``: a product with an optional transpose, bias, activation, and residual of ``x``."""
    x, y = (Var(n, TensorStructInfo(s, in_dtype)) for n, s in (("x", x_shape), ("y", y_shape)))
    params = [x, y]
    builder = BlockBuilder()
    bias = None
    if bias_shape is not None:
        bias = Var("bias", TensorStructInfo(bias_shape, out_dtype))
        params.append(bias)
    with builder.function("main", params):
        with builder.dataflow():
            rhs: Any = y
            if transposed_y:
                ndim = len(y_shape)
                rhs = builder.emit(permute_dims(y, [*range(ndim - 2), ndim - 1, ndim - 2]))
            result: Any = builder.emit(matmul(x, rhs, out_dtype))
            if bias is not None:
                result = builder.emit(add(result, bias))
            if activation is not None:
                result = builder.emit(activation(result))
            if residual_bin_op is not None:
                result = builder.emit(residual_bin_op(result, x))
                if residual_activation is not None:
                    result = builder.emit(residual_activation(result))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()
