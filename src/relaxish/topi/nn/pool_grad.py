"""Gradients of pooling over two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...tir import const, if_then_else, IterVar, PrimExpr
from .. import tag as tags
from ..reduction import arg_reducer
from ..utils import ax_compute, const_int, int_pair, ravel_index, simplify, Steps
from .pad import pad_cpp
from .pooling import spatial_axes

__all__ = ["pool_grad"]


@dataclass(frozen=True)
class _Window:
    """Geometry along one pooled axis."""

    axis: int
    size: Any
    kernel: Any
    stride: Any
    head: Any
    tail: Any

    @property
    def count(self) -> PrimExpr:
        """Number of windows."""
        return simplify(tir.truncdiv(self.size - self.kernel + self.head + self.tail, self.stride) + 1)

    def cover(self, name: str) -> IterVar:
        """A reduction over the windows that may hold one element."""
        return _reduce(tir.truncdiv(self.kernel + self.stride - 1, self.stride), name)

    def first(self, position: PrimExpr) -> PrimExpr:
        """The first window that holds a padded position."""
        first = tir.truncdiv(position - self.kernel, self.stride) + 1
        return tir.Select(position < self.kernel, const(0, str(position.dtype)), first)


def _reduce(extent: PrimExpr, name: str) -> IterVar:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), name)


def _moved(indices: Sequence[Any], windows: Sequence[_Window], values: Sequence[Any]) -> list[Any]:
    out = list(indices)
    for window, value in zip(windows, values):
        out[window.axis] = value
    return out


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Steps,
    stride: Steps,
    padding: Steps,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> te.Tensor:
    """The gradient of ``pool2d`` by its data, from that by its result.

    Of equal maxima in a window, the first gets all of the gradient.
    """
    axes = spatial_axes(layout, 2)
    kernels, strides, pads = list(int_pair(kernel)), list(int_pair(stride)), list(int_pair(padding))
    pads = pads * 2 if len(pads) == 2 else pads
    windows = []
    for k, axis in enumerate(axes):
        kind = str(data.shape[axis].dtype)
        size, step, head, tail = (tir.convert(v).astype(kind) for v in (kernels[k], strides[k], pads[k], pads[k + 2]))
        windows.append(_Window(axis, data.shape[axis], size, step, head, tail + step - 1 if ceil_mode else tail))
    if pool_type == "max":
        return _max_grad(grads, data, windows, any(const_int(p) != 0 for p in pads))
    if pool_type != "avg":
        raise CheckValueError(f"Unrecognized pool_type: {pool_type}")
    return _avg_grad(grads, data, windows, count_include_pad)


def _max_grad(grads: te.Tensor, data: te.Tensor, windows: Sequence[_Window], padded: bool) -> te.Tensor:
    none = [const(0, str(d.dtype)) for d in data.shape]
    before, after = _moved(none, windows, [w.head for w in windows]), _moved(none, windows, [w.tail for w in windows])
    wide = [d + b + a for d, b, a in zip(data.shape, before, after)]
    taps = [_reduce(w.kernel, name) for w, name in zip(windows, ("dh", "dw"))]
    cover = [w.cover(name) for w, name in zip(windows, ("wh", "ww"))]
    source = pad_cpp(data, before, after, te.min_value(data.dtype), "pad_temp") if padded else data
    reducer = arg_reducer(True, False)

    def largest(*i: PrimExpr) -> tuple[PrimExpr, ...]:
        at = _moved(i, windows, [i[w.axis] * w.stride + tap.var for w, tap in zip(windows, taps)])
        return reducer((ravel_index(at, wide), source(*at)), axis=taps)

    shape = _moved(data.shape, windows, [w.count for w in windows])
    names = [f"ax{k}" for k in range(len(shape))]
    places = te.compute(shape, largest, "maxpool_grad_argmax", tags.COMM_REDUCE_IDX, None, names)[0]

    def element(i: list[PrimExpr]) -> PrimExpr:
        inside = [i[w.axis] + w.head for w in windows]
        flat = ravel_index(_moved(i, windows, inside), wide)
        outer = [tir.truncdiv(p, w.stride) - c.var for p, w, c in zip(inside, windows, cover)]
        at = _moved(i, windows, outer)
        down, right = (o >= w.first(p) for o, w, p in zip(outer, windows, inside))
        hit = tir.And(tir.And(down, right), tir.EQ(places(*at), flat))
        return te.sum(if_then_else(hit, grads(*at), const(0, data.dtype)), axis=cover)

    return ax_compute(data.shape, element, "T_pool_grad", "pool_grad_max")


def _avg_grad(grads: te.Tensor, data: te.Tensor, windows: Sequence[_Window], count_include_pad: bool) -> te.Tensor:
    cover = [w.cover(name) for w, name in zip(windows, ("wh", "ww"))]

    def shared(outer: Sequence[PrimExpr]) -> PrimExpr:
        if count_include_pad:
            return windows[0].kernel * windows[1].kernel
        spans = []
        for o, w in zip(outer, windows):
            start = o * w.stride - w.head
            spans.append(tir.min(start + w.kernel, w.size) - tir.max(start, const(0, str(start.dtype))))
        total = spans[0] * spans[1]
        return tir.max(total, const(1, str(total.dtype)))

    def element(i: list[PrimExpr]) -> PrimExpr:
        inside = [i[w.axis] + w.head for w in windows]
        outer = [tir.truncdiv(p, w.stride) - c.var for p, w, c in zip(inside, windows, cover)]
        within, across = (tir.And(o >= w.first(p), o < w.count) for o, w, p in zip(outer, windows, inside))
        value = tir.div(grads(*_moved(i, windows, outer)), shared(outer))
        return te.sum(if_then_else(tir.And(within, across), value, const(0, grads.dtype)), axis=cover)

    return ax_compute(data.shape, element, "T_pool_grad", "pool_grad_avg")
