"""Dimensions cut into blocks and put together again, and normalisation over neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import CheckValueError
from ... import te
from ...tir import PrimExpr, const, floordiv, floormod, if_then_else, power
from ...tir import all as all_of
from .. import tag as tags
from ..shape import flatten as flatten_batch
from ..utils import ax_compute, simplify
from ...te.tensor import Dim
from .pad import pad

__all__ = ["batch_to_space_nd", "depth_to_space", "flatten", "lrn", "space_to_batch_nd", "space_to_depth"]


def flatten(data: te.Tensor) -> te.Tensor:
    """``[batch, everything else]``."""
    return flatten_batch(data)


def _channels(layout: str) -> bool:
    """Whether channels come before the plane. Raises CheckValueError for a layout that is neither NCHW nor NHWC."""
    if layout not in ("NCHW", "NHWC"):
        raise CheckValueError(f"Only NCHW and NHWC layouts are currently supported, not {layout}")
    return layout == "NCHW"


def depth_to_space(data: te.Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> te.Tensor:
    """Channels moved into squares of ``block_size``: the square's place is the high part of the channel in mode DCR.

    >>> from relaxish import te, topi
    >>> topi.nn.depth_to_space(te.placeholder((1, 8, 3, 5)), 2).shape
    (1, 2, 6, 10)
    """
    first, b = _channels(layout), block_size
    if mode not in ("DCR", "CDR"):
        raise CheckValueError(f"the mode of depth_to_space is DCR or CDR, not {mode}")
    batch, *rest = data.shape
    channels, height, width = rest if first else (rest[2], rest[0], rest[1])
    made = simplify(floordiv(channels, b * b))

    def body(i: list[PrimExpr]) -> PrimExpr:
        n, c, y, x = i if first else (i[0], i[3], i[1], i[2])
        corner = floormod(y, b) * b + floormod(x, b)
        source = corner * made + c if mode == "DCR" else c * (b * b) + corner
        row, column = floordiv(y, b), floordiv(x, b)
        return data(n, source, row, column) if first else data(n, row, column, source)

    plane = [simplify(height * b), simplify(width * b)]
    return ax_compute([batch, made, *plane] if first else [batch, *plane, made], body, "depth_to_space", tags.INJECTIVE)


def space_to_depth(data: te.Tensor, block_size: int, layout: str = "NCHW") -> te.Tensor:
    """Squares of ``block_size`` moved into channels, the square's place as the high part of the channel."""
    first, b = _channels(layout), block_size
    batch, *rest = data.shape
    channels, height, width = rest if first else (rest[2], rest[0], rest[1])

    def body(i: list[PrimExpr]) -> PrimExpr:
        n, c, y, x = i if first else (i[0], i[3], i[1], i[2])
        corner, source = floordiv(c, channels), floormod(c, channels)
        row, column = y * b + floordiv(corner, b), x * b + floormod(corner, b)
        return data(n, source, row, column) if first else data(n, row, column, source)

    plane = [simplify(floordiv(height, b)), simplify(floordiv(width, b))]
    made = simplify(channels * (b * b))
    return ax_compute([batch, made, *plane] if first else [batch, *plane, made], body, "space_to_depth", tags.INJECTIVE)


def space_to_batch_nd(
    data: te.Tensor, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> te.Tensor:  # fmt: skip
    """Every ``block_shape``-th element of the axes after the batch, for each start, as entries of the batch."""
    blocks = list(block_shape)
    rest = len(data.shape) - 1 - len(blocks)
    padded = pad(data, [0, *pad_before, *[0] * rest], [0, *pad_after, *[0] * rest], pad_value, name="padded")
    batch, *axes = padded.shape
    count = 1
    for b in blocks:
        count *= b

    def body(i: list[PrimExpr]) -> PrimExpr:
        start, places = floordiv(i[0], batch), list(i[1:])
        for at in reversed(range(len(blocks))):
            places[at] = places[at] * blocks[at] + floormod(start, blocks[at])
            start = floordiv(start, blocks[at])
        return padded(floormod(i[0], batch), *places)

    shape = [simplify(floordiv(d, b)) for d, b in zip(axes, blocks)] + axes[len(blocks) :]
    return ax_compute([simplify(batch * count), *shape], body, "space_to_batch_nd", tags.INJECTIVE)


def batch_to_space_nd(
    data: te.Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> te.Tensor:
    """Inverse of :func:`space_to_batch_nd`, less the crops."""
    blocks = list(block_shape)
    count = 1
    for b in blocks:
        count *= b
    batch = simplify(floordiv(data.shape[0], count))
    axes = data.shape[1:]
    shape: list[Dim] = [
        simplify(d * b - low - high) for d, b, low, high in zip(axes, blocks, crop_begin_list, crop_end_list)
    ]

    def body(i: list[PrimExpr]) -> PrimExpr:
        places, start = list(i[1:]), const(0, i[0].dtype)
        for at, (b, low) in enumerate(zip(blocks, crop_begin_list)):
            whole = places[at] + low
            start = start * b + floormod(whole, b)
            places[at] = floordiv(whole, b)
        return data(start * batch + i[0], *places)

    return ax_compute([batch, *shape, *axes[len(blocks) :]], body, "batch_to_space_nd", tags.INJECTIVE)


def lrn(
    data: te.Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2
) -> te.Tensor:
    """``data / (bias + alpha / size * squares of the size values around it along the axis) ** beta``."""
    axis = axis % len(data.shape)
    around = te.reduce_axis((0, size), "rxs")
    extent = data.shape[axis]

    def squares(i: list[PrimExpr]) -> PrimExpr:
        at = i[axis] + around.var - size // 2
        inside = all_of(at >= 0, at < extent)
        value = if_then_else(inside, data(*i[:axis], at, *i[axis + 1 :]), const(0, data.dtype))
        return te.sum(value * value, axis=around)

    total = ax_compute(list(data.shape), squares, "sqr_sum", "")
    scale, start, root = (const(v, data.dtype) for v in (alpha / size, bias, beta))
    return ax_compute(
        list(data.shape), lambda i: data(*i) / power(start + scale * total(*i), root), "T_lrn", tags.BROADCAST
    )
