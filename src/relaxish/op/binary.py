"""Element-wise operators of two tensors (or a tensor and a scalar), with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import topi
from ..relax.expr import Call, Expr, PrimValue
from ..relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from ..tir import const
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
from .record import define

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


def _infer(out: str | None) -> Callable[[Call, Any], StructInfo]:
    def infer(call: Call, builder: Any) -> StructInfo:
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
        tensors = [i for i in infos if isinstance(i, TensorStructInfo)]
        if not tensors:
            return PrimStructInfo(dtype)
        return _broadcast_infos(call, infos, dtype, common_vdevice(call, tensors))

    return infer


def _broadcast_infos(call: Call, infos: Sequence[Any], dtype: str, device: Any) -> StructInfo:
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


def _legalize(name: str) -> Callable[[Any, Call], Expr]:
    compute = getattr(topi, name)

    def legalize(builder: Any, call: Call) -> Expr:
        lhs, rhs = (_scalar_if_constant(a) for a in call.args)
        # One operand at least must stay a tensor, or there is nothing to loop over.
        if not isinstance(lhs, Expr) or not _is_tensor(lhs):
            if not isinstance(rhs, Expr) or not _is_tensor(rhs):
                lhs = call.args[0]
        made: Expr = builder.call_te(compute, lhs, rhs, primfunc_name_hint=name)
        return made

    return legalize


def _is_tensor(value: Any) -> bool:
    return isinstance(getattr(value, "struct_info_", None), TensorStructInfo)


def _scalar_if_constant(arg: Any) -> Any:
    """A rank-0 constant becomes a literal in the kernel."""
    from .literals import scalar_const

    made = scalar_const(arg)
    return arg if made is None else made


def _binary(
    name: str, reference: Any, out: str | None = None, kind: str = "float32", low: float = 0.5, high: float = 3.0
) -> Callable[[Any, Any], Expr]:
    def function(x1: Any, x2: Any) -> Expr:
        return make_call(name, [_operand(x1), _operand(x2)])

    def samples() -> Any:
        rng = np.random.default_rng(11)

        def array(*shape: int) -> Any:
            if kind == "bool":
                return rng.random(shape) > 0.5
            return rng.uniform(low, high, shape).astype(kind)

        return [((array(3, 4), array(3, 4)), {}), ((array(2, 1, 4), array(3, 1)), {})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}`` with broadcasting."
    define(
        name,
        _infer(out),
        legalize=_legalize(name),
        precision="follow",
        reference=reference,
        samples=samples,
        arg_names=("x1", "x2"),
    )
    return function


add = _binary("add", np.add)
subtract = _binary("subtract", np.subtract)
multiply = _binary("multiply", np.multiply)
divide = _binary("divide", np.divide)
floor_divide = _binary("floor_divide", np.floor_divide, kind="int32", low=1, high=20)
power = _binary("power", np.power)
mod = _binary("mod", np.fmod, kind="int32", low=1, high=20)
floor_mod = _binary("floor_mod", np.mod, kind="int32", low=1, high=20)
maximum = _binary("maximum", np.maximum)
minimum = _binary("minimum", np.minimum)
equal = _binary("equal", np.equal, "bool", "int32", 0, 3)
not_equal = _binary("not_equal", np.not_equal, "bool", "int32", 0, 3)
greater = _binary("greater", np.greater, "bool")
greater_equal = _binary("greater_equal", np.greater_equal, "bool")
less = _binary("less", np.less, "bool")
less_equal = _binary("less_equal", np.less_equal, "bool")
logical_and = _binary("logical_and", np.logical_and, kind="bool")
logical_or = _binary("logical_or", np.logical_or, kind="bool")
logical_xor = _binary("logical_xor", np.logical_xor, kind="bool")
bitwise_and = _binary("bitwise_and", np.bitwise_and, kind="int32", low=0, high=99)
bitwise_or = _binary("bitwise_or", np.bitwise_or, kind="int32", low=0, high=99)
bitwise_xor = _binary("bitwise_xor", np.bitwise_xor, kind="int32", low=0, high=99)
left_shift = _binary("left_shift", np.left_shift, kind="int32", low=0, high=6)
right_shift = _binary("right_shift", np.right_shift, kind="int32", low=0, high=6)
