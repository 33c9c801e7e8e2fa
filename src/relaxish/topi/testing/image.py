"""Resizing and sampling of images in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["affine_grid_python", "grid_sample_python", "resize1d_python", "resize2d_python", "resize3d_python"]

Array = np.ndarray[Any, Any]


def _places(count: int, extent: int, mode: str) -> Array:
    """Where in a source of ``extent`` elements each of ``count`` results lies."""
    at, scale = np.arange(count, dtype="float64"), extent / count
    if mode == "asymmetric":
        return np.asarray(at * scale)
    if mode == "align_corners":
        return np.asarray(at * ((extent - 1) / (count - 1) if count > 1 else 0))
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    assert mode in ("half_pixel", "pytorch_half_pixel"), f"unknown coordinate transformation {mode}"
    return np.asarray((at + 0.5) * scale - 0.5)


def _rounded(at: Array, method: str, mode: str) -> Array:
    method = method or ("round" if mode == "align_corners" else "floor")
    if method == "round":
        return np.floor(at + 0.5)
    if method == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if method == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.floor(at) if method == "floor" else np.ceil(at)


def _cubic(distance: Array, alpha: float) -> Array:
    d = np.abs(distance)
    near = ((alpha + 2) * d - (alpha + 3)) * d * d + 1
    far = ((alpha * d - 5 * alpha) * d + 8 * alpha) * d - 4 * alpha
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _matrix(count: int, extent: int, method: str, mode: str, rounding: str, alpha: float, exclude: int) -> Array:
    """The share of each source element in each result, along one axis."""
    at = _places(count, extent, mode)
    shares = np.zeros((count, extent))
    if method in ("nearest_neighbor", "nearest"):
        near = np.clip(_rounded(at, rounding, mode).astype(int), 0, extent - 1)
        shares[np.arange(count), near] = 1
        return shares
    assert method in ("linear", "bilinear", "trilinear", "cubic", "bicubic"), f"unknown method {method}"
    cubic = "cubic" in method
    first = np.floor(at).astype(int)
    for step in range(-1, 3) if cubic else range(2):
        place = first + step
        weight = _cubic(at - place, alpha) if cubic else 1 - np.abs(at - place)
        inside = (place >= 0) & (place < extent)
        weight = np.where(inside | (not exclude), weight, 0)
        np.add.at(shares, (np.arange(count), np.clip(place, 0, extent - 1)), weight)
    return shares / shares.sum(axis=1, keepdims=True) if exclude else shares


def _resize(
    data: Array, scales: Sequence[float], layout: str, method: str, coord_trans: str, rounding_method: str, alpha: float,
    exclude: int,
) -> Array:  # fmt: skip
    out = data.astype("float64")
    axes = [i for i, letter in enumerate(layout) if letter in "DHW"]
    for axis, scale in zip(axes, scales, strict=True):
        extent = data.shape[axis]
        shares = _matrix(int(np.round(extent * scale)), extent, method, coord_trans, rounding_method, alpha, exclude)
        out = np.moveaxis(np.tensordot(shares, out, axes=(1, axis)), 0, axis)
    return out.astype(data.dtype)


def resize1d_python(
    data: Array, scale_factors: float | Sequence[float], layout: str, method: str = "nearest_neighbor",
    coord_trans: str = "align_corners", rounding_method: str = "", alpha: float = -0.5, exclude_outside: int = 0,
) -> Array:  # fmt: skip
    """Resizing of one axis; a factor for it, or a sequence of one."""
    scales = scale_factors if isinstance(scale_factors, Sequence) else [scale_factors]
    return _resize(data, scales, layout, method, coord_trans, rounding_method, alpha, exclude_outside)


def resize2d_python(
    data: Array, scale_factors: Sequence[float], layout: str, method: str = "nearest_neighbor",
    coord_trans: str = "align_corners", rounding_method: str = "", alpha: float = -0.5, exclude_outside: int = 0,
) -> Array:  # fmt: skip
    """Resizing of the axes H and W by factors."""
    return _resize(data, scale_factors, layout, method, coord_trans, rounding_method, alpha, exclude_outside)


def resize3d_python(
    data: Array, scale_factors: Sequence[float], layout: str, method: str = "nearest_neighbor",
    coord_trans: str = "align_corners", rounding_method: str = "", alpha: float = -0.5, exclude_outside: int = 0,
) -> Array:  # fmt: skip
    """Resizing of the axes D, H and W by factors."""
    return _resize(data, scale_factors, layout, method, coord_trans, rounding_method, alpha, exclude_outside)


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """Positions (x, y) of an output of that height and width under affine maps ``data`` (batch, 2, 3)."""
    height, width = target_shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    flat = np.stack([x.ravel(), y.ravel(), np.ones(height * width)])
    return np.asarray((data @ flat).reshape(data.shape[0], 2, height, width), data.dtype)


def grid_sample_python(
    data: Array, grid: Array, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Array:  # fmt: skip
    """Images (NCHW) sampled at positions ``grid`` (batch, (x, y), height, width) between -1 and 1."""
    assert layout == "NCHW" and method in ("bilinear", "nearest"), "images of the layout NCHW, bilinear or nearest"
    out = np.zeros((*data.shape[:2], *grid.shape[2:]), data.dtype)
    sizes = data.shape[3], data.shape[2]
    for image in range(data.shape[0]):
        x, y = (_in_pixels(grid[image, i], sizes[i], padding_mode, align_corners) for i in range(2))
        steps: Sequence[tuple[Array, Array, Array]]
        if method == "nearest":
            steps = [(np.rint(x), np.rint(y), np.ones_like(x))]
        else:
            left, top = np.floor(x), np.floor(y)
            steps = [
                (left + i, top + j, (1 - np.abs(x - left - i)) * (1 - np.abs(y - top - j)))
                for i in (0, 1)
                for j in (0, 1)
            ]
        for px, py, share in steps:
            inside = (px >= 0) & (px < sizes[0]) & (py >= 0) & (py < sizes[1])
            at = np.clip(py, 0, sizes[1] - 1).astype(int), np.clip(px, 0, sizes[0] - 1).astype(int)
            out[image] += (data[image][:, at[0], at[1]] * np.where(inside, share, 0)).astype(data.dtype)
    return out


def _in_pixels(at: Array, size: int, padding_mode: str, align_corners: bool) -> Array:
    place = (at + 1) * (size - 1) / 2 if align_corners else ((at + 1) * size - 1) / 2
    if padding_mode == "border":
        return np.clip(place, 0, size - 1)
    if padding_mode == "reflection":
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        span = max(high - low, 1e-12)
        folded = np.mod(np.abs(place - low), 2 * span)
        return np.clip(low + np.where(folded > span, 2 * span - folded, folded), 0, size - 1)
    return np.asarray(place)
