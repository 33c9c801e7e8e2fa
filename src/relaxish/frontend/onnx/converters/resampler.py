"""Resize of any axes, by factors or to sizes that only the run may know, against aliasing or within an aspect ratio.

Axis by axis: each element is a sum of weighted neighbours, whose number does not depend on where it is.
"""

from __future__ import annotations

from typing import Any
from collections.abc import Sequence

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ..context import Array, Context

__all__ = ["Resampler"]

#: How far a filter reaches, in elements.
_REACH = {"nearest": 0, "linear": 1, "cubic": 2}


def _f(value: float | PrimExpr) -> PrimExpr:
    return value.astype("float32") if isinstance(value, PrimExpr) else const(value, "float32")


def _pick(at: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
    """The value at a place of a list."""
    found = values[-1]
    for k, v in reversed(list(enumerate(values[:-1]))):
        found = tir.if_then_else(at == k, v, found)
    return found


class Resampler:
    """One Resize: its attributes, the axes that change, their scales (a tensor) and sizes."""

    def __init__(
        self, ctx: Context, x: Expr, roi: Expr | None, scales: Expr | None, sizes: Expr | None, attrs: dict[str, Any]
    ) -> None:
        self.ctx, self.x = ctx, x
        self.mode = str(attrs.get("mode", "nearest"))
        self.places = str(attrs.get("coordinate_transformation_mode", "half_pixel"))
        self.rounding = str(attrs.get("nearest_mode", "round_prefer_floor"))
        self.smooth = bool(attrs.get("antialias", 0)) and self.mode != "nearest"
        self.outside = bool(attrs.get("exclude_outside", 0))
        self.alpha = float(attrs.get("cubic_coeff_a", -0.75))
        self.beyond = float(attrs.get("extrapolation_value", 0.0))
        if self.mode not in _REACH:
            raise OpAttributeInvalid(f"Resize knows no mode {self.mode!r}")
        rank = ctx.ndim(x)
        self.axes = [int(a) % rank for a in attrs.get("axes", range(rank))]
        self.dims = [ctx.dims(x)[a] for a in self.axes]
        self.roi = None if roi is None else ctx.tensor(roi)
        self.read(scales, sizes, str(attrs.get("keep_aspect_ratio_policy", "stretch")))

    def read(self, scales: Expr | None, sizes: Expr | None, policy: str) -> None:
        """Scales as a tensor, sizes and numbers of neighbours as expressions."""
        ctx, count = self.ctx, len(self.axes)
        wanted = [] if sizes is None else ctx.elements(sizes)
        given = [] if scales is None else [ctx.tensor(scales)]
        one_scale = {"not_larger": tir.min, "not_smaller": tir.max}.get(policy)

        def parameters(source: list[te.Tensor], dims: list[PrimExpr], targets: list[PrimExpr]) -> list[te.Tensor]:
            ratios = [_f(t) / _f(d) for t, d in zip(targets, dims)]
            if ratios and one_scale is not None:
                common = ratios[0]
                for r in ratios[1:]:
                    common = one_scale(common, r)
                ratios = [common] * count
            scale = te.compute([count], lambda i: source[0](i) if source else _pick(i, ratios), "scale")

            def size(i: PrimExpr) -> PrimExpr:
                if targets and one_scale is None:
                    return _pick(i, targets)
                exact = _f(_pick(i, dims)) * scale(i)
                return (tir.floor(exact + _f(0.5)) if targets else tir.floor(exact)).astype("int64")

            def reach(i: PrimExpr) -> PrimExpr:
                return tir.ceil(_f(_REACH[self.mode]) * tir.max(_f(1) / scale(i), _f(1))).astype("int64")

            return [scale, te.compute([count], size, "sizes"), te.compute([count], reach, "reach")]

        made = ctx.builder.emit_te(parameters, given, self.dims, wanted, primfunc_name_hint="resize_parameters")
        self.scales, new, reach = (ctx.builder.emit(made[k]) for k in range(3))
        exact = wanted if one_scale is None else []
        exact = exact or self.multiples(ctx.setting(scales))
        self.sizes = ctx.named(exact) if exact else ctx.run_time_shape(new)
        fixed = const(_REACH[self.mode], "int64")
        self.reach = ctx.run_time_shape(reach) if self.smooth else [fixed] * count

    def multiples(self, factors: Array | None) -> list[PrimExpr]:
        """The new sizes where the import knows the factors and the sizes they make; else none."""
        found: list[PrimExpr] = []
        for dim, factor in zip(self.dims, [] if factors is None else factors.reshape(-1).tolist()):
            length = const_int(dim)
            if length is None and factor != int(factor):
                return []
            found.append(dim * int(factor) if length is None else const(int(length * factor), "int64"))
        return found

    def run(self) -> Expr:
        """The tensor in its new size."""
        ctx, x = self.ctx, self.x
        kind = ctx.dtype(x)
        wide = kind if self.mode == "nearest" or kind == "float32" else "float32"
        if kind != wide:
            x = ctx.emit(op.astype(x, wide))
        cropping = self.places == "tf_crop_and_resize"
        for k in range(len(self.axes)):
            if not self.unchanged(k):
                x = self.along(x, k)
        if cropping:
            x = self.cropped(x)
        return x if kind == wide else ctx.emit(op.astype(x, kind))

    def unchanged(self, k: int) -> bool:
        """Whether an axis keeps its size, and its elements their places."""
        return self.places != "tf_crop_and_resize" and prove_equal(self.sizes[k], self.dims[k])

    def source(self, k: int, at: PrimExpr, old: PrimExpr, new: PrimExpr, scale: PrimExpr, roi: te.Tensor) -> PrimExpr:
        """The place in the tensor given that an element is at."""
        spot, half = _f(at), _f(0.5)
        if self.places == "align_corners":
            return tir.if_then_else(new == 1, _f(0), spot * _f(old - 1) / _f(tir.max(new - 1, 1)))
        if self.places == "asymmetric":
            return spot / scale
        if self.places == "tf_half_pixel_for_nn":
            return (spot + half) / scale
        if self.places == "tf_crop_and_resize":
            count = len(self.axes)
            first, last = _f(roi(k)), _f(roi(count + k))
            inner = first * _f(old - 1) + spot * ((last - first) * _f(old - 1) / _f(tir.max(new - 1, 1)))
            return tir.if_then_else(new > 1, inner, half * (first + last) * _f(old - 1))
        where = (spot + half) / scale - half
        if self.places == "pytorch_half_pixel":
            return tir.if_then_else(new > 1, where, _f(0))
        if self.places == "half_pixel_symmetric":
            adjusted = _f(new) / (scale * _f(old))
            return _f(old) / _f(2) * (_f(1) - adjusted) + where
        if self.places != "half_pixel":
            raise OpAttributeInvalid(f"Resize knows no coordinate_transformation_mode {self.places!r}")
        return where

    def nearest(self, where: PrimExpr) -> PrimExpr:
        """A place as a whole one."""
        low, half = tir.floor(where), _f(0.5)
        rounded = {
            "round_prefer_floor": tir.ceil(where - half),
            "round_prefer_ceil": tir.floor(where + half),
            "floor": low,
            "ceil": tir.ceil(where),
        }
        return rounded[self.rounding].astype("int64")

    def weight(self, apart: PrimExpr) -> PrimExpr:
        """Weight of a neighbour at this distance."""
        d, one, a = tir.abs(apart), _f(1), self.alpha
        if self.mode == "linear":
            return tir.max(one - d, _f(0))
        near = ((_f(a + 2) * d - _f(a + 3)) * d) * d + one
        far = ((_f(a) * d - _f(5 * a)) * d + _f(8 * a)) * d - _f(4 * a)
        return tir.if_then_else(d <= one, near, tir.if_then_else(d < _f(2), far, _f(0)))

    def along(self, x: Expr, k: int) -> Expr:
        """One axis in its new size."""
        ctx, axis = self.ctx, self.axes[k]
        roi = [] if self.roi is None else [self.roi]

        def compute(
            data: te.Tensor, scales: te.Tensor, area: list[te.Tensor], new: PrimExpr, reach: PrimExpr
        ) -> te.Tensor:
            old, shape = data.shape[axis], [*data.shape]
            shape[axis] = new
            spots = te.compute(
                [new], lambda i: self.source(k, i, old, new, scales(k), area[0] if area else scales), "spots"
            )

            def inside(place: PrimExpr) -> PrimExpr:
                return tir.max(tir.min(place, old - 1), const(0, "int64"))

            if self.mode == "nearest":
                return te.compute(
                    shape,
                    lambda *at: data(*at[:axis], inside(self.nearest(spots(at[axis]))), *at[axis + 1 :]),
                    "resize",
                )
            taps = reach * 2
            first = te.compute([new], lambda i: tir.floor(spots(i)).astype("int64") - reach + 1, "first")
            stretch = tir.max(_f(1) / scales(k), _f(1)) if self.smooth else _f(1)

            def share(i: PrimExpr, t: PrimExpr) -> PrimExpr:
                place = first(i) + t
                counted = self.weight((_f(place) - spots(i)) / stretch)
                if self.mode == "linear" and not self.smooth:
                    # One element for both neighbours counts by halves: by zero, an infinite one would make NaN.
                    counted = tir.if_then_else(inside(first(i)) == inside(first(i) + 1), _f(0.5), counted)
                there = tir.And(place >= 0, place < old)
                return tir.if_then_else(there, counted, _f(0)) if self.outside else counted

            weights = te.compute([new, taps], share, "weights")
            if self.smooth or self.outside:
                step = te.reduce_axis((0, taps), "t")
                whole = te.compute([new], lambda i: te.sum(weights(i, step.var), axis=step), "whole")
                raw = weights
                weights = te.compute([new, taps], lambda i, t: raw(i, t) / whole(i), "shares")
            tap = te.reduce_axis((0, taps), "k")

            def body(*at: PrimExpr) -> PrimExpr:
                spot = inside(first(at[axis]) + tap.var)
                return te.sum(data(*at[:axis], spot, *at[axis + 1 :]) * weights(at[axis], tap.var), axis=tap)

            return te.compute(shape, body, "resize")

        return ctx.builder.emit_te(
            compute, x, self.scales, roi, self.sizes[k], self.reach[k], primfunc_name_hint="resize"
        )

    def cropped(self, x: Expr) -> Expr:
        """Another value wherever the place is outside of the tensor given."""
        ctx = self.ctx
        if self.roi is None:
            raise OpAttributeInvalid("Resize of a part of a tensor needs an input that says which")

        def compute(data: te.Tensor, scales: te.Tensor, roi: te.Tensor, old: list[PrimExpr]) -> te.Tensor:
            def body(*at: PrimExpr) -> PrimExpr:
                out: PrimExpr = const(False, "bool")
                for k, axis in enumerate(self.axes):
                    where = self.source(k, at[axis], old[k], data.shape[axis], scales(k), roi)
                    out = tir.Or(out, tir.Or(where < _f(0), where > _f(old[k] - 1)))
                return tir.if_then_else(out, const(self.beyond, data.dtype), data(*at))

            return te.compute(data.shape, body, "cropped")

        return ctx.builder.emit_te(compute, x, self.scales, self.roi, self.dims, primfunc_name_hint="cropped")
