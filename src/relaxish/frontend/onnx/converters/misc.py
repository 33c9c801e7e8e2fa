"""Resampling and quantisation."""

from __future__ import annotations

from typing import Any

from .... import op
from ....relax.scalars import const_int
from ..context import Context, convert

_METHOD = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}


@convert("Resize", 10)
def _resize10(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    changed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resize(ctx, [inputs[0], None, inputs[1]], changed)


@convert("Upsample")
def _upsample(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    scales = inputs[1] if len(inputs) > 1 else ctx.const(attrs["scales"], "float32")
    changed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resize(ctx, [inputs[0], None, scales], changed)


@convert("Resize", 11)
def _resize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    x = ctx.tensor(inputs[0])
    ndim = ctx.ndim(x)
    if ndim != 4:
        raise NotImplementedError(f"Resize of a tensor with {ndim} dimensions")
    scales = inputs[2] if len(inputs) > 2 else None
    sizes = inputs[3] if len(inputs) > 3 else None
    factors = None if scales is None else ctx.need_constant(scales, "the scales of Resize").reshape(-1)
    dims = ctx.dims(x)
    if sizes is not None:
        target: list[Any] = list(ctx.scalars(sizes) or [])[-2:]
        if len(target) != 2:
            raise NotImplementedError("Resize with sizes computed at run time")
    elif factors is not None and len(factors):
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


@convert("QuantizeLinear")
def _quantize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    zero = inputs[2] if len(inputs) > 2 and inputs[2] is not None else ctx.const(0, "uint8")
    zero, x, scale = ctx.tensor(zero), ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    return op.quantize(x, scale, zero, _channel_axis(ctx, x, scale, attrs), ctx.dtype(zero))


def _channel_axis(ctx: Context, x: Any, scale: Any, attrs: dict[str, Any]) -> int:
    """The axis that scales belong to, if there is more than one."""
    return int(attrs.get("axis", 1)) % ctx.ndim(x) if ctx.ndim(scale) and ctx.ndim(x) else -1


@convert("DequantizeLinear")
def _dequantize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    x = ctx.tensor(inputs[0])
    zero = inputs[2] if len(inputs) > 2 and inputs[2] is not None else ctx.const(0, ctx.dtype(x))
    scale, zero = ctx.tensor(inputs[1]), ctx.tensor(zero)
    if ctx.ndim(scale) == 0 and ctx.ndim(zero) == 1:
        zero = ctx.emit(ctx.reshape(zero, []))
    return op.dequantize(x, scale, zero, _channel_axis(ctx, x, scale, attrs), ctx.dtype(scale))
