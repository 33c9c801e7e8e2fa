"""Operators that rename, reorder, join or cut dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.errors import CheckValueError
from .. import te, tir
from ..tir import const, floordiv, floormod, if_then_else, PrimExpr
from . import tag as tags
from .utils import ax_compute, const_int, get_const_int, normalize_axis, ravel_index, simplify, unravel_index
from ..te.tensor import Dim

__all__ = [
    "concatenate", "expand_dims", "flatten", "flip", "layout_transform", "repeat", "reshape", "split", "squeeze",
    "stack", "tile", "transpose",
]  # fmt: skip


def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    """New axes of extent one before ``axis``."""
    ndim = len(a.shape)
    axis = axis + ndim + 1 if axis < 0 else axis
    one = [const(1, "int64" if a.shape and str(a.shape[0].dtype) == "int64" else "int32")] * num_newaxis
    shape = [*a.shape[:axis], *one, *a.shape[axis:]]
    return ax_compute(shape, lambda i: a(*i[:axis], *i[axis + num_newaxis :]), "T_expand_dims", tags.BROADCAST)


def transpose(a: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """Axes in a new order; reversed by default."""
    ndim = len(a.shape)
    order = list(range(ndim))[::-1] if axes is None or not len(axes) else [normalize_axis(x, ndim) for x in axes]
    if sorted(order) != list(range(ndim)):
        raise CheckValueError(f"repeated axis in transpose: {axes}")

    def body(i: list[PrimExpr]) -> PrimExpr:
        source: list[Any] = [None] * ndim
        for position, axis in enumerate(order):
            source[axis] = i[position]
        return a(*source)

    return ax_compute([a.shape[x] for x in order], body, "T_transpose", tags.INJECTIVE)


def _has_zero(shape: Sequence[PrimExpr]) -> bool:
    return any(const_int(s) == 0 for s in shape)


def reshape(a: te.Tensor, newshape: Sequence[Dim]) -> te.Tensor:
    """The same elements, row by row, under another shape (already inferred: no -1)."""
    target = [tir.convert(s) for s in newshape]
    if _has_zero(a.shape):
        return ax_compute(target, lambda i: const(0, a.dtype), "T_reshape", tags.INJECTIVE)
    # One index type for the arithmetic: the wider of both shapes.
    wide = any(str(s.dtype) == "int64" for s in (*target, *a.shape))
    target = [s.astype("int64") for s in target] if wide else target

    def body(i: list[PrimExpr]) -> PrimExpr:
        flat = ravel_index(i, target) if i else const(0, "int64" if wide else "int32")
        return a(*unravel_index(flat, a.shape))

    return ax_compute(target, body, "T_reshape", tags.INJECTIVE)


def flatten(x: te.Tensor) -> te.Tensor:
    """All axes but the first become one."""
    extra = list(x.shape[1:])
    total: Any = 1
    for dim in extra:
        total = dim * total
    return ax_compute([x.shape[0], total], lambda i: x(i[0], *unravel_index(i[1], extra)), "tensor", tags.INJECTIVE)


def squeeze(a: te.Tensor, axis: int | Sequence[int] | None = None) -> te.Tensor:
    """Without axes of extent one (all of them, or those named)."""
    ndim = len(a.shape)
    if axis is None:
        drop = {i for i, d in enumerate(a.shape) if const_int(d) == 1}
    else:
        drop = {normalize_axis(x, ndim) for x in (axis if isinstance(axis, Sequence) else [axis])}
        wrong = [d for d in sorted(drop) if const_int(a.shape[d]) not in (1, None)]
        if wrong:
            raise CheckValueError(f"Dimension {wrong[0]} of extent {a.shape[wrong[0]]} cannot be squeezed: it is not 1")
    kept = [i for i in range(ndim) if i not in drop]

    def body(i: list[PrimExpr]) -> PrimExpr:
        source = [const(0, str(a.shape[d].dtype)) for d in range(ndim)]
        for position, d in enumerate(kept):
            source[d] = i[position]
        return a(*source)

    return ax_compute([a.shape[d] for d in kept], body, "T_squeeze", tags.INJECTIVE)


def concatenate(a_tuple: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Tensors one behind the other along ``axis``."""
    tensors = list(a_tuple)
    ndim = len(tensors[0].shape)
    axis = normalize_axis(axis, ndim)
    total = tensors[0].shape[axis]
    for t in tensors[1:]:
        total = total + t.shape[axis]
    shape = [simplify(total) if d == axis else dim for d, dim in enumerate(tensors[0].shape)]

    def body(i: list[PrimExpr]) -> PrimExpr:
        result: PrimExpr = tensors[0](*i)
        position = i[axis]
        for previous, tensor in zip(tensors, tensors[1:]):
            position = position - previous.shape[axis]
            inner = tensor(*i[:axis], position, *i[axis + 1 :])
            result = if_then_else(tir.GE(position, const(0, str(position.dtype))), inner, result)
        return result

    return ax_compute(shape, body, "T_concat", tags.INJECTIVE)


def stack(tensors: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Tensors of one shape side by side along a new axis."""
    items = list(tensors)
    ndim = len(items[0].shape)
    axis = axis + ndim + 1 if axis < 0 else axis
    dtype = str(items[0].shape[0].dtype) if ndim else "int64"
    shape = [*items[0].shape[:axis], const(len(items), dtype), *items[0].shape[axis:]]

    def body(i: list[PrimExpr]) -> PrimExpr:
        source = [*i[:axis], *i[axis + 1 :]]
        result: PrimExpr = items[0](*source)
        for index in range(1, len(items)):
            value = items[index](*source)
            result = if_then_else(tir.EQ(i[axis], const(index, str(i[axis].dtype))), value, result)
        return result

    return ax_compute(shape, body, "T_stack", tags.INJECTIVE)


def split(ary: te.Tensor, indices_or_sections: Dim | Sequence[Dim], axis: int = 0) -> list[te.Tensor]:
    """Parts along ``axis``: a number of equal parts (the last may be shorter), or the cut positions."""
    axis = normalize_axis(axis, len(ary.shape))
    extent = ary.shape[axis]
    dtype = str(extent.dtype)
    if isinstance(indices_or_sections, Sequence):
        begins = [const(0, dtype), *(tir.convert(x).astype(dtype) for x in indices_or_sections)]
        ends = [*begins[1:], extent]
    else:
        sections = get_const_int(indices_or_sections)
        size = tir.floordiv(extent + sections - 1, const(sections, dtype))
        begins = [const(0, dtype), *(size * k for k in range(1, sections))]
        ends = [*begins[1:], extent]
    name = "T_split" if isinstance(indices_or_sections, Sequence) else "T_split_sections"

    def part(begin: PrimExpr, end: PrimExpr) -> te.Tensor:
        length = end - begin
        if const_int(length) is not None and const_int(length) < 0:  # type: ignore[operator]
            raise CheckValueError("split: the number of sections leaves parts without elements")
        shape = [length if d == axis else dim for d, dim in enumerate(ary.shape)]
        return ax_compute(shape, lambda i: ary(*i[:axis], i[axis] + begin, *i[axis + 1 :]), name, tags.INJECTIVE)

    return [part(b, e) for b, e in zip(begins, ends)]


def repeat(a: te.Tensor, repeats: int, axis: int = 0) -> te.Tensor:
    """Every element along ``axis`` repeated in place."""
    axis = normalize_axis(axis, len(a.shape))
    shape = [repeats * dim if d == axis else dim for d, dim in enumerate(a.shape)]
    return ax_compute(
        shape, lambda i: a(*i[:axis], floordiv(i[axis], repeats), *i[axis + 1 :]), "T_repeat", tags.BROADCAST
    )


def tile(a: te.Tensor, reps: Sequence[int]) -> te.Tensor:
    """The whole tensor repeated along each axis."""
    ndim, count = len(a.shape), len(reps)
    rank = max(ndim, count)
    one = const(1, str(a.shape[0].dtype)) if ndim else const(1, "int64")
    data_shape = [one] * (rank - ndim) + list(a.shape)
    all_reps = [1] * (rank - count) + [r for r in reps]
    shape = [d * r for d, r in zip(data_shape, all_reps)]
    if _has_zero(shape):
        return ax_compute(shape, lambda i: const(0, a.dtype), "T_tile", tags.BROADCAST)
    return ax_compute(
        shape,
        lambda i: a(*[floormod(x, d) for x, d in zip(i[rank - ndim :], a.shape)]),
        "T_tile",
        tags.BROADCAST,
    )


def flip(a: te.Tensor, axis: int = 0) -> te.Tensor:
    """Elements along ``axis`` in reverse."""
    axis = normalize_axis(axis, len(a.shape))

    def body(i: list[PrimExpr]) -> PrimExpr:
        extent = a.shape[axis]
        return a(*i[:axis], extent - 1 - i[axis], *i[axis + 1 :])

    return ax_compute(a.shape, body, "T_reverse_sequence", tags.INJECTIVE)


def layout_transform(array: te.Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None") -> te.Tensor:
    """From one named layout to another, e.g. ``NCHW`` to ``NCHW16c``; padding is filled with zero.

    ``schedule_rule`` names the rule that MetaSchedule is to use for the block.
    """
    if src_layout == dst_layout:
        return array
    bijection = tir.BijectiveLayout(src_layout, dst_layout)
    shape = bijection.forward_shape(array.shape)
    covered = bijection.backward_shape(shape)

    def body(i: list[PrimExpr]) -> PrimExpr:
        source = [simplify(x) for x in bijection.backward_index(i)]
        tests = [
            tir.LT(x, orig)
            for x, dim, orig in zip(source, covered, array.shape)
            if const_int(simplify(dim - orig)) != 0
        ]
        value = array(*source)
        return if_then_else(tir.all(*tests), value, const(0, array.dtype)) if tests else value

    attrs = {
        "schedule_rule": schedule_rule,
        "src_layout": src_layout,
        "dst_layout": dst_layout,
        "input_shape": array.shape,
    }
    return ax_compute(shape, body, "T_layout_trans", tags.INJECTIVE, attrs)
