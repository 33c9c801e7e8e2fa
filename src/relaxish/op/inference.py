"""Shared parts of the operators' struct-info inference: argument checks, broadcasting, axes, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, SupportsInt

import numpy as np

from ..ir import dtype as dt
from ..ir.attrs import Attrs
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import PrimExpr
from ..ir.global_info import VDevice
from ..ir.op import Op, op_name_of
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, prim_of
from ..relax.op_table import Infer
from ..relax.scalars import const_int, prove_equal, simplify
from ..relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..support.errors import RelaxishError
from ..tir import NE, IntImm
from ..tir import Var as TirVar

__all__ = [
    "Builder", "Ints", "Number", "OpTypeError", "OpValueError", "ShapeLike", "agreed_vdevice", "as_expr", "as_int",
    "as_prim_value", "as_shape", "broadcast", "check_axes", "check_axis", "common_dtype", "common_vdevice", "counted",
    "fail", "input_tensors", "make_call", "named", "opt_int", "product_dtype", "provably_differ", "require_float",
    "shape_info", "sizes_taken_equal", "take_equal", "tensor", "tensor_arg", "tensor_of_tuple", "type_fail", "unknown_like", "written_dims",
]  # fmt: skip


#: One integer, or several; scalars count that are constants.
Ints = int | Sequence[int | PrimExpr]
#: A scalar that may be known at run time only.
Number = Expr | PrimExpr | float
#: Dimensions, or an expression that is a shape.
ShapeLike = Expr | Sequence[int | PrimExpr]


class OpTypeError(CheckTypeError):
    """An operator was given a value of the wrong kind or dtype."""


class OpValueError(CheckValueError):
    """An operator was given arguments that do not fit one another, or an attribute that is not allowed."""


def _name(call: Call) -> str:
    return op_name_of(call) or str(call.op)


def fail(call: Call, message: str) -> RelaxishError:
    """The error of an operator call, to be raised."""
    error = OpValueError(f"{_name(call)}: {message}")
    error.span = call.span  # type: ignore[attr-defined]
    return error


def type_fail(call: Call, message: str) -> OpTypeError:
    """As :func:`fail`, for values of the wrong kind."""
    return OpTypeError(f"{_name(call)}: {message}")


def make_call(name: str, args: Sequence[Expr], attrs: Attrs | Mapping[str, Any] | None = None) -> Call:
    """A call of operator ``relax.<name>``."""
    return Call(Op.get(name if name.startswith("relax.") else f"relax.{name}"), tuple(args), attrs)


Builder = Callable[..., Expr]
"""A function that makes calls of an operator."""


def named(build: Builder, name: str, doc: str) -> Builder:
    """A builder made for one of several operators that differ in numbers only, under that operator's name."""
    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


def as_expr(value: object) -> Expr:
    """An argument that must already be an expression."""
    match value:
        case Expr():
            return value
        case list() | tuple():
            from ..relax.expr import Tuple

            return Tuple([as_expr(v) for v in value])
    inner = getattr(value, "_expr", None)
    if isinstance(inner, Expr):
        return inner
    raise OpTypeError(f"expected a relax expression, got {type(value).__name__}: {value!r}")


def as_prim_value(value: object) -> Expr:
    """A scalar argument as an expression."""
    if isinstance(value, Expr):
        return value
    if not isinstance(value, (int, float, np.number, PrimExpr)):
        raise OpTypeError(f"expected a scalar, got {type(value).__name__}: {value!r}")
    return PrimValue(prim_of(value))


def as_shape(value: object) -> Expr:
    """A shape argument: a sequence of dimensions, or an expression that is a shape."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (int, PrimExpr)) or not isinstance(value, Iterable):
        raise OpTypeError(f"a shape is a tuple of dimensions, not {value!r}; write ({value},) for one dimension")
    return ShapeExpr([_dim(v) for v in value])


def _dim(value: object) -> object:
    match value:
        case PrimValue():
            return value.value
        case PrimExpr() if value.dtype != "int64" and (known := const_int(value)) is not None:
            return prim_of(known, "int64")
    return value


def as_int(value: object) -> int:
    """An integer attribute. Raises for what is no integer: floats and symbols too."""
    if isinstance(value, PrimValue):
        value = value.value
    if isinstance(value, (int, np.integer)):
        return int(value)
    known = const_int(value)
    if known is None:
        raise OpTypeError(f"expected an integer, got {type(value).__name__}: {value!r}")
    return known


def opt_int(value: object) -> int | None:
    """An optional integer attribute."""
    return None if value is None else as_int(value)


def check_count(call: Call, count: int) -> None:
    """The number of arguments must fit."""
    if len(call.args) != count:
        error = OpValueError(
            f"Operator Op({_name(call)}) expects {count} arguments, but was called with {len(call.args)} arguments"
        )
        error.span = call.span  # type: ignore[attr-defined]
        raise error


def counted(infer: Infer, *counts: int) -> Infer:
    """The rule for calls of as many arguments as one of ``counts``; others are errors."""

    def checked(call: Call, builder: BlockBuilder) -> StructInfo:
        if len(call.args) not in counts:
            check_count(call, counts[0])
        return infer(call, builder)

    return checked


def tensor_arg(call: Call, index: int, name: str = "") -> TensorStructInfo:
    """The struct info of a tensor argument. Raises if the argument is no tensor."""
    info = call.args[index].struct_info_
    if info is None:
        raise fail(call, f"argument {index} has no struct info; emit it first")
    if not isinstance(info, TensorStructInfo):
        what = f"input {name}" if name else f"argument {index}"
        raise type_fail(call, f"the {what} should be Tensor, but its struct info is {type(info).__name__}")
    return info


def input_tensors(call: Call, count: int) -> list[TensorStructInfo]:
    """All arguments as tensors."""
    check_count(call, count)
    return [tensor_arg(call, i) for i in range(count)]


def tensor_of_tuple(call: Call, arg: Expr) -> list[TensorStructInfo]:
    """The tensors in a tuple argument."""
    info = arg.struct_info_
    if not isinstance(info, TupleStructInfo):
        raise type_fail(call, f"expects the input to be a Tuple of Tensors, but got {type(info).__name__}")
    found: list[TensorStructInfo] = []
    for item in info.fields:
        if not isinstance(item, TensorStructInfo):
            raise type_fail(call, f"expects the input to be a Tuple of Tensors, but a field is {type(item).__name__}")
        found.append(item)
    return found


def written_dims(info: TensorStructInfo) -> tuple[PrimExpr, ...] | None:
    """The dimensions, if the shape is written out. A variable as shape counts as unknown, whatever it holds."""
    return info.shape.values if isinstance(info.shape, ShapeExpr) else None


_taken_equal: ContextVar[list[tuple[PrimExpr, PrimExpr]] | None] = ContextVar("taken_equal", default=None)


@contextmanager
def sizes_taken_equal() -> Iterator[list[tuple[PrimExpr, PrimExpr]]]:
    """Collects the pairs of scalars that inference in this scope needs equal and cannot prove to be."""
    found: list[tuple[PrimExpr, PrimExpr]] = []
    outer = _taken_equal.set(found)
    try:
        yield found
    finally:
        _taken_equal.reset(outer)


def take_equal(lhs: PrimExpr, rhs: PrimExpr) -> None:
    """Note that a call needs two scalars equal; nothing if they are."""
    found = _taken_equal.get()
    if found is not None and not prove_equal(lhs, rhs):
        found.append((lhs, rhs))


def provably_differ(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    """Whether two scalars that must be equal cannot be: ``2`` and ``3``, ``n`` and ``n + 1``; not ``n`` and ``m``.

    What is open is noted for :func:`sizes_taken_equal`.
    """
    left, right = const_int(lhs), const_int(rhs)
    if left is not None and right is not None:
        return left != right
    plain = isinstance(lhs, (TirVar, IntImm)) and isinstance(rhs, (TirVar, IntImm))
    if not plain and const_int(simplify(NE(lhs, rhs))) == 1:
        return True
    take_equal(lhs, rhs)
    return False


def shape_info(call: Call, index: int) -> ShapeStructInfo:
    """The struct info of a shape argument."""
    info = call.args[index].struct_info_
    if not isinstance(info, ShapeStructInfo):
        raise type_fail(call, f"expects argument {index} to be a Shape, but got {type(info).__name__}")
    return info


def tensor(
    shape: Sequence[PrimExpr | int] | Expr | None, dtype: str, ndim: int = -1, vdevice: VDevice | None = None
) -> TensorStructInfo:
    """A result: with dimensions if known, else with rank."""
    if shape is None:
        return TensorStructInfo(None, dtype, vdevice, ndim)
    return TensorStructInfo(shape if isinstance(shape, Expr) else list(shape), dtype, vdevice)


def unknown_like(info: TensorStructInfo, dtype: str | None = None) -> TensorStructInfo:
    """The same rank and dtype without dimensions."""
    return TensorStructInfo(None, info.dtype if dtype is None else dtype, info.vdevice, info.ndim)


def with_dtype(info: TensorStructInfo, dtype: str) -> TensorStructInfo:
    """The same tensor with another dtype."""
    if info.shape is None:
        return TensorStructInfo(None, dtype, info.vdevice, info.ndim)
    return TensorStructInfo(info.shape, dtype, info.vdevice)


def require_float(call: Call, info: TensorStructInfo) -> None:
    """The dtype, if known, must be floating-point."""
    if info.dtype and not dt.is_float(info.dtype):
        raise type_fail(
            call, f"requires the input tensor to have float dtype. However, the given input dtype is {info.dtype}"
        )


def common_dtype(call: Call, infos: Sequence[TensorStructInfo | PrimStructInfo]) -> str:
    """The one dtype of all inputs, or unknown if any is unknown."""
    result: str | None = None
    unknown = False
    for info in infos:
        if not info.dtype:
            unknown = True
        elif result is None:
            result = info.dtype
        elif result != info.dtype:
            raise type_fail(
                call,
                "Binary operators must have the same datatype for both operands. "
                f"However, the call uses datatype {result} on the LHS and datatype {info.dtype} on the RHS",
            )
    return "" if unknown or result is None else result


def product_dtype(call: Call, a: TensorStructInfo, b: TensorStructInfo, differ: str) -> str:
    """``out_dtype`` where the call gives one, else the dtype of both operands ("" where one is unknown).

    ``differ`` words the error for operands of two dtypes, with a ``{}`` for each.
    """
    wanted = str(call.attrs.out_dtype or "")
    if wanted and wanted != "void":
        return wanted
    if not a.dtype or not b.dtype:
        return ""
    if a.dtype != b.dtype:
        raise type_fail(call, f"{differ.format(a.dtype, b.dtype)}; give out_dtype")
    return a.dtype


def common_vdevice(call: Call, infos: Sequence[StructInfo]) -> VDevice | None:
    """The one virtual device of all inputs that have one."""
    found = None
    for info in infos:
        device = getattr(info, "vdevice", None)
        if device is None:
            continue
        if found is not None and found is not device and not _same_device(found, device):
            raise type_fail(call, "the inputs live on different virtual devices")
        found = device
    return found


def agreed_vdevice(infos: Sequence[TensorStructInfo]) -> VDevice | None:
    """The virtual device the inputs agree on; none where they disagree."""
    found = None
    for info in infos:
        if info.vdevice is None:
            continue
        if found is None:
            found = info.vdevice
        elif not _same_device(found, info.vdevice):
            return None
    return found


def _same_device(a: VDevice, b: VDevice) -> bool:
    from ..ir import structural_equal

    return bool(structural_equal(a, b))


def broadcast(call: Call, a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> list[PrimExpr] | None:
    """The broadcast shape; None where it cannot be told, an error where it cannot be."""
    out: list[PrimExpr] = []
    short = min(len(a), len(b))
    for i in range(1, short + 1):
        x, y = a[-i], b[-i]
        cx, cy = const_int(x), const_int(y)
        if cx == 1:
            out.append(y)
        elif cy == 1:
            out.append(x)
        elif prove_equal(x, y):
            out.append(x)
        elif cx is not None and cy is not None:
            raise fail(
                call,
                f"the first input shape at dim {len(a) - i} is {x} and the second input shape at dim {len(b) - i} "
                f"is {y}, which are not broadcastable",
            )
        else:
            take_equal(x, y)
            return None
    longer = a if len(a) > len(b) else b
    out.extend(longer[-i] for i in range(short + 1, len(longer) + 1))
    return out[::-1]


def check_axis(call: Call, ndim: int, axis: SupportsInt) -> int:
    """A non-negative axis within range."""
    value = int(axis)
    if not -ndim <= value < ndim:
        raise fail(
            call,
            f"the input axis {value} is out of range. The input tensor has {ndim} dimensions, so axis should be in "
            f"range [{-ndim}, {ndim})",
        )
    return value + ndim if value < 0 else value


def check_axes(call: Call, ndim: int, axes: Sequence[SupportsInt]) -> list[int]:
    """Non-negative, distinct axes within range."""
    result = [check_axis(call, ndim, a) for a in axes]
    if len(set(result)) != len(result):
        raise fail(call, f"the input axes {[int(a) for a in axes]} are not distinct")
    return result


def axis_list(value: object) -> tuple[int, ...] | None:
    """An axis attribute: None, one axis or several."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(as_int(v) for v in value)
    return (as_int(value),)


def int64_list(value: object) -> tuple[PrimExpr, ...]:
    """Integers of an attribute that are kept as int64: strides, paddings, cut positions."""
    return tuple(prim_of(v, "int64") for v in axis_list(value) or ())
