"""Planned memory: storage, tensors inside it, their ends of life, and views."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..ir.op import Op
from ..relax.expr import Call, DataTypeImm, Expr, PrimValue, ShapeExpr, StringImm
from ..relax.op_table import OpRecord, register_op
from ..relax.scalars import const_int, product
from ..relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..support.errors import RelaxishError
from .base import null_value

__all__ = ["alloc_storage", "alloc_tensor", "ensure_zero_offset", "kill_storage", "kill_tensor", "view"]


def _infer_tensor(call: Call, _: Any) -> StructInfo:
    return TensorStructInfo(call.args[2], call.args[3].value)


def _void(*_: Any) -> StructInfo:
    return TupleStructInfo(())


register_op(
    OpRecord(
        "relax.memory.alloc_storage",
        lambda *_: ObjectStructInfo(),
        pure=True,
        opaque={"TAllocator": True},
        arg_names=("size", "virtual_device_index", "storage_scope", "dtype"),
    )
)
register_op(
    OpRecord(
        "relax.memory.alloc_tensor",
        _infer_tensor,
        opaque={"TAllocator": True},
        arg_names=("storage", "offset", "shape", "dtype"),
    )
)
register_op(OpRecord("relax.memory.kill_storage", _void, pure=False, arg_names=("storage",)))
register_op(OpRecord("relax.memory.kill_tensor", _void, pure=False, arg_names=("tensor",)))


def _prim(value: Any) -> Expr:
    return value if isinstance(value, Expr) else PrimValue(value)


def _shape(value: Any) -> Expr:
    return value if isinstance(value, Expr) else ShapeExpr(value)


def _dtype(value: Any) -> Expr:
    return value if isinstance(value, Expr) else DataTypeImm(value)


def alloc_storage(size: Any, virtual_device_index: Any, storage_scope: Any, dtype: Any) -> Call:
    """Allocate raw memory."""
    scope = storage_scope if isinstance(storage_scope, Expr) else StringImm(storage_scope)
    return Call(Op.get("relax.memory.alloc_storage"), (_shape(size), _prim(virtual_device_index), scope, _dtype(dtype)))


def alloc_tensor(storage: Expr, offset: Any, shape: Any, dtype: Any) -> Call:
    """A tensor at an offset inside storage."""
    return Call(Op.get("relax.memory.alloc_tensor"), (storage, _prim(offset), _shape(shape), _dtype(dtype)))


def kill_storage(storage: Expr) -> Call:
    """Storage is used no more."""
    return Call(Op.get("relax.memory.kill_storage"), (storage,))


def kill_tensor(tensor: Expr) -> Call:
    """A tensor is used no more."""
    return Call(Op.get("relax.memory.kill_tensor"), (tensor,))


def _is_null(arg: Any) -> bool:
    return isinstance(arg, Call) and arg.op is Op.get("relax.null_value")


def _given(arg: Any) -> bool:
    return not _is_null(arg) and type(arg.struct_info) is not ObjectStructInfo


def _infer_view(call: Call, _: Any) -> StructInfo:
    if len(call.args) != 4:
        raise RelaxishError(f"Operator {call.op.name} should receive 4 arguments, but received {len(call.args)}")
    data, shape, dtype, offset = call.args
    info = data.struct_info
    if not isinstance(info, TensorStructInfo):
        raise TypeError(f"Operator {call.op.name} expects a tensor as its first argument, but received {info}")
    new_dtype = dtype.value if isinstance(dtype, DataTypeImm) else info.dtype
    new_shape = info.shape
    new_ndim = info.ndim
    if _given(shape):
        shape_info = shape.struct_info
        if not isinstance(shape_info, ShapeStructInfo):
            raise TypeError(f"Operator {call.op.name} expects a shape, but received {shape_info}")
        new_ndim = shape_info.ndim
        new_shape = ShapeExpr(shape_info.values) if shape_info.values is not None else None
    byte_offset = None
    if _given(offset):
        if not isinstance(offset.struct_info, PrimStructInfo) or offset.struct_info.dtype != "int64":
            raise TypeError(f"Operator {call.op.name} expects an int64 relative_byte_offset")
        byte_offset = const_int(offset.struct_info.value)
        if byte_offset is not None and byte_offset < 0:
            raise RelaxishError(f"Operator {call.op.name} expects a non-negative relative_byte_offset")
    _check_view_size(call, info, new_shape, new_dtype, byte_offset)
    if new_shape is not None:
        return TensorStructInfo(new_shape, new_dtype, info.vdevice)
    return TensorStructInfo(None, new_dtype, info.vdevice, new_ndim)


def _check_view_size(call: Call, info: Any, shape: Any, dtype: str, offset: int | None) -> None:
    dims = info.dims()
    if dims is None or not isinstance(shape, ShapeExpr) or not info.dtype or not dtype:
        return
    have, need = const_int(product(dims)), const_int(product(shape.values))
    if have is None or need is None:
        return
    have, need = have * dt.nbytes(info.dtype), need * dt.nbytes(dtype)
    if not _given(call.args[3]):
        if have != need:
            raise RelaxishError(
                f"{call.op.name}: a view without relative_byte_offset must have the size of the tensor: "
                f"{have} bytes, not {need}"
            )
    elif offset is not None and need + offset > have:
        raise RelaxishError(f"{call.op.name}: {need} bytes at offset {offset} exceed the {have} bytes of the tensor")


register_op(OpRecord("relax.memory.view", _infer_view, arg_names=("data", "shape", "dtype", "relative_byte_offset")))
register_op(OpRecord("relax.memory.ensure_zero_offset", lambda call, _: call.args[0].struct_info, arg_names=("data",)))


def view(data: Expr, shape: Any = None, dtype: Any = None, relative_byte_offset: Any = None) -> Call:
    """The same memory seen with another shape, dtype or offset."""
    if shape is not None and not isinstance(shape, Expr):
        shape = ShapeExpr(shape)
    if dtype is not None and not isinstance(dtype, Expr):
        dtype = DataTypeImm(dtype)
    if relative_byte_offset is not None and not isinstance(relative_byte_offset, Expr):
        relative_byte_offset = PrimValue(relative_byte_offset)
    parts = [null_value() if p is None else p for p in (shape, dtype, relative_byte_offset)]
    return Call(Op.get("relax.memory.view"), (data, *parts))


def ensure_zero_offset(data: Expr) -> Call:
    """A tensor whose data start at its allocation: a copy if necessary."""
    return Call(Op.get("relax.memory.ensure_zero_offset"), (data,))
