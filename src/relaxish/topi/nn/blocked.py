"""Convolutions over blocks of channels, and depthwise ones with channels last."""

from __future__ import annotations

from ... import te
from ...ir.errors import CheckValueError
from ...tir import IterVar, PrimExpr
from ..utils import const_int, int_pair, Padding, simplify, Steps
from .conv import pad_pair
from .pad import pad

__all__ = ["conv2d_NCHWc", "depthwise_conv2d_NCHWc", "depthwise_conv2d_nhwc"]


class _Windows:
    """Padding, result size and reduction axes of windows over an image."""

    def __init__(
        self, size: list[PrimExpr], kernel: list[PrimExpr], stride: Steps, padding: Padding, dilation: Steps
    ) -> None:
        self.strides, self.dilations = int_pair(stride), int_pair(dilation)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations)]
        self.before, self.after = pad_pair(padding, reach)
        self.size = [
            simplify((n - r + b + a) // s + 1)
            for n, r, b, a, s in zip(size, reach, self.before, self.after, self.strides)
        ]
        self.axes: list[IterVar] = [te.reduce_axis((0, k), name) for k, name in zip(kernel, ("kh", "kw"))]

    def padded(self, data: te.Tensor, first: int) -> te.Tensor:
        """``data`` with its borders along the axes ``first`` and ``first + 1``."""
        rest = [0] * (len(data.shape) - first - 2)
        return pad(data, [*[0] * first, *self.before, *rest], [*[0] * first, *self.after, *rest], name="data_pad")

    def at(self, row: PrimExpr, column: PrimExpr) -> list[PrimExpr]:
        """The element of the padded image under the window's element."""
        places = zip((row, column), self.strides, self.axes, self.dilations)
        return [p * s + r.var * d for p, s, r, d in places]


def _blocks(layout: str, out_layout: str, data: te.Tensor, kernel: te.Tensor) -> None:
    ranks = len(data.shape), len(kernel.shape)
    if ranks != (5, 6) or not (layout.startswith("NCHW") and out_layout.startswith("NCHW")):
        raise CheckValueError(
            f"images and filters in blocks of channels have 5 and 6 dimensions, not {ranks[0]} and {ranks[1]} "
            f"({layout} to {out_layout})"
        )


def _check_blocks(data: te.Tensor, kernel: te.Tensor) -> None:
    known = [const_int(v) for v in (data.shape[1], data.shape[4], kernel.shape[0], kernel.shape[1], kernel.shape[4])]
    if None in known:
        return
    chunks, block, out_chunks, own_chunks, own_block = (int(v or 0) for v in known)
    if block != own_block or chunks % own_chunks or out_chunks % (chunks // own_chunks):
        raise CheckValueError(
            f"{out_chunks} blocks of filters over {own_chunks} blocks of {own_block} channels do not divide into groups "
            f"over {chunks} blocks of {block}"
        )


def conv2d_NCHWc(
    data: te.Tensor, kernel: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, layout: str, out_layout: str,
    out_dtype: str = "float32",
) -> te.Tensor:  # fmt: skip
    """Convolution of ``[n, C/c, h, w, c]`` with ``[O/o, C/c/groups, kh, kw, c, o]``; gives ``[n, O/o, h, w, o]``."""
    _blocks(layout, out_layout, data, kernel)
    batch, chunks, height, width, block = data.shape
    out_chunks, own_chunks, kh, kw, own_block, out_block = kernel.shape
    windows = _Windows([height, width], [kh, kw], stride, padding, dilation)
    _check_blocks(data, kernel)
    groups = simplify(chunks // own_chunks)
    per_group = simplify(out_chunks // groups)
    image = windows.padded(data, 2)
    outer, inner = te.reduce_axis((0, own_chunks), "ic_outer"), te.reduce_axis((0, block), "ic_inner")

    def body(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        first = outer.var if const_int(groups) == 1 else o // per_group * own_chunks + outer.var
        left = image(n, first, *windows.at(y, x), inner.var).astype(out_dtype)
        right = kernel(o, outer.var, *(a.var for a in windows.axes), inner.var, c).astype(out_dtype)
        return te.sum(left * right, axis=[outer, *windows.axes, inner])

    return te.compute((batch, out_chunks, *windows.size, out_block), body, "conv2d_NCHWc", "conv2d_NCHWc")


def depthwise_conv2d_NCHWc(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, layout: str, out_layout: str,
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Every channel of ``[n, C/c, h, w, c]`` with filters of its own, ``[O/o, 1, kh, kw, 1, o]``."""
    _blocks(layout, out_layout, Input, Filter)
    kind = out_dtype or Input.dtype
    batch, chunks, height, width, block = Input.shape
    out_chunks, _, kh, kw, _, out_block = Filter.shape
    windows = _Windows([height, width], [kh, kw], stride, padding, dilation)
    multiplier = simplify(out_chunks * out_block // (chunks * block))
    image = windows.padded(Input, 2)

    def body(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        channel = (o * out_block + c) // multiplier
        left = image(n, channel // block, *windows.at(y, x), channel % block).astype(kind)
        right = Filter(o, 0, *(a.var for a in windows.axes), 0, c).astype(kind)
        return te.sum(left * right, axis=windows.axes)

    shape = (batch, out_chunks, *windows.size, out_block)
    return te.compute(shape, body, "DepthwiseConv2d", "depthwise_conv2d_NCHWc")


def depthwise_conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: Steps, padding: Padding, dilation: Steps, kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Every channel with filters of its own; ``Filter`` is ``[h, w, channel, multiplier]``, or the last two the other
    way round in the layout ``HWIO``."""
    if kernel_layout not in ("HWOI", "HWIO"):
        raise CheckValueError(f"depthwise_conv2d_nhwc takes filters as HWOI or HWIO, not {kernel_layout}")
    kind, last = out_dtype or Input.dtype, kernel_layout == "HWOI"
    batch, height, width, channels = Input.shape
    kh, kw, *filters = Filter.shape
    multiplier = filters[1] if last else filters[0]
    windows = _Windows([height, width], [kh, kw], stride, padding, dilation)
    image = windows.padded(Input, 1)

    def body(n: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        channel, which = c // multiplier, c % multiplier
        at = [a.var for a in windows.axes] + ([channel, which] if last else [which, channel])
        return te.sum(image(n, *windows.at(y, x), channel).astype(kind) * Filter(*at).astype(kind), axis=windows.axes)

    shape = (batch, *windows.size, simplify(channels * multiplier))
    return te.compute(shape, body, "DepthwiseConv2d", "depthwise_conv2d_nhwc")
