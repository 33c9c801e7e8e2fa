"""Parts of images: regions pooled into squares of one size, and convolutions whose windows bend."""

from __future__ import annotations

from typing import Any
from collections.abc import Callable

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....tir import Buffer, const, IfThenElse, LetStmt, Stmt, Var
from ....topi.loops import in_parallel, loop, loops, read, seq, write
from ..context import Context, attr_ints, convert
from .convolution import add_bias


def _int(value: int) -> PrimExpr:
    return const(value, "int64")


def _let(name: str, value: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


class _Aligned:
    """RoiAlign: means, or maxima, of values between elements at regular places of each cell."""

    def __init__(self, attrs: dict[str, Any], half_pixel: bool) -> None:
        self.half = half_pixel
        self.largest = attrs.get("mode", "avg") == "max"
        self.scale = float(attrs.get("spatial_scale", 1.0))
        self.ratio = int(attrs.get("sampling_ratio", 0))
        self.size = [int(attrs.get("output_height", 1)), int(attrs.get("output_width", 1))]

    def compute(self, x: te.Tensor, rois: te.Tensor, images: te.Tensor) -> te.Tensor:
        count, channels = rois.shape[0], x.shape[1]

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            return in_parallel(
                loops([count, channels, *map(_int, self.size)], lambda at: self.cell(ins, outs[0], at), "r")
            )

        shape = (count, channels, *map(_int, self.size))
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


def _roi_align(ctx: Context, inputs: list[Any], attrs: dict[str, Any], half_pixel: bool) -> Expr:
    x, rois, images = (ctx.tensor(v) for v in inputs)
    return ctx.builder.call_te(_Aligned(attrs, half_pixel).compute, x, rois, images, primfunc_name_hint="roi_align")


@convert("RoiAlign", 10)
def _roi_align10(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _roi_align(ctx, inputs, attrs, half_pixel=False)


@convert("RoiAlign", 16)
def _roi_align16(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    return _roi_align(ctx, inputs, attrs, half_pixel=mode == "half_pixel")


@convert("MaxRoiPool")
def _max_roi_pool(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Maxima over the cells of regions ``(image, x1, y1, x2, y2)`` with whole bounds."""
    size = attr_ints(attrs, "pooled_shape") or []
    if len(size) != 2:
        raise OpAttributeInvalid("MaxRoiPool needs a pooled_shape of two sizes")
    scale = float(attrs.get("spatial_scale", 1.0))

    def compute(x: te.Tensor, rois: te.Tensor) -> te.Tensor:
        shape = (rois.shape[0], x.shape[1], *map(_int, size))

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
            return in_parallel(loops(list(shape), lambda at: cell(ins[0], ins[1], outs[0], at), "r"))

        made: te.Tensor = te.extern([shape], [x, rois], body, "max_roi_pool", [x.dtype])
        return made

    return ctx.builder.call_te(compute, ctx.tensor(inputs[0]), ctx.tensor(inputs[1]), primfunc_name_hint="max_roi_pool")


@convert("DeformConv", 19)
def _deform_conv(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A convolution whose windows have an offset, and a weight, for each of their elements: columns, then a product."""
    given = [None if v is None else ctx.tensor(v) for v in inputs] + [None] * (5 - len(inputs))
    x, weight, offset, bias, mask = given
    if x is None or weight is None or offset is None:
        raise OpAttributeInvalid("DeformConv needs an image, weights and offsets")
    if ctx.ndim(x) != 4:
        raise NotImplementedError(f"DeformConv over {ctx.ndim(x) - 2} spatial axes")
    filters, inner, *window = ctx.dims(weight)
    kernel = attr_ints(attrs, "kernel_shape") or [int(const_int(d) or 0) for d in window]
    strides, dilation = (attr_ints(attrs, n, [1, 1]) or [] for n in ("strides", "dilations"))
    pads = attr_ints(attrs, "pads", [0] * 4) or []
    groups, shifts = int(attrs.get("group", 1)), int(attrs.get("offset_group", 1))
    batch = ctx.dims(x)[0]
    rows, columns = ctx.dims(offset)[2:]
    count = kernel[0] * kernel[1]

    def compute(data: te.Tensor, moves: te.Tensor, masks: list[te.Tensor]) -> te.Tensor:
        kind = data.dtype

        def body(n: PrimExpr, c: PrimExpr, k: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            group = tir.floordiv(c, tir.floordiv(data.shape[1], shifts))
            tap = group * count + k
            total: PrimExpr = const(0, kind)
            axes = []
            for axis, (at, step) in enumerate(((i, tir.floordiv(k, kernel[1])), (j, tir.floormod(k, kernel[1])))):
                place = at * strides[axis] - pads[axis] + step * dilation[axis]
                spot = place.astype(kind) + moves(n, tap * 2 + axis, i, j)
                low = tir.floor(spot)
                part = spot - low
                base, limit = low.astype("int64"), data.shape[2 + axis]
                axes.append([(base, const(1, kind) - part, limit), (base + 1, part, limit)])
            for row, row_share, height in axes[0]:
                for column, column_share, width in axes[1]:
                    inside = tir.And(tir.And(row >= 0, row < height), tir.And(column >= 0, column < width))
                    safe = [tir.max(tir.min(v, m - 1), 0) for v, m in ((row, height), (column, width))]
                    value = tir.if_then_else(inside, data(n, c, *safe), const(0, kind))
                    total = total + value * (row_share * column_share)
            return total * masks[0](n, tap, i, j) if masks else total

        return te.compute([*data.shape[:2], _int(count), *moves.shape[2:]], body, "bent_columns")

    taken: Expr = ctx.builder.emit_te(
        compute, x, offset, [] if mask is None else [mask], primfunc_name_hint="deformable_columns"
    )
    deep = inner * count
    taken = ctx.emit(ctx.reshape(taken, [batch, groups, deep, rows * columns]))
    matrix = ctx.emit(ctx.reshape(weight, [1, groups, tir.floordiv(filters, groups), deep]))
    out = ctx.emit(op.matmul(matrix, taken))
    out = ctx.emit(ctx.reshape(out, [batch, filters, rows, columns]))
    return add_bias(ctx, out, bias, 2)
