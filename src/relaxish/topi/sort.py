"""Stable sorting as plain loops, line by line: by radix, by merging for what has no key, by selection for a few."""

from __future__ import annotations

from typing import Any
from collections.abc import Callable

from .. import te, tir
from ..ir import dtype as dt
from ..tir import Buffer, const, IfThenElse, PrimExpr, Stmt, While
from . import tag as tags
from .loops import loop, loops, read, seq, write
from .radix_sort import can_sort_by_radix, positions_by_radix
from .selection import first_elements, is_worth_selecting
from .utils import ax_compute, normalize_axis, ravel_index
from ..te.tensor import Dim

__all__ = ["argsort", "sort", "sorted_positions", "topk"]


def comes_before(a: PrimExpr, b: PrimExpr, descending: bool) -> PrimExpr:
    """Whether ``a`` is sorted before ``b``: NaN counts as larger than every number."""
    if not dt.is_float(a.dtype):
        return tir.GT(a, b) if descending else tir.LT(a, b)
    if descending:
        return tir.Or(tir.GT(a, b), tir.And(tir.isnan(a), tir.Not(tir.isnan(b))))
    return tir.Or(tir.LT(a, b), tir.And(tir.isnan(b), tir.Not(tir.isnan(a))))


def _merge_pass(
    order: Buffer,
    spare: Buffer,
    state: Buffer,
    at: Callable[[PrimExpr], list[PrimExpr]],
    before: Callable[[PrimExpr, PrimExpr], PrimExpr],
    n: PrimExpr,
) -> Stmt:
    """Merge neighbouring runs of ``state[0]`` positions from ``order`` into ``spare``, then copy back.

    ``state`` holds the run length, the start of the current pair, and the two read positions.
    """
    s = [const(k, "int64") for k in range(4)]

    def get(k: int) -> PrimExpr:
        return read(state, s[k])

    middle = tir.min(get(1) + get(0), n)
    end = tir.min(get(1) + get(0) * 2, n)
    last = n - 1

    def take(k: PrimExpr) -> Stmt:
        left = read(order, *at(tir.min(get(2), last)))
        right = read(order, *at(tir.min(get(3), last)))
        from_left = tir.And(get(2) < middle, tir.Or(get(3) >= end, tir.Not(before(right, left))))
        target = at(get(1) + k)
        return IfThenElse(
            from_left,
            seq(write(spare, left, *target), write(state, get(2) + 1, s[2])),
            seq(write(spare, right, *target), write(state, get(3) + 1, s[3])),
        )

    pair = seq(
        write(state, get(1), s[2]),
        write(state, middle, s[3]),
        loop("k", end - get(1), take),
        write(state, get(1) + get(0) * 2, s[1]),
    )
    return seq(
        write(state, const(0, "int64"), s[1]),
        While(get(1) < n, pair),
        loop("k", n, lambda k: write(order, read(spare, *at(k)), *at(k))),
        write(state, get(0) * 2, s[0]),
    )


def sorted_positions(data: te.Tensor, axis: int, descending: bool, valid_count: te.Tensor | None = None) -> te.Tensor:
    """Positions (int64) that sort ``data`` along ``axis``; equal elements keep their order.

    ``valid_count`` says for each line, in row-major order of the other axes, how many elements are sorted.
    """
    axis = normalize_axis(axis, len(data.shape))
    if valid_count is None and can_sort_by_radix(str(data.dtype)):
        return positions_by_radix(data, axis, descending)
    others = [d for k, d in enumerate(data.shape) if k != axis]
    n = data.shape[axis].astype("int64")

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        order, spare, state = outs

        def row(outer: list[PrimExpr]) -> Stmt:
            def at(k: PrimExpr) -> list[Any]:
                return [*outer[:axis], k, *outer[axis:]]

            def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
                left, right = read(ins[0], *at(a)), read(ins[0], *at(b))
                return comes_before(left, right, descending)

            last = n
            if valid_count is not None:
                line = ravel_index(outer, others)
                last = tir.min(read(ins[1], line).astype("int64"), n)
            start = loop("k", n, lambda k: write(order, k, *at(k)))
            first = write(state, const(1, "int64"), const(0, "int64"))
            again = While(read(state, const(0, "int64")) < last, _merge_pass(order, spare, state, at, before, last))
            return seq(start, first, again)

        return loops(others, row) if others else row([])

    shape = tuple(data.shape)
    source = tir.decl_buffer(shape, data.dtype, "data_buf", data_alignment=8)
    outs = [tir.decl_buffer(s, "int64", "out_buf", data_alignment=8) for s in (shape, shape, (const(4, "int64"),))]
    given, sources = [data], [source]
    if valid_count is not None:
        given.append(valid_count)
        sources.append(tir.decl_buffer(valid_count.shape, valid_count.dtype, "valid_count_buf", data_alignment=4))
    made = te.extern(
        [b.shape for b in outs], given, body, "argsort", ["int64"] * 3, in_buffers=sources, out_buffers=outs
    )
    return made[0]


def sort(data: te.Tensor, axis: int = -1, is_ascend: bool = True) -> te.Tensor:
    """Sorted values."""
    axis = normalize_axis(axis, len(data.shape))
    order = sorted_positions(data, axis, not is_ascend)
    return ax_compute(data.shape, lambda i: data(*i[:axis], order(*i), *i[axis + 1 :]), "sorted", tags.INJECTIVE)


def argsort(
    data: te.Tensor,
    valid_count: te.Tensor | None = None,
    axis: int = -1,
    is_ascend: bool = True,
    dtype: str = "float32",
) -> te.Tensor:
    """Positions that sort the data; of each line only the first ``valid_count`` elements, if that is given."""
    axis = normalize_axis(axis, len(data.shape))
    order = sorted_positions(data, axis, not is_ascend, valid_count)
    return ax_compute(data.shape, lambda i: order(*i).astype(dtype), "argsorted", tags.INJECTIVE)


def topk(
    data: te.Tensor, k: Dim = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> te.Tensor | list[te.Tensor]:
    """The ``k`` first elements in order, their positions, or both; ``k < 1`` means all."""
    axis = normalize_axis(axis, len(data.shape))
    count = data.shape[axis] if isinstance(k, int) and k < 1 else tir.convert(k).astype(str(data.shape[axis].dtype))
    if isinstance(k, int) and is_worth_selecting(k, data.shape[axis]):
        first, order = first_elements(data, axis, lambda a, b: comes_before(a, b, not is_ascend), count)
        found = ax_compute(order.shape, lambda i: order(*i).astype(dtype), "topk_indices", tags.INJECTIVE)
        return [first, found] if ret_type == "both" else first if ret_type == "values" else found
    order = sorted_positions(data, axis, not is_ascend)
    shape = [count if d == axis else dim for d, dim in enumerate(data.shape)]
    values = ax_compute(shape, lambda i: data(*i[:axis], order(*i), *i[axis + 1 :]), "topk_values", tags.INJECTIVE)
    places = ax_compute(shape, lambda i: order(*i).astype(dtype), "topk_indices", tags.INJECTIVE)
    if ret_type == "both":
        return [values, places]
    return values if ret_type == "values" else places
