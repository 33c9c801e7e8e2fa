"""Patterns that several libraries share: products and convolutions with bias, activation and residual."""

from __future__ import annotations

from collections.abc import Mapping

from ..relax.dpl import DFPattern, is_op, wildcard
from ..relax.dpl import make_fused_bias_activation_pattern as make_fused_bias_activation_pattern
from ..relax.dpl import make_residual_block_pattern as make_residual_block_pattern

__all__ = [
    "make_attention_pattern",
    "make_conv2d_pattern",
    "make_fused_bias_activation_pattern",
    "make_layer_norm_pattern",
    "make_matmul_pattern",
    "make_residual_block_pattern",
    "make_rms_norm_pattern",
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


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Annotated:
    """A convolution, with the annotations ``input``, ``weight``, ``root`` and ``bias``."""
    x, w = wildcard(), wildcard()
    root = is_op("relax.nn.conv2d")(x, w)
    return _with_bias_activation(root, {"input": x, "weight": w, "root": root}, with_bias, activation)


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Annotated:
    """A product, with the annotations ``lhs``, ``rhs``, ``root`` and ``bias``."""
    lhs, rhs = wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs}
    used: DFPattern = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    annotations["root"] = root = is_op("relax.matmul")(lhs, used)
    return _with_bias_activation(root, annotations, with_bias, activation)


def make_layer_norm_pattern() -> DFPattern:
    """A layer normalisation."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard())


def make_rms_norm_pattern() -> DFPattern:
    """An RMS normalisation."""
    return is_op("relax.nn.rms_norm")(wildcard(), wildcard())


def make_attention_pattern(with_bias: bool = False) -> Annotated:
    """An attention, with the annotations ``query``, ``key``, ``value``, ``root`` and ``bias``."""
    query, key, value = wildcard(), wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"query": query, "key": key, "value": value}
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out: DFPattern = is_op("relax.nn.attention_bias")(query, key, value, bias)
    else:
        out = is_op("relax.nn.attention")(query, key, value)
    annotations["root"] = out
    return out, annotations

