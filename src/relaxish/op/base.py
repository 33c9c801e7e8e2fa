"""Operators about the program itself: calls of loops and packed functions, shapes as values, devices, debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.attrs import make_node
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import PrimExpr
from ..ir.global_info import VDevice
from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import (
    call_builtin_with_ctx,
    call_dps_packed,
    call_inplace_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
    invoke_closure,
    invoke_pure_closure,
    make_closure,
)
from ..relax.expr import Call, Expr, ShapeExpr, StringImm
from ..relax.op_table import Gradient, Infer, update_op
from ..relax.scalars import const_int
from ..relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..relax.utils import convert_to_expr
from ..runtime.bytecode.builtins import relax_assert_op, relax_print, render_object
from ..runtime.bytecode.builtins import shape_to_tensor as relax_shape_to_tensor
from .record import define

__all__ = [
    "assert_op", "call_builtin_with_ctx", "call_dps_packed", "call_inplace_packed", "call_pure_packed", "call_tir",
    "call_tir_inplace", "call_tir_with_grad", "hint_on_device", "invoke_closure", "invoke_pure_closure",
    "make_closure", "null_value", "print", "register_gradient", "relax_assert_op", "relax_print",
    "relax_shape_to_tensor", "render_object", "shape_of", "shape_to_tensor", "tensor_to_shape", "to_vdevice",
]  # fmt: skip


def void() -> TupleStructInfo:
    """The struct info of an operator that gives no value."""
    return TupleStructInfo(())


def _tensor_info(call: Call) -> TensorStructInfo:
    if len(call.args) != 1:
        raise CheckValueError(f"{call.op.name} takes one argument, got {len(call.args)}")
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo):
        raise CheckTypeError(f"{call.op.name} expects a tensor, but its argument has struct info {info}")
    return info


def _infer_shape_of(call: Call, _: BlockBuilder) -> StructInfo:
    info = _tensor_info(call)
    return ShapeStructInfo(info.shape.values) if isinstance(info.shape, ShapeExpr) else ShapeStructInfo(ndim=info.ndim)


def _infer_tensor_to_shape(call: Call, _: BlockBuilder) -> StructInfo:
    info = _tensor_info(call)
    if info.ndim != 1:
        raise CheckValueError(f"relax.tensor_to_shape expected argument to be 1-d, but it has struct info {info}")
    dims = info.dims()
    length = const_int(dims[0]) if dims else None
    return ShapeStructInfo(ndim=-1 if length is None else length)


def _infer_shape_to_tensor(call: Call, _: BlockBuilder) -> StructInfo:
    if len(call.args) != 1:
        raise CheckValueError(f"{call.op.name} takes one argument, got {len(call.args)}")
    info = call.args[0].struct_info
    if not isinstance(info, ShapeStructInfo):
        raise CheckTypeError(f"shape_to_tensor expects a shape, but its argument has struct info {info}")
    if info.ndim < 0:
        return TensorStructInfo(None, "int64", ndim=1)
    return TensorStructInfo([info.ndim], "int64")


def _infer_vdevice(call: Call, _: BlockBuilder) -> StructInfo:
    info = _tensor_info(call)
    device = call.attrs.dst_vdevice
    if info.shape is not None:
        return TensorStructInfo(info.shape, info.dtype, device)
    return TensorStructInfo(None, info.dtype, device, info.ndim)


def _define(name: str, infer: Infer, **fields: Any) -> Op:
    return Op.get(define(name, infer, **fields).name)


_SHAPE_OF = _define("shape_of", _infer_shape_of)
_TENSOR_TO_SHAPE = _define("tensor_to_shape", _infer_tensor_to_shape)
_SHAPE_TO_TENSOR = _define("shape_to_tensor", _infer_shape_to_tensor, packed="relax.run.shape_to_tensor")
_NULL = _define("null_value", lambda *_: ObjectStructInfo())
_PRINT = _define("print", lambda *_: void(), pure=False, packed="relax.run.print")


def _infer_assert(call: Call, _: BlockBuilder) -> StructInfo:
    if not call.args:
        raise CheckValueError("Assert must have at least one argument (the condition).")
    info = call.args[0].struct_info
    ok = (
        isinstance(info, PrimStructInfo)
        and info.dtype == "bool"
        or isinstance(info, TensorStructInfo)
        and info.ndim in (0, -1)
        and info.dtype in ("bool", "")
    )
    if not ok:
        raise CheckTypeError(f"The argument to assert must be a boolean scalar type, but received {info}")
    return void()


_ASSERT = _define("assert_op", _infer_assert, pure=False, packed="relax.run.assert_op")
_TO_VDEVICE = _define("to_vdevice", _infer_vdevice)
# A hint says nothing of the value itself: RealizeVDevice works out where it lives.
_HINT = _define("hint_on_device", lambda call, _: _tensor_info(call))


def null_value() -> Call:
    """A typed None."""
    return Call(_NULL, ())


def no_grad(input: Expr) -> Call:
    """``input``, through which no gradient flows; gradient rules give it for operands that have none."""
    return Call(Op.get("relax.grad.no_grad"), (convert_to_expr(input),))


def no_gradients(count: int) -> Gradient:
    """The rule of an operator whose result does not change, in small steps, with its ``count`` operands."""
    return lambda var, call, out, builder: [no_grad(arg) for arg in call.args[:count]]


def shape_of(expr: Expr) -> Call:
    """The shape of a tensor as a value."""
    return Call(_SHAPE_OF, (expr,))


def tensor_to_shape(expr: Expr) -> Call:
    """A rank-1 int64 tensor as a shape value."""
    return Call(_TENSOR_TO_SHAPE, (expr,))


def shape_to_tensor(expr: Expr) -> Call:
    """A shape value as a rank-1 int64 tensor."""
    return Call(_SHAPE_TO_TENSOR, (expr,))


def _text(value: str | Expr) -> Expr:
    return value if isinstance(value, StringImm) else StringImm(value)  # type: ignore[arg-type]


def print(*values: Expr, format: str | Expr = "") -> Call:  # public name of the operator
    """Print values at run time; ``format`` is a Python format string."""
    return Call(_PRINT, (_text(format), *(convert_to_expr(v) for v in values)))


#: What run-time messages are filled with.
_Shown = Expr | PrimExpr | int


def assert_op(condition: Expr, format_args: Sequence[_Shown] | _Shown | None = None, format: str | Expr = "") -> Call:
    """Fail at run time unless ``condition`` holds; the message is ``format`` filled with ``format_args``."""
    shown = () if format_args is None else format_args if isinstance(format_args, (list, tuple)) else (format_args,)
    return Call(_ASSERT, (convert_to_expr(condition), _text(format), *(convert_to_expr(a) for a in shown)))


def _device(dst: VDevice | str | dict[str, object]) -> VDevice:
    return dst if isinstance(dst, VDevice) else VDevice(dst)


def to_vdevice(data: Expr, dst_vdevice: VDevice | str | dict[str, object]) -> Call:
    """Copy a tensor to a virtual device."""
    return Call(_TO_VDEVICE, (data,), make_node("relax.attrs.ToVDeviceAttrs", dst_vdevice=_device(dst_vdevice)))


def hint_on_device(data: Expr, dst_vdevice: object, memory_scope: str = "global") -> Call:
    """Hint that a tensor should live on a device."""
    if not isinstance(dst_vdevice, VDevice):
        kind = str(dst_vdevice).split("(")[0].strip()
        index = getattr(dst_vdevice, "device_id", getattr(dst_vdevice, "index", 0))
        dst_vdevice = VDevice({"kind": {"cpu": "llvm", "gpu": "cuda"}.get(kind, kind)}, index, memory_scope)
    return Call(_HINT, (data,), make_node("relax.attrs.HintOnDeviceAttrs", dst_vdevice=dst_vdevice))


def register_gradient(op_name: str, fgradient: Callable[..., Any] | None = None, level: int = 10) -> Callable[..., Any]:
    """Set the gradient of an operator; without a function, returns a decorator."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        update_op(op_name, gradient=function)
        return function

    return attach if fgradient is None else attach(fgradient)
