"""Losses."""

from __future__ import annotations

from typing import Any

from ... import te, tir
from ...tir import const
from .. import broadcast, reduction
from .. import tag as tags

__all__ = ["nll_loss"]


def nll_loss(predictions: Any, targets: Any, weights: Any, reduction_kind: str, ignore_index: int) -> Any:
    """Negative log likelihood of integer targets; ``mean`` divides by the sum of the weights used."""
    ignored = const(ignore_index, targets.dtype)
    zero = const(0, predictions.dtype)
    flat = len(predictions.shape) == 1

    def picked(name: str, value: Any) -> Any:
        def body(*i: Any) -> Any:
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
