"""Losses."""

from __future__ import annotations

from collections.abc import Callable

from ... import te, tir
from ...ir import dtype as dt
from ...tir import const, PrimExpr
from .. import broadcast, reduction
from .. import tag as tags

__all__ = ["nll_loss"]


def numbered(targets: te.Tensor, ignore_index: int) -> te.Tensor:
    """Targets in a type that can tell classes from ``ignore_index``: bytes and flags would have it wrapped to a class."""
    kind = targets.dtype
    if kind != "bool" and dt.min_value(kind) <= ignore_index <= dt.max_value(kind):
        return targets
    return te.compute(targets.shape, lambda *i: targets(*i).astype("int64"), "numbered", tags.ELEMWISE)


def nll_loss(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor, reduction_kind: str, ignore_index: int
) -> te.Tensor:
    """Negative log likelihood of integer targets; ``mean`` divides by the sum of the weights used."""
    targets = numbered(targets, ignore_index)
    ignored = const(ignore_index, targets.dtype)
    zero = const(0, predictions.dtype)
    flat = len(predictions.shape) == 1

    def picked(name: str, value: Callable[[PrimExpr, tuple[PrimExpr, ...]], PrimExpr]) -> te.Tensor:
        def body(*i: PrimExpr) -> PrimExpr:
            target = targets() if flat else targets(*i)
            return tir.Select(tir.NE(target, ignored), value(target, i), zero)

        return te.compute(targets.shape, body, name, tags.INJECTIVE)

    if flat:
        loss = picked("nll_loss", lambda t, i: (zero - predictions(t)) * weights(t))
        if reduction_kind != "mean":
            return loss
        weight = picked("weights", lambda t, i: weights(t))
        return broadcast.divide(loss, weight)
    loss = picked("nll_loss", lambda t, i: (zero - predictions(i[0], t, *i[1:])) * weights(t))
    if reduction_kind == "none":
        return loss
    axes = list(range(len(targets.shape)))
    if reduction_kind == "sum":
        return reduction.sum(loss, axes)
    weight = picked("weights", lambda t, i: weights(t))
    return broadcast.divide(reduction.sum(loss, axes), reduction.sum(weight, axes))
