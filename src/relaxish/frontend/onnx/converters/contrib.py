"""Operators of the ONNX Runtime domain that exported transformers use."""

from __future__ import annotations

from typing import Any

from .... import op
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ..context import Context, attr_ints, convert


@convert("Attention", domain="com.microsoft")
def _attention(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Self-attention from one projection of the input to queries, keys and values."""
    x, weight = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    bias = inputs[2] if len(inputs) > 2 else None
    mask = inputs[3] if len(inputs) > 3 else None
    past = inputs[4] if len(inputs) > 4 else None
    extra = inputs[5] if len(inputs) > 5 else None
    if past is not None:
        raise NotImplementedError("Attention with a past state")
    heads = int(attrs["num_heads"])
    batch, length, _ = ctx.dims(x)
    packed = ctx.emit(op.matmul(x, weight))
    if bias is not None:
        packed = ctx.emit(op.add(packed, ctx.tensor(bias)))
    width = int(const_int(ctx.dims(packed)[2]) or 0)
    sizes = attr_ints(attrs, "qkv_hidden_sizes") or [width // 3] * 3
    parts = ctx.builder.emit(op.split(packed, [sizes[0], sizes[0] + sizes[1]], 2))
    split = [
        ctx.emit(ctx.reshape(ctx.emit(parts[k]), [batch, length, heads, size // heads])) for k, size in enumerate(sizes)
    ]
    kind = ctx.dtype(x)
    added = None
    if mask is not None:
        shape = ctx.dims(mask)
        if len(shape) != 2:
            raise NotImplementedError("Attention with a mask that is not two-dimensional")
        keep = ctx.emit(op.astype(ctx.tensor(mask), kind))
        low = float(attrs.get("mask_filter_value", -10000.0))
        hidden = ctx.emit(op.multiply(ctx.emit(op.subtract(ctx.const(1.0, kind), keep)), ctx.const(low, kind)))
        added = ctx.emit(ctx.reshape(hidden, [batch, 1, 1, length]))
        added = ctx.emit(op.broadcast_to(added, [batch, heads, length, length]))
    if extra is not None:
        added = ctx.tensor(extra) if added is None else ctx.emit(op.add(added, ctx.tensor(extra)))
    causal = "BottomRight" if attrs.get("unidirectional", 0) else None
    scale = float(attrs["scale"]) if "scale" in attrs else None
    out = ctx.emit(op.nn.attention(split[0], split[1], split[2], bias=added, scale=scale, causal_mask=causal))
    return ctx.reshape(out, [batch, length, sizes[2]])
