"""Operators that pick or place elements by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.errors import CheckValueError
from .. import te, tir
from ..ir.primops import match_types
from ..tir import PrimExpr, ceildiv, const, if_then_else
from . import tag as tags
from .utils import ax_compute, const_int, expr_list, get_const_int, normalize_axis, simplify, unravel_index
from ..te.tensor import Dim, ExprLike

__all__ = [
    "arange", "dynamic_strided_slice", "eye", "gather", "gather_nd", "one_hot", "sequence_mask", "slice_length",
    "strided_slice",
    "take", "trilu", "where",
]  # fmt: skip


def take(
    a: te.Tensor, indices: te.Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> te.Tensor:
    """Slices of ``a`` along ``axis`` (or elements of the flat ``a``) at ``indices``.

    ``mode`` says what an index outside does: ``clip``, ``wrap``, or ``fast`` (unchecked).
    """
    ind_shape = list(indices.shape)

    def bounded(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
        if mode == "clip":
            return tir.min(tir.max(const(0, index.dtype), index), extent - 1)
        if mode == "wrap":
            return tir.truncmod(tir.truncmod(index, extent) + extent, extent)
        return index

    if axis is None:
        total: Any = a.shape[0]
        for dim in a.shape[1:]:
            total = total * dim
        return ax_compute(
            ind_shape,
            lambda i: a(*unravel_index(bounded(indices(*i), total), a.shape)),
            "T_take",
            tags.INJECTIVE,
        )
    axis = normalize_axis(axis, len(a.shape))
    n_ind = len(ind_shape) - batch_dims
    shape = [*a.shape[:axis], *ind_shape[batch_dims:], *a.shape[axis + 1 :]]

    def body(i: list[PrimExpr]) -> PrimExpr:
        position = [*i[:batch_dims], *i[axis : axis + n_ind]]
        index = bounded(indices(*position), a.shape[axis])
        return a(*i[:axis], index, *i[axis + n_ind :])

    return ax_compute(shape, body, "T_take", tags.INJECTIVE)


def _canonical(index: int, extent: int, stride: int) -> int:
    low, high = (-1, extent - 1) if stride < 0 else (0, extent)
    if index < 0:
        index += extent
    return min(max(index, low), high)


def _canonical_bound(index: PrimExpr, extent: PrimExpr, stride: PrimExpr) -> PrimExpr:
    """A slice bound within its axis: negative ones count from the end, the rest is clamped."""
    known = [const_int(v) for v in (index, extent, stride)]
    if all(v is not None for v in known):
        return const(_canonical(*known), str(index.dtype))  # type: ignore[arg-type]
    if index is extent:
        return index
    zero, minus = const(0, str(index.dtype)), const(-1, str(index.dtype))
    low = if_then_else(stride < 0, minus, zero)
    high = if_then_else(stride < 0, extent - 1, extent)
    if known[0] is None or known[0] < 0:
        index = if_then_else(index < 0, index + extent, index)
    return tir.min(tir.max(index, low), high)


def _first_element(begin: PrimExpr, extent: PrimExpr, stride: PrimExpr) -> PrimExpr:
    """Where a slice begins. A slice forward from beyond the end has no elements, so that it needs no clamping."""
    known, step = const_int(begin), const_int(stride)
    forward = step is not None and step > 0
    if forward and (known is None or known >= 0):
        return begin
    return simplify(_canonical_bound(begin, extent, stride))


def slice_length(
    begin: PrimExpr, end: PrimExpr, stride: PrimExpr, extent: PrimExpr, assume_inbound: bool = True
) -> PrimExpr:
    """Number of elements that ``begin:end:stride`` picks of an axis, not yet simplified.

    ``assume_inbound``: the bounds are known to lie within the axis and not to be negative.
    """
    if assume_inbound:
        return ceildiv(end - begin, stride)
    begin, end = _canonical_bound(begin, extent, stride), _canonical_bound(end, extent, stride)
    return if_then_else(stride < 0, ceildiv(begin - end, -stride), ceildiv(end - begin, stride))


def strided_slice(
    a: te.Tensor,
    begin: Sequence[Dim],
    end: Sequence[Dim],
    strides: Sequence[Dim] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> te.Tensor:
    """``a[begin:end:stride]`` on the given axes; in mode ``size``, ``end`` is a length."""
    begins, ends = expr_list(begin), expr_list(end)
    steps = expr_list(strides) if strides else [1] * len(begins)
    steps += [1] * (len(begins) - len(steps))
    dims = [normalize_axis(int(x), len(a.shape)) for x in axes] if axes else list(range(len(begins)))
    static = all(const_int(v) is not None for v in [*begins, *ends, *steps]) and all(
        const_int(a.shape[d]) is not None for d in dims
    )
    shape = list(a.shape)
    starts: list[Any] = []
    for d, b, e, s in zip(dims, begins, ends, steps):
        kind = str(a.shape[d].dtype)
        if static:
            extent, step = get_const_int(a.shape[d]), get_const_int(s)
            first = _canonical(get_const_int(b), extent, step)
            if slice_mode == "size":
                last = extent if get_const_int(e) < 0 else first + get_const_int(e)
            else:
                last = get_const_int(e)
            last = _canonical(last, extent, step)
            length = (first - last - step - 1) // -step if step < 0 else (last - first + step - 1) // step
            if length < 0:
                length = 0
            shape[d] = const(length, kind)
            starts.append(const(first, kind))
        else:
            b, e, s = (tir.convert(v).astype(kind) for v in (b, e, s))
            shape[d] = simplify(slice_length(b, e, s, a.shape[d], assume_inbound))
            starts.append(b if assume_inbound else _first_element(b, a.shape[d], s))
    name = "T_strided_slice_with_axes" if static else "T_dynamic_strided_slice_with_axes"

    def body(i: list[PrimExpr]) -> PrimExpr:
        source = list(i)
        for d, b, s in zip(dims, starts, steps):
            source[d] = i[d] * tir.convert(s).astype(str(i[d].dtype)) + b
        return a(*source)

    return ax_compute(shape, body, name, tags.INJECTIVE)


def dynamic_strided_slice(
    x: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor, output_shape: Sequence[PrimExpr]
) -> te.Tensor:
    """A slice whose bounds are tensors; ``output_shape`` is known from elsewhere. Bounds count from the front."""

    def body(i: list[PrimExpr]) -> PrimExpr:
        source: list[Any] = []
        for d, index in enumerate(i):
            at = const(d, "int64")
            source.append(index * strides(at) + tir.min(begin(at), x.shape[d] - 1))
        return x(*source)

    return ax_compute(list(output_shape), body, "T_strided_slice_dynamic", tags.INJECTIVE)


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """``out[i][j] = data[indices[i][j]][j]`` for axis 0, and so on."""
    axis = normalize_axis(axis, len(data.shape))

    def body(i: list[PrimExpr]) -> PrimExpr:
        return data(*i[:axis], indices(*i), *i[axis + 1 :])

    return ax_compute(indices.shape, body, "T_gather", tags.INJECTIVE)


def gather_nd(data: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """Slices of ``data`` at the coordinates in the *first* axis of ``indices``."""
    ndim_i = len(indices.shape)
    depth = const_int(indices.shape[0])
    if depth is None:
        raise CheckValueError("gather_nd needs a constant first dimension of indices")
    shape = [*indices.shape[1:], *data.shape[depth + batch_dims :]]

    def body(i: list[PrimExpr]) -> PrimExpr:
        where = i[: ndim_i - 1]
        source: list[Any] = list(i[:batch_dims])
        for d in range(depth):
            index = indices(const(d, "int64"), *where)
            source.append(index if str(index.dtype).startswith("int") else index.astype("int64"))
        return data(*source, *i[ndim_i - 1 :])

    return ax_compute(shape, body, "T_gather_nd", tags.INJECTIVE)


def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """``x`` where the condition holds, else ``y``; all three broadcast."""
    from .broadcast import _broadcast_plan

    shape, _, _ = _broadcast_plan(x.shape, y.shape)
    shape, _, _ = _broadcast_plan(condition.shape, shape)

    def at(tensor: te.Tensor, i: list[PrimExpr]) -> PrimExpr:
        tail = i[len(i) - len(tensor.shape) :]
        picked = [
            const(0, str(v.dtype)) if const_int(d) == 1 and const_int(s) != 1 else v
            for v, d, s in zip(tail, tensor.shape, shape[len(shape) - len(tensor.shape) :])
        ]
        return tensor(*picked)

    def body(i: list[PrimExpr]) -> PrimExpr:
        zero = const(0, str(i[0].dtype) if i else "int32")
        return tir.Select(tir.NE(*match_types(at(condition, i), zero)), at(x, i), at(y, i))

    return ax_compute(shape, body, "T_where", tags.BROADCAST)


def arange(start: ExprLike, stop: ExprLike | None = None, step: ExprLike = 1, dtype: str = "float32") -> te.Tensor:
    """Evenly spaced values in ``[start, stop)``."""
    if stop is None:
        start, stop = 0, start

    def scalar(value: ExprLike) -> PrimExpr:
        return value if isinstance(value, PrimExpr) else const(value, "int64" if isinstance(value, int) else "float32")

    low, high, gap = scalar(start), scalar(stop), scalar(step)
    if all(str(v.dtype).startswith(("int", "uint")) for v in (low, high, gap)):
        count = simplify(ceildiv((high - low).astype("int64"), gap.astype("int64")))
    else:
        count = simplify(tir.ceil((high - low).astype("float32") / gap.astype("float32")).astype("int64"))
    return ax_compute([count], lambda i: (low + gap * i[0]).astype(dtype), "T_arange", tags.INJECTIVE)


def eye(n: Dim, m: Dim | None = None, k: Dim = 0, dtype: str = "float32") -> te.Tensor:
    """Ones on the ``k``-th diagonal, zeros elsewhere."""
    rows = tir.convert(n)
    cols = rows if m is None else tir.convert(m)
    return te.compute(
        (rows, cols),
        lambda i, j: if_then_else(tir.EQ(i, j - tir.convert(k).astype(str(j.dtype))), const(1, dtype), const(0, dtype)),
        "eye",
        tags.INJECTIVE,
    )


def trilu(data: te.Tensor, k: te.Tensor | Dim, upper: bool) -> te.Tensor:
    """The upper or lower triangle of each matrix, counted from the ``k``-th diagonal; the rest is zero."""
    if isinstance(k, te.Tensor):
        k = k()

    def body(*indices: PrimExpr) -> PrimExpr:
        row, col = indices[-2], indices[-1]
        offset = tir.convert(k)
        if str(offset.dtype) != str(row.dtype):
            offset = offset.astype(str(row.dtype))
        limit = col - offset if const_int(offset) != 0 else col
        keep = tir.LE(row, limit) if upper else tir.GE(row, limit)
        return tir.Select(keep, data(*indices), const(0, data.dtype))

    return te.compute(data.shape, body, "trilu", tags.ELEMWISE)


def one_hot(
    indices: te.Tensor, on_value: ExprLike, off_value: ExprLike, depth: int, axis: int, dtype: str
) -> te.Tensor:
    """A new axis of extent ``depth`` with ``on_value`` at the index and ``off_value`` elsewhere."""
    ndim = len(indices.shape)
    axis = ndim if axis == -1 else axis
    kind = str(indices.shape[0].dtype) if ndim else "int64"
    shape = [*indices.shape[:axis], const(depth, kind), *indices.shape[axis:]]
    on, off = (tir.convert(v).astype(dtype) for v in (on_value, off_value))

    def body(i: list[PrimExpr]) -> PrimExpr:
        index = indices(*i[:axis], *i[axis + 1 :])
        return tir.Select(tir.EQ(*match_types(index, i[axis])), on, off)

    return ax_compute(shape, body, "T_one_hot", tags.INJECTIVE)


def sequence_mask(data: te.Tensor, valid_length: te.Tensor, mask_value: float = 0, axis: int = 0) -> te.Tensor:
    """Elements at or beyond each sequence's length replaced by ``mask_value``."""

    def body(*i: PrimExpr) -> PrimExpr:
        at, batch = (i[0], i[1]) if axis == 0 else (i[1], i[0])
        inside = tir.LT(*match_types(at, valid_length(batch)))
        return if_then_else(inside, data(*i), const(mask_value, data.dtype))

    return te.compute(data.shape, body, "T_sequence_mask", tags.INJECTIVE)
