"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import CheckValueError
from .. import te, tir
from ..tir import const, IterVar, PrimExpr
from . import tag as tags
from .utils import ax_compute, const_int, equal_dims, is_one, normalize_axis, ravel_index
from ..te.tensor import Dim

__all__ = ["all", "any", "argmax", "argmin", "collapse_sum", "max", "min", "prod", "real_axes", "sum"]


def real_axes(ndim: int, axis: int | Sequence[int] | None) -> list[int]:
    """Sorted non-negative axes; ``None`` means all of them."""
    if axis is None:
        return list(range(ndim))
    items = axis if isinstance(axis, Sequence) else [axis]
    return sorted({normalize_axis(int(a), ndim) for a in items})


def _target_shape(data: te.Tensor, axes: Sequence[int], keepdims: bool) -> list[PrimExpr]:
    if keepdims:
        return [const(1, str(d.dtype)) if i in axes else d for i, d in enumerate(data.shape)]
    return [d for i, d in enumerate(data.shape) if i not in axes]


def _full_indices(
    indices: list[PrimExpr], rvars: Sequence[PrimExpr], axes: Sequence[int], ndim: int, keepdims: bool
) -> list[PrimExpr]:
    """The index of ``data`` for one output index and the reduction variables."""
    out: list[Any] = []
    k = r = 0
    for i in range(ndim):
        if i in axes:
            out.append(rvars[r])
            r += 1
            k += 1 if keepdims else 0
        else:
            out.append(indices[k])
            k += 1
    return out


def _reduce_axes(data: te.Tensor, axes: Sequence[int]) -> list[IterVar]:
    return [te.reduce_axis((const(0, str(data.shape[a].dtype)), data.shape[a]), f"k{a}") for a in axes]


def _comm_reduce(
    data: te.Tensor,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    reducer: Callable[[PrimExpr, list[IterVar]], PrimExpr],
) -> te.Tensor:
    axes = real_axes(len(data.shape), axis)
    if not axes:
        return ax_compute(data.shape, lambda i: data(*i), f"{data.op.name}_red", tags.COMM_REDUCE)
    rv = _reduce_axes(data, axes)

    def body(indices: list[PrimExpr]) -> PrimExpr:
        return reducer(data(*_full_indices(indices, [r.var for r in rv], axes, len(data.shape), keepdims)), rv)

    return ax_compute(_target_shape(data, axes, keepdims), body, f"{data.op.name}_red", tags.COMM_REDUCE)


def sum(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Sum over axes (truth values: any)."""
    if data.dtype == "bool":
        return any(data, axis, keepdims)
    return _comm_reduce(data, axis, keepdims, lambda e, rv: te.sum(e, axis=rv))


def max(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Maximum over axes."""
    return _comm_reduce(data, axis, keepdims, lambda e, rv: te.max(e, axis=rv))


def min(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Minimum over axes."""
    return _comm_reduce(data, axis, keepdims, lambda e, rv: te.min(e, axis=rv))


_PROD = te.comm_reducer(lambda x, y: x * y, lambda dtype: const(1, dtype), "prod")
_ALL = te.comm_reducer(lambda x, y: tir.And(x, y), lambda dtype: const(True, dtype), "all")
_ANY = te.comm_reducer(lambda x, y: tir.Or(x, y), lambda dtype: const(False, dtype), "any")


def prod(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Product over axes."""
    return _comm_reduce(data, axis, keepdims, lambda e, rv: _PROD(e, axis=rv))


def all(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Whether all elements hold, over axes."""
    return _comm_reduce(data, axis, keepdims, lambda e, rv: _ALL(e, axis=rv))


def any(data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> te.Tensor:
    """Whether any element holds, over axes."""
    return _comm_reduce(data, axis, keepdims, lambda e, rv: _ANY(e, axis=rv))


def arg_reducer(largest: bool, select_last_index: bool) -> Callable[..., tuple[PrimExpr, ...]]:
    """Keeps the position and the value of the largest (or smallest) element seen; ties go to the first or the last."""

    def combine(lhs: Sequence[PrimExpr], rhs: Sequence[PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        better = tir.GT(lhs[1], rhs[1]) if largest else tir.LT(lhs[1], rhs[1])
        first = tir.GT(lhs[0], rhs[0]) if select_last_index else tir.LT(lhs[0], rhs[0])
        take_left = tir.Or(better, tir.And(tir.EQ(lhs[1], rhs[1]), first))
        return tir.Select(take_left, lhs[0], rhs[0]), tir.Select(better, lhs[1], rhs[1])

    def identity(index_dtype: str, value_dtype: str) -> tuple[PrimExpr, PrimExpr]:
        worst = te.min_value(value_dtype) if largest else te.max_value(value_dtype)
        return const(-1, index_dtype), worst

    return te.comm_reducer(combine, identity, "argmax" if largest else "argmin")


def _arg_reduce(
    data: te.Tensor, axis: int | Sequence[int] | None, keepdims: bool, select_last_index: bool, largest: bool
) -> te.Tensor:
    ndim = len(data.shape)
    axes = real_axes(ndim, axis)
    rv = _reduce_axes(data, axes)
    reducer = arg_reducer(largest, select_last_index)

    def body(*indices: PrimExpr) -> tuple[PrimExpr, ...]:
        rvars = [r.var for r in rv]
        flat = ravel_index(rvars, [data.shape[a] for a in axes])
        return reducer((flat, data(*_full_indices(list(indices), rvars, axes, ndim, keepdims))), axis=rv)

    shape = _target_shape(data, axes, keepdims)
    names = [f"ax{i}" for i in range(len(shape))]
    temp = te.compute(shape, body, f"{data.op.name}_red_temp", tags.COMM_REDUCE_IDX, None, names)
    return ax_compute(shape, lambda i: temp[0](*i), f"{data.op.name}_red", tags.COMM_REDUCE_IDX)


def argmax(
    data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """Position of the maximum over axes."""
    return _arg_reduce(data, axis, keepdims, select_last_index, True)


def argmin(
    data: te.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """Position of the minimum over axes."""
    return _arg_reduce(data, axis, keepdims, select_last_index, False)


def collapse_sum(data: te.Tensor, target_shape: Sequence[Dim]) -> te.Tensor:
    """Sums away what broadcasting ``target_shape`` to the shape of ``data`` would have repeated."""
    target = [tir.convert(t) for t in target_shape]
    source = list(data.shape)
    lead = len(source) - len(target)
    if lead < 0:
        raise CheckValueError(f"cannot collapse {source} to the larger shape {target}")
    axes: list[int] = list(range(lead))
    squeeze: list[int] = list(range(lead))
    for i, dim in enumerate(target):
        if equal_dims(source[lead + i], dim):
            continue
        if not is_one(dim) and const_int(dim) is not None:
            raise CheckValueError(f"Wrong collapse: dimension {source[lead + i]} to {dim}")
        axes.append(lead + i)
    if not axes:
        return ax_compute(source, lambda i: data(*i), f"{data.op.name}_red", tags.COMM_REDUCE)
    rv = _reduce_axes(data, axes)

    def body(indices: list[PrimExpr]) -> PrimExpr:
        full: list[Any] = []
        for d in range(len(source)):
            full.append(rv[axes.index(d)].var if d in axes else indices[d - len(squeeze)])
        return te.sum(data(*full), axis=rv)

    return ax_compute(target, body, f"{data.op.name}_red", tags.COMM_REDUCE)
