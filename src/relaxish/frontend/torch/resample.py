"""Interpolation of images."""

from __future__ import annotations

from typing import Any

import numpy as np
from collections.abc import Sequence

from ... import op, relax
from ...ir import dtype as dt
from ...relax.expr import Expr, prim_of
from ...relax.scalars import prove_equal_shapes
from .importer import dtype_of, Importer
from .table import Converter, CONVERTERS
from .windows import many

__all__: list[str] = []

_CUBIC = -0.75


def _upsample(method: str) -> Converter:
    def convert(self: Importer, x: Expr, size: Sequence[int] | None = None, *rest: Any, **named: Any) -> Expr:
        rest = (*rest, *named.values())
        align = bool(rest[0]) if method != "nearest_neighbor" and rest else False
        scales = _scales(rest if method == "nearest_neighbor" else rest[1:])
        if size is None:
            assert scales is not None  # one of them is there
            height, width = (self.known(x, axis, "resizing by a factor") for axis in (2, 3))
            size = [int(height * scales[0]), int(width * scales[-1])]
        size = list(size)
        if scales is not None and not align and _between(self.shape(x)[2:], size, scales):
            for axis, scale in enumerate(scales, 2):
                x = _along(self, x, axis, size[axis - 2], scale, method)
            return x
        if method != "cubic" and prove_equal_shapes(map(prim_of, size), map(prim_of, self.shape(x)[2:])):
            return x  # a neighbour of no weight counts nothing, be it infinite
        mode = "align_corners" if align else "asymmetric" if method == "nearest_neighbor" else "half_pixel"
        rounding = "floor" if method == "nearest_neighbor" else "round"
        return self.emit(
            op.image.resize2d(
                x, size, layout="NCHW", method=method, coordinate_transformation_mode=mode, rounding_method=rounding,
                cubic_alpha=_CUBIC,
            )
        )  # fmt: skip

    return convert


def _scales(given: tuple[Any, ...]) -> list[float] | None:
    """Factors for both dimensions, however an overload gives them."""
    if not given or given[0] is None:
        return None
    flat = list(given[0]) if isinstance(given[0], (list, tuple)) else [v for v in given if v is not None]
    return many([float(v) for v in flat], 2)


def _between(shape: list[Any], size: list[Any], scales: list[float]) -> bool:
    """Whether a factor is not the ratio of the sizes: PyTorch takes the factor then, a resize would take the ratio."""
    known = all(isinstance(n, int) for n in (*shape, *size))
    return known and any(n * scale != m for n, m, scale in zip(shape, size, scales, strict=True))


def _along(self: Importer, x: Expr, axis: int, count: int, scale: float, method: str) -> Expr:
    """Each place along ``axis`` from its neighbours: a sum of elements taken by constant positions and weights."""
    size = self.known(x, axis, "resizing by a factor")
    kind = dtype_of(x)
    row = [1] * self.rank(x)
    row[axis] = count
    total: Any = None
    for places, weights in _taps(method, size, count, np.float32(1.0 / scale)):
        at = np.clip(places, 0, size - 1).astype("int64")
        part = self.emit(op.take(x, relax.const(at, "int64"), axis))
        if method != "nearest_neighbor":
            factor = relax.const(weights.reshape(row).astype(dt.numpy_dtype(kind)), kind)
            part = self.emit(op.multiply(part, factor))
        total = part if total is None else self.emit(op.add(total, part))
    return total


def _taps(method: str, size: int, count: int, step: np.floating) -> list[tuple[np.ndarray, np.ndarray]]:
    """(positions, weights) of the neighbours of every place, computed as PyTorch does, in float32."""
    order = np.arange(count, dtype="float32")
    if method == "nearest_neighbor":
        return [(np.floor(order * step), np.ones(count))]
    place = step * (order + np.float32(0.5)) - np.float32(0.5)
    if method == "linear":
        place = np.maximum(place, 0)
        low = np.minimum(np.floor(place), size - 1)
        return [(low, 1 - (place - low)), (low + 1, place - low)]
    low = np.floor(place)
    t = (place - low).astype("float64")
    return [(low - 1 + k, _cubic(np.abs(t + 1 - k))) for k in range(4)]


def _cubic(distance: np.ndarray) -> np.ndarray:
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    return np.where(distance <= 1, near, far)


CONVERTERS["upsample_nearest2d"] = _upsample("nearest_neighbor")
CONVERTERS["upsample_bilinear2d"] = _upsample("linear")
CONVERTERS["upsample_bicubic2d"] = _upsample("cubic")
