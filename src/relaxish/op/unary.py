"""Element-wise operators of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import topi
from ..relax.expr import Call, Expr, PrimValue
from ..relax.struct_info import PrimStructInfo, StructInfo
from .inference import as_expr, as_prim_value, check_count, make_call, require_float, tensor_arg, type_fail, with_dtype
from .lowering import te_call
from .record import define

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clip", "cos", "cosh", "erf",
    "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


def _infer(float_only: bool, out: str | None) -> Callable[[Call, Any], StructInfo]:
    def infer(call: Call, builder: Any) -> StructInfo:
        check_count(call, 1)
        info = tensor_arg(call, 0)
        if float_only:
            require_float(call, info)
        return with_dtype(info, out) if out else info

    return infer


def _legalize(name: str) -> Callable[[Any, Call], Expr]:
    compute = getattr(topi, name)

    def legalize(builder: Any, call: Call) -> Expr:
        if name == "erf":
            return te_call(builder, "erf", _te_erf, call.args[0])
        # Prefixed, because the C library has functions called ``exp``, ``sin`` and so on.
        return te_call(builder, f"tir_{name}", compute, call.args[0])

    return legalize


def _te_erf(x: Any) -> Any:
    """Half precision is too coarse for the polynomial behind ``erf``."""
    if x.dtype != "float16":
        return topi.erf(x)
    return topi.cast(topi.erf(topi.cast(x, "float32")), "float16")


def np_erf(x: Any) -> Any:
    """The error function of an array, as NumPy has none."""
    from math import erf

    return np.vectorize(erf, otypes=[x.dtype])(x)


def _unary(
    name: str,
    reference: Callable[..., Any],
    float_only: bool = False,
    out: str | None = None,
    low: float = -2.0,
    high: float = 2.0,
    dtype: str = "float32",
) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        return make_call(name, [as_expr(x)])

    def samples() -> Any:
        rng = np.random.default_rng(7)
        if dtype == "bool":
            return [((rng.random((3, 5)) > 0.5,), {})]
        return [((rng.uniform(low, high, (3, 5)).astype(dtype),), {})]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}``."
    define(
        name,
        _infer(float_only, out),
        legalize=_legalize(name),
        precision="follow",
        reference=reference,
        samples=samples,
        arg_names=("x",),
    )
    return function


abs = _unary("abs", np.abs)
acos = _unary("acos", np.arccos, True, low=-0.9, high=0.9)
acosh = _unary("acosh", np.arccosh, True, low=1.1, high=3)
asin = _unary("asin", np.arcsin, True, low=-0.9, high=0.9)
asinh = _unary("asinh", np.arcsinh, True)
atan = _unary("atan", np.arctan, True)
atanh = _unary("atanh", np.arctanh, True, low=-0.9, high=0.9)
bitwise_not = _unary("bitwise_not", np.bitwise_not, dtype="int32", low=-9, high=9)
ceil = _unary("ceil", np.ceil)
cos = _unary("cos", np.cos, True)
cosh = _unary("cosh", np.cosh, True)
erf = _unary("erf", np_erf, True)
exp = _unary("exp", np.exp, True)
floor = _unary("floor", np.floor)
isfinite = _unary("isfinite", np.isfinite, out="bool")
isinf = _unary("isinf", np.isinf, out="bool")
isnan = _unary("isnan", np.isnan, out="bool")
log = _unary("log", np.log, True, low=0.1, high=3)
logical_not = _unary("logical_not", np.logical_not, dtype="bool")
negative = _unary("negative", np.negative)
round = _unary("round", np.round)
rsqrt = _unary("rsqrt", lambda x: 1 / np.sqrt(x), True, low=0.1, high=3)
sigmoid = _unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)), True)
sign = _unary("sign", np.sign)
sin = _unary("sin", np.sin, True)
sinh = _unary("sinh", np.sinh, True)
sqrt = _unary("sqrt", np.sqrt, True, low=0.1, high=3)
square = _unary("square", np.square)
tan = _unary("tan", np.tan, True, low=-1, high=1)
tanh = _unary("tanh", np.tanh, True)


def _infer_clip(call: Call, builder: Any) -> StructInfo:
    check_count(call, 3)
    info = tensor_arg(call, 0)
    for bound in call.args[1:]:
        if not isinstance(bound.struct_info_, PrimStructInfo):
            raise type_fail(call, "expects min and max to be scalars (PrimValue)")
    return info


def _legalize_clip(builder: Any, call: Call) -> Expr:
    low, high = (a.value if isinstance(a, PrimValue) else a for a in call.args[1:])
    made: Expr = builder.call_te(topi.clip, call.args[0], low, high, primfunc_name_hint="tir_clip")
    return made


def clip(x: Any, min: Any, max: Any) -> Expr:
    """Elements limited to ``[min, max]``."""
    if not isinstance(min, (int, float)) and not isinstance(min, Expr):
        min = getattr(min, "value", min)
    return make_call("clip", [as_expr(x), as_prim_value(min), as_prim_value(max)])


define(
    "clip",
    _infer_clip,
    legalize=_legalize_clip,
    precision="follow",
    reference=lambda x, min, max: np.clip(x, min, max),
    samples=lambda: [((np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4),), {"min": -1.0, "max": 1.0})],
    arg_names=("x", "min", "max"),
)
