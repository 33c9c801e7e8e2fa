"""Operators of the virtual machine, after memory planning."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataTypeImm, Expr, ShapeExpr, Tuple
from ..relax.struct_info import ObjectStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo
from .inference import Number, ShapeLike, counted
from .literals import dtype_expr, prim_expr, shape_expr, string_expr
from .memory import infer_void
from .record import define

__all__ = ["alloc_storage", "alloc_tensor", "call_tir_dyn", "kill_object"]


def _infer_tensor(call: Call, _: BlockBuilder) -> StructInfo:
    shape = call.args[2]
    dtype = call.args[3].value if isinstance(call.args[3], DataTypeImm) else ""
    if isinstance(shape, ShapeExpr):
        return TensorStructInfo(shape, dtype)
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        return TensorStructInfo(None, dtype)
    return TensorStructInfo(None if info.values is None else list(info.values), dtype, ndim=info.ndim)


define("vm.alloc_storage", counted(lambda *_: ObjectStructInfo(), 4), allocates=True)
define("vm.alloc_tensor", counted(_infer_tensor, 4), allocates=True)
define("vm.kill_object", counted(infer_void, 1), pure=False)
define("vm.call_tir_dyn", counted(infer_void, 2), pure=False)


def alloc_storage(
    shape: ShapeLike, runtime_device_index: Number, dtype: Expr | str, storage_scope: Expr | str = "global"
) -> Call:
    """Allocate storage."""
    device, scope = prim_expr(runtime_device_index), string_expr(storage_scope)
    return Call(Op.get("relax.vm.alloc_storage"), (shape_expr(shape), device, dtype_expr(dtype), scope))


def alloc_tensor(storage: Expr, offset: Number, shape: ShapeLike, dtype: Expr | str) -> Call:
    """A tensor at an offset inside storage."""
    return Call(Op.get("relax.vm.alloc_tensor"), (storage, prim_expr(offset), shape_expr(shape), dtype_expr(dtype)))


def kill_object(obj: Expr) -> Call:
    """Free an object's register."""
    return Call(Op.get("relax.vm.kill_object"), (obj,))


def call_tir_dyn(func: Expr, args: Expr | Sequence[Expr]) -> Call:
    """Call a PrimFunc with tensors followed by a shape that holds its symbolic variables."""
    return Call(Op.get("relax.vm.call_tir_dyn"), (func, args if isinstance(args, Expr) else Tuple(args)))
