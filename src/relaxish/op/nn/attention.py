"""Scaled dot-product attention.

Source: Vaswani et al., "Attention is all you need" (NeurIPS 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te, tir, topi
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import FloatImm
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr
from ...relax.op_table import Sample
from ...relax.scalars import const_int, prove_equal
from ...relax.struct_info import StructInfo, TensorStructInfo
from ...tir import const, floormod
from ..inference import (
    as_expr,
    fail,
    input_tensors,
    make_call,
    provably_differ,
    tensor,
    unknown_like,
    written_dims,
)
from ..kinds import CONTRACTION
from ..lowering import te_call
from ..record import define
from ...ir.plain import plain_float

__all__ = ["ATTENTION_KERNELS", "attention", "attention_var_len", "lower_attention"]


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: FloatImm | float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    """``softmax(q k^T * scale + bias) v`` on ``[batch, sequence, heads, size]`` tensors.

    ``causal_mask`` is None, ``TopLeft`` or ``BottomRight``: the corner the triangle is aligned to.
    """
    attrs = {
        "scale": None if scale is None else plain_float(scale),
        "causal_mask": causal_mask,
        "window_size": None if window_size is None else int(window_size),
    }
    args = [as_expr(v) for v in (query, key, value)]
    if bias is None:
        return make_call("nn.attention", args, attrs)
    return make_call("nn.attention_bias", [*args, as_expr(bias)], attrs)


def attention_var_len(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    max_seqlen_q: Expr,
    seqstart_k: Expr | None = None,
    max_seqlen_k: Expr | None = None,
    scale: FloatImm | float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    """Attention over sequences of different lengths laid one behind the other."""
    seqstart_k = seqstart_q if seqstart_k is None else seqstart_k
    max_seqlen_k = max_seqlen_q if max_seqlen_k is None else max_seqlen_k
    attrs = {
        "scale": None if scale is None else plain_float(scale),
        "causal_mask": causal_mask,
        "window_size": None if window_size is None else int(window_size),
    }
    args = [queries, keys, values, seqstart_q, seqstart_k, max_seqlen_q, max_seqlen_k]
    return make_call("nn.attention_var_len", [as_expr(a) for a in args], attrs)


def _same(call: Call, a: PrimExpr, b: PrimExpr, what: str) -> None:
    if provably_differ(a, b):
        raise fail(call, f"the {what} should be the same, but they are {a} and {b}")


def _infer(call: Call, builder: BlockBuilder) -> StructInfo:
    """Queries ``(b, s, h, d)``, keys ``(b, t, g, d)``, values ``(b, t, g, v)`` with ``g`` dividing ``h``."""
    infos = input_tensors(call, _ARGUMENTS[call.op.name])
    shapes = []
    for info, name in zip(infos[:3], ("query", "key", "value")):
        if info.ndim != 4:
            raise fail(
                call,
                f"the {name} should have 4 dimensions, namely [batch size, sequence length, number of heads, dimension "
                f"of heads], but it has {info.ndim}",
            )
        shapes.append(written_dims(info))
    if any(s is None for s in shapes):
        return unknown_like(infos[0])
    dq, dk, dv = (list(s or ()) for s in shapes)
    _same(call, dq[0], dk[0], "batch sizes of query and key")
    _same(call, dq[0], dv[0], "batch sizes of query and value")
    for heads, what in ((dk[2], "key"), (dv[2], "value")):
        if provably_differ(floormod(dq[2], heads), const(0, "int64")):
            raise fail(call, f"the number of heads of query, {dq[2]}, should be a multiple of that of {what}, {heads}")
    _same(call, dk[1], dv[1], "sequence lengths of key and value")
    _same(call, dq[3], dk[3], "dimensions of heads of query and key")
    if len(infos) == 4:
        _check_bias(call, infos[3], (dq[0], dq[2], dq[1], dk[1]))
    return tensor([dq[0], dq[1], dq[2], dv[3]], infos[0].dtype, vdevice=infos[0].vdevice)


def _check_bias(call: Call, bias: TensorStructInfo, wanted: tuple[Any, ...]) -> None:
    """The bias has the shape of the scores; all dimensions but the last may be one."""
    if bias.ndim != 4:
        raise fail(call, f"the bias should have 4 dimensions, but it has {bias.ndim}")
    names = ("batch sizes", "numbers of heads", "sequence lengths", "sequence lengths of key")
    for k, (have, want) in enumerate(zip(written_dims(bias) or (), wanted)):
        if k == 3 or const_int(have) != 1:
            _same(call, have, want, f"{names[k]} of the inputs and the bias")


_ARGUMENTS = {"relax.nn.attention": 3, "relax.nn.attention_bias": 4, "relax.nn.attention_var_len": 7}


def _for_every_head(x: te.Tensor, heads: PrimExpr) -> te.Tensor:
    """Keys or values ``(b, t, g, d)`` as ``(b, t, heads, d)``: each of fewer heads serves as many queries' heads."""
    if prove_equal(x.shape[2], heads):
        return x
    return te.compute(
        (x.shape[0], x.shape[1], heads, x.shape[3]),
        lambda b, t, h, d: x(b, t, _head(h, heads, x.shape[2]), d),
        "T_heads",
        "injective",
    )


def _wide(dtype: str) -> str:
    """What scores are computed in."""
    return dtype if dt.bits(dtype) >= 32 else "float32"


def _head(h: PrimExpr, heads: PrimExpr, kept: PrimExpr) -> PrimExpr:
    """Which of ``kept`` heads serves head ``h`` of ``heads``."""
    return h if prove_equal(heads, kept) else tir.floordiv(h, tir.floordiv(heads, kept))


def _softmax_or_zero(scores: te.Tensor) -> te.Tensor:
    """Softmax along the last axis; rows that are negative infinity all along give zeros."""
    *rows, cols = scores.shape
    low = te.min_value(scores.dtype)
    k = te.reduce_axis((const(0, cols.dtype), cols), "k")
    largest = te.compute(rows, lambda *i: te.max(scores(*i, k.var), axis=k), "T_largest")

    def power(*i: PrimExpr) -> PrimExpr:
        top = largest(*i[:-1])
        # A NaN stays one: it is not less than anything.
        return tir.exp(scores(*i) - tir.Select(top < low, low, top))

    powers = te.compute(scores.shape, power, "T_powers")
    n = te.reduce_axis((const(0, cols.dtype), cols), "k")
    total = te.compute(rows, lambda *i: te.sum(powers(*i, n.var), axis=n), "T_total")
    zero, one = const(0, scores.dtype), const(1, scores.dtype)
    return te.compute(
        scores.shape,
        lambda *i: powers(*i) / tir.Select(total(*i[:-1]).equal(zero), one, total(*i[:-1])),
        "T_weights",
    )


def te_attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    bias: te.Tensor | None,
    scale: float | None,
    causal_mask: str | None,
    zero_rows: bool = False,
) -> te.Tensor:
    """The computation, written with matrix products over ``[batch * heads]``.

    A given scale is a number of single precision: from there on half precision is computed in single precision. A row
    that sees no key, for its bias is negative infinity, gives NaN; with ``zero_rows`` it gives zeros.
    """
    wanted = q.dtype
    batch, rows, heads, size = q.shape
    _, cols, _, out_size = v.shape
    together = batch * heads
    k, v = _for_every_head(k, heads), _for_every_head(v, heads)
    q, k, v = (topi.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
    q = topi.reshape(q, [together, rows, size])
    k = topi.reshape(k, [together, cols, size])
    v = topi.reshape(v, [together, cols, out_size])
    p = topi.nn.batch_matmul(q, k, out_dtype=_wide(wanted) if zero_rows else None)
    if scale is not None:
        p = topi.multiply(p, const(scale, "float64" if p.dtype == "float64" else "float32"))
    else:
        p = topi.divide(p, tir.sqrt(tir.Cast(p.dtype, size)))
    if bias is not None:
        p = topi.reshape(p, [batch, heads, rows, cols])
        p = topi.add(p, bias if bias.dtype == p.dtype or not zero_rows else topi.cast(bias, p.dtype))
        p = topi.reshape(p, [together, rows, cols])
    if causal_mask is None:
        s = _softmax_or_zero(p) if zero_rows else topi.nn.softmax(p)
    else:
        if causal_mask == "TopLeft":
            offset: Any = const(0, "int32")
        elif causal_mask == "BottomRight":
            offset = tir.abs(rows - cols).astype("int32")
        else:
            raise NotImplementedError(f"causal_mask must be TopLeft or BottomRight, not {causal_mask!r}")
        if zero_rows:
            s = _softmax_or_zero(_below_diagonal(p, offset))
            return _weighted_values(s, v, (batch, heads, rows, out_size), wanted)
        masked = topi.trilu(p, offset, False)
        shifted = topi.subtract(masked, topi.max(masked, -1, True))
        powers = topi.trilu(topi.exp(shifted), offset, False)
        s = topi.divide(powers, topi.sum(powers, -1, True))
    return _weighted_values(s, v, (batch, heads, rows, out_size), wanted)


def _below_diagonal(scores: te.Tensor, offset: PrimExpr) -> te.Tensor:
    """Scores of keys up to ``offset`` behind a query's own place, negative infinity elsewhere."""
    hidden = const(float("-inf"), scores.dtype)
    return te.compute(
        scores.shape, lambda b, i, j: tir.Select(j <= i + offset.astype(i.dtype), scores(b, i, j), hidden), "T_masked"
    )


def _weighted_values(s: te.Tensor, v: te.Tensor, shape: tuple[Any, ...], dtype: str) -> te.Tensor:
    """Values ``(b * heads, t, size)`` by their weights, laid out as ``(b, rows, heads, size)``."""
    out = topi.nn.batch_matmul(s, v, transpose_b=False)
    out = topi.transpose(topi.reshape(out, list(shape)), [0, 2, 1, 3])
    return out if out.dtype == dtype else topi.cast(out, dtype)


def lower_attention(builder: BlockBuilder, call: Call, zero_rows: bool = True) -> Expr:
    """An attention as a call of its kernel; see :func:`te_attention` for ``zero_rows``."""
    a = call.attrs
    if a.window_size is not None:
        raise AssertionError("Legalization for sliding-window attention is not supported yet.")
    with_bias = call.op.name == "relax.nn.attention_bias"

    def compute(q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        scale = None if a.scale is None else float(a.scale)
        return te_attention(q, k, v, rest[0] if rest else None, scale, a.causal_mask, zero_rows)

    name = "attention_bias" if with_bias else "attention"
    return te_call(builder, name, compute, *call.args)


#: What pipelines give LegalizeOps, whose own form of the operator leaves NaN in rows that see no key.
ATTENTION_KERNELS = {"relax.nn.attention_bias": lower_attention}


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    return lower_attention(builder, call, zero_rows=False)


def te_attention_var_len(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    start_q: te.Tensor,
    start_k: te.Tensor,
    scale: float | None,
    causal_mask: str | None,
    window: int | None = None,
) -> te.Tensor:
    """Attention in which a query sees only the keys of its own sequence, of them at most ``window`` before its own.

    Queries that see none give zeros.
    """
    _, rows, heads, size = q.shape
    cols, out_size = k.shape[1], v.shape[3]
    count = start_q.shape[0] - 1
    wide = _wide(q.dtype)
    factor = const(scale, wide) if scale is not None else const(1, wide) / tir.sqrt(tir.Cast(wide, size))
    low = const(float("-inf"), wide)

    def owner(name: str, length: PrimExpr, starts: te.Tensor) -> te.Tensor:
        s = te.reduce_axis((const(0, "int64"), count), "s")
        return te.compute(
            (length,),
            lambda i: te.sum(
                tir.Select(starts(s.var + 1).astype("int64") <= i, const(1, "int64"), const(0, "int64")), axis=s
            ),
            name,
        )

    seq_q, seq_k = owner("seq_q", rows, start_q), owner("seq_k", cols, start_k)
    d = te.reduce_axis((const(0, "int64"), size), "d")
    raw = te.compute(
        (heads, rows, cols),
        lambda h, i, j: te.sum(
            q(0, i, h, d.var).astype(wide) * k(0, j, _head(h, heads, k.shape[2]), d.var).astype(wide), axis=d
        ),
        "scores",
    )

    def masked(h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        inside = seq_q(i).equal(seq_k(j))
        if causal_mask is not None or window is not None:
            at_q = i - start_q(seq_q(i)).astype("int64")
            at_k = j - start_k(seq_q(i)).astype("int64")
            if causal_mask == "BottomRight":
                len_q = start_q(seq_q(i) + 1) - start_q(seq_q(i))
                len_k = start_k(seq_q(i) + 1) - start_k(seq_q(i))
                at_k = at_k - (len_k - len_q).astype("int64")
            inside = tir.And(inside, at_k <= at_q)
            if window is not None:
                inside = tir.And(inside, at_k > at_q - window)
        return tir.Select(inside, raw(h, i, j) * factor, low)

    weights = _softmax_or_zero(te.compute((heads, rows, cols), masked, "masked_scores"))
    c = te.reduce_axis((const(0, "int64"), cols), "c")
    out = te.compute(
        (const(1, "int64"), rows, heads, out_size),
        lambda b, i, h, e: te.sum(
            weights(h, i, c.var) * v(0, c.var, _head(h, heads, v.shape[2]), e).astype(wide), axis=c
        ),
        "attention_var_len",
    )
    return out if wide == q.dtype else topi.cast(out, q.dtype)


def _legalize_var_len(builder: BlockBuilder, call: Call) -> Expr:
    a = call.attrs
    q, k, v, start_q, start_k = call.args[:5]

    def compute(q: te.Tensor, k: te.Tensor, v: te.Tensor, sq: te.Tensor, sk: te.Tensor) -> te.Tensor:
        scale = None if a.scale is None else float(a.scale)
        window = None if a.window_size is None else int(a.window_size)
        return te_attention_var_len(q, k, v, sq, sk, scale, a.causal_mask, window)

    return te_call(builder, "attention_var_len", compute, q, k, v, start_q, start_k)


def _np_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
) -> np.ndarray:
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    p = np.einsum("bihd,bjhd->bhij", q, k) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if bias is not None:
        p = p + bias
    if causal_mask is not None:
        offset = 0 if causal_mask == "TopLeft" else abs(q.shape[1] - k.shape[1])
        p = np.where(np.tril(np.ones(p.shape[-2:], bool), offset), p, -np.inf)
    e = np.exp(p - p.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", e / e.sum(-1, keepdims=True), v).astype(q.dtype)


def _samples(with_bias: bool) -> Sequence[Sample]:
    rng = np.random.default_rng(12)

    def a(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype("float32")

    args = (a(2, 4, 3, 8), a(2, 5, 3, 8), a(2, 5, 3, 6))
    if with_bias:
        return [((*args, a(2, 3, 4, 5)), {"scale": 0.5})]
    shared = (a(2, 4, 6, 8), a(2, 5, 2, 8), a(2, 5, 1, 6))
    return [(args, {}), (args, {"causal_mask": "TopLeft"}), (args, {"causal_mask": "BottomRight"}), (shared, {})]


define(
    "nn.attention",
    _infer,
    kind=CONTRACTION,
    attrs="Attention",
    legalize=_legalize,
    reference=_np_attention,
    samples=lambda: _samples(False),
)
define(
    "nn.attention_bias",
    _infer,
    kind=CONTRACTION,
    attrs="Attention",
    legalize=_legalize,
    reference=_np_attention,
    samples=lambda: _samples(True),
)
define(
    "nn.attention_var_len", _infer, kind=CONTRACTION, attrs="Attention", legalize=_legalize_var_len, precision="always"
)
