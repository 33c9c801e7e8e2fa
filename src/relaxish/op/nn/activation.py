"""Activations and normalisations by one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import topi
from ...relax.expr import Call, Expr
from ...relax.struct_info import StructInfo, TupleStructInfo
from ...tir import const
from ..inference import as_expr, as_int, check_axis, check_count, input_tensors, make_call, require_float, tensor_arg
from ..record import define
from ..unary import np_erf

__all__ = [
    "dropout", "gelu", "gelu_tanh", "leakyrelu", "log_softmax", "prelu", "relu", "selu", "silu", "softmax", "softplus",
]  # fmt: skip

_X = np.random.default_rng(1).uniform(-2, 2, (3, 5)).astype("float32")


def _infer(float_only: bool, count: int = 1) -> Callable[[Call, Any], StructInfo]:
    def infer(call: Call, builder: Any) -> StructInfo:
        check_count(call, count)
        info = tensor_arg(call, 0)
        if float_only:
            require_float(call, info)
        return info

    return infer


def _te(name: str, compute: Callable[..., Any]) -> Callable[[Any, Call], Expr]:
    def legalize(builder: Any, call: Call) -> Expr:
        made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint=name)
        return made

    return legalize


def _enter(name: str, compute: Callable[..., Any], reference: Any, float_only: bool = True) -> Callable[[Any], Expr]:
    def function(data: Any) -> Expr:
        return make_call(f"nn.{name}", [as_expr(data)])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}``."
    define(
        f"nn.{name}",
        _infer(float_only),
        legalize=_te(name, compute),
        precision="follow",
        reference=reference,
        samples=lambda: [((_X,), {})],
        arg_names=("data",),
    )
    return function


def _te_gelu(x: Any) -> Any:
    dtype = x.dtype
    scaled = topi.multiply(x, const(0.5**0.5, dtype))
    if dtype == "float16":
        erf = topi.cast(topi.erf(topi.cast(scaled, "float32")), dtype)
    else:
        erf = topi.erf(scaled)
    half = const(0.5, dtype)
    return topi.multiply(x, topi.add(half, topi.multiply(erf, half)))


def _te_gelu_tanh(x: Any) -> Any:
    dtype = x.dtype
    root, cubic = const((2.0 / np.pi) ** 0.5, dtype), const(0.044715, dtype)
    one, half = const(1, dtype), const(0.5, dtype)
    inner = topi.add(one, topi.multiply(topi.multiply(cubic, x), x))
    bent = topi.tanh(topi.multiply(topi.multiply(root, x), inner))
    return topi.multiply(topi.multiply(half, x), topi.add(one, bent))


def _te_selu(x: Any) -> Any:
    dtype = x.dtype
    alpha, scale = const(1.6732632423543772848170429916717, dtype), const(1.0507009873554804934193349852946, dtype)
    zero, one = const(0, dtype), const(1, dtype)
    above = topi.maximum(x, zero)
    below = topi.minimum(zero, topi.multiply(alpha, topi.subtract(topi.exp(x), one)))
    return topi.multiply(scale, topi.add(above, below))


def _te_silu(x: Any) -> Any:
    return topi.multiply(x, topi.sigmoid(x))


relu = _enter("relu", topi.nn.relu, lambda x: np.maximum(x, 0), False)
gelu = _enter("gelu", _te_gelu, lambda x: x * 0.5 * (1 + np_erf(x / np.sqrt(2))).astype(x.dtype))
gelu_tanh = _enter(
    "gelu_tanh", _te_gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
)
selu = _enter(
    "selu",
    _te_selu,
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1)),
)
silu = _enter("silu", _te_silu, lambda x: x / (1 + np.exp(-x)))


def leakyrelu(data: Any, alpha: float = 0.01) -> Expr:
    """Negative elements scaled by ``alpha``."""
    return make_call("nn.leakyrelu", [as_expr(data)], {"alpha": float(alpha)})


def _legalize_leaky(builder: Any, call: Call) -> Expr:
    made: Expr = builder.call_te(
        topi.nn.leaky_relu, call.args[0], float(call.attrs.alpha), primfunc_name_hint="leaky_relu"
    )
    return made


define(
    "nn.leakyrelu",
    _infer(True),
    legalize=_legalize_leaky,
    precision="follow",
    reference=lambda x, alpha=0.01: np.where(x > 0, x, x * alpha),
    samples=lambda: [((_X,), {"alpha": 0.2})],
    arg_names=("data",),
)


def prelu(data: Any, alpha: Any, axis: int = 1) -> Expr:
    """Negative elements scaled by a slope of their channel."""
    return make_call("nn.prelu", [as_expr(data), as_expr(alpha)], {"axis": as_int(axis)})


def _infer_prelu(call: Call, builder: Any) -> StructInfo:
    info, _ = input_tensors(call, 2)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    return info


def _legalize_prelu(builder: Any, call: Call) -> Expr:
    axis = int(call.attrs.axis) % call.args[0].struct_info.ndim
    made: Expr = builder.call_te(topi.nn.prelu, call.args[0], call.args[1], axis, primfunc_name_hint="prelu")
    return made


define(
    "nn.prelu",
    _infer_prelu,
    legalize=_legalize_prelu,
    precision="follow",
    reference=lambda x, alpha, axis=1: np.where(
        x > 0, x, x * alpha.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    ),
    samples=lambda: [((_X, np.linspace(0.1, 0.5, _X.shape[1], dtype="float32")), {})],
    arg_names=("data", "alpha"),
)


def softplus(data: Any, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    """``log(1 + exp(beta x)) / beta``, linear above ``threshold``."""
    return make_call("nn.softplus", [as_expr(data)], {"beta": float(beta), "threshold": float(threshold)})


def _legalize_softplus(builder: Any, call: Call) -> Expr:
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)
    made: Expr = builder.call_te(topi.nn.softplus, call.args[0], beta, threshold, primfunc_name_hint="softplus")
    return made


define(
    "nn.softplus",
    _infer(True),
    legalize=_legalize_softplus,
    precision="follow",
    reference=lambda x, beta=1.0, threshold=20.0: np.where(x * beta > threshold, x, np.log1p(np.exp(beta * x)) / beta),
    samples=lambda: [((_X,), {}), ((_X * 20,), {"beta": 2.0, "threshold": 10.0})],
    arg_names=("data",),
)


def softmax(data: Any, axis: int = -1) -> Expr:
    """Exponentials divided by their sum along ``axis``."""
    return make_call("nn.softmax", [as_expr(data)], {"axis": as_int(axis)})


def log_softmax(data: Any, axis: int = -1) -> Expr:
    """The logarithm of :func:`softmax`."""
    return make_call("nn.log_softmax", [as_expr(data)], {"axis": as_int(axis)})


def _infer_softmax(call: Call, builder: Any) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    require_float(call, info)
    return info


def _legalize_softmax(name: str) -> Callable[[Any, Call], Expr]:
    compute = getattr(topi.nn, name)

    def legalize(builder: Any, call: Call) -> Expr:
        made: Expr = builder.call_te(compute, call.args[0], int(call.attrs.axis), primfunc_name_hint=name)
        return made

    return legalize


def _np_softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


define(
    "nn.softmax",
    _infer_softmax,
    legalize=_legalize_softmax("softmax"),
    precision="never",
    reference=_np_softmax,
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0})],
    arg_names=("data",),
)
define(
    "nn.log_softmax",
    _infer_softmax,
    legalize=_legalize_softmax("log_softmax"),
    precision="never",
    reference=lambda x, axis=-1: np.log(_np_softmax(x, axis)),
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0})],
    arg_names=("data",),
)


def dropout(data: Any, rate: float = 0.5) -> Expr:
    """Elements dropped at random while training; returns the result and the mask."""
    return make_call("nn.dropout", [as_expr(data)], {"rate": float(rate)})


def _infer_dropout(call: Call, builder: Any) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    return TupleStructInfo([info, info])


def _legalize_dropout(builder: Any, call: Call) -> Expr:
    # At inference nothing is dropped and the mask is all ones.
    from ...relax.expr import Tuple

    x = call.args[0]
    dtype = x.struct_info.dtype
    ones = builder.call_te(topi.full, x.struct_info.shape, dtype, const(1, dtype), primfunc_name_hint="ones")
    return Tuple([x, builder.emit(ones)])


define(
    "nn.dropout",
    _infer_dropout,
    legalize=_legalize_dropout,
    precision="follow",
    reference=lambda x, rate=0.5: (x, np.ones_like(x)),
    samples=lambda: [((_X,), {})],
    arg_names=("data",),
)
