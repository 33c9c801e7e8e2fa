"""Operators whose axes, bounds, widths or counts only the run knows: one kernel each, over expressions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .... import te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ..context import Context

__all__ = [
    "Halves",
    "as_matrix",
    "axis_flags",
    "chosen",
    "cut",
    "from_matrix",
    "kept_dims",
    "padded",
    "placed_dims",
    "slice_bounds",
]


def _number(value: int) -> PrimExpr:
    return const(value, "int64")


def _product(values: Sequence[PrimExpr]) -> PrimExpr:
    total = _number(1)
    for v in values:
        total = total * v
    return total


def chosen(axes: Sequence[PrimExpr], values: Sequence[PrimExpr], axis: int, rank: int, default: PrimExpr) -> PrimExpr:
    """The value given for an axis, or ``default``; axes may count from the end."""
    found = default
    for a, v in zip(axes, values):
        known = const_int(a)
        if known is None:
            found = tir.if_then_else(tir.Or(a == axis, a == axis - rank), v, found)
        elif known in (axis, axis - rank):
            found = v
    return found


def axis_flags(ctx: Context, axes: Sequence[PrimExpr], rank: int) -> list[PrimExpr]:
    """1 for every axis that is named, else 0."""
    return ctx.named([chosen(axes, [_number(1)] * len(axes), d, rank, _number(0)) for d in range(rank)])


class Halves:
    """A tensor as a matrix: the axes with flags are along its rows, the others down its columns."""

    def __init__(self, ctx: Context, dims: Sequence[PrimExpr], flags: Sequence[PrimExpr]) -> None:
        one = _number(1)
        self.ctx, self.flags, self.dims = ctx, flags, dims
        self.rank = len(dims)
        sizes = [tir.if_then_else(f > 0, one, d) for d, f in zip(dims, flags)]
        others = [tir.if_then_else(f > 0, d, one) for d, f in zip(dims, flags)]
        self.sizes = ctx.named([*sizes, *others])
        self.shape = ctx.named([_product(self.sizes[: self.rank]), _product(self.sizes[self.rank :])])

    def resized(self, width: PrimExpr) -> Halves:
        """The same for rows of another length, where one axis has a flag."""
        dims = [tir.if_then_else(f > 0, width, d) for d, f in zip(self.dims, self.flags)]
        return Halves(self.ctx, dims, self.flags)

    @staticmethod
    def place(sizes: Sequence[PrimExpr], d: int, flat: PrimExpr) -> PrimExpr:
        size = tir.max(sizes[d], _number(1))
        return tir.floormod(tir.floordiv(flat, tir.max(_product(sizes[d + 1 :]), _number(1))), size)


def as_matrix(ctx: Context, x: Expr, halves: Halves) -> Expr:
    """``x`` with what the flagged axes hold as rows."""
    rank = halves.rank

    def compute(data: te.Tensor, sizes: list[PrimExpr], shape: list[PrimExpr]) -> te.Tensor:
        def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return data(*(halves.place(sizes[:rank], d, i) + halves.place(sizes[rank:], d, j) for d in range(rank)))

        return te.compute(shape, body, "as_matrix")

    return ctx.builder.emit_te(compute, x, halves.sizes, halves.shape, primfunc_name_hint="as_matrix")


def from_matrix(ctx: Context, x: Expr, halves: Halves, dims: Sequence[PrimExpr]) -> Expr:
    """The inverse of :func:`as_matrix` for values of the same shape."""
    rank = halves.rank

    def compute(data: te.Tensor, sizes: list[PrimExpr], shape: list[PrimExpr]) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            row, column = _number(0), _number(0)
            for d, spot in enumerate(at):
                kept, moved = sizes[d], sizes[rank + d]
                row = row * kept + tir.min(spot, kept - 1)
                column = column * moved + tir.min(spot, moved - 1)
            return data(row, column)

        return te.compute(shape, body, "from_matrix")

    return ctx.builder.emit_te(compute, x, halves.sizes, list(dims), primfunc_name_hint="from_matrix")


def _unflagged_before(ctx: Context, flags: Sequence[PrimExpr]) -> list[PrimExpr]:
    """How many axes without a flag there are in front of each one, and in all."""
    counts = [_number(0)]
    for flag in flags:
        counts += ctx.named([counts[-1] + 1 - flag])
    return counts


def kept_dims(ctx: Context, dims: Sequence[PrimExpr], flags: Sequence[PrimExpr], gone: int) -> list[PrimExpr]:
    """The dimensions without a flag in order, of which there are all but ``gone``."""
    counts, zero = _unflagged_before(ctx, flags), _number(0)
    ctx.require([counts[-1]], [_number(len(dims) - gone)])
    found = []
    for j in range(len(dims) - gone):
        size = zero
        for dim, flag, before in zip(dims, flags, counts):
            size = size + tir.if_then_else(tir.And(flag == 0, before == j), dim, zero)
        found.append(size)
    return ctx.named(found)


def placed_dims(ctx: Context, dims: Sequence[PrimExpr], axes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The dimensions with ones put in, which the result has at ``axes``."""
    flags = axis_flags(ctx, axes, len(dims) + len(axes))
    counts, zero = _unflagged_before(ctx, flags), _number(0)
    ctx.require([counts[-1]], [_number(len(dims))])
    made = []
    for flag, before in zip(flags, counts):
        size = flag
        for k, dim in enumerate(dims):
            size = size + tir.if_then_else(tir.And(flag == 0, before == k), dim, zero)
        made.append(size)
    return ctx.named(made)


def slice_bounds(begin: PrimExpr, end: PrimExpr, step: PrimExpr, extent: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """First element and number of elements of a slice whose step may have either sign."""
    low = tir.if_then_else(step > 0, _number(0), _number(-1))
    high = tir.if_then_else(step > 0, extent, extent - 1)

    def within(bound: PrimExpr, least: PrimExpr) -> PrimExpr:
        bound = tir.if_then_else(bound < 0, bound + extent, bound)
        return tir.min(tir.max(bound, least), high)

    first, last = within(begin, _number(0)), within(end, low)
    # Backwards over nothing at all there is no first element.
    size = tir.max(tir.if_then_else(step > 0, step, -step), _number(1))
    span = tir.if_then_else(step > 0, last - first, first - last)
    return first, tir.max(tir.floordiv(span + size - 1, size), _number(0))


def cut(
    ctx: Context, x: Expr, starts: Sequence[PrimExpr], steps: Sequence[PrimExpr], counts: Sequence[PrimExpr]
) -> Expr:
    """``counts`` elements of each axis, beginning at ``starts``."""
    rank = len(starts)
    named = ctx.named([*starts, *steps, *counts])
    places, counts = named[: 2 * rank], named[2 * rank :]

    def compute(data: te.Tensor, where: list[PrimExpr], shape: list[PrimExpr]) -> te.Tensor:
        return te.compute(
            shape, lambda *at: data(*(where[d] + i * where[rank + d] for d, i in enumerate(at))), "strided_slice"
        )

    return ctx.builder.emit_te(compute, x, places, list(counts), primfunc_name_hint="strided_slice")


def _reflected(at: PrimExpr, low: PrimExpr, length: PrimExpr) -> PrimExpr:
    period = tir.max((length - 1) * 2, _number(1))
    spot = tir.floormod(at - low, period)
    return low + tir.min(spot, period - spot) if const_int(length) != 1 else low


#: From a place outside of what is kept to the one that is copied, by mode.
_BORDER: dict[str, Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]] = {
    "constant": lambda at, low, length: at,
    "edge": lambda at, low, length: at,
    "reflect": _reflected,
    "wrap": lambda at, low, length: low + tir.floormod(at - low, tir.max(length, _number(1))),
}


def padded(
    ctx: Context, x: Expr, before: Sequence[PrimExpr], after: Sequence[PrimExpr], mode: str, value: Expr
) -> Expr:
    """``x`` with that many elements more on either side of each axis, fewer where negative; ``value`` is a scalar."""
    if mode not in _BORDER:
        raise OpAttributeInvalid(f"Pad knows no mode {mode!r}")
    dims = ctx.dims(x)
    rank = len(dims)
    widths = ctx.named([*before, *after])
    shape = ctx.named([tir.max(b + d + a, _number(0)) for b, d, a in zip(widths, dims, widths[rank:])])

    def compute(data: te.Tensor, fill: te.Tensor, widths: list[PrimExpr], size: list[PrimExpr]) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            inside: PrimExpr = const(True, "bool")
            places = []
            for d, i in enumerate(at):
                lead, trail, extent = widths[d], widths[rank + d], data.shape[d]
                low = tir.max(-lead, _number(0))
                length = extent - low - tir.max(-trail, _number(0))
                spot = i - lead
                inside = tir.And(inside, tir.And(spot >= low, spot < low + length))
                spot = _BORDER[mode](spot, low, length)
                places.append(tir.max(tir.min(spot, low + length - 1), low))
            picked = data(*places)
            return tir.if_then_else(inside, picked, fill()) if mode == "constant" else picked

        return te.compute(size, body, "pad")

    return ctx.builder.emit_te(compute, x, value, widths, shape, primfunc_name_hint="pad")
