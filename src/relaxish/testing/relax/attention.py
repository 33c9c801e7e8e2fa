"""Modules of one attention, with its inputs apart or stacked in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
import numpy as np

from ...ir.module import IRModule
from ...op.index import strided_slice
from ...op.manipulate import reshape, split
from ...op.nn import attention
from ...relax.block_builder import BlockBuilder
from ...relax.expr import ShapeExpr, Var
from ...relax.struct_info import TensorStructInfo

__all__ = ["get_relax_attention_module", "get_relax_stacked_attention_module"]


def get_relax_attention_module(
    q_shape: Sequence[Any],
    k_shape: Sequence[Any],
    v_shape: Sequence[Any],
    *,
    dtype: str,
    bias_shape: Sequence[Any] | str | None = None,
    qk_scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> IRModule:
    """``main(q, k, v[, bias])``: the attention of three tensors."""
    shapes = {"q": q_shape, "k": k_shape, "v": v_shape}
    if bias_shape is not None and bias_shape != "none":
        shapes["bias"] = bias_shape
    params = {name: Var(name, TensorStructInfo(shape, dtype)) for name, shape in shapes.items()}
    builder = BlockBuilder()
    with builder.function("main", list(params.values())):
        q, k, v = (params[name] for name in "qkv")
        with builder.dataflow():
            result = attention(q, k, v, params.get("bias"), qk_scale, causal_mask, window_size)
            output = builder.emit_output(builder.emit(result))
        builder.emit_func_output(output)
    return builder.get()


def get_relax_stacked_attention_module(
    qkv: np.ndarray[Any, Any],
    b: int,
    s: int,
    n: int,
    h: int,
    h_v: int,
    op: str,
    bias: Any = None,
    qk_scale: float | None = None,
    single_shape: bool = False,
) -> IRModule:
    """``main(qkv[, bias])``: an attention whose inputs are cut out of one tensor, by ``"split"`` or ``"strided_slice"``.

    ``qkv`` and ``bias`` are arrays that say shape and dtype.  With ``single_shape`` the three parts get one shape
    object.  Raises NotImplementedError for another ``op``.
    """
    arrays = {"qkv": qkv} if bias is None else {"qkv": qkv, "bias": bias}
    params = {name: Var(name, TensorStructInfo(a.shape, str(qkv.dtype))) for name, a in arrays.items()}
    stacked = params["qkv"]
    ends = [0, n * h, n * h * 2, n * h * 2 + n * h_v]
    builder = BlockBuilder()
    with builder.function("main", list(params.values())):
        with builder.dataflow():
            if op == "split":
                pieces = builder.emit(split(stacked, ends[1:3], axis=2))
                parts = [builder.emit(pieces[i]) for i in range(3)]
            elif op == "strided_slice":
                parts = [builder.emit(strided_slice(stacked, [2], [i], [j], [1])) for i, j in zip(ends, ends[1:])]
            else:
                raise NotImplementedError(f"the inputs cannot be cut out by {op!r}")
            first = ShapeExpr([b, s, n, h])
            last = first if single_shape else ShapeExpr([b, s, n, h_v])
            q, k, v = (builder.emit(reshape(part, shape)) for part, shape in zip(parts, (first, first, last)))
            output = builder.emit_output(builder.emit(attention(q, k, v, params.get("bias"), qk_scale)))
        builder.emit_func_output(output)
    return builder.get()
