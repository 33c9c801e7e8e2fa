"""Element-wise operators of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr
from ..relax.op_table import Sample
from ..relax.struct_info import PrimStructInfo, StructInfo
from ..relax.utils import unboxed
from .binary import divide, less, multiply, subtract
from .inference import (
    Number,
    as_expr,
    as_prim_value,
    check_count,
    make_call,
    require_float,
    tensor_arg,
    type_fail,
    with_dtype,
)
from .kinds import ELEMENTWISE
from .literals import const_like
from .lowering import by_te, te_call
from .record import by_operands, define
from .search import where
from ..ir.plain import plain
from ..tir.intrinsics import np_erf

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clip", "cos", "cosh", "erf",
    "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


def _te_erf(x: te.Tensor) -> te.Tensor:
    """Half precision is too coarse for the polynomial behind ``erf``."""
    if x.dtype != "float16":
        return topi.erf(x)
    return topi.cast(topi.erf(topi.cast(x, "float32")), "float16")


_UnaryOp = Callable[[Any], Expr]


def _unary(
    name: str,
    reference: Callable[..., Any],
    float_only: bool = False,
    out: str | None = None,
    low: float = -2.0,
    high: float = 2.0,
    dtype: str = "float32",
    gradient: Callable[[Expr, Expr, Expr], Expr] | None = None,
) -> _UnaryOp:
    """``gradient`` is that of the operand ``x``, by ``x``, the result ``y`` and the result's gradient ``g``."""

    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        check_count(call, 1)
        info = tensor_arg(call, 0)
        if float_only:
            require_float(call, info)
        return with_dtype(info, out) if out else info

    def function(x: Expr) -> Expr:
        return make_call(name, [as_expr(x)])

    def samples() -> Sequence[Sample]:
        rng = np.random.default_rng(7)
        if dtype == "bool":
            return [((rng.random((3, 5)) > 0.5,), {})]
        return [((rng.uniform(low, high, (3, 5)).astype(dtype),), {})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}``."
    define(
        name,
        infer,
        kind=ELEMENTWISE,
        # Prefixed, because the C library has functions called ``exp``, ``sin`` and so on.
        legalize=by_te("erf", _te_erf) if name == "erf" else by_te(f"tir_{name}", getattr(topi, name)),
        gradient=None if gradient is None else by_operands(gradient),
        reference=reference,
        samples=samples,
    )
    return function


abs = _unary(
    "abs",
    np.abs,
    gradient=lambda x, y, g: multiply(
        g, where(less(x, const_like(0.0, x)), negative(const_like(1.0, x)), const_like(1.0, x))
    ),
)
acos = _unary("acos", np.arccos, True, low=-0.9, high=0.9)
acosh = _unary("acosh", np.arccosh, True, low=1.1, high=3)
asin = _unary("asin", np.arcsin, True, low=-0.9, high=0.9)
asinh = _unary("asinh", np.arcsinh, True)
atan = _unary("atan", np.arctan, True)
atanh = _unary("atanh", np.arctanh, True, low=-0.9, high=0.9)
bitwise_not = _unary("bitwise_not", np.bitwise_not, dtype="int32", low=-9, high=9)
ceil = _unary("ceil", np.ceil)
cos = _unary("cos", np.cos, True, gradient=lambda x, y, g: multiply(negative(g), sin(x)))
cosh = _unary("cosh", np.cosh, True)
erf = _unary("erf", np_erf, True)
exp = _unary("exp", np.exp, True, gradient=lambda x, y, g: multiply(g, y))
floor = _unary("floor", np.floor)
isfinite = _unary("isfinite", np.isfinite, out="bool")
isinf = _unary("isinf", np.isinf, out="bool")
isnan = _unary("isnan", np.isnan, out="bool")
log = _unary("log", np.log, True, low=0.1, high=3, gradient=lambda x, y, g: divide(g, x))
logical_not = _unary("logical_not", np.logical_not, dtype="bool")
negative: _UnaryOp = _unary("negative", np.negative, gradient=lambda x, y, g: negative(g))
round = _unary("round", np.round)
rsqrt = _unary("rsqrt", lambda x: 1 / np.sqrt(x), True, low=0.1, high=3)
sigmoid = _unary(
    "sigmoid",
    lambda x: 1 / (1 + np.exp(-x)),
    True,
    gradient=lambda x, y, g: multiply(multiply(g, y), subtract(const_like(1.0, y), y)),
)
sign = _unary("sign", np.sign)
sin: _UnaryOp = _unary("sin", np.sin, True, gradient=lambda x, y, g: multiply(g, cos(x)))
sinh = _unary("sinh", np.sinh, True)
sqrt = _unary(
    "sqrt", np.sqrt, True, low=0.1, high=3, gradient=lambda x, y, g: divide(multiply(const_like(0.5, y), g), y)
)
square = _unary("square", np.square)
tan = _unary("tan", np.tan, True, low=-1, high=1)
tanh = _unary("tanh", np.tanh, True, gradient=lambda x, y, g: multiply(g, subtract(const_like(1.0, y), multiply(y, y))))


def _infer_clip(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 3)
    info = tensor_arg(call, 0)
    for bound in call.args[1:]:
        if not isinstance(bound.struct_info_, PrimStructInfo):
            raise type_fail(call, "expects min and max to be scalars (PrimValue)")
    return info


def _legalize_clip(builder: BlockBuilder, call: Call) -> Expr:
    low, high = (unboxed(a) for a in call.args[1:])
    return te_call(builder, "tir_clip", topi.clip, call.args[0], low, high)


def clip(x: Expr, min: Number, max: Number) -> Expr:
    """Elements limited to ``[min, max]``."""
    if not isinstance(min, (int, float)) and not isinstance(min, Expr):
        min = plain(min)
    return make_call("clip", [as_expr(x), as_prim_value(min), as_prim_value(max)])


define(
    "clip",
    _infer_clip,
    legalize=_legalize_clip,
    kind=ELEMENTWISE,
    reference=lambda x, min, max: np.clip(x, min, max),
    samples=lambda: [((np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4),), {"min": -1.0, "max": 1.0})],
)
