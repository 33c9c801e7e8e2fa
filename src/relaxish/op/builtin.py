"""Allocation before memory planning, and the mark that keeps parameters from being lifted."""

from __future__ import annotations

from ..ir.errors import CheckTypeError
from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataTypeImm, Expr, PrimValue, ShapeExpr, StringImm
from ..relax.struct_info import StructInfo, TensorStructInfo
from .inference import Number, ShapeLike, counted
from .kinds import join_same
from .record import define

__all__ = ["alloc_tensor", "stop_lift_params"]


def _infer_alloc(call: Call, _: BlockBuilder) -> StructInfo:
    shape, dtype = call.args[:2]
    if not isinstance(shape, ShapeExpr):
        raise CheckTypeError(f"relax.builtin.alloc_tensor: the shape must be ShapeExpr, but got {type(shape).__name__}")
    if not isinstance(dtype, DataTypeImm):
        raise CheckTypeError(f"relax.builtin.alloc_tensor: the dtype must be DataTypeImm, not {type(dtype).__name__}")
    return TensorStructInfo(shape, dtype.value)


define(
    "builtin.alloc_tensor",
    counted(_infer_alloc, 4),
    # Allocation is no effect anyone can see.
    allocates=True,
)
define("builtin.stop_lift_params", counted(lambda call, _: call.args[0].struct_info, 1), axes=join_same)


def alloc_tensor(
    shape: ShapeLike, dtype: Expr | str, runtime_device_index: Number, storage_scope: Expr | str = "global"
) -> Call:
    """Allocate a tensor; memory planning turns this into storage and tensors in it."""
    return Call(
        Op.get("relax.builtin.alloc_tensor"),
        (
            shape if isinstance(shape, Expr) else ShapeExpr(shape),
            dtype if isinstance(dtype, Expr) else DataTypeImm(dtype),
            runtime_device_index if isinstance(runtime_device_index, Expr) else PrimValue(runtime_device_index),
            storage_scope if isinstance(storage_scope, Expr) else StringImm(storage_scope),
        ),
    )


def stop_lift_params(x: Expr) -> Call:
    """Mark a value that ``LiftTransformParams`` must leave where it is."""
    return Call(Op.get("relax.builtin.stop_lift_params"), (x,))
