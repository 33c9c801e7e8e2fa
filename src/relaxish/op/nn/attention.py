"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te, tir, topi
from ...relax.expr import Call, Expr
from ...relax.scalars import const_int
from ...relax.struct_info import StructInfo
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
from ..record import define

__all__ = ["attention", "attention_var_len"]


def attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    scale: Any = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    """``softmax(q k^T * scale + bias) v`` on ``[batch, sequence, heads, size]`` tensors.

    ``causal_mask`` is None, ``TopLeft`` or ``BottomRight``: the corner the triangle is aligned to.
    """
    attrs = {
        "scale": None if scale is None else float(getattr(scale, "value", scale)),
        "causal_mask": causal_mask,
        "window_size": None if window_size is None else int(window_size),
    }
    args = [as_expr(v) for v in (query, key, value)]
    if bias is None:
        return make_call("nn.attention", args, attrs)
    return make_call("nn.attention_bias", [*args, as_expr(bias)], attrs)


def attention_var_len(
    queries: Any,
    keys: Any,
    values: Any,
    seqstart_q: Any,
    max_seqlen_q: Any,
    seqstart_k: Any = None,
    max_seqlen_k: Any = None,
    scale: Any = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    """Attention over sequences of different lengths laid one behind the other."""
    seqstart_k = seqstart_q if seqstart_k is None else seqstart_k
    max_seqlen_k = max_seqlen_q if max_seqlen_k is None else max_seqlen_k
    attrs = {
        "scale": None if scale is None else float(getattr(scale, "value", scale)),
        "causal_mask": causal_mask,
        "window_size": None if window_size is None else int(window_size),
    }
    args = [queries, keys, values, seqstart_q, seqstart_k, max_seqlen_q, max_seqlen_k]
    return make_call("nn.attention_var_len", [as_expr(a) for a in args], attrs)


def _same(call: Call, a: Any, b: Any, what: str) -> None:
    if provably_differ(a, b):
        raise fail(call, f"the {what} should be the same, but they are {a} and {b}")


def _infer(call: Call, builder: Any) -> StructInfo:
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


def _check_bias(call: Call, bias: Any, wanted: tuple[Any, ...]) -> None:
    """The bias has the shape of the scores; all dimensions but the last may be one."""
    if bias.ndim != 4:
        raise fail(call, f"the bias should have 4 dimensions, but it has {bias.ndim}")
    names = ("batch sizes", "numbers of heads", "sequence lengths", "sequence lengths of key")
    for k, (have, want) in enumerate(zip(written_dims(bias) or (), wanted)):
        if k == 3 or const_int(have) != 1:
            _same(call, have, want, f"{names[k]} of the inputs and the bias")


_ARGUMENTS = {"relax.nn.attention": 3, "relax.nn.attention_bias": 4, "relax.nn.attention_var_len": 7}


def te_attention(q: Any, k: Any, v: Any, bias: Any, scale: Any, causal_mask: str | None) -> Any:
    """The computation, written with matrix products over ``[batch * heads]``.

    A given scale is a number of single precision: from there on half precision is computed in single precision.
    """
    wanted = q.dtype
    batch, rows, heads, size = q.shape
    _, cols, _, out_size = v.shape
    together = batch * heads
    q, k, v = (topi.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
    q = topi.reshape(q, [together, rows, size])
    k = topi.reshape(k, [together, cols, size])
    v = topi.reshape(v, [together, cols, out_size])
    p = topi.nn.batch_matmul(q, k)
    if scale is not None:
        p = topi.multiply(p, const(scale, "float64" if p.dtype == "float64" else "float32"))
    else:
        p = topi.divide(p, tir.sqrt(tir.Cast(p.dtype, size)))
    if bias is not None:
        p = topi.reshape(p, [batch, heads, rows, cols])
        p = topi.add(p, bias)
        p = topi.reshape(p, [together, rows, cols])
    if causal_mask is None:
        s = topi.nn.softmax(p)
    else:
        if causal_mask == "TopLeft":
            offset: Any = const(0, "int32")
        elif causal_mask == "BottomRight":
            offset = tir.abs(rows - cols).astype("int32")
        else:
            raise NotImplementedError(f"causal_mask must be TopLeft or BottomRight, not {causal_mask!r}")
        masked = topi.trilu(p, offset, False)
        shifted = topi.subtract(masked, topi.max(masked, -1, True))
        powers = topi.trilu(topi.exp(shifted), offset, False)
        s = topi.divide(powers, topi.sum(powers, -1, True))
    out = topi.nn.batch_matmul(s, v, transpose_b=False)
    out = topi.transpose(topi.reshape(out, [batch, heads, rows, out_size]), [0, 2, 1, 3])
    return out if out.dtype == wanted else topi.cast(out, wanted)


def _legalize(builder: Any, call: Call) -> Expr:
    a = call.attrs
    if a.window_size is not None:
        raise AssertionError("Legalization for sliding-window attention is not supported yet.")
    with_bias = call.op.name == "relax.nn.attention_bias"

    def compute(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        scale = None if a.scale is None else float(a.scale)
        return te_attention(q, k, v, rest[0] if rest else None, scale, a.causal_mask)

    name = "attention_bias" if with_bias else "attention"
    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint=name)
    return made


def te_attention_var_len(
    q: Any, k: Any, v: Any, start_q: Any, start_k: Any, scale: Any, causal_mask: str | None
) -> Any:
    """Attention in which a query sees only the keys of its own sequence."""
    _, rows, heads, size = q.shape
    cols, out_size = k.shape[1], v.shape[3]
    count = start_q.shape[0] - 1
    factor = const(scale, q.dtype) if scale is not None else const(1, q.dtype) / tir.sqrt(tir.Cast(q.dtype, size))
    low = te.min_value(q.dtype)

    def owner(name: str, length: Any, starts: Any) -> Any:
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
        lambda h, i, j: te.sum(q(0, i, h, d.var) * k(0, j, h, d.var), axis=d),
        "scores",
    )

    def masked(h: Any, i: Any, j: Any) -> Any:
        inside = seq_q(i).equal(seq_k(j))
        if causal_mask is not None:
            at_q = i - start_q(seq_q(i)).astype("int64")
            at_k = j - start_k(seq_q(i)).astype("int64")
            if causal_mask == "BottomRight":
                len_q = start_q(seq_q(i) + 1) - start_q(seq_q(i))
                len_k = start_k(seq_q(i) + 1) - start_k(seq_q(i))
                at_k = at_k - (len_k - len_q).astype("int64")
            inside = tir.And(inside, at_k <= at_q)
        return tir.Select(inside, raw(h, i, j) * factor, low)

    weights = topi.nn.softmax(te.compute((heads, rows, cols), masked, "masked_scores"))
    c = te.reduce_axis((const(0, "int64"), cols), "c")
    return te.compute(
        (const(1, "int64"), rows, heads, out_size),
        lambda b, i, h, e: te.sum(weights(h, i, c.var) * v(0, c.var, h, e), axis=c),
        "attention_var_len",
    )


def _legalize_var_len(builder: Any, call: Call) -> Expr:
    a = call.attrs
    q, k, v, start_q, start_k = call.args[:5]

    def compute(q: Any, k: Any, v: Any, sq: Any, sk: Any) -> Any:
        return te_attention_var_len(q, k, v, sq, sk, None if a.scale is None else float(a.scale), a.causal_mask)

    made: Expr = builder.call_te(compute, q, k, v, start_q, start_k, primfunc_name_hint="attention_var_len")
    return made


def _np_attention(q: Any, k: Any, v: Any, bias: Any = None, scale: Any = None, causal_mask: str | None = None) -> Any:
    p = np.einsum("bihd,bjhd->bhij", q, k) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if bias is not None:
        p = p + bias
    if causal_mask is not None:
        offset = 0 if causal_mask == "TopLeft" else abs(q.shape[1] - k.shape[1])
        p = np.where(np.tril(np.ones(p.shape[-2:], bool), offset), p, -np.inf)
    e = np.exp(p - p.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", e / e.sum(-1, keepdims=True), v).astype(q.dtype)


def _samples(with_bias: bool) -> Any:
    rng = np.random.default_rng(12)

    def a(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype("float32")

    args = (a(2, 4, 3, 8), a(2, 5, 3, 8), a(2, 5, 3, 6))
    if with_bias:
        return [((*args, a(2, 3, 4, 5)), {"scale": 0.5})]
    return [(args, {}), (args, {"causal_mask": "TopLeft"}), (args, {"causal_mask": "BottomRight"})]


define(
    "nn.attention",
    _infer,
    legalize=_legalize,
    precision="always",
    reference=_np_attention,
    samples=lambda: _samples(False),
    arg_names=("query", "key", "value"),
)
define(
    "nn.attention_bias",
    _infer,
    legalize=_legalize,
    precision="always",
    reference=_np_attention,
    samples=lambda: _samples(True),
    arg_names=("query", "key", "value", "bias"),
)
define(
    "nn.attention_var_len",
    _infer,
    legalize=_legalize_var_len,
    precision="always",
    arg_names=("queries", "keys", "values", "seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"),
)
