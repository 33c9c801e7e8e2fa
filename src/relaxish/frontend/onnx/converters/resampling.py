"""Resampling of images."""

from __future__ import annotations

from typing import Any
from collections.abc import Sequence

import numpy as np

from .... import op
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal, prove_equal_shapes
from ..context import Array, Context, convert

_METHOD = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}


@convert("Resize", 10)
def _resize10(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    changed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resize(ctx, [inputs[0], None, inputs[1]], changed)


@convert("Upsample")
def _upsample(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    scales = inputs[1] if len(inputs) > 1 else ctx.const(attrs["scales"], "float32")
    changed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resize(ctx, [inputs[0], None, scales], changed)


@convert("Resize", 11)
def _resize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    ndim = ctx.ndim(x)
    if ndim != 4:
        raise NotImplementedError(f"Resize of a tensor with {ndim} dimensions")
    scales = inputs[2] if len(inputs) > 2 else None
    sizes = inputs[3] if len(inputs) > 3 else None
    factors = None if scales is None else ctx.need_constant(scales, "the scales of Resize").reshape(-1)
    if attrs.get("antialias", 0) or attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotImplementedError("Resize against aliasing or within an aspect ratio")
    dims = ctx.dims(x)
    axes = [a % ndim for a in attrs.get("axes", range(ndim))]
    if sizes is not None:
        wanted = dict(zip(axes, ctx.scalars(sizes) or []))
        if len(wanted) != len(axes):
            raise NotImplementedError("Resize with sizes computed at run time")
        if not all(prove_equal(wanted.get(k, dims[k]), dims[k]) for k in (0, 1)):
            raise NotImplementedError("Resize of batch or channels")
        target: list[Any] = [wanted.get(k, dims[k]) for k in (2, 3)]
    elif factors is not None and len(factors):
        given = dict(zip(axes, factors))
        factors = np.array([given.get(k, 1.0) for k in range(ndim)], "float64")
        if any(factors[:2] != 1):
            raise NotImplementedError("Resize of batch or channels")
        target = []
        for dim, factor in zip(dims[-2:], factors[-2:]):
            size = const_int(dim)
            if size is None:
                if float(factor) != int(factor):
                    raise NotImplementedError("Resize of a symbolic dimension by a fraction")
                target.append(dim * int(factor))
            else:
                target.append(int(size * float(factor)))
    else:
        raise ValueError("Resize needs scales or sizes")
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    by_one = prove_equal_shapes(target, dims[-2:]) if factors is None or sizes is not None else all(factors[-2:] == 1)
    if by_one and mode in (*_SCALED, "align_corners", "half_pixel_symmetric"):
        return x  # a neighbour of no weight counts nothing, be it infinite
    if sizes is None and factors is not None and mode in _SCALED:
        lengths = [const_int(d) for d in dims[-2:]]
        if any(n is not None and n * f != int(n * f) for n, f in zip(lengths, factors[-2:])):
            # The new size is rounded, but places are counted by the scale given.
            for axis, factor in zip((2, 3), factors[-2:]):
                x = _resampled(ctx, x, axis, float(factor), attrs)
            return x
    return op.image.resize2d(
        x,
        target,
        layout="NCHW",
        method=_METHOD[attrs.get("mode", "nearest")],
        coordinate_transformation_mode=mode,
        rounding_method=attrs.get("nearest_mode", "round_prefer_floor")
        if attrs.get("mode", "nearest") == "nearest"
        else "",
        cubic_alpha=float(attrs.get("cubic_coeff_a", -0.75)),
        cubic_exclude=int(attrs.get("exclude_outside", 0)),
        extrapolation_value=float(attrs.get("extrapolation_value", 0.0)),
    )


_SCALED = ("half_pixel", "pytorch_half_pixel", "asymmetric")


def _resampled(ctx: Context, x: Expr, axis: int, scale: float, attrs: dict[str, Any]) -> Expr:
    """One axis of known length resized by ``scale``, as sums of weighted elements at fixed places."""
    length = const_int(ctx.dims(x)[axis])
    if length is None:
        raise NotImplementedError("Resize of a symbolic dimension by a fraction")
    count = int(length * scale)
    at = np.arange(count)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    where = at / scale if mode == "asymmetric" else (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" and count == 1:
        where = np.zeros(1)
    total: Expr | None = None
    for places, weights in _taps(where, length, attrs):
        index = ctx.const(np.clip(places, 0, length - 1).astype("int64"), "int64")
        part = ctx.emit(op.take(x, index, axis))
        if weights is not None:
            row = weights.reshape([-1] + [1] * (ctx.ndim(x) - 1 - axis))
            part = ctx.emit(op.multiply(part, ctx.const(row, ctx.dtype(x))))
        total = part if total is None else ctx.emit(op.add(total, part))
    assert total is not None
    return total


def _taps(where: Array, length: int, attrs: dict[str, Any]) -> Sequence[tuple[Array, Array | None]]:
    """(places, weights) of the elements that make up the values at fractional places; no weights mean one."""
    mode = attrs.get("mode", "nearest")
    below = np.floor(where)
    part = where - below
    if mode == "nearest":
        rounded = {
            "round_prefer_floor": np.ceil(where - 0.5),
            "round_prefer_ceil": np.floor(where + 0.5),
            "floor": below,
            "ceil": np.ceil(where),
        }
        return [(rounded[attrs.get("nearest_mode", "round_prefer_floor")], None)]
    if mode == "linear":
        return [(below, 1 - part), (below + 1, part)]
    a = float(attrs.get("cubic_coeff_a", -0.75))
    taps = []
    for k in range(-1, 3):
        d = np.abs(part - k)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        taps.append((below + k, np.where(d <= 1, near, far)))
    if attrs.get("exclude_outside", 0):
        inside = [np.where((p >= 0) & (p < length), w, 0.0) for p, w in taps]
        whole = np.sum(inside, axis=0)
        taps = [(p, w / whole) for (p, _), w in zip(taps, inside)]
    return taps
