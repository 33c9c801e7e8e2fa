"""Attentions written out as products and a softmax, and how they become ``R.nn.attention``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir.expr import PrimExpr
from ..op.manipulate import reshape
from ..op.nn import attention
from ..relax.dpl import DFPattern, is_const, is_op, wildcard
from ..relax.expr import Call, Expr
from ..tir import FloatImm

__all__ = ["make_attention_rewrite_pattern"]

Matches = Mapping[DFPattern, Any]
#: From the matches and the raw input to (the input as BSNH, its shape), or (None, None) where it does not fit.
InputRewriter = Callable[[Matches, Expr], tuple[Any, Any]]

_HEADS_FORWARD, _SWAP_LAST = [0, 2, 1, 3], [0, 2, 1]
_NOT_FITTING = (None, None)


def _axes(call: Call) -> list[int]:
    return [int(a) for a in call.attrs.axes or ()]


def _input(raw: DFPattern, layout: str, transpose: bool, repeat: bool = False) -> tuple[DFPattern, InputRewriter]:
    """Query, key or value in ``layout`` brought to (batch * heads, rows, columns)."""
    tensor = is_op("relax.repeat")(raw) if repeat else raw
    if layout == "BSH":
        transposed = is_op("relax.permute_dims")(tensor) if transpose else tensor

        def one_head(matches: Matches, x: Expr) -> tuple[Any, Any]:
            if matches[tensor].struct_info.ndim != 3:
                return _NOT_FITTING
            if transpose and _axes(matches[transposed]) != _SWAP_LAST:
                return _NOT_FITTING
            batch, rows, columns = x.struct_info.shape.values
            shape = [batch, rows, 1, columns]
            return reshape(x, shape), shape

        return transposed, one_head
    if layout != "BSNH":
        raise NotImplementedError(f"layout {layout}")
    permuted, shape = is_op("relax.permute_dims")(tensor), wildcard()
    reshaped = is_op("relax.reshape")(permuted, shape)
    out = is_op("relax.permute_dims")(reshaped) if transpose else reshaped

    def heads(matches: Matches, x: Expr) -> tuple[Any, Any]:
        if matches[tensor].struct_info.ndim != 4 or _axes(matches[permuted]) != _HEADS_FORWARD:
            return _NOT_FITTING
        before = list(matches[permuted].struct_info.shape.values)
        after = list(matches[shape].struct_info.values)
        if len(before) != 4 or len(after) != 3 or not _equal(before[-2:], after[-2:]):
            return _NOT_FITTING
        if transpose and _axes(matches[out]) != _SWAP_LAST:
            return _NOT_FITTING
        return x, x.struct_info.shape.values

    return out, heads


def _equal(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(bool(a == b) for a, b in zip(left, right, strict=True))


def _output(product: DFPattern, layout: str) -> tuple[DFPattern, Callable[[Matches, Expr], Any]]:
    """What follows the second product, and how the attention's result stands for it."""
    if layout == "BSH":

        def flat(matches: Matches, x: Expr) -> Expr | None:
            if matches[product].struct_info.ndim != 3:
                return None
            return reshape(x, matches[product].struct_info.shape.values)

        return product, flat
    if layout != "BSNH":
        raise NotImplementedError(f"layout {layout}")
    shape = wildcard()
    permuted = is_op("relax.permute_dims")(is_op("relax.reshape")(product, shape))

    def heads(matches: Matches, x: Expr) -> Expr | None:
        info = matches[product].struct_info
        after = list(matches[shape].struct_info.values)
        if info.ndim != 3 or len(after) != 4 or not _equal(list(info.shape.values)[-2:], after[-2:]):
            return None
        return x if _axes(matches[permuted]) == _HEADS_FORWARD else None

    return permuted, heads


def _bias_as_four(bias: Expr, b: PrimExpr, s: PrimExpr, n: PrimExpr, s_kv: PrimExpr) -> Expr | None:
    """The bias with an axis each for batch, heads, rows and columns, or None for a shape that has no such reading."""
    shape = list(bias.struct_info.shape)
    readings: list[tuple[list[list[Any]], list[Any]]] = [
        ([[b * n, s, s_kv]], [b, n, s, s_kv]),
        ([[b * n, 1, s_kv]], [b, n, 1, s_kv]),
        ([[b, s, s_kv]], [b, 1, s, s_kv]),
        ([[b, 1, s_kv]], [b, 1, 1, s_kv]),
        ([[1, s, s_kv], [s, s_kv]], [1, 1, s, s_kv]),
        ([[1, 1, s_kv], [1, s_kv], [s_kv]], [1, 1, 1, s_kv]),
    ]
    for given, wanted in readings:
        if any(_equal(shape, one) for one in given):
            return reshape(bias, wanted)
    return None


def make_attention_rewrite_pattern(
    qkv_layout: str, out_layout: str, with_bias: bool, with_cast: bool, with_kv_repeat: bool = False
) -> tuple[DFPattern, Callable[[Expr, Matches], Expr]]:
    """A pattern and a rewriter for :func:`relax.dpl.rewrite_call`.

    ::

        softmax(permute(q) @ permute(k) * scale) @ permute(v)   ->   R.nn.attention(q, k, v, scale=...)

    ``with_cast``: the softmax is computed in another dtype than the products; ``with_kv_repeat``: keys and values are
    repeated for their group of query heads. What does not fit in detail is left as it was.
    """
    q_raw, k_raw, v_raw = wildcard(), wildcard(), wildcard()
    q, of_query = _input(q_raw, qkv_layout, False)
    k, of_key = _input(k_raw, qkv_layout, True, with_kv_repeat)
    v, of_value = _input(v_raw, qkv_layout, False, with_kv_repeat)
    scale, bias = is_const(), wildcard()

    def cast(pattern: DFPattern) -> DFPattern:
        return is_op("relax.astype")(pattern) if with_cast else pattern

    scores: DFPattern = is_op("relax.multiply")(is_op("relax.matmul")(q, k), cast(scale))
    if with_bias:
        scores = is_op("relax.add")(scores, bias)
    softmax = is_op("relax.nn.softmax")(cast(scores))
    out, of_output = _output(is_op("relax.matmul")(cast(softmax), v), out_layout)

    def rewrite(original: Expr, matches: Matches) -> Expr:
        query, query_shape = of_query(matches, matches[q_raw])
        key, key_shape = of_key(matches, matches[k_raw])
        value, _ = of_value(matches, matches[v_raw])
        if query is None or key is None or value is None:
            return original
        rank = len(matches[softmax].struct_info.shape)
        if int(matches[softmax].attrs.axis) not in (-1, rank - 1):
            return original
        added = None
        if with_bias:
            added = _bias_as_four(matches[bias], query_shape[0], query_shape[1], query_shape[2], key_shape[1])
            if added is None:
                return original
        factor = matches[scale].data
        made = attention(query, key, value, added, FloatImm(str(factor.dtype), float(factor.numpy())))
        result = of_output(matches, made)
        return original if result is None else result

    return out, rewrite
