"""Patterns that several libraries share: products, convolutions, attentions and norms with what may follow them."""

from __future__ import annotations

from collections.abc import Mapping

from ..relax.dpl import DFPattern, GlobalVarPattern, TuplePattern, is_const, is_op, is_tuple_get_item, wildcard
from ..relax.dpl import make_residual_block_pattern as make_residual_block_pattern
from .attention_rewrite import make_attention_rewrite_pattern as make_attention_rewrite_pattern

__all__ = [
    "make_attention_pattern",
    "make_attention_rewrite_pattern",
    "make_conv2d_pattern",
    "make_fused_bias_activation_pattern",
    "make_layer_norm_pattern",
    "make_matmul_dequantize_pattern",
    "make_matmul_multiply_pattern",
    "make_matmul_pattern",
    "make_residual_block_pattern",
    "make_rms_norm_pattern",
    "make_stacked_attention_pattern",
]

Annotated = tuple[DFPattern, Mapping[str, DFPattern]]


def _with_bias_activation(
    out: DFPattern, annotations: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Annotated:
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out = is_op("relax.add")(out, bias)
    if activation:
        out = is_op(activation)(out)
    return out, annotations


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Annotated:
    """An operator of two arguments, with the annotations ``lhs``, ``rhs``, ``root`` and ``bias``."""
    lhs, rhs = wildcard(), wildcard()
    root = is_op(op_name)(lhs, rhs)
    return _with_bias_activation(root, {"lhs": lhs, "rhs": rhs, "root": root}, with_bias, activation)


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Annotated:
    """A convolution, with the annotations ``input``, ``weight``, ``root`` and ``bias``."""
    x, w = wildcard(), wildcard()
    root = is_op("relax.nn.conv2d")(x, w)
    return _with_bias_activation(root, {"input": x, "weight": w, "root": root}, with_bias, activation)


def _product(transposed_rhs: bool) -> tuple[DFPattern, dict[str, DFPattern]]:
    lhs, rhs = wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs}
    used: DFPattern = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    annotations["root"] = root = is_op("relax.matmul")(lhs, used)
    return root, annotations


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Annotated:
    """A product, with the annotations ``lhs``, ``rhs``, ``root`` and ``bias``."""
    root, annotations = _product(transposed_rhs)
    return _with_bias_activation(root, annotations, with_bias, activation)


def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Annotated:
    """A product and its dequantisation by the constants ``scale`` and ``zp``."""
    root, annotations = _product(transposed_rhs)
    annotations["scale"], annotations["zp"] = scale, zero = is_const(), is_const()
    return is_op("relax.dequantize")(root, scale, zero), annotations


def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Annotated:
    """A product, times the scales ``scaleA`` and ``scaleB`` of one element, as another dtype."""
    root, annotations = _product(transposed_rhs)
    annotations["scaleA"], annotations["scaleB"] = left, right = wildcard(), wildcard()
    scale = is_op("relax.multiply")(left.has_shape((1,)), right.has_shape((1,)))
    return is_op("relax.astype")(is_op("relax.multiply")(root, scale)), annotations


def make_layer_norm_pattern() -> Annotated:
    """A layer normalisation."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


def make_rms_norm_pattern() -> Annotated:
    """A ``call_tir`` of two tensors, with the annotations ``gv``, ``inp`` and ``rms_norm``; a check looks at the name."""
    x, weight, callee = wildcard(), wildcard(), GlobalVarPattern()
    out = is_op("relax.call_tir")(callee, TuplePattern([x, weight]))
    return out, {"gv": callee, "inp": x, "rms_norm": out}


def make_attention_pattern(with_bias: bool = False, var_len: bool = False) -> Annotated:
    """An attention, with the annotations ``query``, ``key``, ``value`` and what else the operator takes."""
    query, key, value = wildcard(), wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"query": query, "key": key, "value": value}
    name = "relax.nn.attention"
    if with_bias:
        name = "relax.nn.attention_bias"
        annotations["bias"] = wildcard()
    elif var_len:
        name = "relax.nn.attention_var_len"
        annotations.update({n: wildcard() for n in ("seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k")})
    return is_op(name)(*annotations.values()), annotations


def make_stacked_attention_pattern(start_op: str, with_bias: bool = False, layout: str = "BS3NH") -> Annotated:
    """An attention whose query, key and value are cut out of one tensor by ``split`` or ``strided_slice``.

    Raises NotImplementedError for another ``start_op``.
    """
    stacked = wildcard()
    parts, cuts = _cut(stacked, start_op)
    shapes = [wildcard() for _ in parts]
    annotations: dict[str, DFPattern] = {"stacked_qkv": stacked}
    annotations.update(zip(("query_reshape_list", "key_reshape_list", "value_reshape_list"), shapes, strict=True))
    annotations.update(cuts)
    if layout == "BS3NH":
        inputs: list[DFPattern] = [is_op("relax.reshape")(p, s) for p, s in zip(parts, shapes, strict=True)]
    else:
        inputs = [is_op("relax.permute_dims")(p) for p in parts]
        annotations.update(zip(("q_transpose", "k_transpose", "v_transpose"), inputs, strict=True))
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out: DFPattern = is_op("relax.nn.attention_bias")(*inputs, bias)
    else:
        out = is_op("relax.nn.attention")(*inputs)
    return (is_op("relax.permute_dims")(out) if layout == "SBN3H" else out), annotations


def _cut(stacked: DFPattern, start_op: str) -> tuple[list[DFPattern], dict[str, DFPattern]]:
    if start_op == "split":
        split = is_op("relax.split")(stacked)
        return [is_tuple_get_item(split, k) for k in range(3)], {"split": split}
    if start_op == "strided_slice":
        cuts = {
            f"strided_slice_{name}": is_op("relax.strided_slice")(stacked, varg_default_wildcard=True)
            for name in ("query", "key", "value")
        }
        return list(cuts.values()), dict(cuts)
    raise NotImplementedError(f"stacked attention starts with split or strided_slice, not {start_op}")
