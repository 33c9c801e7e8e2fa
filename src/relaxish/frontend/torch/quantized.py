"""Quantised programs: what PyTorch's exports of int8 and int4 models call, with PyTorch's order of rounding.

Quantising multiplies with the reciprocal of the scale, which PyTorch computes as finely as the scale is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import op, relax
from ...ir import dtype as dt
from ...relax.expr import Constant, Expr
from ...support.errors import OpNotImplemented
from .importer import dtype_of, Importer, Number, torch_dtype, Value
from .table import converter

__all__: list[str] = []


def _single(self: Importer, x: Value, dtype: str) -> Expr:
    """A scale or zero point for all elements, without dimensions."""
    if not self.is_tensor(x):
        return relax.const(np.asarray(x, dtype), dtype)
    if isinstance(x, Constant):
        return relax.const(x.data.numpy().astype(dtype).reshape(()), dtype)
    return self.cast(self.emit(op.reshape(x, [])) if self.rank(x) else x, dtype)


def _row(self: Importer, x: Expr, dtype: str) -> Expr:
    """Scales or zero points of channels as another type, now if they are constants."""
    if isinstance(x, Constant):
        return relax.const(x.data.numpy().astype(dtype), dtype)
    return self.cast(x, dtype)


def _inverse(self: Importer, scale: Value, dtype: str) -> Expr:
    """One over the scale, rounded once."""
    if not self.is_tensor(scale):
        return relax.const(np.asarray(1.0 / float(scale), dtype), dtype)  # type: ignore[arg-type]
    if isinstance(scale, Constant):
        values = scale.data.numpy()
        return relax.const((1 / values).astype(dtype), dtype)
    one = relax.const(np.asarray(1, dtype_of(scale)), dtype_of(scale))
    return self.cast(self.emit(op.divide(one, scale)), dtype)


def _rounded(
    self: Importer, x: Expr, factor: Expr, zero: Expr | None, low: Number, high: Number, before: bool = False
) -> Expr:
    """``x`` times a factor as whole numbers within bounds, moved by a zero point ``before`` or after the rounding."""
    scaled = self.emit(op.multiply(x, factor))
    moved = self.emit(op.add(scaled, zero)) if before and zero is not None else scaled
    whole = self.emit(op.round(moved))
    if not before and zero is not None:
        whole = self.emit(op.add(whole, zero))
    return self.emit(op.clip(whole, low, high))


def _bounds(low: Value, high: Value) -> tuple[Number, Number]:
    """Bounds of quantised numbers. Raises OpNotImplemented where they are computed."""
    found = []
    for bound in (low, high):
        match bound:
            case Constant():
                bound = int(bound.data.numpy().reshape(-1)[0])
            case Expr():
                raise OpNotImplemented("bounds of quantised numbers that are computed when the program runs")
        found.append(bound)
    return found[0], found[1]


@converter("quantize_per_tensor")
def _quantize(self: Importer, x: Expr, scale: Value, zero: Value, low: Value, high: Value, dtype: torch.dtype) -> Expr:
    x = self.cast(x, "float32") if dtype_of(x) != "float64" else x
    kind = dtype_of(x)
    factor = _inverse(self, scale, kind)
    factor = _single(self, factor, kind)
    return self.cast(_rounded(self, x, factor, _single(self, zero, kind), *_bounds(low, high)), torch_dtype(dtype))


@converter("dequantize_per_tensor")
def _dequantize(
    self: Importer,
    x: Expr,
    scale: Value,
    zero: Value,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Expr:
    kind = torch_dtype(out_dtype or torch.float32)
    zeros = _zero_type(x, zero)
    return self.emit(op.dequantize(x, _single(self, scale, kind), _single(self, zero, zeros), -1, kind))


def _zero_type(x: Expr, zero: Value) -> str:
    """The type zero points are given in: that of the data if they are known to fit, else a wide one."""
    kind = dtype_of(x)
    match zero:
        case Constant():
            values = zero.data.numpy()
        case int() | float():
            values = np.asarray(zero)
        case _:
            return "int32"
    fits = dt.is_int(kind) or dt.is_uint(kind)
    fits = fits and bool((values >= dt.min_value(kind)).all() and (values <= dt.max_value(kind)).all())
    return kind if fits and kind != "int64" else "int32"


def _along(self: Importer, x: Expr, values: Expr, axis: int) -> Expr:
    """Numbers of channels in the rank of the data."""
    return self.emit(op.reshape(values, [1] * axis + [-1] + [1] * (self.rank(x) - axis - 1)))


@converter("quantize_per_channel")
def _quantize_channels(
    self: Importer, x: Expr, scales: Expr, zeros: Expr, axis: int, low: Value, high: Value, dtype: torch.dtype
) -> Expr:
    axis, x = self.axis(x, axis), self.floating(x)
    kind = dtype_of(x)
    factor = _along(self, x, _inverse(self, scales, kind), axis)
    moved = _along(self, x, _row(self, zeros, kind), axis)
    return self.cast(_rounded(self, x, factor, moved, *_bounds(low, high)), torch_dtype(dtype))


@converter("dequantize_per_channel")
def _dequantize_channels(
    self: Importer,
    x: Expr,
    scales: Expr,
    zeros: Expr | None,
    axis: int,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Expr:
    kind = torch_dtype(out_dtype or torch.float32)
    scales = _row(self, scales, kind)
    if zeros is None:
        zero: Expr = relax.const(np.asarray(0, dtype_of(x)), dtype_of(x))
    else:
        zero = _row(self, zeros, _zero_type(x, zeros))
    return self.emit(op.dequantize(x, scales, zero, self.axis(x, axis), kind))


# ---- by token and by group: one scale for a row of elements


@converter("quantize_per_token")
def _quantize_rows(
    self: Importer, x: Expr, scales: Expr, zeros: Expr, low: Value, high: Value, dtype: torch.dtype
) -> Expr:
    kind = dtype_of(scales)
    made = _rounded(
        self, self.cast(x, kind), _inverse(self, scales, kind), self.cast(zeros, kind), *_bounds(low, high), before=True
    )
    return self.cast(made, torch_dtype(dtype))


@converter("dequantize_per_token")
def _dequantize_rows(
    self: Importer,
    x: Expr,
    scales: Expr,
    zeros: Expr,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Expr:
    kind = dtype_of(scales)
    apart = self.emit(op.subtract(self.cast(x, kind), self.cast(zeros, kind)))
    return self.cast(self.emit(op.multiply(apart, scales)), torch_dtype(output_dtype))


def _grouped(self: Importer, x: Expr, scales: Expr, size: int) -> tuple[Expr, Sequence[Any]]:
    """A matrix as rows of one group each, and its shape. Raises ValueError where groups do not fit."""
    rows, columns = self.shape(x)
    if not isinstance(columns, int):
        raise OpNotImplemented("groups along a dimension of unknown size")
    if size > columns and self.shape(scales)[-1] == 1:
        size = columns
    if size < 1 or columns % size:
        raise ValueError(f"groups of {size} do not divide rows of {columns}")
    return self.emit(op.reshape(x, [-1, size])), [rows, columns]


@converter("quantize_per_channel_group")
def _quantize_groups(
    self: Importer,
    x: Expr,
    scales: Expr,
    zeros: Expr,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Expr:
    x, shape = _grouped(self, x, scales, group_size)
    kind = dtype_of(x)
    factor = self.emit(op.reshape(_inverse(self, scales, kind), [-1, 1]))
    moved = self.emit(op.reshape(_row(self, zeros, kind), [-1, 1]))
    made = _rounded(self, x, factor, moved, *_bounds(low, high), before=True)
    return self.cast(self.emit(op.reshape(made, shape)), torch_dtype(dtype))


@converter("dequantize_per_channel_group")
def _dequantize_groups(
    self: Importer,
    x: Expr,
    scales: Expr,
    zeros: Expr | None,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Expr:
    x, shape = _grouped(self, x, scales, group_size)
    kind = dtype_of(scales)
    x = self.cast(x, kind)
    if zeros is not None:
        x = self.emit(op.subtract(x, self.emit(op.reshape(_row(self, zeros, kind), [-1, 1]))))
    x = self.emit(op.multiply(x, self.emit(op.reshape(scales, [-1, 1]))))
    return self.cast(self.emit(op.reshape(x, shape)), torch_dtype(output_dtype))


# ---- scales from the range of the data


def _range(self: Importer, x: Expr) -> tuple[Expr, Expr]:
    """The least and the largest element; zero is always between them."""
    nothing = self.scalar(0, dtype_of(x))
    return self.emit(op.minimum(self.emit(op.min(x)), nothing)), self.emit(op.maximum(self.emit(op.max(x)), nothing))


def _least(self: Importer, scale: Expr, epsilon: float) -> Expr:
    # PyTorch holds the least scale in float32.
    return self.emit(op.maximum(scale, self.scalar(float(np.float32(epsilon)), dtype_of(scale))))


@converter("choose_qparams")
def _choose(self: Importer, x: Expr, low: int, high: int, epsilon: float, dtype: torch.dtype) -> list[Expr]:
    least, most = _range(self, x)
    span = self.emit(op.subtract(most, least))
    scale = _least(self, self.emit(op.divide(span, self.scalar(float(high - low), dtype_of(x)))), epsilon)
    steps = self.emit(op.round(self.emit(op.divide(least, scale))))
    zero = self.emit(op.subtract(self.scalar(low, "int64"), self.cast(steps, "int64")))
    zero = self.emit(op.clip(zero, low, high))
    return [self.emit(op.reshape(v, [1])) for v in (self.cast(scale, "float64"), zero)]


@converter("choose_qparams_symmetric")
def _choose_symmetric(self: Importer, x: Expr, low: int, high: int, epsilon: float, dtype: torch.dtype) -> list[Expr]:
    least, most = _range(self, x)
    most = self.emit(op.maximum(self.emit(op.negative(least)), most))
    scale = _least(self, self.emit(op.divide(most, self.scalar((high - low) / 2, dtype_of(x)))), epsilon)
    zero = relax.const(np.asarray([128 if dtype in (torch.uint8, torch.quint8) else 0]), "int64")
    return [self.emit(op.reshape(self.cast(scale, "float64"), [1])), zero]


@converter("choose_qparams_per_token")
def _choose_rows(self: Importer, x: Expr, dtype: torch.dtype) -> list[Expr]:
    if dtype != torch.int8:
        raise OpNotImplemented(f"choose_qparams_per_token for {dtype}")
    most: Expr = self.emit(op.max(self.emit(op.abs(x)), [-1], True))
    most = self.cast(most, "float32") if dtype_of(most) == "float16" else most
    kind = dtype_of(most)
    scale = self.emit(op.divide(self.emit(op.maximum(most, self.scalar(1e-5, kind))), self.scalar(127, kind)))
    return [scale, self.emit(op.zeros_like(scale))]


@converter("choose_qparams_per_token_asymmetric")
def _choose_rows_asymmetric(self: Importer, x: Expr, dtype: torch.dtype) -> list[Expr]:
    kind = dtype_of(x)
    low, high, nothing = (self.scalar(v, kind) for v in (-128, 127, 0))
    least = self.emit(op.minimum(self.emit(op.min(x, [-1], True)), nothing))
    most = self.emit(op.maximum(self.emit(op.max(x, [-1], True)), nothing))
    span = self.emit(op.divide(self.emit(op.subtract(most, least)), self.scalar(255, kind)))
    scale = self.emit(op.maximum(span, self.scalar(float(np.finfo("float32").eps), kind)))
    ends = [self.emit(op.divide(v, scale)) for v in (least, most)]
    errors = self.emit(op.add(*(self.emit(op.add(a, b)) for a, b in zip((low, high), ends))))
    choices = [self.emit(op.subtract(a, b)) for a, b in zip((low, high), ends)]
    zero = self.emit(op.where(self.emit(op.greater(errors, nothing)), *choices))
    zero = self.emit(op.round(self.emit(op.clip(zero, -128, 127))))
    return [self.cast(scale, "float64"), self.cast(zero, "int64")]


# ---- fake quantisation, and products with packed weights


def _faked(self: Importer, x: Expr, scale: Expr, zero: Expr, low: int, high: int) -> list[Expr]:
    """Quantised and back, and where the numbers were within bounds."""
    kind = dtype_of(x)
    one = self.scalar(1, kind)
    scaled = self.emit(op.multiply(x, self.emit(op.divide(one, scale))))
    whole = self.emit(op.round(self.emit(op.add(scaled, zero))))
    kept = self.emit(op.clip(whole, low, high))
    inside = self.emit(op.logical_and(
        self.emit(op.greater_equal(whole, self.scalar(low, kind))),
        self.emit(op.less_equal(whole, self.scalar(high, kind))),
    ))  # fmt: skip
    return [self.emit(op.multiply(self.emit(op.subtract(kept, zero)), scale)), inside]


@converter("fake_quantize_per_tensor_affine_cachemask")
def _fake(self: Importer, x: Expr, scale: Value, zero: Value, low: int, high: int) -> list[Expr]:
    kind = dtype_of(x)
    return _faked(self, x, _single(self, scale, kind), _single(self, zero, kind), low, high)


@converter("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _fake_if_enabled(
    self: Importer, x: Expr, scale: Value, zero: Value, enabled: Expr, low: int, high: int
) -> list[Expr]:
    made, inside = _fake(self, x, scale, zero, low, high)
    on = _single(self, enabled, "bool")
    return [self.emit(op.where(on, made, x)), self.emit(op.logical_or(inside, self.emit(op.logical_not(on))))]


@converter("fake_quantize_per_channel_affine_cachemask")
def _fake_channels(self: Importer, x: Expr, scales: Expr, zeros: Expr, axis: int, low: int, high: int) -> list[Expr]:
    axis, kind = self.axis(x, axis), dtype_of(x)
    scale, zero = (_along(self, x, _row(self, v, kind), axis) for v in (scales, zeros))
    return _faked(self, x, scale, zero, low, high)


@converter("fake_quant_per_channel")
def _fake_quant_per_channel(self: Importer, x: Expr, scales: Expr, zeros: Expr, axis: int, low: int, high: int) -> Expr:
    axis, kind = self.axis(x, axis), dtype_of(x)
    scale, zero = (_along(self, x, _row(self, v, kind), axis) for v in (scales, zeros))
    one = self.scalar(1, kind)
    kept = _rounded(self, x, self.emit(op.divide(one, scale)), zero, low, high)
    return self.emit(op.multiply(self.emit(op.subtract(kept, zero)), scale))


@converter("_weight_int8pack_mm")
def _weight_int8(self: Importer, x: Expr, weight: Expr, scales: Expr) -> Expr:
    """A product with rows of int8, each with its scale."""
    kind = dtype_of(x)
    rows = self.emit(op.permute_dims(self.cast(weight, kind), [1, 0]))
    return self.emit(op.multiply(self.emit(op.matmul(x, rows)), self.cast(scales, kind)))
