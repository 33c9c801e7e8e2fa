"""Elements found by formulas or by other tensors: grids, windows, reversed sequences, positions of flat indices."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import CheckValueError
from .. import te
from ..tir import PrimExpr, const, floordiv, floormod, if_then_else
from . import tag as tags
from ..te.tensor import Dim
from .utils import ax_compute, const_int, normalize_axis, simplify

__all__ = ["invert_permutation", "meshgrid", "ndarray_size", "reverse_sequence", "sliding_window", "unravel_index"]


def reverse_sequence(a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0) -> te.Tensor:
    """The first ``seq_lengths[b]`` elements along ``seq_axis`` in reverse for every ``b`` of ``batch_axis``.

    >>> from relaxish import te, topi
    >>> topi.reverse_sequence(te.placeholder((3, 4)), te.placeholder((3,), "int32")).shape
    (3, 4)
    """
    along, batch = normalize_axis(seq_axis, len(a.shape)), normalize_axis(batch_axis, len(a.shape))
    if len(seq_lengths.shape) != 1:
        raise CheckValueError(f"the lengths of sequences are one-dimensional, not {len(seq_lengths.shape)}-dimensional")

    def body(i: list[PrimExpr]) -> PrimExpr:
        length, at = seq_lengths(i[batch]).astype(i[along].dtype), i[along]
        turned = if_then_else(at < length, length - 1 - at, at)
        return a(*i[:along], turned, *i[along + 1 :])

    return ax_compute(list(a.shape), body, "T_reverse_sequence", tags.INJECTIVE)


def unravel_index(indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
    """The coordinates of flat ``indices`` in an array whose extents are the elements of ``shape``, one row a dimension."""
    rank = const_int(shape.shape[0])
    if rank is None or len(shape.shape) != 1:
        raise CheckValueError("unravel_index takes a one-dimensional shape of a known number of elements")
    count = rank

    def body(i: list[PrimExpr]) -> PrimExpr:
        left: PrimExpr = indices(*i[1:])
        made: PrimExpr = const(0, indices.dtype)
        for axis in reversed(range(count)):
            extent = shape(const(axis, i[0].dtype)).astype(indices.dtype)
            here = left if axis == 0 else floormod(left, extent)
            made = if_then_else(i[0] == axis, here, made)
            left = floordiv(left, extent)
        return made

    return ax_compute([shape.shape[0], *indices.shape], body, "T_unravel", tags.INJECTIVE)


def invert_permutation(data: te.Tensor) -> te.Tensor:
    """``out[data[i]] = i`` for a permutation of its own indices."""
    i = te.reduce_axis((0, data.shape[0]), "i")
    return te.compute(
        data.shape,
        lambda at: te.sum(
            if_then_else(data(i.var) == at.astype(data.dtype), i.var.astype(data.dtype), const(0, data.dtype)), axis=i
        ),
        "T_invert_permutation",
    )


def sliding_window(data: te.Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]) -> te.Tensor:
    """All windows over the axes from ``axis`` on: the windows' places, then the elements of each window.

    Raises CheckValueError if not every one of these axes has an extent and a stride.
    """
    axis = normalize_axis(axis, len(data.shape))
    covered = len(data.shape) - axis
    if len(window_shape) != covered or len(strides) != covered:
        raise CheckValueError(
            f"sliding_window over {covered} axes takes as many extents and strides, got {len(window_shape)} and "
            f"{len(strides)}"
        )
    places = [simplify(floordiv(d - w, s) + 1) for d, w, s in zip(data.shape[axis:], window_shape, strides)]

    def body(i: list[PrimExpr]) -> PrimExpr:
        starts, inside = i[axis : axis + covered], i[axis + covered :]
        return data(*i[:axis], *(p * s + w for p, s, w in zip(starts, strides, inside)))

    shape: list[Dim] = [*data.shape[:axis], *places, *window_shape]
    return ax_compute(shape, body, "T_sliding_window", tags.INJECTIVE)


def meshgrid(a_tuple: Sequence[te.Tensor], indexing: str) -> list[te.Tensor]:
    """One grid for each vector (or scalar), with its elements along its axis; ``xy`` swaps the first two axes."""
    if indexing not in ("ij", "xy"):
        raise CheckValueError(f"meshgrid's indexing is ij or xy, not {indexing}")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    place = {source: axis for axis, source in enumerate(order)}
    shape = [a_tuple[source].shape[0] if a_tuple[source].shape else const(1, "int32") for source in order]

    def grid(source: int) -> te.Tensor:
        vector = a_tuple[source]
        return ax_compute(
            shape,
            lambda i: vector(i[place[source]]) if vector.shape else vector(),
            f"T_meshgrid{source}",
            tags.INJECTIVE,
        )

    return [grid(source) for source in range(len(a_tuple))]


def ndarray_size(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The number of elements, as a tensor without dimensions."""
    count: PrimExpr = const(1, dtype)
    for extent in array.shape:
        count = count * extent.astype(dtype)
    return te.compute((), lambda: simplify(count), "ndarray_size", tags.INJECTIVE)
