"""Activations and normalisations by one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te, topi
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, Tuple, Var
from ...relax.layout import InferLayoutOutput, LayoutMap
from ...relax.op_table import Gradient, Infer
from ...relax.struct_info import StructInfo, TupleStructInfo
from ...tir import const
from ...tir.intrinsics import np_erf
from ..binary import add, less, multiply, subtract
from ..inference import as_expr, as_int, check_axis, check_count, input_tensors, make_call, require_float, tensor_arg
from ..kinds import ELEMENTWISE, SOFTMAX, Desired
from ..literals import const_like
from ..lowering import by_te, te_call
from ..record import by_operands, define
from ..search import where
from ..statistical import sum
from ..unary import exp, sigmoid

__all__ = [
    "dropout", "gelu", "gelu_tanh", "leakyrelu", "log_softmax", "prelu", "relu", "selu", "silu", "softmax", "softplus",
]  # fmt: skip

_X = np.random.default_rng(1).uniform(-2, 2, (3, 5)).astype("float32")


def _infer(float_only: bool, count: int = 1) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        check_count(call, count)
        info = tensor_arg(call, 0)
        if float_only:
            require_float(call, info)
        return info

    return infer


def _enter(
    name: str,
    compute: Callable[[te.Tensor], te.Tensor],
    reference: Callable[..., np.ndarray],
    float_only: bool = True,
    gradient: Gradient | None = None,
) -> Callable[[Any], Expr]:
    def function(data: Expr) -> Expr:
        return make_call(f"nn.{name}", [as_expr(data)])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise ``{name}``."
    define(
        f"nn.{name}",
        _infer(float_only),
        kind=ELEMENTWISE,
        legalize=by_te(name, compute),
        gradient=gradient,
        reference=reference,
        samples=lambda: [((_X,), {})],
    )
    return function


def _te_gelu(x: te.Tensor) -> te.Tensor:
    dtype = x.dtype
    scaled = topi.multiply(x, const(0.5**0.5, dtype))
    if dtype == "float16":
        erf = topi.cast(topi.erf(topi.cast(scaled, "float32")), dtype)
    else:
        erf = topi.erf(scaled)
    half = const(0.5, dtype)
    return topi.multiply(x, topi.add(half, topi.multiply(erf, half)))


def _te_gelu_tanh(x: te.Tensor) -> te.Tensor:
    dtype = x.dtype
    root, cubic = const((2.0 / np.pi) ** 0.5, dtype), const(0.044715, dtype)
    one, half = const(1, dtype), const(0.5, dtype)
    inner = topi.add(one, topi.multiply(topi.multiply(cubic, x), x))
    bent = topi.tanh(topi.multiply(topi.multiply(root, x), inner))
    return topi.multiply(topi.multiply(half, x), topi.add(one, bent))


def _te_selu(x: te.Tensor) -> te.Tensor:
    dtype = x.dtype
    alpha, scale = const(1.6732632423543772848170429916717, dtype), const(1.0507009873554804934193349852946, dtype)
    zero, one = const(0, dtype), const(1, dtype)
    above = topi.maximum(x, zero)
    below = topi.minimum(zero, topi.multiply(alpha, topi.subtract(topi.exp(x), one)))
    return topi.multiply(scale, topi.add(above, below))


def _te_silu(x: te.Tensor) -> te.Tensor:
    return topi.multiply(x, topi.sigmoid(x))


def _relu_gradient(x: Expr, y: Expr, g: Expr) -> Expr:
    return where(less(x, const_like(0.0, x)), const_like(0.0, x), g)


def _silu_gradient(x: Expr, y: Expr, g: Expr) -> Expr:
    gate, one = sigmoid(x), const_like(1.0, x)
    return multiply(g, add(gate, multiply(y, subtract(one, gate))))


relu = _enter("relu", topi.nn.relu, lambda x: np.maximum(x, 0), False, by_operands(_relu_gradient))
gelu = _enter("gelu", _te_gelu, lambda x: x * 0.5 * (1 + np_erf(x / np.sqrt(2))).astype(x.dtype))
gelu_tanh = _enter(
    "gelu_tanh", _te_gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
)
selu = _enter(
    "selu",
    _te_selu,
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1)),
)
silu = _enter("silu", _te_silu, lambda x: x / (1 + np.exp(-x)), gradient=by_operands(_silu_gradient))


def leakyrelu(data: Expr, alpha: float = 0.01) -> Expr:
    """Negative elements scaled by ``alpha``."""
    return make_call("nn.leakyrelu", [as_expr(data)], {"alpha": float(alpha)})


define(
    "nn.leakyrelu",
    _infer(True),
    kind=ELEMENTWISE,
    attrs="LeakyRelu",
    legalize=by_te("leaky_relu", topi.nn.leaky_relu, lambda a: [float(a.alpha)]),
    reference=lambda x, alpha=0.01: np.where(x > 0, x, x * alpha),
    samples=lambda: [((_X,), {"alpha": 0.2})],
)


def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Expr:
    """Negative elements scaled by a slope of their channel."""
    return make_call("nn.prelu", [as_expr(data), as_expr(alpha)], {"axis": as_int(axis)})


def _infer_prelu(call: Call, builder: BlockBuilder) -> StructInfo:
    info, _ = input_tensors(call, 2)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    return info


def _legalize_prelu(builder: BlockBuilder, call: Call) -> Expr:
    axis = int(call.attrs.axis) % call.args[0].struct_info.ndim
    return te_call(builder, "prelu", topi.nn.prelu, *call.args, axis)


define(
    "nn.prelu",
    _infer_prelu,
    attrs="PRelu",
    precision="follow",
    legalize=_legalize_prelu,
    reference=lambda x, alpha, axis=1: np.where(
        x > 0, x, x * alpha.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    ),
    samples=lambda: [((_X, np.linspace(0.1, 0.5, _X.shape[1], dtype="float32")), {})],
)


def softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    """``log(1 + exp(beta x)) / beta``, linear above ``threshold``."""
    return make_call("nn.softplus", [as_expr(data)], {"beta": float(beta), "threshold": float(threshold)})


define(
    "nn.softplus",
    _infer(True),
    kind=ELEMENTWISE,
    attrs="Softplus",
    legalize=by_te("softplus", topi.nn.softplus, lambda a: (float(a.beta), float(a.threshold))),
    reference=lambda x, beta=1.0, threshold=20.0: np.where(x * beta > threshold, x, np.log1p(np.exp(beta * x)) / beta),
    samples=lambda: [((_X,), {}), ((_X * 20,), {"beta": 2.0, "threshold": 10.0})],
)


def softmax(data: Expr, axis: int = -1) -> Expr:
    """Exponentials divided by their sum along ``axis``."""
    return make_call("nn.softmax", [as_expr(data)], {"axis": as_int(axis)})


def log_softmax(data: Expr, axis: int = -1) -> Expr:
    """The logarithm of :func:`softmax`."""
    return make_call("nn.log_softmax", [as_expr(data)], {"axis": as_int(axis)})


def _infer_softmax(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    require_float(call, info)
    return info


def _softmax_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    total = sum(multiply(out, var), int(call.attrs.axis), True)
    return [multiply(subtract(out, total), var)]


def _log_softmax_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    axis = int(call.attrs.axis)
    return [subtract(out, multiply(sum(out, axis, True), exp(var)))]


def _np_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


define(
    "nn.softmax",
    _infer_softmax,
    kind=SOFTMAX,
    legalize=by_te("softmax", topi.nn.softmax, lambda a: [int(a.axis)]),
    gradient=_softmax_gradient,
    reference=_np_softmax,
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0})],
)
define(
    "nn.log_softmax",
    _infer_softmax,
    kind=SOFTMAX,
    legalize=by_te("log_softmax", topi.nn.log_softmax, lambda a: [int(a.axis)]),
    gradient=_log_softmax_gradient,
    reference=lambda x, axis=-1: np.log(_np_softmax(x, axis)),
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0})],
)


def dropout(data: Expr, rate: float = 0.5) -> Expr:
    """Elements dropped at random while training; returns the result and the mask."""
    return make_call("nn.dropout", [as_expr(data)], {"rate": float(rate)})


def _infer_dropout(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    return TupleStructInfo([info, info])


def _legalize_dropout(builder: BlockBuilder, call: Call) -> Expr:
    # At inference nothing is dropped and the mask is all ones.
    x = call.args[0]
    dtype = x.struct_info.dtype
    ones = te_call(builder, "ones", topi.full, x.struct_info.shape, dtype, const(1, dtype))
    return Tuple([x, builder.emit(ones)])


def _dropout_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = layouts.of(call.args[0])
    return InferLayoutOutput([layout], [(layout, layout)])


define(
    "nn.dropout",
    _infer_dropout,
    attrs="Dropout",
    precision="follow",
    layout=_dropout_layout,
    legalize=_legalize_dropout,
    reference=lambda x, rate=0.5: (x, np.ones_like(x)),
    samples=lambda: [((_X,), {})],
)
