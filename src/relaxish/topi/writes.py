"""Elements at places that tensors give; tensors with some of their elements replaced: slices, diagonals, such places."""

from __future__ import annotations

from collections.abc import Sequence

from .. import te, tir
from ..ir.errors import CheckValueError
from ..te.tensor import Dim, ExprLike
from ..tir import const, floordiv, floormod, if_then_else, PrimExpr, Select
from . import tag as tags
from .math import full
from .scatter import scatter_nd
from .utils import ax_compute, const_int, normalize_axis

__all__ = ["adv_index", "index_put", "matrix_set_diag", "slice_scatter", "sparse_to_dense", "strided_set"]

#: Bounds of a slice: a tensor of them, or one number an axis.
Bounds = te.Tensor | Sequence[ExprLike]


def _bounds(values: Bounds, rank: int, what: str) -> list[PrimExpr]:
    """One index an axis, as far as they are given."""
    if isinstance(values, te.Tensor):
        count = const_int(values.shape[0]) if len(values.shape) == 1 else None
        if count is None:
            raise CheckValueError(f"the {what} of a slice is a one-dimensional tensor of a known number of elements")
        made = [values(const(axis, "int32")).astype("int64") for axis in range(count)]
    else:
        made = [v.astype("int64") if isinstance(v, PrimExpr) else const(int(v), "int64") for v in values]
    if len(made) > rank:
        raise CheckValueError(f"the {what} of a slice has {len(made)} elements for {rank} axes")
    return made


class _Span:
    """The places ``begin : end : stride`` of one axis, by the rules of Python."""

    def __init__(self, extent: PrimExpr, begin: PrimExpr, end: PrimExpr, stride: PrimExpr) -> None:
        extent, zero, one = extent.astype("int64"), const(0, "int64"), const(1, "int64")
        self.stride, self.up = stride, stride > 0
        low, high = Select(self.up, zero, const(-1, "int64")), Select(self.up, extent, extent - one)

        def clamped(bound: PrimExpr) -> PrimExpr:
            return tir.min(tir.max(Select(bound < zero, bound + extent, bound), low), high)

        self.begin, self.end = clamped(begin), clamped(end)

    def holds(self, at: PrimExpr) -> PrimExpr:
        """Whether the slice has a place."""
        at = at.astype("int64")
        forth = tir.And(at >= self.begin, at < self.end)
        back = tir.And(at <= self.begin, at > self.end)
        step = floormod(at - self.begin, tir.abs(self.stride))
        return tir.And(Select(self.up, forth, back), step == 0)

    def order(self, at: PrimExpr, like: PrimExpr) -> PrimExpr:
        """Which one of the slice's places it is."""
        return floordiv(at.astype("int64") - self.begin, self.stride).astype(like.dtype)


def strided_set(a: te.Tensor, v: te.Tensor, begin: Bounds, end: Bounds, strides: Bounds | None = None) -> te.Tensor:
    """``a`` with ``a[begin:end:strides] = v``; axes behind the last bound are taken whole.

    >>> from relaxish import te, topi
    >>> topi.strided_set(te.placeholder((5, 4)), te.placeholder((2, 4)), [1], [3]).shape
    (5, 4)
    """
    rank = len(a.shape)
    if len(v.shape) != rank:
        raise CheckValueError(f"strided_set puts {len(v.shape)} dimensions into {rank}")
    first, last = _bounds(begin, rank, "begin"), _bounds(end, rank, "end")
    steps = [const(1, "int64")] * len(first) if strides is None else _bounds(strides, rank, "strides")
    if not len(first) == len(last) == len(steps):
        raise CheckValueError("begin, end and strides of strided_set have as many elements each")
    if any(const_int(s) == 0 for s in steps):
        raise CheckValueError("a stride of 0 goes nowhere")
    spans = [_Span(n, b, e, s) for n, b, e, s in zip(a.shape, first, last, steps)]

    def body(at: list[PrimExpr]) -> PrimExpr:
        inside: PrimExpr = const(True, "bool")
        for span, place in zip(spans, at):
            inside = tir.And(inside, span.holds(place))
        there = [span.order(place, place) for span, place in zip(spans, at)]
        return if_then_else(inside, v(*there, *at[len(spans) :]).astype(a.dtype), a(*at))

    return ax_compute(list(a.shape), body, "T_strided_set", tags.INJECTIVE)


def slice_scatter(
    input_tensor: te.Tensor, src: te.Tensor, start: ExprLike, end: ExprLike, step: ExprLike, axis: int
) -> te.Tensor:
    """``input_tensor`` with ``src`` in its places ``start : end : step`` along an axis."""
    axis = normalize_axis(axis, len(input_tensor.shape))
    (first,), (last,), (stride,) = (_bounds([value], 1, "bound") for value in (start, end, step))
    span = _Span(input_tensor.shape[axis], first, last, stride)

    def body(at: list[PrimExpr]) -> PrimExpr:
        there = [*at[:axis], span.order(at[axis], at[axis]), *at[axis + 1 :]]
        return if_then_else(span.holds(at[axis]), src(*there).astype(input_tensor.dtype), input_tensor(*at))

    return ax_compute(list(input_tensor.shape), body, "T_slice_scatter", tags.INJECTIVE)


def _broadcast(shapes: Sequence[Sequence[PrimExpr]]) -> list[PrimExpr]:
    rank = max(len(s) for s in shapes)
    padded = [[const(1, "int64")] * (rank - len(s)) + list(s) for s in shapes]
    return [next((d for d in dims if const_int(d) != 1), dims[0]) for dims in zip(*padded)]


def _stretched(tensor: te.Tensor, at: Sequence[PrimExpr]) -> PrimExpr:
    """An element of what the tensor is when broadcast."""
    own = at[len(at) - len(tensor.shape) :]
    return tensor(*(const(0, i.dtype) if const_int(d) == 1 else i for i, d in zip(own, tensor.shape)))


def _place(index: te.Tensor, at: Sequence[PrimExpr], extent: PrimExpr) -> PrimExpr:
    """An element of broadcast indices, which may count from the end of a dimension, as it counts from the start."""
    found = _stretched(index, at).astype("int64")
    return Select(found < 0, found + extent.astype("int64"), found)


def adv_index(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    """``data[indices]``: indices of the leading dimensions, broadcast to one shape, may count from the end.

    >>> from relaxish import te, topi
    >>> topi.adv_index(te.placeholder((5, 4, 3)), [te.placeholder((2, 1), "int32"), te.placeholder((6,), "int32")]).shape
    (2, 6, 3)
    """
    if not 0 < len(indices) <= len(data.shape):
        raise CheckValueError(f"adv_index takes 1 to {len(data.shape)} tensors of indices, got {len(indices)}")
    lead = _broadcast([i.shape for i in indices])
    depth = len(lead)

    def body(at: list[PrimExpr]) -> PrimExpr:
        return data(*(_place(i, at[:depth], d) for i, d in zip(indices, data.shape)), *at[depth:])

    return ax_compute([*lead, *data.shape[len(indices) :]], body, "advanced_index", tags.INJECTIVE)


def index_put(data: te.Tensor, indices: Sequence[te.Tensor], values: te.Tensor, accumulate: bool = False) -> te.Tensor:
    """``data`` with ``data[indices] = values``, or ``+=`` to accumulate; indices may count from the end.

    Of several values for one place the last one stays.
    """
    if not 0 < len(indices) <= len(data.shape):
        raise CheckValueError(f"index_put takes 1 to {len(data.shape)} tensors of indices, got {len(indices)}")
    lead, rest = _broadcast([i.shape for i in indices]), list(data.shape[len(indices) :])

    def place(at: list[PrimExpr]) -> PrimExpr:
        made: PrimExpr = const(0, "int64")
        for axis, index in enumerate(indices):
            found = _place(index, at[1:], data.shape[axis])
            made = found if len(indices) == 1 else if_then_else(at[0] == axis, found, made)
        return made

    packed = ax_compute([len(indices), *lead], place, "index_places", tags.INJECTIVE)
    wide = ax_compute(
        [*lead, *rest], lambda at: _stretched(values, at).astype(data.dtype), "index_values", tags.INJECTIVE
    )
    return scatter_nd(data, packed, wide, "add" if accumulate else "update")


def matrix_set_diag(
    data: te.Tensor, diagonal: te.Tensor, k: int | tuple[int, int] = 0, align: str = "RIGHT_LEFT"
) -> te.Tensor:
    """Matrices with diagonals replaced: number ``k``, or those from ``k[0]`` to ``k[1]``, the uppermost one first.

    Shorter diagonals of several are at the right or the left of their row, those above (and on) the main one as the
    first word of ``align`` says, those below as the second.
    """
    lowest, highest = (k, k) if isinstance(k, int) else (k[0], k[-1])
    if lowest > highest or align not in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        raise CheckValueError(f"matrix_set_diag knows no diagonals from {lowest} to {highest} aligned {align}")
    above, below = (word == "RIGHT" for word in align.split("_"))
    rows, columns = data.shape[-2:]
    width = diagonal.shape[-1]

    def body(at: list[PrimExpr]) -> PrimExpr:
        row, column = at[-2:]
        number = column - row
        if lowest == highest:
            there = [*at[:-2], Select(number >= 0, row, column)]
        else:
            length = tir.min(rows + tir.min(number, 0), columns - tir.max(number, 0))
            right = tir.Or(tir.And(number >= 0, const(above, "bool")), tir.And(number <= 0, const(below, "bool")))
            first = Select(right, width - length, const(0, length.dtype))
            there = [*at[:-2], highest - number, Select(number >= 0, row, column) + first]
        inside = tir.And(number >= lowest, number <= highest)
        return if_then_else(inside, diagonal(*there).astype(data.dtype), data(*at))

    return ax_compute(list(data.shape), body, "matrix_set_diag", tags.INJECTIVE)


def sparse_to_dense(
    sparse_indices: te.Tensor, output_shape: Sequence[Dim], sparse_values: te.Tensor, default_value: ExprLike = 0
) -> te.Tensor:
    """A tensor of ``default_value`` with values at some places, a row of ``sparse_indices`` each."""
    rank = len(sparse_indices.shape)
    if rank > 2 or len(sparse_values.shape) > 1:
        raise CheckValueError("sparse_to_dense takes indices of up to two dimensions, and values of up to one")
    count = sparse_indices.shape[0] if rank else const(1, "int32")
    depth = len(output_shape)
    if depth > 1 and rank != 2:
        raise CheckValueError("places in several dimensions are rows of a matrix")

    def place(at: list[PrimExpr]) -> PrimExpr:
        there = [at[1], at[0]][:rank] if rank == 2 else [at[1]][:rank]
        return sparse_indices(*there)

    packed = ax_compute([depth, count], place, "sparse_places", tags.INJECTIVE)
    values = ax_compute([count], lambda at: _stretched(sparse_values, at), "sparse_values", tags.INJECTIVE)
    return scatter_nd(full(list(output_shape), sparse_values.dtype, default_value), packed, values, "update")
