"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from ... import te, tir
from ...tir import const, IterVar, PrimExpr
from ..utils import normalize_axis

__all__ = ["fast_softmax", "log_softmax", "softmax"]


def _insert(indices: tuple[PrimExpr, ...], axis: int, value: PrimExpr) -> tuple[PrimExpr, ...]:
    return (*indices[:axis], value, *indices[axis:])


def _without(indices: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*indices[:axis], *indices[axis + 1 :])


def _k(extent: PrimExpr) -> IterVar:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), "k")


def _maximum(x: te.Tensor, axis: int) -> te.Tensor:
    """The largest element along ``axis``."""
    k = _k(x.shape[axis])
    return te.compute(
        _without(x.shape, axis), lambda *i: te.max(x(*_insert(i, axis, k.var)), axis=k), "T_softmax_maxelem"
    )


def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Exponentials divided by their sum along ``axis``, shifted by the maximum."""
    return _normalised(x, axis)


def fast_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """:func:`softmax` with the exponential function of :func:`relaxish.topi.fast_exp`."""
    return _normalised(x, axis)


def _normalised(x: te.Tensor, axis: int) -> te.Tensor:
    shape, axis = x.shape, normalize_axis(axis, len(x.shape), "axis parameter")
    largest, k = _maximum(x, axis), _k(shape[axis])
    powers = te.compute(shape, lambda *i: tir.exp(x(*i) - largest(*_without(i, axis))), "T_softmax_exp")
    total = te.compute(
        _without(shape, axis), lambda *i: te.sum(powers(*_insert(i, axis, k.var)), axis=k), "T_softmax_expsum"
    )
    return te.compute(shape, lambda *i: powers(*i) / total(*_without(i, axis)), "T_softmax_norm", "", {"axis": axis})


def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """The logarithm of :func:`softmax`, computed without dividing."""
    shape, axis = x.shape, normalize_axis(axis, len(x.shape), "axis parameter")
    largest, k = _maximum(x, axis), _k(shape[axis])
    total = te.compute(
        _without(shape, axis), lambda *i: te.sum(tir.exp(x(*_insert(i, axis, k.var)) - largest(*i)), axis=k), "compute"
    )
    return te.compute(
        shape,
        lambda *i: x(*i) - largest(*_without(i, axis)) - tir.log(total(*_without(i, axis))),
        "compute",
        "",
        {"axis": axis},
    )
