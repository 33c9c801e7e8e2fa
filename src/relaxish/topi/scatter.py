"""Writing updates to positions given by tensors.

The loops run over flat positions, which the builder turns into one index a dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import CheckValueError
from .. import te, tir
from ..tir import Buffer, ir_builder, PrimExpr, Stmt
from .utils import const_int, normalize_axis, prod, ravel_index, unravel_index
from ..tir.ir_builder import BufferVar

__all__ = ["scatter_elements", "scatter_nd"]

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: tir.div(old + new, tir.const(2, old.dtype)),
    "min": lambda old, new: tir.min(old, new),
    "max": lambda old, new: tir.max(old, new),
}


def _combiner(mode: str, allowed: tuple[str, ...], what: str) -> Callable[[Any, Any], Any]:
    if mode not in allowed:
        raise NotImplementedError(f"{what} {mode!r} is none of {list(allowed)}")
    return _COMBINE[mode]


def _differ(a: PrimExpr, b: PrimExpr) -> bool:
    known = const_int(a), const_int(b)
    return None not in known and known[0] != known[1]


def _place(
    out: BufferVar, position: PrimExpr, update: PrimExpr, combine: Callable[[PrimExpr, PrimExpr], PrimExpr]
) -> None:
    out[position] = update if combine is _COMBINE["update"] else combine(out[position], update)


def _written(
    name: str, data: te.Tensor, inputs: list[te.Tensor], body: Callable[[list[Buffer], Buffer], Stmt]
) -> te.Tensor:
    """A copy of ``data``'s shape that ``body`` fills."""
    out_buf = tir.decl_buffer(data.shape, data.dtype, "out_buf")
    return te.extern(
        [tuple(data.shape)],
        inputs,
        lambda ins, outs: body(ins, outs[0]),
        dtype=data.dtype,
        out_buffers=[out_buf],
        name=name,
        tag=name,
    )


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """``out[indices[i][j]][j] = updates[i][j]`` for axis 0, and so on; repeated positions are combined.

    Negative positions count from the end of the axis.
    """
    axis = normalize_axis(axis, len(data.shape))
    combine = _combiner(reduction, tuple(_COMBINE), "scatter_elements reduction")
    extent = data.shape[axis].astype(indices.dtype)
    after = prod(data.shape[axis + 1 :])
    picked, picked_after = indices.shape[axis], prod(indices.shape[axis + 1 :])
    stride, picked_stride = extent * after, picked * picked_after
    rows = prod(indices.shape[:axis]) * picked_after

    # One offset serves both shapes, unless inner dimensions of the data are known to be longer than those of the indices.
    inner_axes = [k for k in range(len(data.shape)) if k not in (0, axis, axis + 1) or 0 < k < axis]
    wider = any(_differ(data.shape[k], indices.shape[k]) for k in inner_axes)

    def body(ins: list[Buffer], target: Buffer) -> Stmt:
        ib = ir_builder.create()
        source, where, new, out = (ib.buffer_ptr(b) for b in (*ins, target))
        with ib.for_range(0, prod(data.shape), "i", kind="parallel") as i:
            out[i] = source[i]
        with ib.for_range(0, rows, "fused", kind="parallel") as fused:
            outer: Any = tir.floordiv(fused, picked_after)
            inner: Any = tir.floormod(fused, picked_after)
            first = outer * picked_stride + inner
            if wider:
                outer = ravel_index(unravel_index(outer, indices.shape[:axis]), data.shape[:axis]) if axis else 0
                inner = ravel_index(unravel_index(inner, indices.shape[axis + 1 :]), [0, *data.shape[axis + 2 :]])
            first_out = outer * stride + inner
            with ib.for_range(0, picked, "k") as k:
                at = first + k * picked_after
                position = where[at]
                shifted = position + tir.LT(position, tir.const(0, position.dtype)).astype(extent.dtype) * extent
                _place(out, first_out + shifted * after, new[at], combine)
        return ib.get()

    return _written("scatter_elements_generic", data, [data, indices, updates], body)


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> te.Tensor:
    """Slices of ``data`` replaced at the coordinates in the *first* axis of ``indices``."""
    depth = const_int(indices.shape[0])
    if depth is None:
        raise CheckValueError("scatter_nd needs a constant first dimension of indices")
    if depth > len(data.shape):
        raise CheckValueError(f"scatter_nd got coordinates of {depth} numbers for {len(data.shape)} dimensions")
    combine = _combiner(mode, ("update", "add", "mul", "min", "max"), "scatter_nd mode")
    count = prod(indices.shape[1:])
    width = prod(updates.shape[len(indices.shape) - 1 :])

    def body(ins: list[Buffer], target: Buffer) -> Stmt:
        ib = ir_builder.create()
        source, where, new, out = (ib.buffer_ptr(b) for b in (*ins, target))
        with ib.for_range(0, prod(data.shape)) as i:
            out[i] = source[i]
        with ib.for_range(0, count) as row, ib.for_range(0, width, kind="parallel") as column:
            stride: PrimExpr | int = width
            position: PrimExpr = column
            for d in reversed(range(depth)):
                position = position + stride * where[row + d * count]
                stride = stride * data.shape[d]
            _place(out, position, new[row * width + column], combine)
        return ib.get()

    return _written("scatter_nd_generic", data, [data, indices, updates], body)
