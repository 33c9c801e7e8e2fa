"""Counts of n-grams: TfIdfVectorizer of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....support.errors import OpAttributeInvalid, OpNotImplemented
from ....tir import const
from ..context import Array, Context, convert


def _pool(attrs: dict[str, Any]) -> dict[tuple[int, ...], int]:
    """The n-grams to count with the column of each; of equal ones the last counts."""
    values = [int(v) for v in attrs["pool_int64s"]]
    starts = [*(int(v) for v in attrs["ngram_counts"]), len(values)]
    columns = [int(v) for v in attrs["ngram_indexes"]]
    least, most = int(attrs["min_gram_length"]), int(attrs["max_gram_length"])
    found: dict[tuple[int, ...], int] = {}
    number = 0
    for size, (begin, end) in enumerate(zip(starts, starts[1:]), 1):
        for k in range(begin, end - size + 1, size):
            if least <= size <= most:
                found[tuple(values[k : k + size])] = columns[number]
            number += 1
    return found


def _counted(ctx: Context, x: Expr, grams: Array, distances: int) -> Expr:
    """How often each of some n-grams of one length is in each row, ``[rows, grams]``: its parts 1 to ``distances`` apart."""
    count, size = grams.shape

    def compute(data: te.Tensor, wanted: te.Tensor) -> te.Tensor:
        rows, width = data.shape
        apart = te.reduce_axis((0, distances), "apart")
        start = te.reduce_axis((const(0, "int64"), width), "start")

        def hit(row: PrimExpr, gram: PrimExpr) -> PrimExpr:
            step = apart.var.astype("int64") + 1
            there: PrimExpr = start.var + step * (size - 1) < width
            for k in range(size):
                place = tir.min(start.var + step * k, width - 1)
                there = tir.And(there, tir.EQ(data(row, place), wanted(gram, k)))
            return te.sum(tir.if_then_else(there, const(1, "float32"), const(0, "float32")), axis=[apart, start])

        return te.compute((rows, const(count, "int64")), hit, "grams")

    return ctx.builder.emit_te(compute, x, ctx.const(grams, "int64"), primfunc_name_hint="count_grams")


@convert("TfIdfVectorizer", 9)
def _vectorizer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Rows of numbers as weighted counts of the n-grams of a pool, whose parts may stand apart."""
    if len(attrs.get("pool_strings", ())):
        raise OpNotImplemented("TfIdfVectorizer of strings")
    x, mode = ctx.tensor(inputs[0]), str(attrs["mode"])
    if mode not in ("TF", "IDF", "TFIDF"):
        raise OpAttributeInvalid(f"TfIdfVectorizer knows no mode {mode!r}")
    if ctx.ndim(x) not in (1, 2):
        raise OpAttributeInvalid("TfIdfVectorizer takes one row or a matrix")
    alone = ctx.ndim(x) == 1
    if ctx.dtype(x) != "int64":
        x = ctx.emit(op.astype(x, "int64"))
    x = ctx.emit(ctx.reshape(x, [1, ctx.dims(x)[0]])) if alone else x
    width = max(int(v) for v in attrs["ngram_indexes"]) + 1
    pool = _pool(attrs)
    parts: list[Expr] = []
    columns: list[int] = []
    for size in sorted({len(gram) for gram in pool}):
        chosen = [gram for gram in pool if len(gram) == size]
        # Single numbers stand apart from nothing: they are counted once.
        distances = 1 if size == 1 else int(attrs["max_skip_count"]) + 1
        parts.append(_counted(ctx, x, np.asarray(chosen, "int64"), distances))
        columns.extend(pool[gram] for gram in chosen)
    if not parts:
        return op.zeros([width] if alone else [ctx.dims(x)[0], width], "float32")
    counts = parts[0] if len(parts) == 1 else ctx.emit(op.concat(parts, 1))
    made = ctx.emit(op.matmul(counts, ctx.const(_placed(columns, width), "float32")))
    if mode != "TF":
        weights = np.asarray(attrs.get("weights", ()), "float32")
        factor = ctx.const(weights if weights.size else np.ones(width, "float32"), "float32")
        if mode == "IDF":
            made = ctx.emit(op.astype(ctx.emit(op.greater(made, ctx.const(0, "float32"))), "float32"))
        made = ctx.emit(op.multiply(made, factor))
    return ctx.reshape(made, [width]) if alone else made


def _placed(columns: Sequence[int], width: int) -> Array:
    """The matrix that adds counts to their columns."""
    table = np.zeros((len(columns), width), "float32")
    table[np.arange(len(columns)), columns] = 1
    return table
