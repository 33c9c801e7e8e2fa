"""Element-wise operators of two tensors (or a tensor and a scalar), with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import topi
from ..ir.global_info import VDevice
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue, Var
from ..relax.op_table import Gradient, Infer, Legalize, Sample
from ..relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from ..support.sequences import of_kind
from ..tir import const
from .base import no_gradients
from .inference import (
    OpTypeError,
    broadcast,
    check_count,
    common_dtype,
    common_vdevice,
    make_call,
    tensor,
    type_fail,
)
from .kinds import BROADCAST
from .literals import const_like, scalar_const
from .lowering import te_call
from .manipulate import fit_to
from .record import define
from .search import where

__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "floor_divide", "floor_mod", "greater",
    "greater_equal", "left_shift", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "maximum",
    "minimum", "mod", "multiply", "not_equal", "power", "right_shift", "subtract",
]  # fmt: skip


def _operand(value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    inner = getattr(value, "_expr", None)
    if isinstance(inner, Expr):
        return inner
    if hasattr(value, "dtype") and not isinstance(value, np.generic):
        return PrimValue(value)
    raise OpTypeError(f"expected a relax expression, got {type(value).__name__}: {value!r}")


def _infer(out: str | None) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        check_count(call, 2)
        infos = [a.struct_info_ for a in call.args]
        for info in infos:
            if not isinstance(info, (TensorStructInfo, PrimStructInfo)):
                raise type_fail(
                    call,
                    "Arguments to binary operators must be either R.Tensor or R.Prim types, "
                    f"but one has struct info {info}",
                )
        # Comparisons do not care what they compare.
        dtype = out if out else common_dtype(call, infos)
        tensors = list(of_kind(infos, TensorStructInfo))
        if not tensors:
            return PrimStructInfo(dtype)
        return _broadcast_infos(call, infos, dtype, common_vdevice(call, tensors))

    return infer


def _broadcast_infos(
    call: Call, infos: Sequence[TensorStructInfo | PrimStructInfo], dtype: str, device: VDevice | None
) -> StructInfo:
    """The result for two operands, one a tensor at least; a scalar counts as a tensor of shape ``(1,)``."""
    shapes = [i.dims() if isinstance(i, TensorStructInfo) else (const(1, "int64"),) for i in infos]
    ranks = [i.ndim if isinstance(i, TensorStructInfo) else 1 for i in infos]
    if shapes[0] is not None and shapes[1] is not None:
        made = broadcast(call, shapes[0], shapes[1])
        if made is not None:
            return tensor(made, dtype, vdevice=device)
    named = [getattr(i, "shape", None) for i in infos]
    if named[0] is not None and named[0] is named[1]:
        return TensorStructInfo(named[0], dtype, device)
    return tensor(None, dtype, -1 if min(ranks) < 0 else max(ranks), device)


def _legalize(name: str) -> Legalize:
    compute = getattr(topi, name)

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        # A rank-0 constant becomes a literal in the kernel.
        literals = [scalar_const(a) for a in call.args]
        lhs, rhs = (a if literal is None else literal for a, literal in zip(call.args, literals))
        # One operand at least must stay a tensor, or there is nothing to loop over.
        if not _is_tensor(lhs) and not _is_tensor(rhs):
            lhs = call.args[0]
        return te_call(builder, name, compute, lhs, rhs)

    return legalize


def _is_tensor(value: object) -> bool:
    return isinstance(value, Expr) and isinstance(value.struct_info_, TensorStructInfo)


_BinaryOp = Callable[[Any, Any], Expr]

#: Gradients of both operands, before repeated parts are summed: ``rule(x, y, result, gradient of the result)``.
_Gradients = Callable[[Expr, Expr, Expr, Expr], tuple[Expr, Expr]]


def _gradient(rule: _Gradients) -> Gradient:
    def gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
        x, y = call.args
        by_x, by_y = rule(x, y, var, out)
        return [fit_to(by_x, call, 0), fit_to(by_y, call, 1)]

    return gradient


def _binary(
    name: str,
    reference: Callable[..., Any],
    out: str | None = None,
    kind: str = "float32",
    low: float = 0.5,
    high: float = 3.0,
    gradient: _Gradients | None = None,
) -> _BinaryOp:
    def function(x1: Expr, x2: Expr) -> Expr:
        return make_call(name, [_operand(x1), _operand(x2)])

    def samples() -> Sequence[Sample]:
        rng = np.random.default_rng(11)

        def array(*shape: int) -> np.ndarray:
            if kind == "bool":
                return rng.random(shape) > 0.5
            return rng.uniform(low, high, shape).astype(kind)

        return [((array(3, 4), array(3, 4)), {}), ((array(2, 1, 4), array(3, 1)), {})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}`` with broadcasting."
    # What comparisons give does not change with their operands, but in steps.
    discrete = no_gradients(2) if out else None
    define(
        name,
        _infer(out),
        kind=BROADCAST,
        legalize=_legalize(name),
        gradient=discrete if gradient is None else _gradient(gradient),
        reference=reference,
        samples=samples,
    )
    return function


def _negative(x: Expr) -> Expr:
    return make_call("negative", [x])


def _unless(condition: Expr, value: Expr, like: Expr) -> Expr:
    """``value``, and zero where the condition holds."""
    return where(condition, const_like(0.0, like), value)


def _power_gradients(x: Expr, y: Expr, z: Expr, g: Expr) -> tuple[Expr, Expr]:
    by_x = multiply(multiply(g, y), power(x, subtract(y, const_like(1.0, y))))
    return by_x, multiply(multiply(g, z), make_call("log", [x]))


add = _binary("add", np.add, gradient=lambda x, y, z, g: (g, g))
subtract = _binary("subtract", np.subtract, gradient=lambda x, y, z, g: (g, _negative(g)))
multiply: _BinaryOp = _binary("multiply", np.multiply, gradient=lambda x, y, z, g: (multiply(g, y), multiply(g, x)))
divide: _BinaryOp = _binary(
    "divide", np.divide, gradient=lambda x, y, z, g: (divide(g, y), divide(multiply(_negative(g), z), y))
)
floor_divide = _binary("floor_divide", np.floor_divide, kind="int32", low=1, high=20)
power = _binary("power", np.power, gradient=_power_gradients)
mod = _binary("mod", np.fmod, kind="int32", low=1, high=20)
floor_mod = _binary("floor_mod", np.mod, kind="int32", low=1, high=20)
maximum = _binary(
    "maximum", np.maximum, gradient=lambda x, y, z, g: (_unless(less(x, y), g, x), _unless(greater_equal(x, y), g, x))
)
minimum = _binary(
    "minimum", np.minimum, gradient=lambda x, y, z, g: (_unless(greater_equal(x, y), g, x), _unless(less(x, y), g, x))
)
equal = _binary("equal", np.equal, "bool", "int32", 0, 3)
not_equal = _binary("not_equal", np.not_equal, "bool", "int32", 0, 3)
greater = _binary("greater", np.greater, "bool")
greater_equal: _BinaryOp = _binary("greater_equal", np.greater_equal, "bool")
less: _BinaryOp = _binary("less", np.less, "bool")
less_equal = _binary("less_equal", np.less_equal, "bool")
logical_and = _binary("logical_and", np.logical_and, kind="bool")
logical_or = _binary("logical_or", np.logical_or, kind="bool")
logical_xor = _binary("logical_xor", np.logical_xor, kind="bool")
bitwise_and = _binary("bitwise_and", np.bitwise_and, kind="int32", low=0, high=99)
bitwise_or = _binary("bitwise_or", np.bitwise_or, kind="int32", low=0, high=99)
bitwise_xor = _binary("bitwise_xor", np.bitwise_xor, kind="int32", low=0, high=99)
left_shift = _binary("left_shift", np.left_shift, kind="int32", low=0, high=6)
right_shift = _binary("right_shift", np.right_shift, kind="int32", low=0, high=6)
