"""Moving, gathering and slicing of elements in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

__all__ = [
    "batch_to_space_nd_python", "depth_to_space_python", "gather_nd_python", "gather_python", "matrix_set_diag",
    "one_hot", "searchsorted_ref", "sequence_mask", "slice_axis_python", "space_to_batch_nd_python",
    "space_to_depth_python", "strided_set_python", "strided_slice_python",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Elements along an axis, by indices of every element of the result."""
    grid: list[Any] = list(np.indices(indices.shape))
    grid[axis] = indices
    return np.asarray(data[tuple(grid)])


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Elements or parts at places; the first axis of ``indices_np`` holds their coordinates."""
    return np.asarray(a_np[tuple(indices_np)])


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """A stretch of one axis."""
    return np.asarray(data[(slice(None),) * (axis % data.ndim) + (slice(begin, end),)])


def _slices(
    shape: Sequence[int],
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: int | Sequence[int] | None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> tuple[slice, ...]:
    """Slices of all axes. In the mode ``size``, ``end`` holds lengths (-1: to the end) and strides do not count."""
    chosen = list(range(len(begin))) if axes is None else [int(a) % len(shape) for a in axes]
    steps = [1] * len(chosen) if strides is None else np.atleast_1d(np.asarray(strides, int)).tolist()
    steps += [steps[-1] if len(steps) == 1 else 1] * (len(chosen) - len(steps))
    out: list[slice] = [slice(None)] * len(shape)
    for i, axis in enumerate(chosen):
        first = begin[i]
        last = None if i >= len(end) else end[i]
        if slice_mode == "size":
            last = None if last is None or last < 0 else (first or 0) + last
            out[axis] = slice(first, last)
        else:
            out[axis] = slice(first, last, steps[i])
    return tuple(out)


def strided_slice_python(
    data: Array,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: int | Sequence[int] | None = None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Every so manieth element between two corners."""
    region = _slices(data.shape, begin, end, strides, slice_mode, axes)
    return np.asarray(data[region])


def strided_set_python(
    data: Array,
    v: Array,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: int | Sequence[int] | None = None,
) -> Array:
    """The data with what ``strided_slice_python`` would take replaced by ``v``."""
    out = data.copy()
    out[_slices(data.shape, begin, end, strides)] = v
    return out


def one_hot(indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str) -> Array:
    """``on_value`` where the new axis's index is the element."""
    place = indices.ndim if axis == -1 else axis
    hit = np.expand_dims(indices, place) == np.arange(depth).reshape([-1] + [1] * (indices.ndim - place))
    return np.where(hit, on_value, off_value).astype(dtype)


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Elements beyond a sequence's length replaced; sequences run along ``axis`` (0 or 1), batches along the other."""
    assert axis in (0, 1), "sequences run along axis 0 or 1"
    steps = np.arange(data.shape[axis])
    inside = steps[:, None] < valid_length[None] if axis == 0 else steps[None] < valid_length[:, None]
    return np.where(inside.reshape(inside.shape + (1,) * (data.ndim - 2)), data, np.asarray(mask_value, data.dtype))


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Insertion positions of values in sorted rows; one row serves all values if there is only one."""
    side: Literal["left", "right"] = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side=side).astype(out_dtype)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    wanted = values.reshape(len(rows), -1)
    found = [np.searchsorted(row, each, side=side) for row, each in zip(rows, wanted, strict=True)]
    return np.stack(found).reshape(values.shape).astype(out_dtype)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of an NCHW image become channels."""
    n, c, h, w = data.shape
    split = data.reshape(n, c, h // block_size, block_size, w // block_size, block_size)
    return split.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h // block_size, w // block_size)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Channels of an NCHW image become blocks; the block's index comes first (``DCR``) or last (``CDR``)."""
    n, c, h, w = data.shape
    rest = c // block_size**2
    if mode == "DCR":
        split = data.reshape(n, block_size, block_size, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = data.reshape(n, rest, block_size, block_size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, rest, h * block_size, w * block_size)


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Blocks of the axes after the batch become batches."""
    count = len(block_shape)
    border = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, border, constant_values=pad_value)
    shape = [padded.shape[0]]
    for extent, block in zip(padded.shape[1:], block_shape, strict=False):
        shape += [extent // block, block]
    rest = list(padded.shape[1 + count :])
    inner, outer = [2 * i + 2 for i in range(count)], [2 * i + 1 for i in range(count)]
    split = padded.reshape(shape + rest)
    split = split.transpose([*inner, 0, *outer, *range(1 + 2 * count, split.ndim)])
    batch = padded.shape[0] * int(np.prod(block_shape))
    return split.reshape([batch, *(shape[i] for i in outer), *rest])


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """The inverse of ``space_to_batch_nd_python``, borders cut off."""
    count = len(block_shape)
    batch = data.shape[0] // int(np.prod(block_shape))
    split = data.reshape([*block_shape, batch, *data.shape[1:]])
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    split = split.transpose([*order, *range(2 * count + 1, split.ndim)])
    sizes = [n * b for n, b in zip(data.shape[1:], block_shape, strict=False)]
    whole = split.reshape([batch, *sizes, *data.shape[1 + count :]])
    kept = [slice(b, n - e) for n, b, e in zip(sizes, crop_begin_list, crop_end_list, strict=True)]
    return np.asarray(whole[(slice(None), *kept)])


def matrix_set_diag(input_np: Array, diagonal: Array, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> Array:
    """Matrices with a diagonal, or a band ``k = (low, high)`` of them, replaced.

    ``align`` says at which end shorter diagonals above and below the main one are padded.
    """
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    out = input_np.copy()
    rows, columns = input_np.shape[-2:]
    band = diagonal if low != high else np.expand_dims(diagonal, -2)
    above, below = align.split("_")
    for number, offset in enumerate(range(high, low - 1, -1)):
        length = min(rows + min(offset, 0), columns - max(offset, 0))
        side = above if offset > 0 else below
        shift = band.shape[-1] - length if side == "RIGHT" and offset != 0 or side == above == "RIGHT" else 0
        at = np.arange(length)
        out[..., at - min(offset, 0), at + max(offset, 0)] = band[..., number, shift : shift + length]
    return out
