"""Inspection of tensors at run time: dtype, rank, extents, strides and offsets as scalars.

What inference already knows is replaced by its value when the call is normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue
from ..relax.op_table import Infer, Legalize
from ..relax.scalars import const_int
from ..relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from ..runtime.arrays.dtype import DataType
from ..tir import IntImm
from .inference import Number, as_expr, as_prim_value
from .inspect_getters import GETTERS, field_getter
from .record import define

__all__ = [
    "tensor_byte_offset", "tensor_dtype_bits", "tensor_dtype_code", "tensor_dtype_lanes", "tensor_elem_offset",
    "tensor_ndim", "tensor_shape_i", "tensor_stride_i",
]  # fmt: skip


def _tensor(call: Call, count: int) -> TensorStructInfo:
    if len(call.args) != count:
        raise CheckTypeError(
            f"Operator {call.op.name} expects {count} argument(s), but received {len(call.args)} arguments"
        )
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo):
        raise CheckTypeError(f"Operator {call.op.name} expects a tensor argument, but it has struct info {info}")
    return info


def _axis(call: Call, info: TensorStructInfo) -> int | None:
    """The axis, if it is a constant."""
    axis = call.args[1].struct_info
    if not isinstance(axis, PrimStructInfo):
        raise CheckTypeError(f"Operator {call.op.name} expects arguments (tensor, axis), but the axis is {axis}")
    known = const_int(axis.value)
    if known is not None and known < 0:
        raise CheckValueError(f"Operator {call.op.name}: the axis must not be negative, but it is {known}")
    if known is not None and 0 <= info.ndim <= known:
        raise CheckValueError(f"Operator {call.op.name} attempts to access axis {known} of {info.ndim}")
    return known


def _of_dtype(part: str, dtype: str) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        info = _tensor(call, 1)
        if not info.dtype:
            return PrimStructInfo(dtype)
        return PrimStructInfo(value=IntImm(dtype, int(getattr(DataType(info.dtype), part))))

    return infer


def _infer_ndim(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _tensor(call, 1)
    return PrimStructInfo("int32") if info.ndim < 0 else PrimStructInfo(value=IntImm("int32", info.ndim))


def _infer_shape(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _tensor(call, 2)
    axis, dims = _axis(call, info), info.dims()
    return PrimStructInfo("int64") if axis is None or dims is None else PrimStructInfo(value=dims[axis])


def _infer_stride(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _tensor(call, 2)
    axis, dims = _axis(call, info), info.dims()
    if axis is None or dims is None:
        return PrimStructInfo("int64")
    # Tensors of known shape are compact.
    stride: Any = IntImm("int64", 1)
    for dim in dims[axis + 1 :]:
        stride = stride * dim
    return PrimStructInfo(value=stride)


def _infer_offset(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _tensor(call, 1)
    # Tensors of known shape begin where their memory begins.
    return PrimStructInfo("uint64") if info.dims() is None else PrimStructInfo(value=IntImm("uint64", 0))


def _as_known(builder: BlockBuilder, call: Call) -> Expr:
    info = call.struct_info_
    return PrimValue(info.value) if isinstance(info, PrimStructInfo) and info.value is not None else call


def _legalize(name: str) -> Legalize | None:
    """To a call of the program that reads the field, where there is one."""
    if name not in GETTERS:
        return None

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        return Call(builder.add_func(field_getter(name), f"_get_{name}"), call.args)

    return legalize


def _define(name: str, infer: Infer, about: str, axis: bool = False) -> Callable[..., Call]:
    # The machine reads it off the tensor.
    record = define(f"inspect.{name}", infer, normalize=_as_known, legalize=_legalize(name), packed=f"relax.run.{name}")
    op = Op.get(record.name)
    op.set_attr("RequiresArgumentShapes", False)

    def function(tensor: Expr) -> Call:
        return Call(op, (as_expr(tensor),))

    def function_of_axis(tensor: Expr, axis: Number) -> Call:
        return Call(op, (as_expr(tensor), as_prim_value(axis)))

    made: Callable[..., Call] = function_of_axis if axis else function
    made.__name__ = made.__qualname__ = name
    made.__doc__ = about
    return made


tensor_dtype_code = _define(
    "tensor_dtype_code", _of_dtype("type_code", "uint8"), "The DLPack type code of the elements."
)
tensor_dtype_bits = _define("tensor_dtype_bits", _of_dtype("bits", "uint8"), "Bits of one lane of an element.")
tensor_dtype_lanes = _define("tensor_dtype_lanes", _of_dtype("lanes", "uint16"), "Lanes of one element.")
tensor_ndim = _define("tensor_ndim", _infer_ndim, "The number of dimensions.")
tensor_shape_i = _define("tensor_shape_i", _infer_shape, "The extent of one axis.", axis=True)
tensor_stride_i = _define("tensor_stride_i", _infer_stride, "The stride of one axis, in elements.", axis=True)
tensor_byte_offset = _define("tensor_byte_offset", _infer_offset, "Where the data begin, in bytes.")
tensor_elem_offset = _define("tensor_elem_offset", _infer_offset, "Where the data begin, in elements.")
