"""Resampling of images."""

from __future__ import annotations

import math
from typing import Any
from collections.abc import Sequence

import numpy as np

from .... import op, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal, prove_equal_shapes
from ....support.errors import OpAttributeInvalid
from ..context import Array, Context, convert
from .resampler import Resampler

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
    given = [*inputs, *[None] * (4 - len(inputs))]
    roi, scales, sizes = (None if v is None or ctx.dims(v)[:1] == [] else v for v in given[1:])
    if scales is not None and const_int(ctx.dims(scales)[0]) == 0:
        scales = None
    if (scales is None) == (sizes is None or const_int(ctx.dims(sizes)[0]) == 0):
        raise OpAttributeInvalid("Resize needs scales or sizes")
    done = _resized_image(ctx, x, scales, sizes, attrs)
    return done if done is not None else Resampler(ctx, x, roi, scales, sizes, attrs).run()


def _resized_image(
    ctx: Context, x: Expr, scales: Expr | None, sizes: Expr | None, attrs: dict[str, Any]
) -> Expr | None:
    """A batch of images resized by known factors or to sizes; None if it is anything else."""
    ndim = ctx.ndim(x)
    mode = str(attrs.get("coordinate_transformation_mode", "half_pixel"))
    stretched = attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch" or sizes is None
    if ndim != 4 or attrs.get("antialias", 0) or not stretched or mode == "tf_crop_and_resize":
        return None
    if mode == "half_pixel_symmetric":
        return None  # no mode of the operator
    dims = ctx.dims(x)
    axes = [a % ndim for a in attrs.get("axes", range(ndim))]
    factors = None
    if sizes is not None:
        wanted = dict(zip(axes, ctx.elements(sizes), strict=True))
        if not all(prove_equal(wanted.get(k, dims[k]), dims[k]) for k in (0, 1)):
            return None
        target: list[Any] = [wanted.get(k, dims[k]) for k in (2, 3)]
    else:
        known = ctx.setting(scales)
        if known is None:
            return None
        by_axis = dict(zip(axes, known.reshape(-1)))
        factors = np.array([by_axis.get(k, 1.0) for k in range(ndim)], "float64")
        if any(factors[:2] != 1) or any(const_int(d) is None and f != int(f) for d, f in zip(dims[2:], factors[2:])):
            return None
        target = [
            dim * int(factor) if (size := const_int(dim)) is None else int(size * float(factor))
            for dim, factor in zip(dims[-2:], factors[-2:])
        ]
    if attrs.get("mode", "nearest") == "nearest" and not all(map(_multiple, target, dims[-2:])):
        return None  # places halfway between elements are a matter of the very rounding
    by_one = all(factors[-2:] == 1) if factors is not None else prove_equal_shapes(target, dims[-2:])
    if by_one and mode in (*_SCALED, "align_corners"):
        return x  # a neighbour of no weight counts nothing, be it infinite
    if mode in _SCALED:
        lengths, wanted_lengths = ([const_int(d) for d in of] for of in (dims[-2:], target))
        by = factors[-2:] if factors is not None else list(map(_ratio, target, dims[-2:]))
        rounded = factors is not None and any(n is not None and n * f != int(n * f) for n, f in zip(lengths, by))
        changed = [k for k in (0, 1) if by[k] != 1]
        one_axis = len(changed) == 1 and attrs.get("mode", "nearest") != "nearest"
        if one_axis and lengths[changed[0]] is None:
            return None
        if rounded or one_axis:
            # Where a size is rounded, places are counted by the scale given. An axis that stays as it is mixes nothing:
            # as a product with a weight of zero, an infinite neighbour would make NaN.
            for k in changed:
                x = _resampled(ctx, x, 2 + k, float(by[k]), attrs, wanted_lengths[k])
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


def _multiple(new: PrimExpr | int, old: PrimExpr) -> bool:
    """Whether a size is a known whole multiple of another one."""
    a, b = const_int(new), const_int(old)
    if a is not None and b is not None:
        return b > 0 and a % b == 0
    return prove_equal(tir.floormod(new, old), 0)


_SCALED = ("half_pixel", "pytorch_half_pixel", "asymmetric")


def _ratio(new: PrimExpr | int, old: PrimExpr) -> float:
    """The factor between two sizes; NaN where it is not known."""
    if prove_equal(new, old):
        return 1.0
    a, b = const_int(new), const_int(old)
    return a / b if a is not None and b else math.nan


def _resampled(
    ctx: Context, x: Expr, axis: int, scale: float, attrs: dict[str, Any], wanted: int | None = None
) -> Expr:
    """One axis of known length resized by ``scale``, as sums of weighted elements at fixed places."""
    length = const_int(ctx.dims(x)[axis])
    if length is None:
        raise NotImplementedError("Resize of a symbolic dimension by a fraction")
    count = int(length * scale) if wanted is None else wanted
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
        # Both neighbours are one element at a whole place and past an end: halves, as a product with zero of an
        # infinite one is NaN.
        above = np.where(part == 0, below, below + 1)
        single = np.clip(below, 0, length - 1) == np.clip(above, 0, length - 1)
        return [(below, np.where(single, 0.5, 1 - part)), (above, np.where(single, 0.5, part))]
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
