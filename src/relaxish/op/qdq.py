"""Quantisation and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import te, tir
from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr
from ..relax.op_table import Legalize
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import StructInfo, TensorStructInfo
from ..tir import const
from .inference import as_expr, as_int, fail, input_tensors, make_call, type_fail, with_dtype
from .literals import scalar_const
from .lowering import te_call
from .record import define

__all__ = ["dequantize", "quantize"]


def quantize(data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "int8") -> Expr:
    """``clip(round(data / scale) + zero_point)`` in ``out_dtype``; what is too large becomes the largest number.

    Scale and zero point are for all, by channel (one dimension), or by block: of the data's rank, and along ``axis``
    a number for each block of equal length (a block of one is a number for each element).
    """
    return make_call(
        "quantize", [as_expr(v) for v in (data, scale, zero_point)], {"out_dtype": out_dtype, "axis": as_int(axis)}
    )


def dequantize(data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "float32") -> Expr:
    """``scale * (data - zero_point)`` in ``out_dtype``; see :func:`quantize` for shapes of scale and zero point."""
    return make_call(
        "dequantize", [as_expr(v) for v in (data, scale, zero_point)], {"out_dtype": out_dtype, "axis": as_int(axis)}
    )


_FLOATS = ("float32", "float16", "bfloat16")
#: Types beyond those of the public API: numbers of a few bits, and the other floats of a byte.
_SMALL = (
    "int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e3m4",
)  # fmt: skip
_QUANTIZED = (
    "int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2", "e4m3_float8", "e5m2_float8", *_SMALL,
)  # fmt: skip


#: The public API says int8 and float16; models have zero points of the data's own type as well.
_ZEROS = (
    "int8", "float16", "uint8", "int16", "uint16", "int32", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "e4m3_float8", "e5m2_float8", *_SMALL,
)  # fmt: skip


def _check(call: Call, data_kinds: tuple[str, ...], out_kinds: tuple[str, ...]) -> TensorStructInfo:
    """Dtypes, axis and the sizes of scale and zero point. Returns what is known of the data."""
    data, scale, zero = input_tensors(call, 3)
    if call.attrs.out_dtype not in out_kinds:
        raise type_fail(call, f"unsupported output datatype: {call.attrs.out_dtype}")
    for name, info, kinds in (
        ("input", data, data_kinds),
        ("scale", scale, _FLOATS),
        ("zero_point", zero, _ZEROS),
    ):
        if info.dtype not in kinds:
            raise type_fail(
                call, f"the datatype of {name} should be one of {list(kinds)}, but got {info.dtype or 'unknown'}"
            )
    given = int(call.attrs.axis)
    axis = given + data.ndim if given < 0 else given
    whole = data.ndim == 0 and given in (-1, 0)  # a number of no dimension has its last axis nowhere
    if not 0 <= axis < data.ndim and not whole:
        raise fail(call, f"axis param is out of range ({given})")
    for name, info in (("scale", scale), ("zero_point", zero)):
        if info.ndim == 0:
            continue
        size, dims = info.dims(), data.dims()
        if not size or not dims:
            raise fail(call, f"the shapes of the input and of {name} must be known")
        if info.ndim > 1:
            _check_blocks(call, name, size, dims, axis)
            continue
        if not prove_equal(size[0], dims[axis]):
            raise fail(
                call, f"the input shape at dim {given} is '{dims[axis]}', but size of {name} param is '{size[0]}'"
            )
    return data


def _check_blocks(call: Call, name: str, size: Sequence[PrimExpr], dims: Sequence[PrimExpr], axis: int) -> None:
    """A table by block has the data's rank, and differs from its shape only in how many blocks ``axis`` has."""
    fits = len(size) == len(dims) and all(prove_equal(a, b) for k, (a, b) in enumerate(zip(size, dims)) if k != axis)
    blocks, extent = (const_int(d[axis]) if fits else None for d in (size, dims))
    whole = fits and (prove_equal(size[axis], dims[axis]) or (blocks and extent is not None and extent % blocks == 0))
    if not whole and not all(const_int(d) == 1 for d in size):
        raise fail(call, f"the shape of {name}, {list(size)}, does not divide the input's, {list(dims)}, into blocks")


def _infer_quantize(call: Call, builder: BlockBuilder) -> StructInfo:
    return with_dtype(_check(call, _FLOATS, _QUANTIZED), call.attrs.out_dtype)


def _infer_dequantize(call: Call, builder: BlockBuilder) -> StructInfo:
    return with_dtype(_check(call, (*_QUANTIZED, "int32", *_FLOATS), _FLOATS), call.attrs.out_dtype)


#: A scale or zero point: a number, or a table of them.
_Parameter = te.Tensor | PrimExpr


def _at(table: _Parameter, indices: Sequence[PrimExpr], axis: int, data: te.Tensor) -> PrimExpr:
    """The scale or zero point of one element: a number, the only element of a table, or that of the element's channel
    or block.
    """
    value: PrimExpr
    if isinstance(table, PrimExpr):
        value = table
    elif all(const_int(d) == 1 for d in table.shape):
        value = table(*(const(0, "int64") for _ in table.shape))
    elif len(table.shape) == 1:
        value = table(indices[axis])
    else:
        at = list(indices)
        blocks, extent = const_int(table.shape[axis]), const_int(data.shape[axis])
        if blocks != extent:
            at[axis] = tir.floordiv(at[axis], const((extent or 1) // (blocks or 1), at[axis].dtype))
        value = table(*at)
    return value.astype("float32" if dt.is_float(value.dtype) else "int32") if value.dtype in _SMALL else value


def _clip_cast(value: PrimExpr, dtype: str) -> PrimExpr:
    """``value`` limited to what ``dtype`` can hold, and converted."""
    if dtype in _SMALL:
        low, high = (bound(dtype).astype("float32") for bound in (te.min_value, te.max_value))
        return te.max(te.min(value, high), low).astype(dtype)
    return te.max(te.min(value, te.max_value(dtype)), te.min_value(dtype)).astype(dtype)


#: Of the data, the scale and the zero point.
_Compute = Callable[[te.Tensor, _Parameter, _Parameter], te.Tensor]


def _te_quantize(axis: int, out: str) -> _Compute:
    def compute(data: te.Tensor, scale: _Parameter, zero: _Parameter) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            scaled = data(*i) / _at(scale, i, axis, data)
            return _clip_cast((tir.round(scaled) if "int" in out else scaled) + _at(zero, i, axis, data), out)

        return te.compute(data.shape, element, "quantized")

    return compute


def _te_dequantize(axis: int, out: str) -> _Compute:
    def compute(data: te.Tensor, scale: _Parameter, zero: _Parameter) -> te.Tensor:
        wide = "float32" if "float" in data.dtype else "int32"

        def element(*i: PrimExpr) -> PrimExpr:
            centred = data(*i).astype(wide) - _at(zero, i, axis, data)
            value = centred * _at(scale, i, axis, data).astype("float32")
            return value if out == "float32" else _clip_cast(value, out)

        return te.compute(data.shape, element, "dequantized")

    return compute


def _legalize(name: str, make: Callable[[int, str], _Compute]) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        data, *params = call.args
        # Constant parameters become literals.
        values = [p if (literal := scalar_const(p)) is None else literal for p in params]
        return te_call(builder, name, make(int(call.attrs.axis), call.attrs.out_dtype), data, *values)

    return legalize


_X = np.random.default_rng(41).uniform(-3, 3, (3, 4)).astype("float32")
_S = np.array([0.1, 0.2, 0.05, 0.3], "float32")
_Z = np.array([1, 0, -2, 3], "int8")
define(
    "quantize",
    _infer_quantize,
    attrs="Quantize",
    legalize=_legalize("quantize", _te_quantize),
    reference=lambda x, s, z, axis=-1, out_dtype="int8": np.clip(np.round(x / s) + z, -128, 127).astype(out_dtype),
    samples=lambda: [((_X, _S, _Z), {})],
)
define(
    "dequantize",
    _infer_dequantize,
    attrs="Quantize",
    legalize=_legalize("dequantize", _te_dequantize),
    reference=lambda q, s, z, axis=-1, out_dtype="float32": ((q.astype("int32") - z) * s).astype(out_dtype),
    samples=lambda: [((np.arange(12, dtype="int8").reshape(3, 4), _S, _Z), {})],
)
