"""Shapes, joining, cutting and reordering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Constant, Expr, PrimValue, ShapeExpr
from ....relax.scalars import const_int, product, prove_equal, simplify
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ..context import attr_ints, Context, convert, Dim, Made
from .at_run_time import axis_flags, chosen, cut, kept_dims, padded, placed_dims, slice_bounds

#: Bounds of slices from here on are beyond any size: exporters write all sorts of large numbers for "to the end".
_BEYOND = 10**9


def flatten_at(ctx: Context, x: Expr, axis: int) -> Expr:
    """A matrix: the axes before ``axis``, and those from it on."""
    dims = ctx.dims(x)
    return ctx.reshape(x, [simplify(product(dims[:axis])), simplify(product(dims[axis:]))])


@convert("Flatten")
def _flatten(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    axis = int(attrs.get("axis", 1))
    return flatten_at(ctx, x, axis + ctx.ndim(x) if axis < 0 else axis)


@convert("Shape")
def _shape(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = inputs[0]
    info = getattr(x, "struct_info_", None)
    if not ctx.is_shape(x) and (info is None or info.dims() is None):
        return op.shape_of(x)
    dims = ctx.dims(x)
    return ShapeExpr(dims[int(attrs.get("start", 0)) : attrs.get("end")])


@convert("Size")
def _size(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return PrimValue(simplify(product(ctx.dims(inputs[0]))))


@convert("Reshape")
def _reshape(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = inputs[0]
    target = attr_ints(attrs, "shape") if len(inputs) < 2 else ctx.scalars(inputs[1])
    if target is None:
        return _reshape_at_run_time(ctx, ctx.tensor(x), ctx.tensor(inputs[1]), bool(attrs.get("allowzero", 0)))
    if ctx.is_shape(x):
        values = ctx.scalars(x) or []
        if not target or [const_int(t) if not isinstance(t, int) else t for t in target] in (
            [],
            [1],
            [-1],
            [len(values)],
        ):
            return ctx.from_scalars(values, len(target))
    folded = None
    known = [t if isinstance(t, int) else const_int(t) for t in target]
    if all(k is not None for k in known) and isinstance(x, Constant):
        array = x.data.numpy()
        if 0 in known and not attrs.get("allowzero", 0):
            known = [array.shape[i] if k == 0 else k for i, k in enumerate(known)]
        folded = ctx.const(array.reshape(known), ctx.dtype(x))
    if folded is not None:
        return folded
    if attrs.get("allowzero", 0) and 0 in known:
        # A zero means no elements here; for the operator's function it would mean a copied size.
        return ctx.reshape(ctx.tensor(x), list(target))
    return op.reshape(ctx.tensor(x), list(target))


def _reshape_at_run_time(ctx: Context, x: Expr, target: Expr, allow_zero: bool) -> Expr:
    """A shape that the model computes: 0 copies, -1 infers, and the number of elements is checked."""
    kind = "int64"
    if x.struct_info.dims() is None:
        return op.reshape(x, ctx.emit(op.tensor_to_shape(target)))
    have = ctx.dims(x)
    count = const_int(ctx.dims(target)[0])
    if count is None:
        raise OpAttributeInvalid("Reshape needs a shape of known length")
    total = simplify(product(have))
    if not allow_zero:
        copied = ctx.tensor(ShapeExpr([have[k] if k < len(have) else const(0, kind) for k in range(count)]))
        zero = ctx.emit(op.equal(target, ctx.const(0, kind)))
        target = ctx.emit(op.where(zero, copied, target))
    unknown = ctx.emit(op.equal(target, ctx.const(-1, kind)))
    others = ctx.emit(op.prod(ctx.emit(op.where(unknown, ctx.const(1, kind), target))))
    safe = ctx.emit(op.maximum(others, ctx.const(1, kind)))
    rest = ctx.emit(op.floor_divide(ctx.tensor(ctx.from_scalars([total], 0)), safe))
    sizes = ctx.emit(op.where(unknown, rest, target))
    elements = ctx.emit(op.prod(sizes, [0], True))
    ctx.require_sizes(elements, [total])
    symbols = ctx.run_time_shape(sizes)
    return ctx.reshape(x, symbols)


@convert("Transpose")
def _transpose(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    perm = attr_ints(attrs, "perm")
    folded = ctx.fold(lambda v: np.transpose(v, perm), inputs[:1])
    return folded if folded is not None else op.permute_dims(ctx.tensor(inputs[0]), perm)


def _computed(ctx: Context, inputs: list[Any], place: int) -> bool:
    """Whether an input is there whose value only the run knows."""
    return len(inputs) > place and inputs[place] is not None and ctx.setting(inputs[place]) is None


def _given_axes(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[int] | None:
    if len(inputs) > 1 and inputs[1] is not None:
        return ctx.axes(inputs[1])
    return attr_ints(attrs, "axes")


@convert("Unsqueeze")
def _unsqueeze(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = inputs[0]
    if _computed(ctx, inputs, 1):
        x = ctx.tensor(x)
        return ctx.reshape(x, placed_dims(ctx, ctx.dims(x), ctx.elements(inputs[1])))
    axes = _given_axes(ctx, inputs, attrs) or []
    if isinstance(x, PrimValue) and axes in ([0], [-1]):
        return ShapeExpr([x.value.astype("int64")])
    folded = ctx.fold(lambda v: np.expand_dims(v, tuple(axes)), [x])
    return folded if folded is not None else op.expand_dims(ctx.tensor(x), axes)


@convert("Squeeze")
def _squeeze(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = inputs[0]
    if _computed(ctx, inputs, 1):
        x = ctx.tensor(x)
        axes_there = ctx.elements(inputs[1])
        flags = axis_flags(ctx, axes_there, ctx.ndim(x))
        return ctx.reshape(x, kept_dims(ctx, ctx.dims(x), flags, len(axes_there)))
    axes = _given_axes(ctx, inputs, attrs)
    if isinstance(x, ShapeExpr) and len(x.values) == 1:
        return PrimValue(x.values[0])
    folded = ctx.fold(lambda v: np.squeeze(v, tuple(axes) if axes is not None else None), [x])
    return folded if folded is not None else op.squeeze(ctx.tensor(x), axes)


@convert("Concat")
def _concat(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    axis = int(attrs.get("axis", 1))
    if any(ctx.is_shape(x) for x in inputs):
        parts = [ctx.scalars(x) for x in inputs]
        if all(p is not None for p in parts):
            return ctx.from_scalars([v for p in parts for v in p or []], 1)
    folded = ctx.fold(lambda *v: np.concatenate(v, axis), inputs)
    return folded if folded is not None else op.concat(ctx.agreeing(inputs, axis), axis)


@convert("Split")
def _split(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x = ctx.tensor(inputs[0])
    axis = int(attrs.get("axis", 0))
    sizes = attr_ints(attrs, "split")
    if _computed(ctx, inputs, 1):
        return split_at_run_time(ctx, x, axis, ctx.elements(inputs[1]))
    if len(inputs) > 1 and inputs[1] is not None:
        sizes = ctx.axes(inputs[1], "the sizes of Split")
    if sizes is None:
        count = int(attrs.get("num_outputs", attrs["__outputs__"]))
        extent = const_int(ctx.dims(x)[axis])
        if extent is None or extent % count == 0:
            out = op.split(x, count, axis)
            return out if count > 1 else [x]
        each = -(-extent // count)
        sizes = [each] * (count - 1) + [extent - each * (count - 1)]
    if len(sizes) == 1:
        return x if attrs["__outputs__"] == 1 else [x]
    cuts = list(np.cumsum(sizes)[:-1])
    return op.split(x, [int(c) for c in cuts], axis)


def split_at_run_time(ctx: Context, x: Expr, axis: int, sizes: list[PrimExpr]) -> list[Expr]:
    dims = ctx.dims(x)
    axis %= len(dims)
    total, zero = const(0, "int64"), const(0, "int64")
    starts = []
    for size in sizes:
        starts.append(total)
        total = total + size
    ctx.require([simplify(total)], [dims[axis]])
    ctx.require([simplify(tir.max(s, zero)) for s in sizes], sizes)
    return [
        cut(
            ctx,
            x,
            [start if d == axis else zero for d in range(len(dims))],
            [const(1, "int64")] * len(dims),
            [size if d == axis else dim for d, dim in enumerate(dims)],
        )
        for start, size in zip(starts, sizes)
    ]


@convert("Tile", 6)
def _tile(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    folded = ctx.fold(np.tile, inputs[:2])
    if folded is not None:
        return folded
    x = ctx.tensor(inputs[0])
    if not _computed(ctx, inputs, 1):
        return op.tile(x, ctx.axes(inputs[1], "the repeats of Tile"))
    shape = ctx.named([d * tir.max(r, 0) for d, r in zip(ctx.dims(x), ctx.elements(inputs[1]), strict=True)])

    def compute(data: te.Tensor, size: list[PrimExpr]) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            return data(*(tir.floormod(i, tir.max(d, 1)) for i, d in zip(at, data.shape)))

        return te.compute(size, body, "tile")

    return ctx.builder.call_te(compute, x, shape, primfunc_name_hint="tile")


@convert("Tile", 1)
def _tile_once(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """The first version repeats one axis."""
    x = ctx.tensor(inputs[0])
    count, axis = (
        int(ctx.need_constant(v, f"the {what} of Tile").reshape(-1)[0])
        for v, what in zip(inputs[1:], ("repeats", "axis"))
    )
    return op.tile(x, [count if d == axis else 1 for d in range(ctx.ndim(x))])


@convert("Expand")
def _expand(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    target = ctx.scalars(inputs[1])
    x = ctx.tensor(inputs[0])
    dims = ctx.dims(x)
    if target is None:
        return _expand_at_run_time(ctx, x, dims, ctx.tensor(inputs[1]))
    # The given shape broadcasts too: a 1 in it keeps the input's dimension.
    rank = max(len(dims), len(target))
    one = const(1, "int64")
    have, want = [one] * (rank - len(dims)) + dims, [one] * (rank - len(target)) + list(target)
    shape = [h if const_int(w) == 1 else w for h, w in zip(have, want)]
    return stretched(ctx, x, shape)


def stretched(ctx: Context, x: Expr, shape: Sequence[PrimExpr]) -> Expr:
    """``x`` broadcast to a shape of at least its rank; whether an unknown dimension is 1 shows when the model runs."""
    dims = ctx.dims(x)
    target = list(shape)[len(shape) - len(dims) :]
    open_ones = [const_int(d) != 1 and not prove_equal(d, w) for d, w in zip(dims, target)]
    if not any(open_ones) or any(const_int(d) is not None for d, o in zip(dims, open_ones) if o):
        return op.broadcast_to(x, shape)
    fitting = [tir.if_then_else(d == 1, w, d) for d, w, o in zip(dims, target, open_ones) if o]
    ctx.require(fitting, [w for w, o in zip(target, open_ones) if o])

    def compute(data: te.Tensor, sizes: list[PrimExpr]) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            places = []
            for i, dim, is_open in zip(at[len(sizes) - len(dims) :], data.shape, open_ones):
                known = const(0, "int64") if const_int(dim) == 1 else i
                places.append(tir.if_then_else(dim == 1, const(0, "int64"), i) if is_open else known)
            return data(*places)

        return te.compute(sizes, body, "T_broadcast_to")

    return ctx.builder.emit_te(compute, x, list(shape), primfunc_name_hint="broadcast_to")


def _expand_at_run_time(ctx: Context, x: Expr, dims: list[PrimExpr], target: Expr) -> Expr:
    """Broadcasting to a shape that the model computes; what does not broadcast is an error when it runs."""
    count = const_int(ctx.dims(target)[0])
    if count is None:
        raise OpAttributeInvalid("Expand needs a shape of known length")
    rank, one = max(len(dims), count), const(1, "int64")
    have = [one] * (rank - len(dims)) + dims
    lead = have[: rank - count]
    have = have[rank - count :]
    keeps = ctx.emit(op.equal(target, ctx.const(1, "int64")))
    sizes = ctx.emit(op.where(keeps, ctx.tensor(ShapeExpr(have)), target))
    wanted = ctx.run_time_shape(sizes)
    # Only what is one in the input may become anything else.
    wanted = [symbol if const_int(size) in (1, None) else size for size, symbol in zip(have, wanted)]
    ctx.require_sizes(sizes, wanted)
    return stretched(ctx, x, [*lead, *wanted])


@convert("Pad", 1)
def _pad_attr(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    pads = attr_ints(attrs, "pads") or attr_ints(attrs, "paddings") or []
    x = ctx.tensor(inputs[0])
    value = ctx.const(float(attrs.get("value", 0.0)), ctx.dtype(x))
    return _pad(ctx, [x, ctx.const(pads, "int64"), value], attrs)


@convert("Pad", 11)
def _pad(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    ndim, mode = ctx.ndim(x), str(attrs.get("mode", "constant"))
    given = [*inputs, *[None] * (4 - len(inputs))]
    fill = given[2] if given[2] is not None else ctx.const(0, ctx.dtype(x))
    axes = [const(d, "int64") for d in range(ndim)] if given[3] is None else ctx.elements(given[3])
    pads, value = ctx.elements(given[1]), ctx.setting(fill)
    known = [const_int(p) for p in pads]
    zero = const(0, "int64")
    halves = [[chosen(axes, h, d, ndim, zero) for d in range(ndim)] for h in (pads[: len(axes)], pads[len(axes) :])]
    if None in known or value is None or any(const_int(a) is None for a in axes):
        fill = ctx.tensor(fill)
        fill = ctx.emit(ctx.reshape(fill, [])) if ctx.ndim(fill) else fill
        return padded(ctx, x, halves[0], halves[1], mode, fill)
    widths = [const_int(w) or 0 for pair in zip(*halves) for w in pair]
    if any(w < 0 for w in widths):
        x = ctx.emit(_crop(ctx, x, widths))
        widths = [max(w, 0) for w in widths]
    named = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    return op.nn.pad(x, widths, named, value.reshape(-1)[0].item())


def _crop(ctx: Context, x: Expr, widths: list[int]) -> Expr:
    """Negative padding cuts."""
    dims = ctx.dims(x)
    begin = [-w if w < 0 else 0 for w in widths[::2]]
    end = [simplify(d + w) if w < 0 else d for d, w in zip(dims, widths[1::2])]
    return op.strided_slice(x, list(range(len(dims))), begin, end)


def _slice_bounds(begin: Dim, end: Dim, step: int, extent: Dim) -> tuple[Dim, Dim]:
    """The bounds of a slice within its axis: ONNX counts negative ones from the end and clamps both.

    With a negative step, begin is at most the last element, and end may be -1, which is before the first.
    """

    def within(bound: Dim, low: int, high: Dim) -> Dim:
        known = const_int(bound)
        if known is not None and abs(known) >= _BEYOND:
            return high if known > 0 else simplify(tir.min(low, high))
        if known is None:
            bound = tir.if_then_else(bound < 0, bound + extent, bound)
        elif known < 0:
            bound = extent + known
        return simplify(tir.min(tir.max(bound, low), high))

    if step > 0:
        first, last = within(begin, 0, extent), within(end, 0, extent)
        return first, simplify(tir.max(last, first))
    return within(begin, 0, extent - 1), within(end, -1, extent - 1)


def _slice_dynamic(
    ctx: Context,
    x: Expr,
    axes: list[int],
    starts: list[PrimExpr],
    ends: list[PrimExpr],
    steps: list[int],
    dims: list[PrimExpr],
    at_run_time: bool,
) -> Expr:
    """A slice of which some bound or dimension is symbolic; backwards is forwards, then flipped.

    ``at_run_time`` tells that bounds are no sizes of tensors, but computed by the model.
    """
    begin: list[Dim] = []
    end: list[Dim] = []
    for a, b, e, s in zip(axes, starts, ends, steps):
        first, last = _slice_bounds(b, e, s, dims[a])
        if s < 0:
            count = tir.max(tir.floordiv(first - last - s - 1, -s), 0)
            lowest = simplify(first + (count - 1) * s)
            first, last = lowest, simplify(tir.max(lowest, first + 1))
        begin.append(first)
        end.append(last)
    if at_run_time:
        both = ctx.named([*begin, *end])
        begin, end = list(both[: len(begin)]), list(both[len(begin) :])
    out = op.strided_slice(x, axes, begin, end, [abs(s) for s in steps], assume_inbound=True)
    for a in (a for a, s in zip(axes, steps) if s < 0):
        out = op.flip(out, a)
    return out


def _slice_at_run_time(ctx: Context, x: Expr, bounds: list[Any]) -> Expr:
    """A slice of which the run decides the axes or steps."""
    dims, one = ctx.dims(x), const(1, "int64")
    begins, ends = ctx.elements(bounds[0]), ctx.elements(bounds[1])
    given = bounds[2] if bounds[2] is not None else ctx.const(np.arange(len(begins)), "int64")
    axes = ctx.elements(given)
    steps = ctx.elements(bounds[3]) if len(bounds) > 3 and bounds[3] is not None else [one] * len(axes)
    asked = [
        chosen(axes, values, d, len(dims), default)
        for d, dim in enumerate(dims)
        for values, default in ((begins, const(0, "int64")), (ends, dim), (steps, one))
    ]
    named = iter(ctx.named(asked))
    parts = []
    for dim in dims:
        begin, end, step = next(named), next(named), next(named)
        first, count = slice_bounds(begin, end, step, dim)
        parts.append((first, step, count))
    starts, strides, counts = zip(*parts)
    return cut(ctx, x, starts, strides, counts)


@convert("Slice")
def _slice(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = inputs[0]
    if _computed(ctx, inputs, 3) or _computed(ctx, inputs, 4):
        return _slice_at_run_time(ctx, ctx.tensor(x), inputs[1:])
    if len(inputs) > 1:
        starts, ends = ctx.elements(inputs[1]), ctx.elements(inputs[2])
        axes = ctx.axes(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
        steps = ctx.axes(inputs[4], "steps") if len(inputs) > 4 and inputs[4] is not None else None
    else:
        starts, ends = ([PrimValue(int(v)).value for v in attrs[k]] for k in ("starts", "ends"))
        axes, steps = attr_ints(attrs, "axes"), None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if isinstance(x, ShapeExpr):
        first, last = const_int(starts[0]), const_int(ends[0])
        return ShapeExpr(list(x.values)[first : (None if last is None or abs(last) >= _BEYOND else last) : steps[0]])
    folded = ctx.constant(x)
    if folded is not None and folded.size <= 1024 and all(const_int(v) is not None for v in (*starts, *ends)):
        index = [slice(None)] * folded.ndim
        for a, b, e, s in zip(axes, starts, ends, steps):
            stop = const_int(e)
            index[a] = slice(const_int(b), None if s < 0 and stop is not None and stop <= -_BEYOND else stop, s)
        return ctx.const(np.ascontiguousarray(folded[tuple(index)]), str(folded.dtype))
    x = ctx.tensor(x)
    dims = ctx.dims(x)
    known = [const_int(v) for v in (*starts, *ends, *(dims[a] for a in axes))]
    if None in known:
        at_run_time = len(inputs) > 1 and None in (ctx.scalars(inputs[1]), ctx.scalars(inputs[2]))
        return _slice_dynamic(ctx, x, axes, starts, ends, steps, dims, at_run_time)
    bounds = [_slice_bounds(b, e, s, dims[a]) for a, b, e, s in zip(axes, starts, ends, steps)]
    # Backwards past the first element is what no index that counts from the end can say: far below it.
    far = [-_BEYOND if const_int(e) == -1 else e for _, e in bounds]
    return op.strided_slice(x, axes, [b for b, _ in bounds], far, steps)


@convert("DepthToSpace")
def _depth_to_space(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    size = int(attrs["blocksize"])
    b, c, h, w = ctx.dims(x)
    depth = simplify(c // (size * size))
    if attrs.get("mode", "DCR") == "DCR":
        x, order = ctx.emit(ctx.reshape(x, [b, size, size, depth, h, w])), [0, 3, 4, 1, 5, 2]
    else:
        x, order = ctx.emit(ctx.reshape(x, [b, depth, size, size, h, w])), [0, 1, 4, 2, 5, 3]
    x = ctx.emit(op.permute_dims(x, order))
    return ctx.reshape(x, [b, depth, simplify(h * size), simplify(w * size)])


@convert("SpaceToDepth")
def _space_to_depth(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    size = int(attrs["blocksize"])
    b, c, h, w = ctx.dims(x)
    x = ctx.emit(ctx.reshape(x, [b, c, simplify(h // size), size, simplify(w // size), size]))
    # The place inside its square comes before the channel, or after it.
    order = [0, 3, 5, 1, 2, 4] if attrs.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    x = ctx.emit(op.permute_dims(x, order))
    return ctx.reshape(x, [b, simplify(c * (size * size)), simplify(h // size), simplify(w // size)])
