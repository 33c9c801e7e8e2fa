"""Windowed and adaptive pooling over any spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...tir import const, if_then_else, indexdiv, indexmod, IterVar, PrimExpr
from ..utils import int_pair, simplify, Steps
from .pad import pad_cpp
from ...te.tensor import Dim

__all__ = [
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "global_pool",
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_nd",
    "spatial_axes",
]


def spatial_axes(layout: str, count: int) -> list[int]:
    """Positions of the spatial letters; split layouts (``NCHW16c``) keep their outer ones."""
    letters = "DHW"[3 - count :]
    names: list[str] = []
    for ch in layout:
        if ch.isalpha():
            names.append(ch)
    for letter in letters:
        if letter not in names:
            raise CheckValueError(f"Unsupported layout {layout} for pooling over {letters}")
        if letter.lower() in names:
            raise CheckValueError(f"Unsupported layout {layout}: a spatial axis must not be split")
    return [names.index(letter) for letter in letters]


def _as(value: Dim, dtype: str) -> PrimExpr:
    return tir.convert(value).astype(dtype)


class _Window:
    """Geometry of one windowed pooling."""

    def __init__(
        self,
        x: te.Tensor,
        kernel: Steps,
        stride: Steps,
        dilation: Steps,
        padding: Steps,
        ceil_mode: bool,
        axes: Sequence[int],
    ) -> None:
        n = len(axes)
        self.axes = list(axes)
        kind = str(x.shape[axes[0]].dtype)
        self.kernel = [_as(v, kind) for v in int_pair(kernel, n)]
        self.stride = [_as(v, kind) for v in int_pair(stride, n)]
        self.dilation = [_as(v, kind) for v in int_pair(dilation, n)]
        pads = list(int_pair(padding, n))
        pads = pads + pads if len(pads) == n else pads
        self.head = [_as(v, kind) for v in pads[:n]]
        self.tail = [_as(v, kind) for v in pads[n:]]
        self.offset = [const(0, kind)] * n
        if ceil_mode:
            self.offset = [s - 1 for s in self.stride]
            self.tail = [t + o for t, o in zip(self.tail, self.offset)]
        self.shape = list(x.shape)
        for i, axis in enumerate(self.axes):
            span = x.shape[axis] - (self.kernel[i] - 1) * self.dilation[i] - 1 + self.head[i] + self.tail[i]
            count = indexdiv(span, self.stride[i]) + 1
            if ceil_mode:
                # A last window that starts in the tail padding does not count.
                outside = (count - 1) * self.stride[i] >= x.shape[axis] + self.head[i]
                count = if_then_else(outside, count - 1, count)
            self.shape[axis] = simplify(count)
        zero = const(0, kind)
        self.before, self.after = [zero] * len(x.shape), [zero] * len(x.shape)
        for i, axis in enumerate(self.axes):
            self.before[axis], self.after[axis] = self.head[i], self.tail[i]

    def reduce_axes(self) -> list[IterVar]:
        return [te.reduce_axis((const(0, str(k.dtype)), k), f"rv{i}") for i, k in enumerate(self.kernel)]

    def source(self, indices: Sequence[PrimExpr], rv: Sequence[IterVar]) -> list[PrimExpr]:
        out = list(indices)
        for i, axis in enumerate(self.axes):
            out[axis] = indices[axis] * self.stride[i] + rv[i].var * self.dilation[i]
        return out


def _compute(shape: Sequence[PrimExpr], body: Callable[[list[PrimExpr]], PrimExpr], name: str, tag: str) -> te.Tensor:
    # A user's own schedule rule for pooling is found by this name; sums before an average are left to the general ones.
    attrs = None if name.endswith("_sum") else {"schedule_rule": f"meta_schedule.{name}"}
    return te.compute(shape, lambda *i: body(list(i)), name, tag, attrs, [f"ax{k}" for k in range(len(shape))])


def _average(x: te.Tensor, w: _Window, pool_sum: te.Tensor, count_include_pad: bool) -> te.Tensor:
    kind = str(w.kernel[0].dtype)

    def body(indices: list[PrimExpr]) -> PrimExpr:
        count: Any = const(1, kind)
        for i, axis in enumerate(w.axes):
            start = indices[axis] * w.stride[i] - w.head[i]
            stop = start + (w.kernel[i] - 1) * w.dilation[i]
            if count_include_pad:
                stop = tir.min(stop, x.shape[axis] + w.tail[i] - 1 - w.offset[i])
                count = count * (indexdiv(stop - start, w.dilation[i]) + 1)
            else:
                skipped = tir.max(indexdiv(w.dilation[i] - 1 - start, w.dilation[i]), const(0, kind))
                stop = tir.min(stop, x.shape[axis] - 1)
                count = count * (indexdiv(stop - (start + w.dilation[i] * skipped), w.dilation[i]) + 1)
        divisor = count if count_include_pad else tir.max(count, const(1, kind))
        return tir.div(pool_sum(*indices), divisor)

    return _compute(w.shape, body, "pool_avg", "elemwise")


def pool_nd(
    x: te.Tensor,
    kernel: Steps,
    stride: Steps,
    dilation: Steps,
    padding: Steps,
    pool_type: str,
    ceil_mode: bool,
    axes: Sequence[int],
    count_include_pad: bool,
) -> te.Tensor:
    """Pooling of kind ``max`` or ``avg`` over ``axes``."""
    w = _Window(x, kernel, stride, dilation, padding, ceil_mode, axes)
    if pool_type == "max":
        temp = pad_cpp(x, w.before, w.after, te.min_value(x.dtype), "pad_temp")
        rv = w.reduce_axes()
        return _compute(w.shape, lambda i: te.max(temp(*w.source(i, rv)), axis=rv), "pool_max", "pool_max")
    if pool_type != "avg":
        raise CheckValueError(f"Unrecognized pool_type: {pool_type}")
    temp = pad_cpp(x, w.before, w.after, const(0, x.dtype), "pad_temp")
    rv = w.reduce_axes()
    total = _compute(w.shape, lambda i: te.sum(temp(*w.source(i, rv)), axis=rv), "pool_sum", "pool_sum")
    return _average(x, w, total, count_include_pad)


def _pool(n: int, axes: str) -> Callable[..., te.Tensor]:
    def pool(
        data: te.Tensor,
        kernel: Steps,
        stride: Steps,
        dilation: Steps,
        padding: Steps,
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[n],
        count_include_pad: bool = True,
    ) -> te.Tensor:
        spatial = spatial_axes(layout, n)
        return pool_nd(data, kernel, stride, dilation, padding, pool_type, ceil_mode, spatial, count_include_pad)

    pool.__name__ = pool.__qualname__ = f"pool{n}d"
    pool.__doc__ = f"Pooling over {axes}."
    return pool


pool1d, pool2d, pool3d = _pool(1, "one axis"), _pool(2, "two axes"), _pool(3, "three axes")


def _adaptive(x: te.Tensor, output_size: Sequence[Dim], pool_type: str, axes: Sequence[int]) -> te.Tensor:
    shape = list(x.shape)
    for axis, size in zip(axes, output_size):
        shape[axis] = _as(size, str(x.shape[axis].dtype))

    def window(indices: Sequence[PrimExpr]) -> tuple[list[PrimExpr], list[IterVar]]:
        source, rvs = list(indices), []
        for i, axis in enumerate(axes):
            want, have = shape[axis], x.shape[axis]
            start = indexdiv(indices[axis] * have, want)
            stop = (indices[axis] + 1) * have
            whole = indexdiv(stop, want)
            exact = tir.EQ(indexmod(stop, want), const(0, str(have.dtype)))
            end = tir.Select(exact, whole, whole + 1)
            rv = te.reduce_axis((const(0, str(have.dtype)), simplify(end - start)), f"rv{i}")
            rvs.append(rv)
            source[axis] = start + rv.var
        return source, rvs

    def reduced(combine: Callable[..., PrimExpr]) -> Callable[[list[PrimExpr]], PrimExpr]:
        def body(indices: list[PrimExpr]) -> PrimExpr:
            source, rvs = window(indices)
            return combine(x(*source), axis=rvs)

        return body

    if pool_type == "max":
        return _compute(shape, reduced(te.max), "adaptive_pool_max", "adaptive_pool_max")
    if pool_type != "avg":
        raise CheckValueError(f"Unrecognized pool_type: {pool_type}")
    total = _compute(shape, reduced(te.sum), "adaptive_pool_sum", "adaptive_pool_sum")

    def average(indices: list[PrimExpr]) -> PrimExpr:
        _, rvs = window(indices)
        count: Any = const(1, str(x.dtype))
        for rv in rvs:
            count = count * rv.dom.extent.astype(x.dtype)
        return tir.div(total(*indices), count)

    return _compute(shape, average, "adaptive_pool_avg", "elemwise")


def _sizes(output_size: Steps, count: int) -> list[Dim]:
    return list(int_pair(output_size, count))


def adaptive_pool(data: te.Tensor, output_size: Steps, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """To a fixed output size over two axes."""
    return _adaptive(data, _sizes(output_size, 2), pool_type, spatial_axes(layout, 2))


def adaptive_pool1d(data: te.Tensor, output_size: Steps, pool_type: str, layout: str = "NCW") -> te.Tensor:
    """To a fixed output size over one axis."""
    return _adaptive(data, _sizes(output_size, 1), pool_type, spatial_axes(layout, 1))


def adaptive_pool3d(data: te.Tensor, output_size: Steps, pool_type: str, layout: str = "NCDHW") -> te.Tensor:
    """To a fixed output size over three axes."""
    return _adaptive(data, _sizes(output_size, 3), pool_type, spatial_axes(layout, 3))


def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """Over whole planes."""
    return adaptive_pool(data, (1, 1), pool_type, layout)
