"""Attention of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import op
from ...relax.expr import Expr
from .importer import Deferred, Dim, dtype_of, Importer
from .randomness import warn_of_training
from .table import converter

__all__: list[str] = []

# The lowest numbers of a type: a score may become -inf beside one, but not NaN.
_LOWEST = {
    "float16": -65504.0, "bfloat16": -3.3895313892515355e38, "float32": -3.4028234663852886e38,
    "float64": -1.7976931348623157e308,
}  # fmt: skip


@converter("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    self: Importer, q: Expr, k: Expr, v: Expr, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Expr | None = None,
    scale: float | None = None,
) -> list[Any]:  # fmt: skip
    out = _attention(self, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    return [out, Deferred.missing("the logarithm of the sums of attention, which its backward pass takes,")]


@converter("scaled_dot_product_attention")
def _attention(
    self: Importer, q: Expr, k: Expr, v: Expr, mask: Expr | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Expr:  # fmt: skip
    """Batch dimensions and heads broadcast; a query that no key is open to gives zeros."""
    if dropout_p:
        warn_of_training("scaled_dot_product_attention with dropout")
    rank = max(self.rank(t) for t in (q, k, v))
    q, k, v = (_at_rank(self, t, max(rank, 4)) for t in (q, k, v))
    if enable_gqa:
        k, v = (_repeated(self, t, q) for t in (k, v))
    lead = _common([self.shape(t)[:-2] for t in (q, k, v)])
    q, k, v = (_in_batches(self, t, lead) for t in (q, k, v))
    bias, open_rows = _bias(self, [*lead, self.shape(q)[2], self.shape(k)[2]], mask, dtype_of(q))
    q, k, v = (self.emit(op.permute_dims(t, [0, 2, 1, 3])) for t in (q, k, v))
    causal = "TopLeft" if is_causal else None
    out = self.emit(op.nn.attention(q, k, v, bias=bias, scale=scale, causal_mask=causal))
    out = self.emit(op.permute_dims(out, [0, 2, 1, 3]))
    if open_rows is not None:
        out = self.emit(op.where(open_rows, out, self.scalar(0.0, dtype_of(out))))
    if len(lead) > 2:
        return self.emit(op.reshape(out, [*lead, *self.shape(out)[2:]]))
    return out if rank >= 4 else self.emit(op.squeeze(out, list(range(4 - rank))))


def _at_rank(self: Importer, x: Expr, rank: int) -> Expr:
    missing = rank - self.rank(x)
    if not missing:
        return x
    return self.emit(op.expand_dims(x, list(range(missing))) if missing > 1 else op.expand_dims(x, 0))


def _repeated(self: Importer, x: Expr, q: Expr) -> Expr:
    axis = self.rank(x) - 3
    if self.shape(x)[axis] == self.shape(q)[-3]:
        return x
    groups = self.known(q, -3, "grouped attention") // self.known(x, axis, "grouped attention")
    return self.emit(op.repeat(x, groups, axis))


def _common(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The shape that shapes of one rank broadcast to."""
    return [next((d for d in dims if not (isinstance(d, int) and d == 1)), 1) for dims in zip(*shapes, strict=True)]


def _in_batches(self: Importer, x: Expr, lead: Sequence[Dim]) -> Expr:
    """``x`` with the dimensions ``lead`` before the last two, of which all but the heads become one."""
    if self.shape(x)[:-2] != list(lead):
        x = self.emit(op.broadcast_to(x, [*lead, *self.shape(x)[-2:]]))
    return x if len(lead) == 2 else self.emit(op.reshape(x, [-1, *self.shape(x)[-3:]]))


def _bias(self: Importer, scores: Sequence[Dim], mask: Expr | None, kind: str) -> tuple[Expr | None, Expr | None]:
    """(what is added to scores of this shape, which queries have an open key or None where that is not known)."""
    if mask is None:
        return None, None
    rank = len(scores)
    open_rows = None
    if dtype_of(mask) == "bool":
        mask = _at_rank(self, mask, max(rank, self.rank(mask)))
        some = self.cast(self.emit(op.max(self.cast(mask, "int8"), [-1], True)), "bool")
        open_rows = _in_batches(self, some, [*scores[:-2]]) if rank > 4 else some
        mask = self.emit(op.where(mask, self.scalar(0.0, kind), self.scalar(_LOWEST[kind], kind)))
    mask = self.cast(mask, kind)
    if self.rank(mask) < rank:
        mask = self.emit(op.reshape(mask, [1] * (rank - self.rank(mask)) + self.shape(mask)))
    if self.shape(mask) != list(scores):
        mask = self.emit(op.broadcast_to(mask, list(scores)))
    return (mask if rank == 4 else self.emit(op.reshape(mask, [-1, *scores[-3:]]))), open_rows
