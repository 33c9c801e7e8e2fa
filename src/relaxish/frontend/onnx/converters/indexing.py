"""Gathering and scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr, PrimValue, ShapeExpr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ..context import Context, convert, Made


def _wrapped(ctx: Context, indices: Expr, extent: PrimExpr) -> Expr:
    """Negative positions count from the end."""
    known = ctx.constant(indices)
    kind = ctx.dtype(indices)
    size = const_int(extent)
    if known is not None:
        if (known >= 0).all():
            return ctx.tensor(indices)
        if size is not None:
            return ctx.const(np.where(known < 0, known + size, known), kind)
    indices = ctx.tensor(indices)
    below = ctx.emit(op.less(indices, ctx.const(0, kind)))
    length = ctx.tensor(ctx.from_scalars([extent], 0))
    if ctx.dtype(length) != kind:
        length = ctx.emit(op.astype(length, kind))
    return ctx.emit(op.where(below, ctx.emit(op.add(indices, length)), indices))


def _wrapped_tuples(ctx: Context, indices: Expr, extents: list[PrimExpr]) -> Expr:
    """Negative positions in the last axis of ``indices``, one for each of ``extents``, count from the end."""
    known = ctx.constant(indices)
    sizes = [const_int(e) for e in extents]
    if known is not None and (known >= 0).all():
        return ctx.tensor(indices)
    kind = ctx.dtype(indices)
    if None not in sizes:
        lengths = ctx.const(np.asarray(sizes), kind)
    else:
        lengths = ctx.tensor(ShapeExpr(extents))
        lengths = lengths if kind == "int64" else ctx.emit(op.astype(lengths, kind))
    indices = ctx.tensor(indices)
    below = ctx.emit(op.less(indices, ctx.const(0, kind)))
    return ctx.emit(op.where(below, ctx.emit(op.add(indices, lengths)), indices))


@convert("Gather")
def _gather(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, indices = inputs
    axis = int(attrs.get("axis", 0))
    if isinstance(x, ShapeExpr):
        places = ctx.constant(indices)
        if places is not None and places.ndim <= 1:
            picked = [x.values[int(i)] for i in np.atleast_1d(places)]
            return ctx.from_scalars(picked, places.ndim)
    folded = ctx.fold(lambda v, i: np.take(v, i, axis), [x, indices])
    if folded is not None:
        return folded
    x = ctx.tensor(x)
    where = _wrapped(ctx, indices, ctx.dims(x)[axis])
    return op.take(x, where, axis)


@convert("GatherElements")
def _gather_elements(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    axis = int(attrs.get("axis", 0))
    return op.gather_elements(x, _wrapped(ctx, inputs[1], ctx.dims(x)[axis]), axis)


@convert("GatherND")
def _gather_nd(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, batch = ctx.tensor(inputs[0]), int(attrs.get("batch_dims", 0))
    where = _wrapped_tuples(ctx, inputs[1], _addressed(ctx, x, inputs[1], batch))
    return op.gather_nd(x, where, batch)


def _addressed(ctx: Context, x: Expr, indices: Expr, batch: int = 0) -> list[PrimExpr]:
    """The dimensions of ``x`` that the last axis of ``indices`` addresses."""
    count = const_int(ctx.dims(indices)[-1])
    if count is None:
        raise OpAttributeInvalid("the number of positions in a tuple of indices must be known")
    return ctx.dims(x)[batch : batch + count]


_REDUCTION = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@convert("ScatterElements")
@convert("Scatter")
def _scatter_elements(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    data, indices, updates = (ctx.tensor(x) for x in inputs)
    # The operator itself counts negative positions from the end; twice would let those beyond it pass.
    kind = _REDUCTION[attrs.get("reduction", "none")]
    updates = ctx.fitted(updates, ctx.dims(indices))
    return op.scatter_elements(data, indices, updates, int(attrs.get("axis", 0)), kind)


@convert("ScatterND")
def _scatter_nd(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    data, indices, updates = (ctx.tensor(x) for x in inputs)
    indices = _wrapped_tuples(ctx, indices, _addressed(ctx, data, indices))
    count = const_int(ctx.dims(indices)[-1]) or 0
    updates = ctx.fitted(updates, [*ctx.dims(indices)[:-1], *ctx.dims(data)[count:]])
    return op.scatter_nd(data, indices, updates, _REDUCTION[attrs.get("reduction", "none")])


@convert("Compress")
def _compress(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    keep = ctx.setting(inputs[1])
    x = ctx.tensor(inputs[0])
    if keep is not None:
        places = ctx.const(np.nonzero(keep.reshape(-1))[0], "int64")
    else:
        found = ctx.with_dims(op.nonzero(ctx.tensor(inputs[1])))
        places = ctx.emit(ctx.reshape(found, ctx.dims(found)[1:]))
    if "axis" not in attrs:
        x = ctx.emit(ctx.reshape(x, [-1]))
    return op.take(x, places, int(attrs.get("axis", 0)))


@convert("OneHot")
def _one_hot(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    where, axis = ctx.tensor(inputs[0]), int(attrs.get("axis", -1))
    if not ctx.dtype(where).startswith("int"):
        where = ctx.emit(op.astype(where, "int64"))
    size, values = ctx.setting(inputs[1]), ctx.setting(inputs[2])
    if size is None or values is None:
        return _one_hot_at_run_time(ctx, where, inputs, axis)
    values, depth = values.reshape(-1), int(size.reshape(-1)[0])
    kind = str(values.dtype)
    where = _wrapped(ctx, where, const(depth, "int64"))
    off, on = (PrimValue(const(v.item(), kind)) for v in values[:2])
    return op.one_hot(where, on, off, depth, axis)


def _one_hot_at_run_time(ctx: Context, where: Expr, inputs: list[Any], axis: int) -> Expr:
    """A new axis of a size, or of values, that only the run knows."""
    depth = inputs[1]
    if ctx.dtype(depth) != "int64":
        depth = ctx.emit(op.astype(ctx.tensor(depth), "int64"))
    (size,) = ctx.named([tir.max(ctx.element(depth), 0)])
    axis %= ctx.ndim(where) + 1

    def compute(indices: te.Tensor, values: te.Tensor, count: PrimExpr) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            spot = indices(*at[:axis], *at[axis + 1 :]).astype("int64")
            hit = tir.Or(spot == at[axis], spot + count == at[axis])
            return tir.if_then_else(hit, values(1), values(0))

        return te.compute([*indices.shape[:axis], count, *indices.shape[axis:]], body, "one_hot")

    return ctx.builder.call_te(compute, where, ctx.tensor(inputs[2]), size, primfunc_name_hint="one_hot")


@convert("NonZero")
def _nonzero(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    folded = ctx.fold(lambda v: np.stack(np.nonzero(v)), inputs[:1])
    if folded is not None:
        return folded
    x = ctx.tensor(inputs[0])
    found = ctx.with_dims(op.nonzero(x))
    return ctx.fitted(found, [max(ctx.ndim(x), 1), ctx.dims(found)[1]])


@convert("Unique")
def _unique(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    count, axis = attrs["__outputs__"], attrs.get("axis")
    x = ctx.tensor(inputs[0])
    found = op.unique(
        x,
        sorted=bool(attrs.get("sorted", 1)),
        return_index=count > 1,
        return_inverse=count > 2,
        return_counts=count > 3,
        axis=None if axis is None else int(axis),
    )
    bound = ctx.builder.emit(found)
    return [bound] if count == 1 else [ctx.builder.emit(bound[k]) for k in range(count)]
