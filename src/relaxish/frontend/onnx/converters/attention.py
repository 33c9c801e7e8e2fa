"""Attention of the standard's own domain, positions as rotations, and writes into caches."""

from __future__ import annotations

import math
from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal, simplify
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ..context import Context, convert, dtype_name, Made


def _heads(ctx: Context, x: Expr, count: int | None) -> Expr:
    """``[batch, length, width]`` as ``[batch, heads, length, size]``; four dimensions stay."""
    if ctx.ndim(x) == 4:
        return x
    if not count:
        raise OpAttributeInvalid("Attention of three dimensions needs q_num_heads and kv_num_heads")
    batch, length, width = ctx.dims(x)
    split = ctx.emit(ctx.reshape(x, [batch, length, count, simplify(tir.floordiv(width, count))]))
    return ctx.emit(op.permute_dims(split, [0, 2, 1, 3]))


class _Attention:
    """One node: heads of queries, keys and values, and what they may see."""

    def __init__(self, ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> None:
        given = [None if x is None else ctx.tensor(x) for x in inputs] + [None] * (7 - len(inputs))
        q, k, v, self.mask, past_k, past_v, self.valid = given
        if q is None or k is None or v is None:
            raise OpAttributeInvalid("Attention needs queries, keys and values")
        self.ctx, self.attrs, self.flat = ctx, attrs, ctx.ndim(q) == 3
        self.kind = ctx.dtype(q)
        self.q = _heads(ctx, q, attrs.get("q_num_heads"))
        self.k, self.v = (_heads(ctx, x, attrs.get("kv_num_heads")) for x in (k, v))
        self.past: PrimExpr = const(0, "int64")
        if past_k is not None and past_v is not None:
            self.past = ctx.dims(past_k)[2]
            self.k = ctx.emit(op.concat([past_k, self.k], 2))
            self.v = ctx.emit(op.concat([past_v, self.v], 2))
        self.causal = bool(attrs.get("is_causal", 0))
        self.left, self.right = (int(attrs.get(f"{side}_window_size", -1)) for side in ("left", "right"))
        size = const_int(ctx.dims(self.q)[3])
        scale = float(attrs.get("scale", 0.0))
        if not scale and size is None:
            raise OpAttributeInvalid("Attention needs heads of known size")
        self.scale = scale or 1 / math.sqrt(size or 1)

    def bias(self) -> Expr | None:
        """Zero, or what the mask adds, where a query may see a key, and minus infinity where it may not."""
        ctx, mask = self.ctx, self.mask
        if mask is None and self.valid is None and not self.causal and self.left < 0 and self.right < 0:
            return None
        one = const(1, "int64")
        batch, _, queries, _ = ctx.dims(self.q)
        keys = ctx.dims(self.k)[2]
        lead: list[PrimExpr] = [one, one]
        if mask is not None:
            dims = ctx.dims(mask)
            lead = ([one] * (4 - len(dims)) + list(dims))[:2]
        if self.valid is not None:
            lead[0] = batch
        kind = self.kind

        def compute(
            masks: list[te.Tensor], valid: list[te.Tensor], shape: list[PrimExpr], before: PrimExpr
        ) -> te.Tensor:
            low = const(float("-inf"), kind)

            def given(at: tuple[PrimExpr, ...]) -> PrimExpr:
                (m,) = masks
                there = [
                    const(0, "int64") if const_int(size) == 1 and not prove_equal(size, whole) else i
                    for i, size, whole in zip(at[4 - len(m.shape) :], m.shape, shape[4 - len(m.shape) :])
                ]
                # Masks may end before the keys do.
                inside = at[3] < m.shape[-1] if not prove_equal(m.shape[-1], shape[3]) else None
                if inside is not None:
                    there[-1] = tir.min(at[3], m.shape[-1] - 1)
                value: PrimExpr = m(*there)
                value = tir.if_then_else(value, const(0, kind), low) if m.dtype == "bool" else value
                return value if inside is None else tir.if_then_else(inside, value, low)

            def body(*at: PrimExpr) -> PrimExpr:
                value = given(at) if masks else const(0, kind)
                seen: PrimExpr = const(True, "bool")
                offset = before
                if valid:
                    length = valid[0](at[0])
                    seen = tir.And(seen, at[3] < length)
                    offset = length - shape[2]
                ahead = at[3] - (at[2] + offset)
                if self.causal:
                    seen = tir.And(seen, ahead <= 0)
                if self.left >= 0:
                    seen = tir.And(seen, -ahead <= self.left)
                if self.right >= 0:
                    seen = tir.And(seen, ahead <= self.right)
                return tir.if_then_else(seen, value, low)

            return te.compute(shape, body, "bias")

        masks = [] if mask is None else [mask]
        valid = [] if self.valid is None else [self.valid]
        return ctx.builder.emit_te(compute, masks, valid, [*lead, queries, keys], self.past, primfunc_name_hint="bias")

    def run(self) -> Made:
        """The outputs that are asked for."""
        ctx, attrs = self.ctx, self.attrs
        cap, count = float(attrs.get("softcap", 0.0)), attrs["__outputs__"]
        made: list[Expr] = [self.fused(), self.k, self.v] if not cap and count < 4 else self.spelled_out(cap)
        out = ctx.emit(op.permute_dims(made[0], [0, 2, 1, 3]))
        if self.flat:
            batch, length, heads, size = ctx.dims(out)
            made[0] = ctx.emit(ctx.reshape(out, [batch, length, simplify(heads * size)]))
        return made[:count] if count > 1 else made[0]

    def fused(self) -> Expr:
        """By the operator that backends know."""
        ctx = self.ctx
        bias = self.bias() if not self.simply_causal() else None
        if bias is not None:
            batch, heads, queries, _ = ctx.dims(self.q)
            bias = ctx.emit(op.broadcast_to(bias, [batch, heads, queries, ctx.dims(self.k)[2]]))
        q, k, v = (ctx.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (self.q, self.k, self.v))
        causal = "TopLeft" if self.simply_causal() else None
        out = ctx.emit(op.nn.attention(q, k, v, bias=bias, scale=self.scale, causal_mask=causal))
        return ctx.emit(op.permute_dims(out, [0, 2, 1, 3]))

    def simply_causal(self) -> bool:
        """Whether all that is masked are keys behind the query, with nothing in front of the first one."""
        plain = self.mask is None and self.valid is None and self.left < 0 and self.right < 0
        return self.causal and plain and const_int(self.past) == 0

    def spelled_out(self, cap: float) -> list[Expr]:
        """Step by step, for what is between the steps."""
        ctx, kind, mode = self.ctx, self.kind, int(self.attrs.get("qk_matmul_output_mode", 0))
        heads, shared = const_int(ctx.dims(self.q)[1]), const_int(ctx.dims(self.k)[1])
        if heads is None or shared is None:
            raise OpAttributeInvalid("Attention needs a known number of heads")
        k, v = self.k, self.v
        if heads != shared:
            k, v = (ctx.emit(op.repeat(x, heads // shared, 1)) for x in (k, v))
        share = ctx.const(math.sqrt(self.scale), kind)
        q, k = (ctx.emit(op.multiply(x, share)) for x in (self.q, k))
        logits = ctx.emit(op.matmul(q, ctx.emit(op.permute_dims(k, [0, 1, 3, 2]))))
        if cap:
            top = ctx.const(cap, kind)
            logits = ctx.emit(op.multiply(ctx.emit(op.tanh(ctx.emit(op.divide(logits, top)))), top))
        shown, bias = logits, self.bias()
        biased = logits if bias is None else ctx.emit(op.add(logits, bias))
        if mode == 2:
            shown = biased
        wide = dtype_name(int(self.attrs["softmax_precision"])) if "softmax_precision" in self.attrs else kind
        weights = ctx.emit(op.nn.softmax(biased if wide == kind else ctx.emit(op.astype(biased, wide)), -1))
        weights = weights if wide == kind else ctx.emit(op.astype(weights, kind))
        if bias is not None:  # who sees nothing gets nothing
            blind = ctx.emit(op.equal(ctx.emit(op.max(bias, [-1], True)), ctx.const(float("-inf"), kind)))
            weights = ctx.emit(op.where(blind, ctx.const(0, kind), weights))
        if mode == 3:
            shown = weights
        return [ctx.emit(op.matmul(weights, v)), self.k, self.v, shown]


@convert("Attention", 23)
def _attention(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    return _Attention(ctx, inputs, attrs).run()


@convert("RotaryEmbedding", 23)
def _rotary(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """The first values of each head turned, two by two, by angles that go with the position."""
    x, cosines, sines = (ctx.tensor(v) for v in inputs[:3])
    places = [ctx.tensor(inputs[3])] if len(inputs) > 3 and inputs[3] is not None else []
    flat = ctx.ndim(x) == 3
    dims = ctx.dims(x)
    heads = int(attrs.get("num_heads", 0))
    if flat:
        if not heads:
            raise OpAttributeInvalid("RotaryEmbedding of three dimensions needs num_heads")
        x = ctx.emit(ctx.reshape(x, [dims[0], dims[1], heads, simplify(tir.floordiv(dims[2], heads))]))
    size = const_int(ctx.dims(x)[3])
    if size is None:
        raise OpAttributeInvalid("RotaryEmbedding needs heads of known size")
    turned = int(attrs.get("rotary_embedding_dim", 0)) or size
    half, mixed = turned // 2, bool(attrs.get("interleaved", 0))
    length_axis = 1 if flat else 2

    def compute(data: te.Tensor, cos: te.Tensor, sin: te.Tensor, spots: list[te.Tensor]) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            batch, step, place = at[0], at[length_axis], at[3]
            within = tir.floordiv(place, 2) if mixed else tir.floormod(place, half)
            within = tir.min(within, const(half - 1, "int64"))
            second = tir.floormod(place, 2) == 1 if mixed else place >= half
            other = (
                tir.if_then_else(second, place - 1, place + 1)
                if mixed
                else tir.if_then_else(second, place - half, place + half)
            )
            other = tir.max(tir.min(other, const(size - 1, "int64")), const(0, "int64"))
            row = [spots[0](batch, step)] if spots else [batch, step]
            c, s = cos(*row, within), sin(*row, within)
            apart = data(*at[:3], other) * s
            value = data(*at) * c + tir.if_then_else(second, apart, -apart)
            return tir.if_then_else(place < turned, value, data(*at))

        return te.compute(data.shape, body, "rotary")

    out = ctx.builder.emit_te(compute, x, cosines, sines, places, primfunc_name_hint="rotary_embedding")
    return ctx.reshape(out, dims) if flat else out


@convert("TensorScatter", 24)
def _tensor_scatter(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A cache with the update written from one place of each batch on, around its end if it is circular."""
    cache, update = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    starts = [ctx.tensor(inputs[2])] if len(inputs) > 2 and inputs[2] is not None else []
    axis, circular = int(attrs.get("axis", -2)) % ctx.ndim(cache), attrs.get("mode", "linear") == "circular"

    def compute(old: te.Tensor, new: te.Tensor, begins: list[te.Tensor]) -> te.Tensor:
        extent, count = old.shape[axis], new.shape[axis]

        def body(*at: PrimExpr) -> PrimExpr:
            begin = begins[0](at[0]).astype("int64") if begins else const(0, "int64")
            step = at[axis] - begin
            step = tir.floormod(step, extent) if circular else step
            inside = tir.And(step >= 0, step < count)
            spot = tir.max(tir.min(step, count - 1), const(0, "int64"))
            return tir.if_then_else(inside, new(*at[:axis], spot, *at[axis + 1 :]), old(*at))

        return te.compute(old.shape, body, "tensor_scatter")

    return ctx.builder.call_te(compute, cache, update, starts, primfunc_name_hint="tensor_scatter")
