"""Resampling of images by nearest neighbour, linear or cubic interpolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...tir import const, PrimExpr
from .. import tag as tags
from ..utils import const_int
from ...te.tensor import Dim

__all__ = ["resize1d", "resize2d", "resize3d", "resize_nd"]

_EPS = 1e-5
#: Roundings that may become an integer division where an axis grows by a whole factor and the corners stay in place.
_INTEGER_DIVISION = ("", "floor", "round")


def _source(
    out: PrimExpr, have: PrimExpr, want: PrimExpr, transform: str, roi: tuple[float, float] = (0.0, 1.0)
) -> PrimExpr:
    """Where output position ``out`` lies in the input."""
    x = out.astype("float32")
    have_f, want_f = have.astype("float32"), want.astype("float32")
    scale = have_f / want_f
    if transform == "half_pixel":
        return (x + const(0.5, "float32")) * scale - const(0.5, "float32")
    if transform == "align_corners":
        if const_int(want) == 1:
            return const(0.0, "float32") * x
        ratio = (have_f - const(1.0, "float32")) / (want_f - const(1.0, "float32"))
        return ratio * x
    if transform == "asymmetric":
        return scale * x
    if transform == "pytorch_half_pixel":
        half = (x + const(0.5, "float32")) * scale - const(0.5, "float32")
        return tir.if_then_else(want > const(1, str(want.dtype)), half, const(0.0, "float32"))
    if transform == "tf_half_pixel_for_nn":
        return (x + const(0.5, "float32")) * scale
    if transform == "tf_crop_and_resize":
        low, high = (const(v, "float32") for v in roi)
        if const_int(want) == 1:
            return const(0.5, "float32") * (low + high) * (have_f - 1)
        return low * (have_f - 1) + x * (high - low) * (have_f - 1) / (want_f - 1)
    raise CheckValueError(f"Unsupported coordinate_transformation_mode: {transform}")


def _nearest(position: PrimExpr, rounding: str, transform: str) -> PrimExpr:
    if not rounding:
        rounding = "round" if transform == "align_corners" else "floor"
    half, eps = const(0.5, "float32"), const(_EPS, "float32")
    if rounding == "round":
        return tir.round(position).astype("int32")
    if rounding == "round_prefer_floor":
        return tir.ceil(position - half).astype("int32")
    if rounding == "round_prefer_ceil":
        return tir.floor(position + half).astype("int32")
    if rounding == "floor":
        # The small push keeps exact integers from being rounded down by their representation.
        return tir.floor(position + eps).astype("int32")
    if rounding == "ceil":
        return tir.ceil(position - eps).astype("int32")
    raise CheckValueError(f"Unknown rounding method: {rounding}")


def _clamp(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
    top = (extent - 1).astype("int32")
    return tir.max(tir.min(index, top), const(0, "int32"))


def _linear_taps(position: PrimExpr) -> list[tuple[PrimExpr, PrimExpr]]:
    base = tir.floor(position)
    part = position - base
    low = base.astype("int32")
    return [(low, const(1.0, "float32") - part), (low + 1, part)]


def _cubic_taps(position: PrimExpr, alpha: float) -> list[tuple[PrimExpr, PrimExpr]]:
    base = tir.floor(position)
    t = position - base
    a = const(alpha, "float32")
    t2, t3 = t * t, t * t * t
    weights = [
        a * (t3 - 2.0 * t2 + t),
        (a + 2.0) * t3 - (a + 3.0) * t2 + const(1.0, "float32"),
        -(a + 2.0) * t3 + (2.0 * a + 3.0) * t2 - a * t,
        -a * t3 + a * t2,
    ]
    low = base.astype("int32")
    return [(low + (k - 1), w) for k, w in enumerate(weights)]


class _Axis:
    """Interpolation along one axis: integer positions with weights."""

    def __init__(
        self, extent: PrimExpr, want: PrimExpr, method: str, transform: str, rounding: str, alpha: float, exclude: bool
    ) -> None:
        self.extent, self.want = extent, want
        self.method, self.transform, self.rounding = method, transform, rounding
        self.alpha, self.exclude = alpha, exclude

    def taps(self, out: PrimExpr) -> list[tuple[PrimExpr, PrimExpr | None]]:
        if self.method == "nearest_neighbor":
            return [(self.nearest(out), None)]
        position = _source(out, self.extent, self.want, self.transform)
        taps = _linear_taps(position) if self.method == "linear" else _cubic_taps(position, self.alpha)
        if self.exclude and self.method == "cubic":
            taps = self.renormalised(taps)
        return [(_clamp(i, self.extent), w) for i, w in taps]

    def nearest(self, out: PrimExpr) -> PrimExpr:
        have, want = const_int(self.extent), const_int(self.want)
        if have and want and want % have == 0 and self.transform == "asymmetric" and self.rounding in _INTEGER_DIVISION:
            return _clamp(tir.div(out, const(want // have, str(out.dtype))), self.extent)
        position = _source(out, self.extent, self.want, self.transform)
        return _clamp(_nearest(position, self.rounding, self.transform), self.extent)

    def renormalised(self, taps: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        zero = const(0.0, "float32")
        kept = []
        for index, weight in taps:
            inside = tir.And(index >= const(0, "int32"), index < self.extent.astype("int32"))
            kept.append((index, tir.Select(inside, weight, zero)))
        total: Any = kept[0][1]
        for _, weight in kept[1:]:
            total = total + weight
        return [(index, weight / total) for index, weight in kept]


def resize_nd(
    data: te.Tensor,
    size: Sequence[Dim],
    layout: str,
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Spatial axes of ``data`` resampled to ``size``."""
    out_dtype = out_dtype or data.dtype
    letters = [ch for ch in layout if ch.isalpha()]
    dims = [letters.index(s) for s in "DHW"[3 - len(size) :]]
    shape = list(data.shape)
    for d, want in zip(dims, size):
        shape[d] = tir.convert(want).astype(str(data.shape[d].dtype))
    plans = [
        _Axis(data.shape[d], shape[d], method, coordinate_transformation_mode, rounding_method, bicubic_alpha, bool(bicubic_exclude))
        for d in dims
    ]  # fmt: skip

    def combine(indices: list[PrimExpr], rest: list[tuple[int, _Axis]]) -> PrimExpr:
        """Interpolate along the remaining axes, outermost first."""
        if not rest:
            value = data(*indices)
            return value if method == "nearest_neighbor" else value.astype("float32")
        (axis, plan), *inner = rest
        total: Any = None
        for index, weight in plan.taps(indices[axis]):
            at = list(indices)
            at[axis] = index.astype(str(data.shape[axis].dtype))
            part = combine(at, inner)
            part = part if weight is None else part * weight
            total = part if total is None else total + part
        return total

    def body(*indices: PrimExpr) -> PrimExpr:
        value = combine(list(indices), list(zip(dims, plans)))
        if out_dtype.startswith(("int", "uint")) and str(value.dtype).startswith("float"):
            value = tir.round(value)
        return value.astype(out_dtype)

    return te.compute(shape, body, "resize", tags.INJECTIVE)


def _resize(n: int, axes: str) -> Callable[..., te.Tensor]:
    def resize(
        data: te.Tensor,
        roi: Sequence[float],
        size: Sequence[Dim],
        layout: str = ("NCW", "NCHW", "NCDHW")[n - 1],
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> te.Tensor:
        how = (method, coordinate_transformation_mode, rounding_method, bicubic_alpha, bicubic_exclude)
        return resize_nd(data, size, layout, *how, out_dtype)

    resize.__name__ = resize.__qualname__ = f"resize{n}d"
    resize.__doc__ = f"Resize along {axes}."
    return resize


resize1d = _resize(1, "one spatial axis")
resize2d = _resize(2, "two spatial axes")
resize3d = _resize(3, "three spatial axes")
