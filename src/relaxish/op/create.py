"""Operators that make tensors from shapes and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import topi
from ..ir.expr import PrimExpr
from ..ir.global_info import VDevice
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, Var, const
from ..relax.op_table import Legalize
from ..relax.scalars import simplify
from ..relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo
from ..tir import FloatImm, IntImm, ceil, floordiv
from ..tir import const as tir_const
from .base import no_grad, no_gradients
from .inference import (
    Number,
    OpTypeError,
    OpValueError,
    ShapeLike,
    as_expr,
    as_prim_value,
    as_shape,
    check_count,
    fail,
    make_call,
    tensor,
    tensor_arg,
    type_fail,
)
from .literals import scalar_const
from .lowering import by_te, te_call
from .record import define

__all__ = [
    "arange", "eye", "eye_like", "full", "full_like", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _dtype_attr(dtype: str | None) -> str:
    return "" if dtype is None else str(dtype)


def _shape_result(call: Call, dtype: str, device: VDevice | None = None) -> StructInfo:
    arg = call.args[0]
    info = arg.struct_info_
    if not isinstance(info, ShapeStructInfo):
        raise type_fail(call, f"requires the input shape to be a Shape, but got {type(info).__name__}")
    if isinstance(arg, (ShapeExpr, Var)):
        return TensorStructInfo(arg, dtype, device)
    return tensor(list(info.values) if info.values is not None else None, dtype, info.ndim, device)


def _like(call: Call, dtype: str) -> StructInfo:
    info = tensor_arg(call, 0)
    kind = dtype or info.dtype
    return (
        TensorStructInfo(info.shape, kind, info.vdevice)
        if info.shape is not None
        else tensor(None, kind, info.ndim, info.vdevice)
    )


def _check_fill(call: Call) -> TensorStructInfo:
    info = tensor_arg(call, 1)
    if info.ndim != 0:
        raise fail(call, f"requires the input fill value to be zero rank Tensor, but its ndim is {info.ndim}")
    return info


def _fill_value(value: Expr | float, dtype: str | None) -> Expr:
    match value:
        case bool() | int() | float():
            return const(value, dtype) if dtype else const(value)
        case Expr():
            return value
    raise OpTypeError(f"fill_value must be a tensor or a number, not {type(value).__name__}")


def full(shape: ShapeLike, fill_value: Expr | float, dtype: str | None = None) -> Expr:
    """A tensor of one value."""
    return make_call("full", [as_shape(shape), _fill_value(fill_value, dtype)], {"dtype": _dtype_attr(dtype)})


def full_like(x: Expr, fill_value: Expr | float, dtype: str | None = None) -> Expr:
    """A tensor of one value, shaped as ``x``."""
    return make_call("full_like", [as_expr(x), _fill_value(fill_value, dtype)], {"dtype": _dtype_attr(dtype)})


def ones(shape: ShapeLike, dtype: str) -> Expr:
    """Ones."""
    return make_call("ones", [as_shape(shape)], {"dtype": _required(dtype, "ones")})


def zeros(shape: ShapeLike, dtype: str) -> Expr:
    """Zeros."""
    return make_call("zeros", [as_shape(shape)], {"dtype": _required(dtype, "zeros")})


def ones_like(x: Expr, dtype: str | None = None) -> Expr:
    """Ones, shaped as ``x``."""
    return make_call("ones_like", [as_expr(x)], {"dtype": _dtype_attr(dtype)})


def zeros_like(x: Expr, dtype: str | None = None) -> Expr:
    """Zeros, shaped as ``x``."""
    return make_call("zeros_like", [as_expr(x)], {"dtype": _dtype_attr(dtype)})


def _required(dtype: str | None, name: str) -> str:
    if dtype is None or str(dtype) in ("", "void"):
        raise OpValueError(f"relax.{name}: expects the input dtype not to be void")
    return str(dtype)


def eye(n: Number, m: Number | None = None, k: Number = 0, dtype: str = "float32") -> Expr:
    """Ones on the ``k``-th diagonal of an ``n`` by ``m`` matrix."""
    m = n if m is None else m
    return make_call("eye", [as_prim_value(n), as_prim_value(m), as_prim_value(k)], {"dtype": str(dtype)})


def eye_like(x: Expr, k: Number = 0, dtype: str | None = None) -> Expr:
    """Ones on the ``k``-th diagonal, shaped as the matrix ``x``."""
    return make_call("eye_like", [as_expr(x), as_prim_value(k)], {"dtype": _dtype_attr(dtype)})


def arange(start: Number, end: Number | None = None, step: Number = 1, dtype: str | None = None) -> Expr:
    """Evenly spaced values in ``[start, end)``."""
    if end is None:
        start, end = 0, start

    def is_int(value: object) -> bool:
        if isinstance(value, PrimValue):
            value = value.value
        if isinstance(value, PrimExpr):
            return "int" in value.dtype
        return isinstance(value, int)

    if dtype is None:
        dtype = "int64" if all(is_int(v) for v in (start, end, step)) else "float32"
    args = [as_prim_value(v) for v in (start, end, step)]
    return make_call("arange", args, {"dtype": str(dtype)})


def tril(x: Expr, k: Number = 0) -> Expr:
    """The lower triangle of each matrix; the rest is zero."""
    return make_call("tril", [as_expr(x), as_prim_value(k)])


def triu(x: Expr, k: Number = 0) -> Expr:
    """The upper triangle of each matrix; the rest is zero."""
    return make_call("triu", [as_expr(x), as_prim_value(k)])


def _infer_full(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    fill = _check_fill(call)
    return _shape_result(call, call.attrs.dtype or fill.dtype, fill.vdevice)


def _infer_full_like(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    _check_fill(call)
    return _like(call, call.attrs.dtype)


def _infer_fixed(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    return _shape_result(call, call.attrs.dtype)


def _infer_like(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    return _like(call, call.attrs.dtype)


def _prim(call: Call, index: int, integer: bool = True) -> PrimExpr | None:
    info = call.args[index].struct_info_
    if not isinstance(info, PrimStructInfo):
        raise type_fail(call, f"expects argument {index} to be a scalar (PrimValue), got {type(info).__name__}")
    if integer and "int" not in info.dtype:
        raise type_fail(call, f"expects argument {index} to be an integer, got {info.dtype}")
    return info.value


def _infer_eye(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 3)
    n, m = _prim(call, 0), _prim(call, 1)
    _prim(call, 2)
    return tensor([n, m] if n is not None and m is not None else None, call.attrs.dtype, 2)


def _infer_eye_like(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info = tensor_arg(call, 0)
    if info.ndim not in (2, -1):
        raise fail(call, f"expects a 2-dimensional tensor, but the input has {info.ndim} dimensions")
    _prim(call, 1)
    return _like(call, call.attrs.dtype)


def _infer_arange(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 3)
    start, end, step = (_prim(call, i, False) for i in range(3))
    if start is None or end is None or step is None:
        return tensor(None, call.attrs.dtype, 1)
    values = [v.value for v in (start, end, step) if isinstance(v, (IntImm, FloatImm))]
    if len(values) == 3:
        count: Any = tir_const(len(np.arange(*values)), "int64")
    elif all(v.dtype.startswith("int") for v in (start, end, step)):
        count = floordiv(end - start + step - 1, step)
    else:
        count = ceil((end - start).astype("float32") / step.astype("float32")).astype("int64")
    return tensor([simplify(count)], call.attrs.dtype)


def _infer_tri(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info = tensor_arg(call, 0)
    if 0 <= info.ndim < 2:
        raise fail(call, f"requires the input tensor to have at least two dimensions, but it has {info.ndim}")
    _prim(call, 1)
    return info


def _known(call: Call) -> Expr:
    """The shape argument to compute over."""
    info = call.args[0].struct_info
    return info.shape if isinstance(info, TensorStructInfo) else call.args[0]


def _legalize_full(builder: BlockBuilder, call: Call) -> Expr:
    value = scalar_const(call.args[1], python_native=True)
    value = call.args[1] if value is None else value
    return te_call(builder, "full", topi.full, _known(call), call.struct_info.dtype, value)


def _legalize_fixed(value: float, name: str) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        return te_call(builder, name, topi.full, _known(call), call.struct_info.dtype, value)

    return legalize


def _triu_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    return [triu(out, call.args[1]), no_grad(call.args[1])]


def _legalize_eye(builder: BlockBuilder, call: Call) -> Expr:
    if call.op.name == "relax.eye_like":
        rows, cols = call.args[0].struct_info.shape.values
        k = call.args[1]
    else:
        rows, cols, k = call.args
    return te_call(builder, call.op.name.split(".")[1], topi.eye, rows, cols, k, call.struct_info.dtype)


def _legalize_arange(builder: BlockBuilder, call: Call) -> Expr:
    values = [a.value if isinstance(a, PrimValue) else None for a in call.args]
    dtype = call.attrs.dtype
    if all(isinstance(v, (IntImm, FloatImm)) for v in values):
        numbers = [v.value for v in values]  # type: ignore[union-attr]
        return const(np.arange(*numbers, dtype=None).astype(dtype), dtype)
    return te_call(builder, "arange", topi.arange, *call.args, dtype)


_X = np.arange(12, dtype="float32").reshape(3, 4)
define(
    "full",
    _infer_full,
    attrs="Init",
    gradient=no_gradients(2),
    legalize=_legalize_full,
    precision="follow",
    reference=lambda shape, fill_value, dtype=None: np.full(shape, fill_value, dtype),
    samples=lambda: [(((2, 3), 2.5), {"dtype": "float32"}), (((4,), 7), {"dtype": "int64"})],
)
define(
    "full_like",
    _infer_full_like,
    attrs="Init",
    gradient=no_gradients(2),
    legalize=_legalize_full,
    precision="follow",
    reference=lambda x, fill_value, dtype=None: np.full_like(x, fill_value, dtype),
    samples=lambda: [((_X, 2.5), {"dtype": "float32"}), ((_X, 3), {"dtype": "int32"})],
)
for _name, _value in (("ones", 1.0), ("zeros", 0.0)):
    define(
        _name,
        _infer_fixed,
        attrs="Init",
        gradient=no_gradients(1),
        legalize=_legalize_fixed(_value, _name),
        precision="follow",
        reference=getattr(np, _name),
        samples=lambda: [(((2, 3), "float32"), {}), (((), "int32"), {})],
    )
    define(
        f"{_name}_like",
        _infer_like,
        attrs="Init",
        gradient=no_gradients(1),
        legalize=_legalize_fixed(_value, _name),
        reference=getattr(np, f"{_name}_like"),
        samples=lambda: [((_X,), {})],
    )
define(
    "eye",
    _infer_eye,
    attrs="Init",
    legalize=_legalize_eye,
    precision="follow",
    reference=lambda n, m=None, k=0, dtype="float32": np.eye(n, m, k, dtype),
    samples=lambda: [((3,), {}), ((3, 4, 1), {"dtype": "int32"})],
)
define(
    "eye_like",
    _infer_eye_like,
    attrs="Init",
    legalize=_legalize_eye,
    reference=lambda x, k=0, dtype=None: np.eye(x.shape[0], x.shape[1], k=k, dtype=np.dtype(dtype or x.dtype)),
    samples=lambda: [((_X,), {}), ((_X, -1), {"dtype": "int64"})],
)
define(
    "arange",
    _infer_arange,
    attrs="Init",
    legalize=_legalize_arange,
    precision="follow",
    reference=lambda start, end, step=1, dtype=None: np.arange(start, end, step, dtype=dtype),
    samples=lambda: [((1, 9, 3), {"dtype": "int64"}), ((0.0, 1.0, 0.25), {"dtype": "float32"})],
)
for _name, _ref in (("tril", np.tril), ("triu", np.triu)):
    define(
        _name,
        _infer_tri,
        gradient=_triu_gradient if _name == "triu" else None,
        legalize=by_te(_name, partial(topi.trilu, upper=_name == "triu")),
        reference=_ref,
        samples=lambda: [((_X,), {}), ((_X,), {"k": 1})],
    )
