"""Sampling at places, and the choice of boxes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import product
from ....relax.struct_info import TensorStructInfo
from ....support.errors import OpAttributeInvalid
from ....tir import Buffer, const, For, IfThenElse, LetStmt, Stmt, Var
from ....topi.loops import loop, loops, read, seq, write
from ..context import Context, convert

# ---- GridSample


class _Sampler:
    """The value of an image at places between its elements."""

    def __init__(self, image: te.Tensor, mode: str, border: str, aligned: bool, kind: str) -> None:
        self.image, self.mode, self.border, self.aligned, self.kind = image, mode, border, aligned, kind
        self.sizes = image.shape[2:]

    def number(self, value: float | PrimExpr) -> PrimExpr:
        return value.astype(self.kind) if isinstance(value, PrimExpr) else const(value, self.kind)

    def place(self, axis: int, at: PrimExpr) -> PrimExpr:
        """A place of -1 to 1 in elements; beyond the border as the padding says."""
        size = self.number(self.sizes[axis])
        one, two, half = self.number(1), self.number(2), self.number(0.5)
        where = (at + one) / two * (size - one) if self.aligned else ((at + one) * size - one) / two
        if self.mode == "cubic":
            return where  # the border is for its neighbours
        if self.border == "border":
            return tir.max(tir.min(where, size - one), self.number(0))
        if self.border == "reflection":
            low = self.number(0) if self.aligned else -half
            span = size - one if self.aligned else size
            return self.reflected(where, low, span, size)
        return where

    def reflected(self, where: PrimExpr, low: PrimExpr, span: PrimExpr, size: PrimExpr) -> PrimExpr:
        """A place between ``low`` and ``low + span``, by as many reflections as it takes."""
        one, two = self.number(1), self.number(2)
        apart = tir.abs(where - low)
        safe = tir.max(span, one) if self.aligned else span
        turns = tir.floor(apart / safe)
        rest = apart - turns * safe
        even = turns - two * tir.floor(turns / two) < self.number(0.5)
        inside = tir.if_then_else(even, rest + low, span - rest + low)
        inside = tir.max(tir.min(inside, size - one), self.number(0))
        return tir.if_then_else(span > self.number(0), inside, self.number(0)) if self.aligned else inside

    def element(self, lead: Sequence[PrimExpr], at: Sequence[PrimExpr]) -> PrimExpr:
        """An element by whole coordinates; 0, or another one, beyond the border."""
        inside: PrimExpr = const(True, "bool")
        indices = []
        for axis, place in enumerate(at):
            index = place.astype("int64")
            limit = self.sizes[axis].astype("int64")
            if self.border == "reflection" and self.mode == "cubic":
                low = self.number(0) if self.aligned else self.number(-0.5)
                size = self.number(self.sizes[axis])
                span = size - self.number(1) if self.aligned else size
                index = self.reflected(place, low, span, size).astype("int64")
            elif self.border == "zeros":
                inside = tir.And(inside, tir.And(index >= 0, index < limit))
            indices.append(tir.max(tir.min(index, limit - 1), const(0, "int64")))
        value = self.image(*lead, *indices)
        return tir.if_then_else(inside, value, const(0, self.image.dtype)) if self.border == "zeros" else value

    def nearest(self, lead: Sequence[PrimExpr], at: Sequence[PrimExpr]) -> PrimExpr:
        return self.element(lead, [tir.nearbyint(a) for a in at])

    def blended(
        self,
        lead: Sequence[PrimExpr],
        at: Sequence[PrimExpr],
        taps: Callable[[PrimExpr], list[tuple[int, PrimExpr]]],
    ) -> PrimExpr:
        """The sum of neighbours; ``taps`` gives their distances and weights for the part after the whole place."""
        bases = [tir.floor(a) for a in at]
        weights = [taps(a - b) for a, b in zip(at, bases)]
        total: PrimExpr = self.number(0)
        for chosen in itertools.product(*weights):
            weight: PrimExpr = self.number(1)
            for _, w in chosen:
                weight = weight * w
            places = [b + self.number(d) for b, (d, _) in zip(bases, chosen)]
            total = total + weight * self.element(lead, places).astype(self.kind)
        return total

    def linear(self, part: PrimExpr) -> list[tuple[int, PrimExpr]]:
        return [(0, self.number(1) - part), (1, part)]

    def cubic(self, part: PrimExpr) -> list[tuple[int, PrimExpr]]:
        """Keys' cubic convolution with a = -0.75."""
        a = -0.75

        def near(d: PrimExpr) -> PrimExpr:
            return ((d * self.number(a + 2) - self.number(a + 3)) * d * d) + self.number(1)

        def far(d: PrimExpr) -> PrimExpr:
            return ((d * self.number(a) - self.number(5 * a)) * d + self.number(8 * a)) * d - self.number(4 * a)

        one, two = self.number(1), self.number(2)
        return [(-1, far(part + one)), (0, near(part)), (1, near(one - part)), (2, far(two - part))]


@convert("GridSample", 16)
def _grid_sample(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    image, grid = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(m := str(attrs.get("mode", "linear")), m)
    border, aligned = str(attrs.get("padding_mode", "zeros")), bool(attrs.get("align_corners", 0))
    if mode not in ("linear", "nearest", "cubic") or border not in ("zeros", "border", "reflection"):
        raise OpAttributeInvalid(f"GridSample knows no mode {mode!r} with padding {border!r}")

    def compute(x: te.Tensor, places: te.Tensor) -> te.Tensor:
        sampler = _Sampler(x, mode, border, aligned, "float64" if x.dtype == "float64" else "float32")
        rank = len(sampler.sizes)

        def body(*at: PrimExpr) -> PrimExpr:
            batch, channel, *spot = at
            # The last axis of the grid counts from the innermost axis of the image.
            where = [
                sampler.place(axis, places(batch, *spot, rank - 1 - axis).astype(sampler.kind)) for axis in range(rank)
            ]
            lead = [batch, channel]
            if mode == "nearest":
                return sampler.nearest(lead, where)
            return sampler.blended(lead, where, sampler.linear if mode == "linear" else sampler.cubic).astype(x.dtype)

        return te.compute([*x.shape[:2], *places.shape[1:-1]], body, "grid_sample")

    return ctx.builder.call_te(compute, image, grid, primfunc_name_hint="grid_sample")


@convert("AffineGrid", 20)
def _affine_grid(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Where the elements of an image of some size come from: places of -1 to 1, innermost axis first."""
    theta, sizes = ctx.tensor(inputs[0]), ctx.elements(inputs[1])
    aligned, spatial = bool(attrs.get("align_corners", 0)), ctx.named(sizes[2:])
    if len(spatial) not in (2, 3):
        raise OpAttributeInvalid(f"AffineGrid makes grids of 2 or 3 axes, not of {len(spatial)}")
    kind = ctx.dtype(theta)
    work = "float64" if kind == "float64" else "float32"

    def place(index: PrimExpr, size: PrimExpr) -> PrimExpr:
        at, count, one, two = index.astype(work), size.astype(work), const(1, work), const(2, work)
        if aligned:
            return at * two / tir.max(count - one, one) - one
        return (at * two + one) / count - one

    def compute(matrix: te.Tensor, numbers: list[PrimExpr]) -> te.Tensor:
        def body(batch: PrimExpr, *rest: PrimExpr) -> PrimExpr:
            *spot, row = rest
            total = matrix(batch, row, len(numbers)).astype(work)
            for k, (index, size) in enumerate(zip(reversed(spot), reversed(numbers))):
                total = total + matrix(batch, row, k).astype(work) * place(index, size)
            return total.astype(kind)

        return te.compute([matrix.shape[0], *numbers, len(numbers)], body, "affine_grid")

    return ctx.builder.emit_te(compute, theta, spatial, primfunc_name_hint="affine_grid")


# ---- NonMaxSuppression


class _Choice:
    """The boxes of one class of one image that stay: the best ones that no better one overlaps too much."""

    def __init__(self, ins: Sequence[Buffer], outs: Sequence[Buffer], centred: bool, most: PrimExpr) -> None:
        self.boxes, self.scores, self.order, self.overlap, self.least = ins
        self.chosen, self.counts = outs
        self.centred, self.most = centred, most
        self.count = self.boxes.shape[1]

    def corners(self, batch: PrimExpr, box: PrimExpr) -> tuple[list[PrimExpr], list[PrimExpr]]:
        """The smaller and larger coordinates of a box."""
        a, b, c, d = (read(self.boxes, batch, box, const(k, "int64")) for k in range(4))
        if self.centred:
            half = const(0.5, a.dtype)
            return [a - c * half, b - d * half], [a + c * half, b + d * half]
        return [tir.min(a, c), tir.min(b, d)], [tir.max(a, c), tir.max(b, d)]

    def overlaps(self, batch: PrimExpr, one: PrimExpr, other: PrimExpr) -> PrimExpr:
        """Whether the common area is more than the threshold's share of the joint area."""
        (low, high), (other_low, other_high) = self.corners(batch, one), self.corners(batch, other)
        zero = const(0, self.boxes.dtype)
        common: PrimExpr = const(1, self.boxes.dtype)
        area: PrimExpr = const(1, self.boxes.dtype)
        other_area: PrimExpr = const(1, self.boxes.dtype)
        for k in range(2):
            side = tir.min(high[k], other_high[k]) - tir.max(low[k], other_low[k])
            common = common * tir.max(side, zero)
            area = area * (high[k] - low[k])
            other_area = other_area * (other_high[k] - other_low[k])
        joint = area + other_area - common
        share = common / joint
        there = tir.And(tir.And(area > zero, other_area > zero), tir.And(common > zero, joint > zero))
        return tir.And(there, share > read(self.overlap, const(0, "int64")))

    def of_class(self, batch: PrimExpr, cls: PrimExpr) -> Stmt:
        """Boxes by falling score, each kept unless one that is kept overlaps it."""
        one, zero = const(1, "int64"), const(0, "int64")
        # The place after the last kept one says whether the box at hand is free.
        kept, free = [batch, cls, zero], [batch, cls, one]

        def look(rank: PrimExpr) -> Stmt:
            box = Var("box", "int64")

            def against(k: PrimExpr) -> Stmt:
                other = read(self.chosen, batch, cls, k)
                test = tir.And(read(self.counts, *free) > zero, k < read(self.counts, *kept))
                return IfThenElse(test, IfThenElse(self.overlaps(batch, box, other), write(self.counts, zero, *free)))

            take = seq(
                write(self.chosen, box, batch, cls, read(self.counts, *kept)),
                write(self.counts, read(self.counts, *kept) + one, *kept),
            )
            test = seq(
                write(self.counts, one, *free),
                loop("k", tir.min(rank, self.most), against),
                IfThenElse(read(self.counts, *free) > zero, take),
            )
            good = read(self.scores, batch, cls, box) > read(self.least, const(0, "int64"))
            wanted = tir.And(good, read(self.counts, *kept) < self.most)
            return LetStmt(box, read(self.order, batch, cls, rank).astype("int64"), IfThenElse(wanted, test))

        return seq(write(self.counts, zero, *kept), loop("rank", self.count, look))


def _choose(
    boxes: te.Tensor,
    scores: te.Tensor,
    order: te.Tensor,
    overlap: te.Tensor,
    least: te.Tensor,
    centred: bool,
    most: PrimExpr,
) -> list[te.Tensor]:
    """Kept boxes of each class (batch, classes, boxes), and how many there are (batch, classes, 2)."""
    batch, classes, count = scores.shape
    limit = tir.min(most, count)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        choice = _Choice(ins, outs, centred, limit)
        return loops([batch, classes], lambda at: choice.of_class(at[0], at[1]), "c")

    shapes = [(batch, classes, count), (batch, classes, const(2, "int64"))]
    return list(te.extern(shapes, [boxes, scores, order, overlap, least], body, "choose_boxes", ["int64", "int64"]))


def _listed(chosen: te.Tensor, counts: te.Tensor) -> list[te.Tensor]:
    """All kept boxes as (image, class, box), in a row; and how many."""
    batch, classes, count = chosen.shape

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        zero, one = const(0, "int64"), const(1, "int64")
        total = read(outs[1], zero)

        def add(at: list[PrimExpr]) -> Stmt:
            def row(k: PrimExpr) -> Stmt:
                entry = [at[0], at[1], read(ins[0], at[0], at[1], k)]
                stores = [write(outs[0], v, total, const(c, "int64")) for c, v in enumerate(entry)]
                return IfThenElse(k < read(ins[1], at[0], at[1], zero), seq(*stores, write(outs[1], total + one, zero)))

            return loop("k", count, row)

        nest = loops([batch, classes], add, "c")
        assert isinstance(nest, For)
        return seq(write(outs[1], zero, zero), nest)

    shapes = [(batch * classes * count, const(3, "int64")), (const(1, "int64"),)]
    return list(te.extern(shapes, [chosen, counts], body, "list_boxes", ["int64", "int64"]))


@convert("NonMaxSuppression", 10)
def _non_max_suppression(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    given = [*inputs, *[None] * (5 - len(inputs))]
    most, overlap, least = given[2:]
    boxes, scores = ctx.tensor(given[0]), ctx.tensor(given[1])
    limit = const(0, "int64") if most is None else ctx.element(most)
    kind = ctx.dtype(boxes)

    def threshold(x: Expr | None, default: float) -> Expr:
        return ctx.const([default], kind) if x is None else ctx.emit(ctx.reshape(ctx.tensor(x), [1]))

    order = ctx.emit(op.argsort(scores, -1, True, "int64"))
    lowest = threshold(least, float("-inf"))
    bounds = [threshold(overlap, 0.0), lowest]
    (most_of_all,) = ctx.named([tir.max(tir.min(limit, const(2**31 - 1, "int64")), const(0, "int64"))])

    def choose(
        places: te.Tensor, grades: te.Tensor, ranks: te.Tensor, share: te.Tensor, grade: te.Tensor, count: PrimExpr
    ) -> list[te.Tensor]:
        return _choose(places, grades, ranks, share, grade, bool(attrs.get("center_point_box", 0)), count)

    kept = ctx.builder.emit_te(choose, boxes, scores, order, *bounds, most_of_all, primfunc_name_hint="choose_boxes")
    chosen, counts = ctx.builder.emit(kept[0]), ctx.builder.emit(kept[1])
    listed = ctx.builder.emit_te(_listed, chosen, counts, primfunc_name_hint="list_boxes")
    (rows,) = ctx.run_time_shape(ctx.builder.emit(listed[1]))
    out = op.strided_slice(ctx.builder.emit(listed[0]), [0], [0], [rows], assume_inbound=True)
    return ctx.builder.match_cast(ctx.emit(out), TensorStructInfo([rows, 3], "int64"))


# ---- rows in another order


@convert("ReverseSequence", 10)
def _reverse_sequence(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """The first elements of each row, as many as its length says, the other way round."""
    rows, time = int(attrs.get("batch_axis", 1)), int(attrs.get("time_axis", 0))

    def compute(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            length = lengths(at[rows]).astype("int64")
            step = at[time].astype("int64")
            other = list(at)
            other[time] = tir.if_then_else(step < length, length - 1 - step, step)
            return x(*other)

        return te.compute(x.shape, body, "reverse_sequence")

    return ctx.builder.call_te(
        compute, ctx.tensor(inputs[0]), ctx.tensor(inputs[1]), primfunc_name_hint="reverse_sequence"
    )


@convert("Col2Im", 18)
def _col2im(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """The sum of the windows that an element is in."""
    sizes, block = ctx.elements(inputs[1]), ctx.elements(inputs[2])
    n = len(sizes)
    strides, dilations = ([int(v) for v in attrs.get(name, [1] * n)] for name in ("strides", "dilations"))
    pads = [int(v) for v in attrs.get("pads", [0] * 2 * n)]
    windows = ctx.named(
        [
            tir.floordiv(s + pads[k] + pads[n + k] - (block[k] - 1) * dilations[k] - 1, strides[k]) + 1
            for k, s in enumerate(sizes)
        ]
    )
    x = ctx.tensor(inputs[0])
    batch, columns, _ = ctx.dims(x)
    area = product(block)
    (channels,) = ctx.named([tir.floordiv(columns, tir.max(area, 1))])
    x = ctx.emit(ctx.reshape(x, [batch, channels, *block, *windows]))

    def compute(data: te.Tensor, image: list[PrimExpr]) -> te.Tensor:
        steps = [te.reduce_axis((0, b), f"k{k}") for k, b in enumerate(data.shape[2 : 2 + n])]
        counts = data.shape[2 + n :]

        def body(*at: PrimExpr) -> PrimExpr:
            inside: PrimExpr = const(True, "bool")
            places = []
            for k, spot in enumerate(at[2:]):
                moved = spot + pads[k] - steps[k].var * dilations[k]
                place = tir.floordiv(moved, strides[k])
                inside = tir.And(inside, tir.And(tir.floormod(moved, strides[k]) == 0, place >= 0))
                inside = tir.And(inside, place < counts[k])
                places.append(tir.max(tir.min(place, counts[k] - 1), 0))
            value = data(*at[:2], *(s.var for s in steps), *places)
            return te.sum(tir.if_then_else(inside, value, const(0, data.dtype)), axis=steps)

        return te.compute([*data.shape[:2], *image], body, "col2im")

    return ctx.builder.call_te(compute, x, sizes, primfunc_name_hint="col2im")
