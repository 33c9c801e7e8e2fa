"""Operators of PyTorch that order or pick elements: medians, running extremes, diagonals, searches, bags of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import op, relax
from ...ir import dtype as dt
from ...relax.expr import Expr
from ...support.errors import OpNotImplemented
from .importer import Deferred, dtype_of, Importer, Value
from .table import converter, CONVERTERS, Made

__all__: list[str] = []


def _nth(self: Importer, x: Expr, n: int, dim: int, keepdim: bool) -> list[Expr]:
    """(value, position) of the n-th smallest element, counted from one."""
    dim = self.axis(x, dim)
    smallest = self.emit(op.topk(x, n, dim, "both", False, "int64"))
    found: list[Expr] = []
    for part in (self.emit(smallest[0]), self.emit(smallest[1])):
        last = self.emit(op.strided_slice(part, [dim], [n - 1], [n]))
        found.append(last if keepdim else self.emit(op.squeeze(last, [dim])))
    return found


@converter("median")
def _median(self: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Made:
    if dim is None:
        flat = self.emit(op.reshape(x, [-1]))
        return _nth(self, flat, (self.known(flat, 0, "median") + 1) // 2, 0, False)[0]
    return _nth(self, x, (self.known(x, dim, "median") + 1) // 2, dim, keepdim)


@converter("kthvalue")
def _kthvalue(self: Importer, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> list[Any]:
    return _nth(self, x, k, dim, keepdim)


def _prefixes(self: Importer, x: Expr, dim: int, fill: float) -> tuple[Expr, Expr]:
    """(prefixes, positions): along a new last dimension the elements up to each one, ``fill`` behind it."""
    size = self.shape(x)[dim]
    moved = [*(d for d in range(self.rank(x)) if d != dim), dim]
    last = self.emit(op.permute_dims(x, moved))
    positions = self.emit(op.arange(0, size, 1, "int64"))
    mask = self.emit(op.less_equal(self.emit(op.expand_dims(positions, 0)), self.emit(op.expand_dims(positions, 1))))
    spread = self.emit(op.expand_dims(last, self.rank(x) - 1))
    return self.emit(op.where(mask, spread, self.scalar(fill, dtype_of(x)))), positions


def _back(self: Importer, x: Expr, dim: int) -> Expr:
    """The last dimension in its old place."""
    rank = self.rank(x)
    order = list(range(rank - 1))
    order.insert(dim, rank - 1)
    return self.emit(op.permute_dims(x, order))


def _running(reduce: Callable[..., Any], lowest: bool) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, dim: int) -> list[Any]:
        dim = self.axis(x, dim)
        kind = dtype_of(x)
        if dt.is_float(kind):
            fill: Any = -math.inf if lowest else math.inf
        else:
            top = (1 << (dt.bits(kind) - 1)) - 1
            fill = -top - 1 if lowest else top
        prefixes, positions = _prefixes(self, x, dim, fill)
        values = self.emit(reduce(prefixes, [-1], True))
        # Of equal elements PyTorch names the last.
        row = self.emit(op.expand_dims(positions, 0))
        column = self.emit(op.expand_dims(positions, 1))
        hit = self.emit(op.logical_and(self.emit(op.equal(prefixes, values)), self.emit(op.less_equal(row, column))))
        place = self.emit(op.max(self.emit(op.where(hit, row, self.scalar(-1, "int64"))), [-1]))
        return [_back(self, self.emit(op.squeeze(values, [-1])), dim), _back(self, place, dim)]

    return convert


CONVERTERS["cummax"] = _running(op.max, True)
CONVERTERS["cummin"] = _running(op.min, False)


@converter("logcumsumexp")
def _logcumsumexp(self: Importer, x: Expr, dim: int) -> Expr:
    """Each prefix is shifted by its own largest element: none overflows, none is lost beside a later one."""
    dim = self.axis(x, dim)
    prefixes, _ = _prefixes(self, x, dim, -math.inf)
    top = self.emit(op.max(prefixes, [-1], True))
    total = self.emit(op.sum(self.emit(op.exp(self.emit(op.subtract(prefixes, top)))), [-1], True))
    made = self.emit(op.add(self.emit(op.log(total)), top))
    return _back(self, self.emit(op.squeeze(made, [-1])), dim)


@converter("searchsorted")
def _searchsorted(
    self: Importer, sequence: Expr, values: Value, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    """A place is the number of elements before it."""
    if sorter is not None:
        sequence = self.emit(op.gather_elements(sequence, sorter, self.rank(sequence) - 1))
    values = self.tensor(values, sequence)
    sequence, values = self.promote(sequence, values)
    before = op.less_equal if right or side == "right" else op.less
    ahead = sequence if self.rank(sequence) == 1 else self.emit(op.expand_dims(sequence, self.rank(sequence) - 1))
    smaller = self.emit(before(ahead, self.emit(op.expand_dims(values, self.rank(values)))))
    kind = "int32" if out_int32 else "int64"
    return self.emit(op.sum(self.cast(smaller, kind), [-1]))


@converter("bucketize")
def _bucketize(self: Importer, x: Value, boundaries: Expr, *, out_int32: bool = False, right: bool = False) -> Expr:
    return _searchsorted(self, boundaries, x, out_int32=out_int32, right=right)


@converter("diagonal", "diagonal_copy", "linalg_diagonal")
def _diagonal(self: Importer, x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    rank = self.rank(x)
    dim1, dim2 = self.axis(x, dim1), self.axis(x, dim2)
    rows, columns = self.known(x, dim1, "diagonal"), self.known(x, dim2, "diagonal")
    others = [d for d in range(rank) if d not in (dim1, dim2)]
    moved = self.emit(op.permute_dims(x, [*others, dim1, dim2]))
    flat = self.emit(op.reshape(moved, [*(self.shape(x)[d] for d in others), rows * columns]))
    start = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    end = start + (count - 1) * (columns + 1) + 1 if count else start
    return self.emit(op.strided_slice(flat, [rank - 2], [start], [end], [columns + 1]))


@converter("trace")
def _trace(self: Importer, x: Expr) -> Expr:
    return self.emit(op.sum(_diagonal(self, x)))


@converter("_cdist_forward", "cdist")
def _cdist(self: Importer, a: Expr, b: Expr, p: float = 2.0, *_: Any, **__: Any) -> Expr:
    """Distances of all pairs of rows, from differences: nothing cancels as it does in products of rows."""
    left = self.emit(op.expand_dims(a, self.rank(a) - 1))
    right = self.emit(op.expand_dims(b, self.rank(b) - 2))
    return _lengths(self, self.emit(op.subtract(left, right)), p)


@converter("_pdist_forward", "pdist")
def _pdist(self: Importer, x: Expr, p: float = 2.0) -> Expr:
    """Distances of each row from those that follow it."""
    first, second = np.triu_indices(self.known(x, 0, "pdist"), 1)
    sides = [self.emit(op.take(x, relax.const(rows, "int64"), 0)) for rows in (first, second)]
    return _lengths(self, self.emit(op.subtract(*sides)), p)


def _lengths(self: Importer, rows: Expr, p: float) -> Expr:
    """The p-norms of the last axis."""
    if p == 0:
        differs = self.emit(op.not_equal(rows, self.scalar(0.0, dtype_of(rows))))
        return self.emit(op.sum(self.cast(differs, dtype_of(rows)), [-1]))
    norm: Any = CONVERTERS["norm"](self, rows, p, -1)
    return norm


@converter("_trilinear")
def _trilinear(
    self: Importer,
    a: Expr,
    b: Expr,
    c: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    summed: Sequence[int],
    *_: Any,
) -> Expr:
    """The product of three tensors with new dimensions put in, summed."""
    parts = []
    for tensor, places in ((a, expand1), (b, expand2), (c, expand3)):
        for place in sorted(places):
            tensor = self.emit(op.expand_dims(tensor, place))
        parts.append(tensor)
    product = self.emit(op.multiply(self.emit(op.multiply(parts[0], parts[1])), parts[2]))
    return self.emit(op.sum(product, list(summed)))


@converter("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    self: Importer, weight: Expr, indices: Expr, offsets: Expr, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Expr | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> list[Any]:  # fmt: skip
    """Sums (mode 0), means (1) or maxima (2) of the rows of each bag; a bag goes from its offset to the next one."""
    rows = self.emit(op.take(weight, indices, 0))
    kind = dtype_of(rows)
    if per_sample_weights is not None:
        rows = self.emit(op.multiply(rows, self.emit(op.expand_dims(per_sample_weights, 1))))
    first = offsets
    if include_last_offset:
        first = self.emit(op.strided_slice(offsets, [0], [0], [self.shape(offsets)[0] - 1]))
    place = self.cast(self.emit(op.arange(0, self.shape(indices)[0], 1, "int64")), dtype_of(first))
    # Bag 0 holds what is at or after the first offset; each later offset begins the next bag.
    begun = self.emit(op.less_equal(self.emit(op.expand_dims(first, 0)), self.emit(op.expand_dims(place, 1))))
    bag = self.emit(op.subtract(self.emit(op.sum(self.cast(begun, "int64"), [1])), self.scalar(1, "int64")))
    bags = self.emit(op.arange(0, self.shape(first)[0], 1, "int64"))
    member = self.emit(op.equal(self.emit(op.expand_dims(bags, 1)), self.emit(op.expand_dims(bag, 0))))
    if padding_idx >= 0:
        counted = self.emit(op.not_equal(indices, self.scalar(padding_idx, dtype_of(indices))))
        member = self.emit(op.logical_and(member, self.emit(op.expand_dims(counted, 0))))
    sizes = self.emit(op.sum(self.cast(member, kind), [1], True))
    if mode == 2:
        inside = self.emit(op.expand_dims(member, 2))
        spread = self.emit(op.where(inside, self.emit(op.expand_dims(rows, 0)), self.scalar(-math.inf, kind)))
        filled = self.emit(op.greater(sizes, self.scalar(0.0, kind)))
        made = self.emit(op.where(filled, self.emit(op.max(spread, [1])), self.scalar(0.0, kind)))
    else:
        made = self.emit(op.matmul(self.cast(member, kind), rows))
        if mode == 1:
            made = self.emit(op.divide(made, self.emit(op.maximum(sizes, self.scalar(1.0, kind)))))
    return [
        made,
        *(Deferred.missing(f"what embedding_bag tells of its {part}") for part in ("places", "bags", "maxima")),
    ]


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
_NEUTRAL = {"sum": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}


@converter("scatter_reduce")
def _scatter_reduce(
    self: Importer, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    dim = self.axis(x, dim)
    kind = dtype_of(x)
    if tuple(self.shape(src)) != tuple(self.shape(index)):
        ends = self.shape(index)
        src = self.emit(op.strided_slice(src, list(range(len(ends))), [0] * len(ends), ends))
    how = "sum" if reduce == "mean" else reduce
    base = x
    if not include_self:
        if not dt.is_float(kind) and reduce in ("amax", "amin"):
            raise OpNotImplemented("scatter_reduce of integers without the values that are there")
        neutral = self.emit(op.full(self.shape(index), self.scalar(_NEUTRAL[how], kind), kind))
        base = self.emit(op.scatter_elements(x, index, neutral, dim, "update"))
    made = self.emit(op.scatter_elements(base, index, src, dim, _REDUCTIONS[how]))
    if reduce != "mean":
        return made
    ones = self.emit(op.full(self.shape(index), self.scalar(1, kind), kind))
    start = self.emit((op.ones_like if include_self else op.zeros_like)(x))
    count = self.emit(op.scatter_elements(start, index, ones, dim, "add"))
    count = self.emit(op.maximum(count, self.scalar(1, kind)))
    return self.emit((op.divide if dt.is_float(kind) else op.floor_divide)(made, count))
