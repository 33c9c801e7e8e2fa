"""Quantisation and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import te, tir
from ..ir import dtype as dt
from ..relax.expr import Call, Expr
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo, TensorStructInfo
from ..tir import const
from .inference import as_expr, check_axis, fail, input_tensors, make_call, type_fail, with_dtype
from .record import define

__all__ = ["dequantize", "quantize"]


def quantize(data: Any, scale: Any, zero_point: Any, axis: int = -1, out_dtype: str = "int8") -> Expr:
    """``clip(round(data / scale) + zero_point)`` in ``out_dtype``; scale and zero point by channel or for all."""
    return make_call(
        "quantize", [as_expr(v) for v in (data, scale, zero_point)], {"out_dtype": out_dtype, "axis": int(axis)}
    )


def dequantize(data: Any, scale: Any, zero_point: Any, axis: int = -1, out_dtype: str = "float32") -> Expr:
    """``scale * (data - zero_point)`` in ``out_dtype``."""
    return make_call(
        "dequantize", [as_expr(v) for v in (data, scale, zero_point)], {"out_dtype": out_dtype, "axis": int(axis)}
    )


def _check_channel(call: Call, data: TensorStructInfo, infos: list[TensorStructInfo]) -> None:
    axis = check_axis(call, data.ndim, call.attrs.axis) if data.ndim > 0 else 0
    dims = data.dims()
    for info in infos:
        size = info.dims()
        if not size or dims is None:
            continue
        a, b = const_int(size[0]), const_int(dims[axis])
        if len(size) != 1 or (a is not None and b is not None and a != b and a != 1):
            raise fail(call, f"scale and zero_point must have one entry a channel ({b}), but one has shape {size}")


def _infer_quantize(call: Call, builder: Any) -> StructInfo:
    data, scale, zero = input_tensors(call, 3)
    out = call.attrs.out_dtype
    if out not in (
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "float8_e4m3fn",
        "float8_e5m2",
        "e4m3_float8",
        "e5m2_float8",
    ):
        raise type_fail(call, f"out_dtype must be an integer or 8-bit float type, not {out}")
    if data.dtype and data.dtype not in ("float32", "float16"):
        raise type_fail(call, f"the input must be float32 or float16, not {data.dtype}")
    if scale.dtype and scale.dtype not in ("float32", "float16"):
        raise type_fail(call, f"scale must be float32 or float16, not {scale.dtype}")
    if zero.dtype and zero.dtype not in ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32"):
        raise type_fail(call, f"zero_point must be an integer or float, not {zero.dtype}")
    _check_channel(call, data, [scale, zero])
    return with_dtype(data, out)


def _infer_dequantize(call: Call, builder: Any) -> StructInfo:
    data, scale, zero = input_tensors(call, 3)
    out = call.attrs.out_dtype
    if out not in ("float32", "float16"):
        raise type_fail(call, f"out_dtype must be float32 or float16, not {out}")
    if data.dtype and data.dtype in ("float32", "bool", "int64"):
        raise type_fail(call, f"the input must be a quantised type, not {data.dtype}")
    if scale.dtype and scale.dtype not in ("float32", "float16"):
        raise type_fail(call, f"scale must be float32 or float16, not {scale.dtype}")
    if zero.dtype and zero.dtype == "float64":
        raise type_fail(call, f"zero_point must not be {zero.dtype}")
    _check_channel(call, data, [scale, zero])
    return with_dtype(data, out)


def _at(table: Any, indices: Any, axis: int) -> Any:
    if not len(table.shape):
        return table()
    return table(const(0, "int64") if const_int(table.shape[0]) == 1 else indices[axis])


def _legalize_quantize(builder: Any, call: Call) -> Expr:
    out, axis = call.attrs.out_dtype, int(call.attrs.axis)

    def compute(data: Any, scale: Any, zero: Any) -> Any:
        at = axis % max(len(data.shape), 1)

        def element(*i: Any) -> Any:
            value = data(*i) / _at(scale, i, at).astype(data.dtype)
            shifted = tir.round(value) + _at(zero, i, at).astype(data.dtype)
            if dt.is_integral(out):
                low, high = const(dt.min_value(out), data.dtype), const(dt.max_value(out), data.dtype)
                shifted = te.max(te.min(shifted, high), low)
            return shifted.astype(out)

        return te.compute(data.shape, element, "quantized")

    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint="quantize")
    return made


def _legalize_dequantize(builder: Any, call: Call) -> Expr:
    out, axis = call.attrs.out_dtype, int(call.attrs.axis)

    def compute(data: Any, scale: Any, zero: Any) -> Any:
        at = axis % max(len(data.shape), 1)
        wide = "int32" if dt.is_integral(data.dtype) else "float32"

        def element(*i: Any) -> Any:
            centred = data(*i).astype(wide) - _at(zero, i, at).astype(wide)
            return (centred.astype("float32") * _at(scale, i, at).astype("float32")).astype(out)

        return te.compute(data.shape, element, "dequantized")

    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint="dequantize")
    return made


_X = np.random.default_rng(41).uniform(-3, 3, (3, 4)).astype("float32")
_S = np.array([0.1, 0.2, 0.05, 0.3], "float32")
_Z = np.array([1, 0, -2, 3], "int8")
define(
    "quantize",
    _infer_quantize,
    legalize=_legalize_quantize,
    precision="never",
    reference=lambda x, s, z, axis=-1, out_dtype="int8": np.clip(np.round(x / s) + z, -128, 127).astype(out_dtype),
    samples=lambda: [((_X, _S, _Z), {})],
    arg_names=("data", "scale", "zero_point"),
)
define(
    "dequantize",
    _infer_dequantize,
    legalize=_legalize_dequantize,
    precision="never",
    reference=lambda q, s, z, axis=-1, out_dtype="float32": ((q.astype("int32") - z) * s).astype(out_dtype),
    samples=lambda: [((np.arange(12, dtype="int8").reshape(3, 4), _S, _Z), {})],
    arg_names=("data", "scale", "zero_point"),
)
