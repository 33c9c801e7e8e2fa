"""Operators of PyTorch that read and write by index tensors and masks, and that write a view back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import op, relax, te, tir
from ...relax.expr import Expr
from ...relax.scalars import prove_equal
from ...support.errors import OpNotImplemented
from ...tir import PrimExpr
from .importer import Dim, dtype_of, Importer, Value
from .table import converter
from ...ir.expr import as_expr

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__: list[str] = []

# Larger than any size: a bound of a slice that means its end.
_LARGE = 1 << 62


def _broadcast_shape(self: Importer, tensors: Sequence[Expr]) -> list[Dim]:
    rank = max(self.rank(t) for t in tensors)
    out: list[Any] = [1] * rank
    for tensor in tensors:
        shape = [1] * (rank - self.rank(tensor)) + self.shape(tensor)
        out = [b if isinstance(a, int) and a == 1 else a for a, b in zip(out, shape)]
    return out


def _is_mask(index: Expr | None) -> TypeIs[Expr]:
    """PyTorch takes bytes for a mask as well."""
    return index is not None and dtype_of(index) in ("bool", "uint8")


def _product(sizes: Sequence[Dim]) -> Dim:
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


def _from_the_start(self: Importer, index: Expr, size: Dim) -> Expr:
    """Indices that count from the end, as they count from the start."""
    if isinstance(index, relax.Constant):
        values = index.data.numpy()
        if not (values < 0).any():
            return index
        if isinstance(size, int):
            return relax.const(np.where(values < 0, values + size, values).astype(values.dtype), dtype_of(index))
    kind = dtype_of(index)
    if kind.startswith("uint"):
        return index
    negative = self.emit(op.less(index, self.scalar(0, kind)))
    return self.emit(op.where(negative, self.emit(op.add(index, self.scalar(size, kind))), index))


def _first(self: Importer, x: Expr, dims: Sequence[int]) -> tuple[Expr, Callable[[Expr], Expr]]:
    """``x`` with ``dims`` moved to the front, and the way back for what has the same dimensions."""
    order = [*dims, *(d for d in range(self.rank(x)) if d not in dims)]
    if order == list(range(len(order))):
        return x, lambda made: made
    back = [order.index(d) for d in range(len(order))]
    return self.emit(op.permute_dims(x, order)), lambda made: self.emit(op.permute_dims(made, back))


def _packed(self: Importer, x: Expr, indices: Sequence[Expr]) -> Expr:
    """Indices of the leading dimensions of ``x`` as coordinates in a new last dimension."""
    shape = _broadcast_shape(self, indices)
    parts = []
    for index, size in zip(indices, self.shape(x)):
        wide = self.cast(_from_the_start(self, index, size), "int64")
        if self.shape(wide) != shape:
            wide = self.emit(op.broadcast_to(wide, shape))
        parts.append(self.emit(op.expand_dims(wide, len(shape))))
    return parts[0] if len(parts) == 1 else self.emit(op.concat(parts, len(shape)))


@converter("nonzero")
def _nonzero(self: Importer, x: Expr) -> Expr:
    """Coordinates of the elements that are not zero, one row each; their number is known when the program runs."""
    if not self.rank(x):
        raise OpNotImplemented("nonzero of a tensor without dimensions")
    found = self.emit(op.nonzero(x))
    count = tir.Var("n", "int64")
    found = self.builder.match_cast(found, relax.TensorStructInfo([self.rank(x), count], "int64"))
    return self.emit(op.permute_dims(found))


def _without_masks(self: Importer, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """Indices in which the coordinates of its elements stand for each mask."""
    made: list[Expr | None] = []
    for index in indices:
        if not _is_mask(index):
            made.append(index)
            continue
        places = _nonzero(self, index)
        made.extend(self.emit(op.take(places, relax.const(np.int64(k), "int64"), 1)) for k in range(self.rank(index)))
    return made


@converter("index")
def _index(self: Importer, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given:
        return x
    if any(_is_mask(index) for _, index in given):
        return _index(self, x, _without_masks(self, indices))
    if len(given) == 1:
        dim, index = given[0]
        return self.emit(op.take(x, _from_the_start(self, index, self.shape(x)[dim]), dim))
    dims = [d for d, _ in given]
    moved, _ = _first(self, x, dims)
    gathered = self.emit(op.gather_nd(moved, _packed(self, moved, [i for _, i in given])))
    if dims != list(range(dims[0], dims[0] + len(dims))) or dims[0] == 0:
        return gathered  # what index tensors apart from each other give comes first
    lead = len(_broadcast_shape(self, [i for _, i in given]))
    before = list(range(lead, lead + dims[0]))
    rest = range(lead + dims[0], lead + self.rank(x) - len(dims))
    return self.emit(op.permute_dims(gathered, [*before, *range(lead), *rest]))


@converter("index_put", "_unsafe_index_put")
def _index_put(
    self: Importer, x: Expr, indices: Sequence[Expr | None], values: Value, accumulate: bool = False, *_: Any
) -> Expr:
    values = self.cast(self.tensor(values, x), dtype_of(x))
    indices = list(indices)
    if all(index is None for index in indices):
        values = self.emit(op.broadcast_to(values, self.shape(x)))
        return self.emit(op.add(x, values)) if accumulate else values
    dims = _dimensions(self, indices)
    for n, (index, taken) in zip((n for n, i in enumerate(indices) if i is not None), dims, strict=True):
        if _is_mask(index):
            indices[n] = _of_shape(self, index, [self.shape(x)[d] for d in taken])
    dims = _dimensions(self, indices)
    masks = [index for index in indices if _is_mask(index)]
    if len(masks) == 1 and all(index is None or index is masks[0] for index in indices):
        made = _put_where(self, x, dims[0][1], self.cast(masks[0], "bool"), values, accumulate)
        if made is not None:
            return made
    spread = [d for _, taken in dims for d in taken]
    adjacent = spread == list(range(spread[0], spread[0] + len(spread)))
    moved, back = _first(self, x, spread)
    tensors = [index for index in indices if index is not None]
    if masks:
        return back(_put_by_masks(self, moved, tensors, values, accumulate, spread[0] if adjacent else 0))
    packed = _packed(self, moved, tensors)
    shape = self.shape(packed)[:-1]
    values = _values_in_front(self, values, shape, self.shape(moved)[len(spread) :], spread[0] if adjacent else 0)
    return back(self.emit(op.scatter_nd(moved, packed, values, _reduction(self, x, accumulate))))


def _reduction(self: Importer, x: Expr, accumulate: bool) -> str:
    return "update" if not accumulate else "max" if dtype_of(x) == "bool" else "add"


def _dimensions(self: Importer, indices: Sequence[Expr | None]) -> list[tuple[Any, list[int]]]:
    """(index, dimensions of the data that it goes over): a mask goes over as many as it has."""
    at, out = 0, []
    for index in indices:
        width = self.rank(index) if _is_mask(index) else 1
        if index is not None:
            out.append((index, list(range(at, at + width))))
        at += width
    return out


def _of_shape(self: Importer, mask: Expr, shape: list[Any]) -> Expr:
    """A mask in the shape of what it goes over, held to it when run where the sizes are not known to be the same."""
    if all(prove_equal(as_expr(have), as_expr(want)) for have, want in zip(self.shape(mask), shape)):
        return mask
    return self.builder.match_cast(mask, relax.TensorStructInfo(shape, dtype_of(mask)))


def _values_in_front(self: Importer, values: Expr, shape: Sequence[Any], rest: Sequence[Dim], before: int) -> Expr:
    """Values of the shape that indexing gives, with the dimensions of the index tensors (``shape``) first."""
    wanted = [*rest[:before], *shape, *rest[before:]]
    if self.shape(values) != wanted:
        values = self.emit(op.broadcast_to(values, wanted))
    if before == 0:
        return values
    count = len(shape)
    order = [*range(before, before + count), *range(before), *range(before + count, len(wanted))]
    return self.emit(op.permute_dims(values, order))


def _put_where(self: Importer, x: Expr, dims: list[int], mask: Expr, values: Expr, accumulate: bool) -> Expr | None:
    """Values for all places at once, or None if each place gets a value of its own."""
    before, behind = dims[0], self.rank(x) - len(dims) - dims[0]
    shape = self.shape(values)
    lead = len(shape) - behind - 1
    if lead >= 0 and shape[lead] != 1:
        return None
    # The dimension of the places, 1 long, becomes as many as the mask has.
    if lead >= 0:
        values = self.emit(op.reshape(values, [*shape[:lead], *[1] * len(dims), *shape[lead + 1 :]]))
    wide = self.emit(op.reshape(mask, [*[1] * before, *self.shape(mask), *[1] * behind]))
    if accumulate:
        values = self.emit((op.logical_or if dtype_of(x) == "bool" else op.add)(x, values))
    return self.emit(op.where(wide, values, x))


def _put_by_masks(
    self: Importer, x: Expr, indices: Sequence[Expr], values: Expr, accumulate: bool, before: int
) -> Expr:
    """``index_put`` into the leading dimensions of ``x`` by masks, alone or beside index tensors.

    How many places hold is known at run time only, but not more than the mask has.  So many are written; those behind
    the last one that holds go to an extra row, which is cut off again.
    """
    masks = [index for index in indices if _is_mask(index)]
    bound = min((_product(self.shape(m)) for m in masks), key=lambda n: n if isinstance(n, int) else _LARGE)
    coordinates: list[Any] = []
    holds: Any = None
    order = self.emit(op.arange(0, bound, 1, "int64"))
    for index in indices:
        size = self.shape(x)[len(coordinates)]
        if _is_mask(index):
            places, count = _places(self, self.cast(index, "bool"), bound)
            coordinates.extend(places)
            holds = self.emit(op.less(order, count)) if holds is None else holds
        else:
            coordinates.append(_nth_rows(self, _from_the_start(self, index, size), order))
    depth = len(coordinates)
    shape, rest = self.shape(x)[:depth], self.shape(x)[depth:]
    flat: Any = None
    for coordinate, size in zip(coordinates, shape, strict=True):
        coordinate = self.cast(coordinate, "int64")
        stepped = None if flat is None else self.emit(op.multiply(flat, self.scalar(size, "int64")))
        flat = coordinate if stepped is None else self.emit(op.add(stepped, coordinate))
    total = _product(shape)
    flat = self.emit(op.where(holds, flat, self.scalar(total, "int64")))
    kind = dtype_of(x)
    extra = self.emit(op.zeros([1, *rest], kind))
    rows = self.emit(op.concat([self.emit(op.reshape(x, [total, *rest])), extra], 0))
    values = _value_rows(self, values, rest, before, order)
    values = self.emit(op.broadcast_to(values, [bound, *rest]))
    packed = self.emit(op.expand_dims(flat, 1))
    made = self.emit(op.scatter_nd(rows, packed, values, _reduction(self, x, accumulate)))
    made = self.emit(op.strided_slice(made, [0], [0], [total]))
    return self.emit(op.reshape(made, self.shape(x)))


def _places(self: Importer, mask: Expr, bound: Dim) -> tuple[list[Expr], Expr]:
    """Coordinates of the places where a mask holds, in order, in arrays of ``bound``; and how many there are."""
    shape = self.shape(mask)
    flat = self.emit(op.reshape(mask, [_product(shape)]))
    count = self.emit(op.sum(self.cast(flat, "int64"), [0], True))
    first = self.emit(op.argsort(self.cast(self.emit(op.logical_not(flat)), "int32"), 0, False, "int64"))
    place = self.emit(op.strided_slice(first, [0], [0], [bound]))
    out: list[Any] = []
    for size in reversed(shape):
        extent = self.scalar(size, "int64")
        out.insert(0, self.emit(op.floor_mod(place, extent)) if len(out) < len(shape) - 1 else place)
        place = self.emit(op.floor_divide(place, extent))
    return out, count


def _nth_rows(self: Importer, x: Expr, order: Expr) -> Expr:
    """Rows of ``x`` for the places in order; a single row is for all of them."""
    if self.rank(x) == 0:
        return self.emit(op.expand_dims(x, 0))
    if self.shape(x)[0] == 1:
        return x
    x = _with_a_row(self, x)
    last = self.emit(op.subtract(self.scalar(self.shape(x)[0], "int64"), self.scalar(1, "int64")))
    return self.emit(op.take(x, self.emit(op.minimum(order, last)), 0))


def _with_a_row(self: Importer, x: Expr) -> Expr:
    """``x``, with a row of zeros at its end where it may have none: a place that is not written needs one to read."""
    count, *rest = self.shape(x)
    if isinstance(count, int) and count:
        return x
    return self.emit(op.concat([x, self.emit(op.zeros([1, *rest], dtype_of(x)))], 0))


def _value_rows(self: Importer, values: Expr, rest: Sequence[Dim], before: int, order: Expr) -> Expr:
    """Values with the dimension of the places first, one row for each of them."""
    rank = len(rest) + 1
    shape = [*[1] * (rank - self.rank(values)), *self.shape(values)]
    if len(shape) != self.rank(values):
        values = self.emit(op.reshape(values, shape))
    if before:
        values = self.emit(op.permute_dims(values, [before, *(d for d in range(rank) if d != before)]))
    return _nth_rows(self, values, order)


_REDUCTIONS = {"add": "add", "multiply": "mul"}


@converter("scatter")
def _scatter(self: Importer, x: Expr, dim: int, index: Expr, src: Value, *, reduce: str | None = None) -> Expr:
    if not self.is_tensor(src):
        src = self.emit(op.full(self.shape(index), self.scalar(src, dtype_of(x)), dtype_of(x)))
    elif self.shape(src) != self.shape(index):
        ends = self.shape(index)
        src = self.emit(op.strided_slice(src, list(range(len(ends))), [0] * len(ends), ends))
    how = "update" if reduce is None else _REDUCTIONS[reduce]
    return self.emit(op.scatter_elements(x, index, src, self.axis(x, dim), how))


@converter("scatter_add")
def _scatter_add(self: Importer, x: Expr, dim: int, index: Expr, src: Value) -> Expr:
    return _scatter(self, x, dim, index, src, reduce="add")


@converter("masked_scatter")
def _masked_scatter(self: Importer, x: Expr, mask: Expr, source: Expr) -> Expr:
    """Where the mask holds, the elements of ``source`` in turn: the running count of the mask is their position."""
    shape = _broadcast_shape(self, [x, mask])
    if self.shape(x) != shape:
        x = self.emit(op.broadcast_to(x, shape))
    mask = self.emit(op.broadcast_to(mask, shape))
    flat = self.emit(op.reshape(mask, [-1]))
    count = self.emit(op.cumsum(self.emit(op.astype(flat, "int64")), 0))
    place = self.emit(op.maximum(self.emit(op.subtract(count, self.scalar(1, "int64"))), self.scalar(0, "int64")))
    elements = _with_a_row(self, self.emit(op.reshape(source, [_product(self.shape(source))])))
    picked = self.emit(op.take(elements, place, axis=0))
    return self.emit(op.where(mask, self.emit(op.reshape(picked, shape)), x))


def _written_back(
    self: Importer,
    x: Expr,
    src: Expr,
    numbers: Sequence[Dim],
    name: str,
    place: Callable[..., tuple[PrimExpr, list[PrimExpr]]],
) -> Expr:
    """``x`` with elements of ``src`` where a view was written.

    ``place(coordinates, numbers)`` tells whether the view has an element and its coordinates in ``src``; numbers that
    are known at run time only come to it as the loops see them.
    """

    def compute(data: te.Tensor, view: te.Tensor, given: list[PrimExpr]) -> te.Tensor:
        def element(*at: PrimExpr) -> PrimExpr:
            holds, inner = place(at, given)
            return tir.if_then_else(holds, view(*inner), data(*at))

        return te.compute(data.shape, element, name)

    return self.builder.emit_te(compute, x, self.cast(src, dtype_of(x)), list(numbers), primfunc_name_hint=name)


def _equal(a: PrimExpr, b: Dim) -> PrimExpr:
    return tir.EQ(a, tir.IntImm(a.dtype, b) if isinstance(b, int) else b)


@converter("select_scatter")
def _select_scatter(self: Importer, x: Expr, src: Expr, dim: int, index: Dim) -> Expr:
    dim = self.axis(x, dim)
    index = index + self.shape(x)[dim] if isinstance(index, int) and index < 0 else index

    def place(at: tuple[PrimExpr, ...], numbers: list[PrimExpr]) -> tuple[PrimExpr, list[PrimExpr]]:
        return _equal(at[dim], numbers[0]), [*at[:dim], *at[dim + 1 :]]

    return _written_back(self, x, src, [index], "select_scatter", place)


def _clamped(position: Dim, size: Dim) -> Dim:
    """A bound of a slice as a position from 0 to ``size``."""
    match position:
        case int() if isinstance(size, int):
            return min(max(position + size if position < 0 else position, 0), size)
        case int() if position == 0:
            return 0
        case int() if position >= _LARGE:
            return size
        case int():
            at = position if position >= 0 else size + position
        case _:
            at = tir.if_then_else(position < 0, position + size, position)
    return tir.max(tir.min(at, size), 0)


@converter("slice_scatter")
def _slice_scatter(
    self: Importer, x: Expr, src: Expr, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Expr:
    dim = self.axis(x, dim)
    size = self.shape(x)[dim]
    begin = 0 if start is None else _clamped(start, size)
    stop = size if end is None else _clamped(end, size)
    if isinstance(begin, int) and begin == 0 and step == 1 and self.shape(src) == self.shape(x):
        return self.cast(src, dtype_of(x))

    def place(at: tuple[PrimExpr, ...], numbers: list[PrimExpr]) -> tuple[PrimExpr, list[PrimExpr]]:
        first, last = numbers
        inside = tir.And(at[dim] >= first, at[dim] < last)
        nth = at[dim] - first
        if step != 1:
            inside = tir.And(inside, _equal(tir.floormod(nth, step), 0))
            nth = tir.floordiv(nth, step)
        return inside, [*at[:dim], nth, *at[dim + 1 :]]

    return _written_back(self, x, src, [begin, stop], "slice_scatter", place)


@converter("diagonal_scatter")
def _diagonal_scatter(self: Importer, x: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    dim1, dim2 = self.axis(x, dim1), self.axis(x, dim2)

    def place(at: tuple[PrimExpr, ...], _: list[PrimExpr]) -> tuple[PrimExpr, list[PrimExpr]]:
        others = [i for d, i in enumerate(at) if d not in (dim1, dim2)]
        return _equal(at[dim2] - at[dim1], offset), [*others, at[dim1] if offset >= 0 else at[dim2]]

    return _written_back(self, x, src, [], "diagonal_scatter", place)
