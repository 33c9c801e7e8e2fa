"""Planned memory: storage, tensors inside it, their ends of life, and views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import dtype as dt
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import PrimExpr
from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataTypeImm, Expr, PrimValue, ShapeExpr, Tuple
from ..relax.scalars import const_int, product, simplify
from ..relax.struct_info import (
    is_void,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..relax.utils import followed
from ..runtime.registry import register_func
from ..tir import IntImm
from .inference import Number, ShapeLike, counted
from .literals import dtype_expr, prim_expr, shape_expr, string_expr
from .record import define

__all__ = ["alloc_storage", "alloc_tensor", "ensure_zero_offset", "kill_storage", "kill_tensor", "view"]


def _infer_tensor(call: Call, _: BlockBuilder) -> StructInfo:
    shape, dtype = call.args[2:4]
    if not isinstance(shape.struct_info_, ShapeStructInfo):
        raise CheckTypeError(f"relax.memory.alloc_tensor: the shape must be a Shape, but got {type(shape).__name__}")
    return TensorStructInfo(shape, dtype.value if isinstance(dtype, DataTypeImm) else "")


def infer_void(*_: Any) -> StructInfo:
    """The result of operators that give nothing: the empty tuple."""
    return TupleStructInfo(())


define("memory.alloc_storage", counted(lambda *_: ObjectStructInfo(), 4), allocates=True)
define("memory.alloc_tensor", counted(_infer_tensor, 4), allocates=True)
define("memory.kill_storage", counted(infer_void, 1), pure=False)
define("memory.kill_tensor", counted(infer_void, 1), pure=False)


def alloc_storage(size: ShapeLike, virtual_device_index: Number, storage_scope: Expr | str, dtype: Expr | str) -> Call:
    """Allocate raw memory."""
    device, scope = prim_expr(virtual_device_index), string_expr(storage_scope)
    return Call(Op.get("relax.memory.alloc_storage"), (shape_expr(size), device, scope, dtype_expr(dtype)))


def alloc_tensor(storage: Expr, offset: Number, shape: ShapeLike, dtype: Expr | str) -> Call:
    """A tensor at an offset inside storage."""
    return Call(Op.get("relax.memory.alloc_tensor"), (storage, prim_expr(offset), shape_expr(shape), dtype_expr(dtype)))


def kill_storage(storage: Expr) -> Call:
    """Storage is used no more."""
    return Call(Op.get("relax.memory.kill_storage"), (storage,))


def kill_tensor(tensor: Expr) -> Call:
    """A tensor is used no more."""
    return Call(Op.get("relax.memory.kill_tensor"), (tensor,))


def _is_void(arg: Expr) -> bool:
    """Whether an argument is the empty tuple, which stands for "as it is"."""
    info = arg.struct_info
    return is_void(info)


def _view_dtype(call: Call, builder: BlockBuilder) -> str | None:
    """The new dtype; None if it stays, empty if it cannot be told."""
    dtype = call.args[2]
    if _is_void(dtype):
        return None
    if builder is not None:
        dtype = followed(dtype, builder.lookup_binding)
    if isinstance(dtype, DataTypeImm):
        return dtype.value
    if type(dtype.struct_info) is ObjectStructInfo:
        return ""
    raise CheckTypeError(
        f"Operator {call.op.name} expects the dtype argument to be a relax::DataTypeImm, but received {dtype}"
    )


def _view_offset(call: Call) -> PrimExpr | None:
    """The byte offset as a scalar; None if it cannot be told."""
    offset = call.args[3]
    if _is_void(offset):
        return IntImm("int64", 0)
    info = offset.struct_info
    if not isinstance(info, PrimStructInfo):
        raise CheckTypeError(
            f"Operator {call.op.name} expects the relative_byte_offset argument to be a Relax PrimValue, but it has "
            f"struct info {info}"
        )
    if info.dtype != "int64":
        raise CheckTypeError(
            f"Operator {call.op.name} expects the relative_byte_offset to be a 64-bit integer, but it is {info.dtype}"
        )
    return offset.value if isinstance(offset, PrimValue) else None


@register_func("tvm.relax.struct_info.infer_view_sinfo", override=True)
def _infer_view(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) != 4:
        raise CheckValueError(f"Operator {call.op.name} should receive 4 arguments, but received {len(call.args)}")
    data, shape = call.args[:2]
    info = data.struct_info
    if not isinstance(info, TensorStructInfo):
        raise CheckTypeError(f"Operator {call.op.name} expects first argument to be a tensor, but received {info}")
    wanted = None if _is_void(shape) else shape.struct_info
    if wanted is not None and not isinstance(wanted, ShapeStructInfo):
        raise CheckTypeError(
            f"Operator {call.op.name} expects second argument to be a ShapeExpr, or a void-type (empty relax tuple), "
            f"but received struct info {wanted}"
        )
    new_dtype, offset = _view_dtype(call, builder), _view_offset(call)
    dtype = info.dtype if new_dtype is None else new_dtype
    dims, ndim = (info.dims(), info.ndim) if wanted is None else (wanted.values, wanted.ndim)
    if _exceeds(info, dims, dtype, offset, wanted is not None, new_dtype is not None):
        raise CheckValueError(
            f"Views into an array must not exceed the bounds of the array being viewed. However, {call.op.name} was "
            f"asked for shape {dims}, dtype {dtype} at relative byte offset {offset} of an array with {info}"
        )
    return TensorStructInfo(None if dims is None else list(dims), dtype, info.vdevice, ndim if dims is None else -1)


def _exceeds(
    info: TensorStructInfo,
    dims: Sequence[PrimExpr] | None,
    dtype: str,
    offset: PrimExpr | None,
    reshaped: bool,
    recast: bool,
) -> bool:
    """Whether the view provably reaches beyond the array, by whatever is known of both."""
    have = None if info.dims() is None else product(info.dims() or ())
    need = None if dims is None else product(dims)
    if have is not None and need is not None and info.dtype and dtype:
        return _greater(need * dt.nbytes(dtype) + (0 if offset is None else offset), have * dt.nbytes(info.dtype))
    if info.dtype and dtype and not reshaped:
        return dt.nbytes(dtype) > dt.nbytes(info.dtype)
    if have is not None and need is not None and not recast:
        return _greater(need, have)
    return offset is not None and not reshaped and not recast and _greater(offset, IntImm("int64", 0))


def _greater(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    return const_int(simplify(lhs > rhs)) == 1


def _infer_zero_offset(call: Call, _: BlockBuilder) -> StructInfo:
    if len(call.args) != 1:
        raise CheckValueError(f"Operator {call.op.name} should receive 1 argument, but received {len(call.args)}")
    info: StructInfo = call.args[0].struct_info
    return info


define("memory.view", _infer_view)
define("memory.ensure_zero_offset", _infer_zero_offset)


def view(
    data: Expr,
    shape: ShapeLike | None = None,
    dtype: Expr | str | None = None,
    relative_byte_offset: Number | None = None,
) -> Call:
    """The same memory seen with another shape, dtype or offset."""
    if shape is not None and not isinstance(shape, Expr):
        shape = ShapeExpr(shape)
    if dtype is not None and not isinstance(dtype, Expr):
        dtype = DataTypeImm(dtype)
    if relative_byte_offset is not None and not isinstance(relative_byte_offset, Expr):
        relative_byte_offset = PrimValue(relative_byte_offset)
    parts = [Tuple(()) if p is None else p for p in (shape, dtype, relative_byte_offset)]
    return Call(Op.get("relax.memory.view"), (data, *parts))


def ensure_zero_offset(data: Expr) -> Call:
    """A tensor whose data start at its allocation: a copy if necessary."""
    return Call(Op.get("relax.memory.ensure_zero_offset"), (data,))
