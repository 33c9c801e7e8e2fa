"""Pooling and its gradient in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

__all__ = ["adaptive_pool", "pool_grad_nchw", "poolnd_python"]

Array = np.ndarray[Any, Any]


def _windows(
    extent: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool
) -> list[range]:
    """The places that each window covers, those in the border included."""
    room = extent + before + after - (dilation * (kernel - 1) + 1)
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    starts = [i * stride - before for i in range(count)]
    return [range(s, s + dilation * (kernel - 1) + 1, dilation) for s in starts]


def poolnd_python(
    np_data: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int],
    padding_before: Sequence[int], padding_after: Sequence[int], pool_type: str, count_include_pad: bool = True,
    ceil_mode: bool = False, dtype: str = "float32", layout: str = "NCHW",
) -> Array:  # fmt: skip
    """The largest or the mean of each window; ``layout`` says which axes are spatial (all but N and C)."""
    axes = [i for i, letter in enumerate(layout) if letter in "DHW"] if len(layout) == np_data.ndim else None
    axes = axes or list(range(2, np_data.ndim))
    data = np.moveaxis(np_data, axes, range(np_data.ndim - len(axes), np_data.ndim)).astype(dtype)
    sizes = data.shape[-len(axes) :]
    walks = [
        _windows(n, k, s, d, b, a, ceil_mode)
        for n, k, s, d, b, a in zip(sizes, kernel, strides, dilation, padding_before, padding_after, strict=True)
    ]
    out = np.zeros((*data.shape[: -len(axes)], *map(len, walks)), dtype)
    limits = [n + a for n, a in zip(sizes, padding_after, strict=True)]
    for place in itertools.product(*(range(len(walk)) for walk in walks)):
        reach = [walk[i] for walk, i in zip(walks, place, strict=True)]
        inside = [[p for p in r if 0 <= p < n] for r, n in zip(reach, sizes, strict=True)]
        picked: Any = (..., *cast(Any, np.ix_(*inside)))
        part = data[picked].reshape(*data.shape[: -len(axes)], -1)
        target: Any = (..., *place)
        if pool_type == "max":
            out[target] = part.max(axis=-1)
            continue
        # A window that reaches beyond the border counts what is within it.
        counted = [len([p for p in r if p < limit]) for r, limit in zip(reach, limits, strict=True)]
        area = np.prod(counted) if count_include_pad else max(part.shape[-1], 1)
        out[target] = part.sum(axis=-1) / area
    return np.moveaxis(out, range(out.ndim - len(axes), out.ndim), axes)


def adaptive_pool(np_data: Array, out_size: int | Sequence[int], pool_type: str, layout: str) -> Array:
    """Pooling to a given size: window ``i`` of ``o`` covers ``[i * n // o, ceil((i + 1) * n / o))``."""
    axes = [i for i, letter in enumerate(layout) if letter in "DHW"]
    wanted = [out_size] * len(axes) if isinstance(out_size, int) else list(out_size)
    reduce = np.max if pool_type == "max" else np.mean
    out = np_data
    for axis, count in zip(axes, wanted, strict=True):
        extent = np_data.shape[axis]
        pieces = [np.take(out, range(i * extent // count, -(-(i + 1) * extent // count)), axis) for i in range(count)]
        out = np.stack([reduce(piece, axis=axis) for piece in pieces], axis=axis)
    return np.asarray(out, np_data.dtype)


def pool_grad_nchw(
    a_np: Array, out_grad_np: Array, pool_size: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    pool_type: str, ceil_mode: bool, count_include_pad: bool = True, add_relu: bool = False,
) -> Array:  # fmt: skip
    """The gradient of two-dimensional pooling; of equal largest elements the first gets all of it."""
    data = np.maximum(a_np, 0) if add_relu else a_np
    sizes, before, after = a_np.shape[2:], padding[:2], padding[2:]
    walks = [
        _windows(n, k, s, 1, b, a, ceil_mode)
        for n, k, s, b, a in zip(sizes, pool_size, strides, before, after, strict=True)
    ]
    grad = np.zeros_like(a_np)
    batch = np.arange(a_np.shape[0])[:, None], np.arange(a_np.shape[1])[None]
    for i, j in itertools.product(*(range(n) for n in out_grad_np.shape[2:])):
        rows, columns = ([p for p in walk[at] if 0 <= p < n] for walk, at, n in zip(walks, (i, j), sizes, strict=True))
        if pool_type == "max":
            part = data[:, :, rows][:, :, :, columns].reshape(*a_np.shape[:2], -1)
            best = part.argmax(axis=-1)
            at = np.asarray(rows)[best // len(columns)], np.asarray(columns)[best % len(columns)]
            grad[(*batch, *at)] += out_grad_np[:, :, i, j]
            continue
        area = np.prod(pool_size) if count_include_pad else len(rows) * len(columns)
        grad[np.ix_(*(range(n) for n in a_np.shape[:2]), rows, columns)] += (out_grad_np[:, :, i, j] / area)[
            ..., None, None
        ]
    return np.asarray(np.where(a_np > 0, grad, 0) if add_relu else grad)
