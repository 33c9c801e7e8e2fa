"""Regions of images, pooled into grids of one size."""

from __future__ import annotations

from collections.abc import Callable

from ... import te, tir
from ...ir.errors import CheckValueError
from ...tir import Buffer, const, IfThenElse, LetStmt, PrimExpr, Stmt, Var
from ..loops import in_parallel, loop, loops, read, seq, write
from ..shape import transpose
from ..utils import get_const_int, int_pair, Steps

__all__ = ["AlignedRegions", "roi_align_nchw", "roi_align_nhwc", "roi_pool_nchw"]


def _int(value: int) -> PrimExpr:
    return const(value, "int64")


def _pair(size: Steps) -> tuple[int, int]:
    rows, columns = (get_const_int(v) for v in int_pair(size))
    return rows, columns


def _let(name: str, value: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


class AlignedRegions:
    """Means, or maxima, of values between elements at regular places of each cell of a region.

    ``ratio`` places a side, or as many as the cell has elements if it is not positive; ``half_pixel`` takes the middle of
    an element for its place.
    """

    def __init__(
        self, size: tuple[int, int], scale: float, ratio: int, largest: bool, half_pixel: bool = False
    ) -> None:
        self.size, self.scale, self.ratio = size, scale, ratio
        self.largest, self.half = largest, half_pixel

    def compute(self, x: te.Tensor, rois: te.Tensor, images: te.Tensor) -> te.Tensor:
        shape = [rois.shape[0], x.shape[1], *(const(v, x.shape[0].dtype) for v in self.size)]

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            return in_parallel(loops(shape, lambda at: self.cell(ins, outs[0], at), "r"))

        made: te.Tensor = te.extern([shape], [x, rois, images], body, "roi_align", [x.dtype])
        return made

    def cell(self, ins: list[Buffer], out: Buffer, at: list[PrimExpr]) -> Stmt:
        """One cell of one channel of one region."""
        x, rois, images = ins
        kind = x.dtype
        sizes = x.shape[2:]

        def f(value: float | PrimExpr) -> PrimExpr:
            return value.astype(kind) if isinstance(value, PrimExpr) else const(value, kind)

        def side(axis: int, body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]) -> Stmt:
            """Start, height of a cell and number of places along one axis of the image."""
            shift = f(0.5 if self.half else 0.0)
            first = read(rois, at[0], _int(1 - axis)) * f(self.scale) - shift
            last = read(rois, at[0], _int(3 - axis)) * f(self.scale) - shift
            whole = last - first if self.half else tir.max(last - first, f(1))
            step = whole / f(self.size[axis])
            places = _int(self.ratio) if self.ratio > 0 else tir.ceil(step).astype("int64")
            return _let(
                "start", first, lambda s: _let("step", step, lambda d: _let("places", places, lambda n: body(s, d, n)))
            )

        def sample(row: PrimExpr, column: PrimExpr, use: Callable[[list[PrimExpr]], Stmt]) -> Stmt:
            """The four weighted neighbours of a place; none far outside."""
            weights, spots = [], []
            inside: PrimExpr = const(True, "bool")
            for place, size in ((row, sizes[0]), (column, sizes[1])):
                limit = f(size)
                inside = tir.And(inside, tir.And(place >= f(-1), place <= limit))
                spot = tir.min(tir.max(place, f(0)), limit - f(1))
                low = tir.floor(spot)
                high = tir.min(low + f(1), limit - f(1))
                weights.append((f(1) - (spot - low), spot - low))
                spots.append((low.astype("int64"), high.astype("int64")))
            image = read(images, at[0]).astype("int64")
            parts = [
                weights[0][i] * weights[1][j] * read(x, image, at[1], spots[0][i], spots[1][j])
                for i in (0, 1)
                for j in (0, 1)
            ]
            return IfThenElse(inside, use(parts), use([f(0)]))

        def fill(sy: PrimExpr, dy: PrimExpr, ny: PrimExpr, sx: PrimExpr, dx: PrimExpr, nx: PrimExpr) -> Stmt:
            def take(parts: list[PrimExpr]) -> Stmt:
                value = parts[0]
                for p in parts[1:]:
                    value = tir.max(value, p) if self.largest else value + p
                have = read(out, *at)
                return write(out, tir.max(have, value) if self.largest else have + value, *at)

            def place(i: PrimExpr, j: PrimExpr) -> Stmt:
                row = sy + f(at[2]) * dy + (f(i) + f(0.5)) * dy / f(ny)
                column = sx + f(at[3]) * dx + (f(j) + f(0.5)) * dx / f(nx)
                return _let("row", row, lambda r: _let("column", column, lambda c: sample(r, c, take)))

            begin = f(float("-inf")) if self.largest else f(0)
            nest = loop("i", ny, lambda i: loop("j", nx, lambda j: place(i, j)))
            number = tir.max(ny * nx, _int(1))
            end: Stmt
            if self.largest:
                end = IfThenElse(tir.Or(ny <= 0, nx <= 0), write(out, f(0), *at))
            else:
                end = write(out, read(out, *at) / f(number), *at)
            return seq(write(out, begin, *at), nest, end)

        return side(0, lambda sy, dy, ny: side(1, lambda sx, dx, nx: fill(sy, dy, ny, sx, dx, nx)))


def roi_align_nchw(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: Steps,
    spatial_scale: float,
    mode: str | bytes,
    sample_ratio: int = -1,
) -> te.Tensor:
    """Regions ``(image, x1, y1, x2, y2)`` pooled into grids of ``pooled_size`` from values between the elements.

    ``mode`` is "avg" or "max". Raises CheckValueError for another one.

    >>> from relaxish import te, topi
    >>> topi.vision.roi_align_nchw(te.placeholder((1, 3, 9, 9)), te.placeholder((6, 5)), 2, 0.5, "avg").shape
    (6, 3, 2, 2)
    """
    how = mode.decode() if isinstance(mode, bytes) else str(mode)
    if how not in ("avg", "max"):
        raise CheckValueError(f"regions are pooled by avg or max, not by {how!r}")
    boxes = te.compute((rois.shape[0], 4), lambda n, k: rois(n, k + 1), "boxes")
    images = te.compute((rois.shape[0],), lambda n: rois(n, 0).astype("int64"), "images")
    return AlignedRegions(_pair(pooled_size), spatial_scale, sample_ratio, how == "max").compute(data, boxes, images)


def roi_align_nhwc(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: Steps,
    spatial_scale: float,
    mode: str | bytes,
    sample_ratio: int = -1,
) -> te.Tensor:
    """As :func:`roi_align_nchw`, of images with channels last."""
    made = roi_align_nchw(transpose(data, (0, 3, 1, 2)), rois, pooled_size, spatial_scale, mode, sample_ratio)
    return transpose(made, (0, 2, 3, 1))


def roi_pool_nchw(data: te.Tensor, rois: te.Tensor, pooled_size: Steps, spatial_scale: float) -> te.Tensor:
    """Maxima over the cells of regions ``(image, x1, y1, x2, y2)``, whose bounds are rounded to whole elements."""
    size, scale = _pair(pooled_size), spatial_scale
    shape = [rois.shape[0], data.shape[1], *(const(v, data.shape[0].dtype) for v in size)]

    def rounded(value: PrimExpr) -> PrimExpr:
        return tir.floor(value + const(0.5, value.dtype)).astype("int64")  # halves go up

    def cell(x: Buffer, rois: Buffer, out: Buffer, at: list[PrimExpr]) -> Stmt:
        bounds = []
        for axis in (0, 1):
            factor = const(scale, rois.dtype)
            first = rounded(read(rois, at[0], _int(2 - axis)) * factor)
            last = rounded(read(rois, at[0], _int(4 - axis)) * factor)
            step = tir.max(last - first + 1, _int(1)).astype("float32") / const(size[axis], "float32")
            place = at[2 + axis].astype("float32")
            limit = x.shape[2 + axis]
            ends = tir.floor(place * step), tir.ceil((place + const(1, "float32")) * step)
            bounds.append([tir.min(tir.max(e.astype("int64") + first, _int(0)), limit) for e in ends])
        image = read(rois, at[0], _int(0)).astype("int64")
        (top, bottom), (left, right) = bounds

        def take(i: PrimExpr, j: PrimExpr) -> Stmt:
            return write(out, tir.max(read(out, *at), read(x, image, at[1], top + i, left + j)), *at)

        nest = loop(
            "i",
            tir.max(bottom - top, _int(0)),
            lambda i: loop("j", tir.max(right - left, _int(0)), lambda j: take(i, j)),
        )
        empty = tir.Or(bottom <= top, right <= left)
        return seq(
            write(out, const(float("-inf"), x.dtype), *at),
            nest,
            IfThenElse(empty, write(out, const(0, x.dtype), *at)),
        )

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return in_parallel(loops(shape, lambda at: cell(ins[0], ins[1], outs[0], at), "r"))

    made: te.Tensor = te.extern([shape], [data, rois], body, "max_roi_pool", [data.dtype])
    return made
