"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from ... import te, tir
from ...tir import const
from ..utils import normalize_axis

__all__ = ["log_softmax", "softmax"]


def _insert(indices: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    return (*indices[:axis], value, *indices[axis:])


def _without(indices: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*indices[:axis], *indices[axis + 1 :])


def _k(extent: Any) -> Any:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), "k")


def softmax(x: Any, axis: int = -1) -> Any:
    """Exponentials divided by their sum along ``axis``, shifted by the maximum."""
    shape = x.shape
    axis = normalize_axis(axis, len(shape), "axis parameter")
    k1, k2 = _k(shape[axis]), _k(shape[axis])
    reduced = [d for i, d in enumerate(shape) if i != axis]
    largest = te.compute(reduced, lambda *i: te.max(x(*_insert(i, axis, k1.var)), axis=k1), "T_softmax_maxelem")
    powers = te.compute(shape, lambda *i: tir.exp(x(*i) - largest(*_without(i, axis))), "T_softmax_exp")
    total = te.compute(reduced, lambda *i: te.sum(powers(*_insert(i, axis, k2.var)), axis=k2), "T_softmax_expsum")
    return te.compute(shape, lambda *i: powers(*i) / total(*_without(i, axis)), "T_softmax_norm", "", {"axis": axis})


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of :func:`softmax`, computed without dividing."""
    shape = x.shape
    axis = normalize_axis(axis, len(shape), "axis parameter")
    k1, k2 = _k(shape[axis]), _k(shape[axis])
    reduced = [d for i, d in enumerate(shape) if i != axis]
    largest = te.compute(reduced, lambda *i: te.max(x(*_insert(i, axis, k1.var)), axis=k1), "T_softmax_maxelem")
    total = te.compute(
        reduced,
        lambda *i: te.sum(tir.exp(x(*_insert(i, axis, k2.var)) - largest(*i)), axis=k2),
        "compute",
    )
    return te.compute(
        shape,
        lambda *i: x(*i) - largest(*_without(i, axis)) - tir.log(total(*_without(i, axis))),
        "compute",
        "",
        {"axis": axis},
    )
