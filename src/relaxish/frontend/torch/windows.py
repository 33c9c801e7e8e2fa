"""Positions of maxima in pooling windows, and max pooling with windows of different sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ... import op, te, tir
from ...ir import dtype as dt
from ...relax.expr import Expr
from ...support.errors import OpNotImplemented
from ...tir import PrimExpr
from .importer import Deferred, Dim, dtype_of, Importer, Steps
from .table import Converter, CONVERTERS

__all__ = ["largest_positions", "many"]

_T = TypeVar("_T")
_NOWHERE = (1 << 63) - 1


def many(value: _T | Sequence[_T], count: int) -> list[_T]:
    """One number for each of ``count`` dimensions."""
    if isinstance(value, Sequence):
        return list(value) * (count if len(value) == 1 else 1)
    return [value] * count


def _reducer(kind: str) -> Callable[..., tuple[PrimExpr, ...]]:
    """Keeps (position, value) of the largest element: NaN counts as larger than all, of equals the first is taken,
    of NaNs the last, as PyTorch does."""

    def combine(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        if dt.is_float(kind):
            nan_a, nan_b = tir.isnan(a[1]), tir.isnan(b[1])
            wins = tir.Or(tir.GT(a[1], b[1]), tir.And(nan_a, tir.Not(nan_b)))
            first = tir.And(tir.EQ(a[1], b[1]), tir.LT(a[0], b[0]))
            last = tir.And(tir.And(nan_a, nan_b), tir.GT(a[0], b[0]))
            left = tir.Or(wins, tir.Or(first, last))
        else:
            left = tir.Or(tir.GT(a[1], b[1]), tir.And(tir.EQ(a[1], b[1]), tir.LT(a[0], b[0])))
        return tir.Select(left, a[0], b[0]), tir.Select(left, a[1], b[1])

    return te.comm_reducer(combine, lambda *_: (tir.const(_NOWHERE, "int64"), _lowest(kind)), "largest_position")


def _lowest(kind: str) -> PrimExpr:
    return tir.const(-math.inf, kind) if dt.is_float(kind) else tir.min_value(kind)


def largest_positions(
    self: Importer,
    x: Expr,
    extents: Sequence[Dim],
    sizes: Sequence[Dim],
    element: Callable[..., tuple[PrimExpr, PrimExpr]],
) -> Expr:
    """For each window over the last dimensions of ``x``, where its largest element is: the position in the plane of
    these dimensions, in row-major order, as int64.

    ``extents`` are the largest extents of a window and ``sizes`` those of the result. ``element(axis, limit, size,
    place, step)`` gives the coordinate along a window dimension of ``limit`` elements, and whether it is in the window
    and in ``x``.
    """
    rank, kind = len(extents), dtype_of(x)
    lead = self.rank(x) - rank
    reducer = _reducer(kind)

    def compute(data: te.Tensor, extents: list[PrimExpr], sizes: list[PrimExpr]) -> te.Tensor:
        steps = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(extents)]
        plane = data.shape[lead:]

        def body(*at: PrimExpr) -> tuple[PrimExpr, ...]:
            inside: Any = tir.const(True, "bool")
            flat: Any = tir.const(0, "int64")
            coordinates = []
            for axis, (place, step) in enumerate(zip(at[lead:], steps, strict=True)):
                coordinate, holds = element(axis, plane[axis], sizes[axis], place, step.var)
                coordinates.append(coordinate)
                inside = tir.And(inside, holds)
                flat = flat * tir.Cast("int64", plane[axis]) + tir.Cast("int64", coordinate)
            value = tir.if_then_else(inside, data(*at[:lead], *coordinates), _lowest(kind))
            where = tir.if_then_else(inside, flat, tir.const(_NOWHERE, "int64"))
            return reducer((where, value), axis=steps)

        return te.compute([*data.shape[:lead], *sizes], body, "largest")[0]

    return self.builder.emit_te(compute, x, list(extents), list(sizes), primfunc_name_hint="largest_positions")


def _pool_positions(
    self: Importer,
    x: Expr,
    sizes: Sequence[Any],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Expr:
    def element(axis: int, limit: PrimExpr, _: PrimExpr, place: PrimExpr, step: PrimExpr) -> tuple[Any, Any]:
        at = place * stride[axis] + step * dilation[axis] - padding[axis]
        return at, tir.And(at >= 0, at < limit)

    return largest_positions(self, x, kernel, sizes, element)


def _with_indices(rank: int) -> Converter:
    def convert(
        self: Importer,
        x: Expr,
        kernel: Steps,
        stride: Steps = (),
        padding: Steps = 0,
        dilation: Steps = 1,
        *rest: Any,
    ) -> list[Any]:
        out = CONVERTERS[f"max_pool{rank}d"](self, x, kernel, stride, padding, dilation, *rest)
        windows = many(kernel, rank)
        steps = many(stride, rank) if stride not in ((), [], None) else windows
        args = windows, steps, many(padding, rank), many(dilation, rank)
        assert self.is_tensor(out)
        return [out, Deferred(lambda: _pool_positions(self, x, self.shape(out)[-rank:], *args))]

    return convert


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    return [(n * size // count, -(-(n + 1) * size // count)) for n in range(count)]


def _adaptive_sizes(self: Importer, x: Expr, size: Dim | Sequence[Dim | None], rank: int) -> list[Dim]:
    shape = self.shape(x)[-rank:]
    wanted: list[Dim | None] = many(size, rank)
    return [have if want is None else want for want, have in zip(wanted, shape, strict=True)]


def _adaptive_positions(self: Importer, x: Expr, sizes: Sequence[Any]) -> Expr:
    limits = self.shape(x)[-len(sizes) :]
    extents: list[Dim] = []
    for size, limit in zip(sizes, limits, strict=True):
        match size:
            case int() if isinstance(limit, int):
                extents.append(max(end - begin for begin, end in _windows(limit, size)))
            case int() if size == 1:
                extents.append(limit)
            case _:
                raise OpNotImplemented("positions of an adaptive max pooling of a dimension of unknown size")

    def element(_: int, limit: PrimExpr, size: PrimExpr, place: PrimExpr, step: PrimExpr) -> tuple[Any, Any]:
        at = tir.floordiv(place * limit, size) + step
        return at, at < tir.floordiv((place + 1) * limit + (size - 1), size)

    return largest_positions(self, x, extents, sizes, element)


def _adaptive_max(rank: int) -> Converter:
    def convert(self: Importer, x: Expr, size: Dim | Sequence[Dim | None]) -> list[Any]:
        """Windows differ in size: each dimension is put together from the maxima of its windows."""
        sizes, source = _adaptive_sizes(self, x, size, rank), x
        for axis, count in enumerate(sizes, self.rank(x) - rank):
            length = self.shape(x)[axis]
            if count == length:
                continue
            if not isinstance(length, int) or not isinstance(count, int):
                if count != 1:
                    raise OpNotImplemented("adaptive max pooling of a dimension of unknown size")
                x = self.emit(op.max(x, [axis], True))
                continue
            parts = [
                self.emit(op.max(self.emit(op.strided_slice(x, [axis], [begin], [end])), [axis], True))
                for begin, end in _windows(length, count)
            ]
            x = self.emit(op.concat(parts, axis)) if len(parts) > 1 else parts[0]
        return [x, Deferred(lambda: _adaptive_positions(self, source, sizes))]

    return convert


for _rank in (1, 2, 3):
    CONVERTERS[f"max_pool{_rank}d_with_indices"] = _with_indices(_rank)
    CONVERTERS[f"adaptive_max_pool{_rank}d"] = _adaptive_max(_rank)
