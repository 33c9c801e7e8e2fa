"""Operators of the ONNX Runtime domain that exported transformers use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal, simplify
from ....support.errors import OpAttributeInvalid, OpNotImplemented
from ....tir import const
from ..context import Context, attr_ints, convert, Made
from .convolution import add_bias, convolution
from .linear import transposed_gemm

_RUNTIME = "com.microsoft"


def _given(inputs: list[Any], at: int) -> Any:
    return inputs[at] if len(inputs) > at else None


# ---- products with what stands around them


@convert("FusedMatMul", domain=_RUNTIME)
def _fused_matmul(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A scaled product; ``transBatch`` takes the batch from behind the first axis of a matrix."""

    def turned(x: Expr, side: str) -> Expr:
        x, rank = ctx.tensor(x), ctx.ndim(x)
        order = list(range(rank))
        if attrs.get(f"transBatch{side}", 0) and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if attrs.get(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        return x if order == sorted(order) else ctx.emit(op.permute_dims(x, order))

    out = op.matmul(turned(inputs[0], "A"), turned(inputs[1], "B"))
    alpha = float(attrs.get("alpha", 1.0))
    return out if alpha == 1.0 else op.multiply(ctx.emit(out), ctx.const(alpha, ctx.dtype(inputs[0])))


def _activated(ctx: Context, x: Expr, name: str, params: list[float]) -> Expr:
    """An activation that a fused operator ends in. Raises OpNotImplemented for unknown ones."""
    x = ctx.emit(x)
    first = params[0] if params else 0.0
    match name:
        case "":
            return x
        case "Relu":
            return op.nn.relu(x)
        case "Tanh":
            return op.tanh(x)
        case "Sigmoid":
            return op.sigmoid(x)
        case "LeakyRelu":
            return op.nn.leakyrelu(x, first if params else 0.01)
        case "Clip":
            return op.clip(x, params[0], params[1])
        case "HardSigmoid":
            scaled = ctx.emit(op.multiply(x, ctx.const(first, ctx.dtype(x))))
            return op.clip(ctx.emit(op.add(scaled, ctx.const(params[1], ctx.dtype(x)))), 0, 1)
    raise OpNotImplemented(f"the activation {name} of a fused operator")


@convert("FusedConv", domain=_RUNTIME)
def _fused_conv(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, weight = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    out = ctx.emit(add_bias(ctx, convolution(ctx, x, weight, attrs), _given(inputs, 2), ctx.ndim(x) - 2))
    if _given(inputs, 3) is not None:
        out = ctx.emit(op.add(out, ctx.tensor(inputs[3])))
    return _activated(ctx, out, str(attrs.get("activation", "")), list(attrs.get("activation_params", ())))


@convert("FusedGemm", domain=_RUNTIME)
def _fused_gemm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    params = [float(attrs[n]) for n in ("activation_alpha", "activation_beta") if n in attrs]
    return _activated(ctx, transposed_gemm(ctx, inputs, attrs), str(attrs.get("activation", "")), params)


@convert("QuickGelu", domain=_RUNTIME)
def _quick_gelu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    scaled = ctx.emit(op.multiply(x, ctx.const(float(attrs.get("alpha", 1.702)), ctx.dtype(x))))
    return op.multiply(x, ctx.emit(op.sigmoid(scaled)))


# ---- normalisations


def _root_mean_square(ctx: Context, x: Expr, scale: Expr, attrs: dict[str, Any], axis: int = -1) -> Expr:
    axes = list(range(axis % ctx.ndim(x), ctx.ndim(x)))
    return ctx.emit(op.nn.rms_norm(x, scale, axes, float(attrs.get("epsilon", 1e-5))))


@convert("SimplifiedLayerNormalization")
def _simplified(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.tensor(inputs[0])
    axis = int(attrs.get("axis", -1))
    out = _root_mean_square(ctx, x, ctx.tensor(inputs[1]), attrs, axis)
    if attrs["__outputs__"] == 1:
        return out
    axes = list(range(axis % ctx.ndim(x), ctx.ndim(x)))
    squares = ctx.emit(op.mean(ctx.emit(op.multiply(x, x)), axes, True))
    small = ctx.const(float(attrs.get("epsilon", 1e-5)), ctx.dtype(x))
    return [out, ctx.emit(op.rsqrt(ctx.emit(op.add(squares, small))))]


@convert("SkipSimplifiedLayerNormalization", domain=_RUNTIME)
def _skip_simplified(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.emit(op.add(ctx.tensor(inputs[0]), ctx.tensor(inputs[1])))
    if _given(inputs, 3) is not None:
        x = ctx.emit(op.add(x, ctx.tensor(inputs[3])))
    out = _root_mean_square(ctx, x, ctx.tensor(inputs[2]), attrs)
    if attrs["__outputs__"] == 1:
        return out
    empty = ctx.const(np.zeros([0]), "float32")
    return [out, empty, empty, x][: max(attrs["__outputs__"], 4)]


# ---- attention


def _mask(ctx: Context, mask: Expr | None, heads: tuple[Any, ...], low: float, kind: str) -> Expr | None:
    """What a mask of the runtime adds to ``[batch, heads, queries, keys]``: nothing where it is not zero, else ``low``.

    It has one dimension (how many keys each batch has), two (batch and keys), or three (batch, queries and keys).
    """
    if mask is None:
        return None
    batch, _, queries, keys = heads
    mask = ctx.tensor(mask)
    match ctx.ndim(mask):
        case 1:
            if not prove_equal(ctx.dims(mask)[0], batch):
                raise OpNotImplemented("Attention with a mask of starts and ends")
            places = ctx.emit(op.arange(0, keys, 1, "int32"))
            ends = ctx.emit(ctx.reshape(mask, [batch, 1]))
            mask = ctx.emit(op.less(places, ctx.emit(op.astype(ends, "int32"))))
            shape = [batch, 1, 1, keys]
        case 2:
            shape = [batch, 1, 1, keys]
        case 3:
            shape = [batch, 1, queries, keys]
        case _:
            raise OpNotImplemented("Attention with a mask of four dimensions")
    keep = ctx.emit(op.astype(mask, kind))
    hidden = ctx.emit(op.multiply(ctx.emit(op.subtract(ctx.const(1.0, kind), keep)), ctx.const(low, kind)))
    return ctx.emit(ctx.reshape(hidden, shape))


def _attended(ctx: Context, q: Expr, k: Expr, v: Expr, added: Expr | None, scale: float | None, causal: bool) -> Expr:
    """Attention over ``[batch, length, heads, size]``, its heads side by side."""
    batch, queries, heads, _ = ctx.dims(q)
    keys, size = ctx.dims(k)[1], ctx.dims(v)[3]
    if added is not None:
        added = ctx.emit(op.broadcast_to(added, [batch, heads, queries, keys]))
    mask = "BottomRight" if causal else None
    out = ctx.emit(op.nn.attention(q, k, v, bias=added, scale=scale, causal_mask=mask))
    return ctx.emit(ctx.reshape(out, [batch, queries, simplify(heads * size)]))


def _sum(ctx: Context, a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else ctx.emit(op.add(a, b))


@convert("Attention", domain=_RUNTIME)
def _attention(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    """Self-attention from one projection of the input to queries, keys and values."""
    x, weight = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    packed = ctx.emit(op.matmul(x, weight))
    if _given(inputs, 2) is not None:
        packed = ctx.emit(op.add(packed, ctx.tensor(inputs[2])))
    return _of_projection(ctx, packed, [_given(inputs, k) for k in (3, 4, 5)], attrs)


def _of_projection(ctx: Context, packed: Expr, rest: list[Any], attrs: dict[str, Any]) -> Made:
    """Attention from queries, keys and values side by side; ``rest`` are mask, past state and what is added."""
    mask, past, extra = rest
    heads = int(attrs["num_heads"])
    batch, length, total = ctx.dims(packed)
    width = const_int(total)
    if width is None:
        raise OpAttributeInvalid("Attention needs weights of known shape")
    sizes = attr_ints(attrs, "qkv_hidden_sizes") or [width // 3] * 3
    parts = ctx.builder.emit(op.split(packed, [sizes[0], sizes[0] + sizes[1]], 2))
    q, k, v = (
        ctx.emit(ctx.reshape(ctx.emit(parts[n]), [batch, length, heads, size // heads])) for n, size in enumerate(sizes)
    )
    if past is not None:
        held = ctx.builder.emit(op.split(ctx.tensor(past), 2, 0))
        old = [ctx.emit(op.permute_dims(ctx.emit(op.squeeze(ctx.emit(held[n]), [0])), [0, 2, 1, 3])) for n in (0, 1)]
        k, v = (ctx.emit(op.concat([a, b], 1)) for a, b in zip(old, (k, v)))
    kind = ctx.dtype(q)
    keys = ctx.dims(k)[1]
    low = float(attrs.get("mask_filter_value", -10000.0))
    added = _mask(ctx, mask, (batch, heads, length, keys), low, kind)
    added = _sum(ctx, added, None if extra is None else ctx.tensor(extra))
    scale = float(attrs["scale"]) if attrs.get("scale") else None
    out = _attended(ctx, q, k, v, added, scale, bool(attrs.get("unidirectional", 0)))
    if attrs["__outputs__"] == 1:
        return out
    state = [ctx.emit(op.expand_dims(ctx.emit(op.permute_dims(x, [0, 2, 1, 3])), 0)) for x in (k, v)]
    return [out, ctx.emit(op.concat(state, 0))]


@convert("QAttention", domain=_RUNTIME)
def _quantised_attention(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    """Attention whose projection is of bytes."""
    from .quantized import scaled_product

    x, weight, bias, x_scale, w_scale = (ctx.tensor(v) for v in inputs[:5])
    zeros = [_given(inputs, 6), _given(inputs, 7)]
    packed = ctx.emit(scaled_product(ctx, x, weight, [x_scale, w_scale], zeros, bias))
    return _of_projection(ctx, packed, [_given(inputs, 5), _given(inputs, 8), None], attrs)


def _split_heads(ctx: Context, x: Expr, heads: int) -> Expr:
    """``[batch, length, width]`` as ``[batch, length, heads, size]``, and ``[batch, heads, length, size]`` too."""
    if ctx.ndim(x) == 4:
        return ctx.emit(op.permute_dims(x, [0, 2, 1, 3]))
    batch, length, width = ctx.dims(x)
    return ctx.emit(ctx.reshape(x, [batch, length, heads, simplify(tir.floordiv(width, heads))]))


@convert("MultiHeadAttention", domain=_RUNTIME)
def _multi_head(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    """Attention from queries, keys and values, whose projections are elsewhere."""
    given: list[Any] = inputs + [None] * (8 - len(inputs))
    q, k, v, bias, padding, extra, past_k, past_v, *further = given
    heads = int(attrs["num_heads"])
    if any(x is not None for x in further):
        raise OpNotImplemented("MultiHeadAttention with shared caches")
    q = ctx.tensor(q)
    if k is None or v is None:
        raise OpNotImplemented("MultiHeadAttention of packed queries, keys and values")
    k, v = ctx.tensor(k), ctx.tensor(v)
    if bias is not None:
        if any(ctx.ndim(x) != 3 for x in (q, k, v)):
            raise OpNotImplemented("MultiHeadAttention with a bias of four dimensions")
        widths = [const_int(ctx.dims(x)[2]) for x in (q, k)]
        if None in widths:
            raise OpAttributeInvalid("MultiHeadAttention needs projections of known width")
        ends = [int(widths[0] or 0), int(widths[0] or 0) + int(widths[1] or 0)]
        rows = ctx.builder.emit(op.split(ctx.tensor(bias), ends, 0))
        q, k, v = (ctx.emit(op.add(x, ctx.emit(rows[n]))) for n, x in enumerate((q, k, v)))
    q, k, v = (_split_heads(ctx, x, heads) for x in (q, k, v))
    if past_k is not None and past_v is not None:
        old = [ctx.emit(op.permute_dims(ctx.tensor(x), [0, 2, 1, 3])) for x in (past_k, past_v)]
        k, v = (ctx.emit(op.concat([a, b], 1)) for a, b in zip(old, (k, v)))
    batch, queries, _, _ = ctx.dims(q)
    low = float(attrs.get("mask_filter_value", -10000.0))
    added = _mask(ctx, padding, (batch, heads, queries, ctx.dims(k)[1]), low, ctx.dtype(q))
    added = _sum(ctx, added, None if extra is None else ctx.tensor(extra))
    scale = float(attrs["scale"]) if attrs.get("scale") else None
    out = _attended(ctx, q, k, v, added, scale, bool(attrs.get("unidirectional", 0)))
    if attrs["__outputs__"] == 1:
        return out
    return [out, *(ctx.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (k, v))][: attrs["__outputs__"]]


def _rotated(ctx: Context, x: Expr, starts: Expr, tables: list[Expr], mixed: bool) -> Expr:
    """``[batch, length, heads, size]`` turned by the angles of places that ``starts`` gives, by batch and step."""
    size, half = const_int(ctx.dims(x)[3]), const_int(ctx.dims(tables[0])[1])
    if size is None or half is None:
        raise OpAttributeInvalid("rotations need heads of known size")

    def compute(data: te.Tensor, places: te.Tensor, cos: te.Tensor, sin: te.Tensor) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            spot = at[3]
            step = tir.floordiv(spot, 2) if mixed else tir.floormod(spot, half)
            step = tir.min(step, const(half - 1, "int64"))
            second = tir.floormod(spot, 2) == 1 if mixed else spot >= half
            away = 1 if mixed else half
            other = tir.if_then_else(second, spot - away, spot + away)
            other = tir.max(tir.min(other, const(size - 1, "int64")), const(0, "int64"))
            row = places(at[0], at[1])
            part = data(*at[:3], other) * sin(row, step)
            turned = data(*at) * cos(row, step) + tir.if_then_else(second, part, -part)
            return tir.if_then_else(spot < 2 * half, turned, data(*at))

        return te.compute(data.shape, body, "rotary")

    return ctx.builder.emit_te(compute, x, starts, *tables, primfunc_name_hint="rotary_embedding")


@convert("RotaryEmbedding", domain=_RUNTIME)
def _rotary(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """The values of each head turned by their positions: given for each step, or the one of the first step."""
    x, places = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    tables = [ctx.tensor(v) for v in inputs[2:4]]
    half, flat = const_int(ctx.dims(tables[0])[1]), ctx.ndim(x) == 3
    if half is None:
        raise OpAttributeInvalid("RotaryEmbedding needs tables of known width")
    dims = ctx.dims(x)
    heads = int(attrs.get("num_heads", 0))
    if flat:
        width = const_int(dims[2])
        if not heads and width is None:
            raise OpAttributeInvalid("RotaryEmbedding needs num_heads")
        x = _split_heads(ctx, x, heads or int(width or 0) // (2 * half))
    else:
        x = _split_heads(ctx, x, heads)
    batch, length = ctx.dims(x)[:2]
    places = ctx.emit(op.astype(places, "int64"))
    if ctx.ndim(places) == 1:
        steps = ctx.emit(op.arange(0, length, 1, "int64"))
        places = ctx.emit(op.broadcast_to(ctx.emit(op.add(steps, places)), [batch, length]))
    out = _rotated(ctx, x, places, tables, bool(attrs.get("interleaved", 0)))
    return ctx.reshape(out, dims) if flat else op.permute_dims(out, [0, 2, 1, 3])


def _require_all(ctx: Context, values: Expr, wanted: PrimExpr) -> None:
    """Check when the model runs that all elements of a tensor of integers are ``wanted``."""
    values = ctx.emit(op.astype(values, "int64"))
    ends = [ctx.emit(ctx.reshape(ctx.emit(f(values)), [1])) for f in (op.min, op.max)]
    ctx.require_sizes(ctx.emit(op.concat(ends, 0)), [wanted, wanted])


@convert("GroupQueryAttention", domain=_RUNTIME)
def _group_query(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    """Causal attention of heads that share keys, with a cache in front of the keys of this call.

    With a cache all sequences of a batch have its length, and that of the input behind it, which the run checks.
    """
    given: list[Any] = inputs + [None] * (9 - len(inputs))
    q, k, v, past_k, past_v, ends, _, cosines, sines, *further = given
    heads, shared = int(attrs["num_heads"]), int(attrs["kv_num_heads"])
    unknown = {"softcap", "smooth_softmax", "qk_output"} & {n for n, value in attrs.items() if value}
    if unknown or any(x is not None for x in further) or int(attrs.get("local_window_size", -1)) >= 0:
        raise OpNotImplemented("GroupQueryAttention with windows, caps, given positions or what is added")
    if k is None or v is None:
        q = ctx.tensor(q)
        width = const_int(ctx.dims(q)[2])
        if width is None:
            raise OpAttributeInvalid("GroupQueryAttention needs projections of known width")
        one = width // (heads + 2 * shared)
        parts = ctx.builder.emit(op.split(q, [heads * one, (heads + shared) * one], 2))
        q, k, v = (ctx.emit(parts[n]) for n in range(3))
    q, k, v = (_split_heads(ctx, ctx.tensor(x), n) for x, n in ((q, heads), (k, shared), (v, shared)))
    batch, length, _, size = ctx.dims(q)
    begin: PrimExpr = const(0, "int64")
    if past_k is not None:
        begin = ctx.dims(past_k)[2]
        _require_all(ctx, ctx.tensor(ends), simplify(begin + length - 1))
    if attrs.get("do_rotary", 0):
        steps = ctx.emit(op.arange(begin, simplify(begin + length), 1, "int64"))
        places = ctx.emit(op.broadcast_to(steps, [batch, length]))
        tables, mixed = [ctx.tensor(cosines), ctx.tensor(sines)], bool(attrs.get("rotary_interleaved", 0))
        q, k = (_rotated(ctx, x, places, tables, mixed) for x in (q, k))
    if past_k is not None and past_v is not None:
        old = [ctx.emit(op.permute_dims(ctx.tensor(x), [0, 2, 1, 3])) for x in (past_k, past_v)]
        k, v = (ctx.emit(op.concat([a, b], 1)) for a, b in zip(old, (k, v)))
    known = const_int(size)
    scale = float(attrs.get("scale", 0.0)) or (None if known is None else 1 / math.sqrt(known))
    out = _attended(ctx, q, k, v, None, scale, True)
    return [out, *(ctx.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (k, v))][: max(attrs["__outputs__"], 1)]
