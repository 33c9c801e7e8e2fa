"""Elementwise operators of PyTorch: arithmetic, comparison, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
import torch

from ... import op, relax, tir
from ...ir import PrimExpr
from ...ir import dtype as dt
from ...relax.expr import Expr
from ...relax.scalars import simplify
from .complex_numbers import complex_of
from .importer import Dim, dtype_of, Importer, Number, torch_dtype, Value
from .table import CONVERTERS, converter

__all__: list[str] = []

_BINARY: dict[str, Any] = {
    "mul": op.multiply, "maximum": op.maximum, "minimum": op.minimum, "eq": op.equal, "ne": op.not_equal,
    "lt": op.less, "le": op.less_equal, "gt": op.greater, "ge": op.greater_equal, "bitwise_and": op.bitwise_and,
    "bitwise_or": op.bitwise_or, "bitwise_xor": op.bitwise_xor, "__and__": op.bitwise_and, "__or__": op.bitwise_or,
    "__xor__": op.bitwise_xor, "bitwise_left_shift": op.left_shift, "bitwise_right_shift": op.right_shift,
    "__lshift__": op.left_shift, "__rshift__": op.right_shift,
}  # fmt: skip
_BOOLEAN = {"bitwise_and": op.logical_and, "bitwise_or": op.logical_or, "bitwise_xor": op.logical_xor}
# Python's operators on symbolic sizes show up as calls of the ``operator`` module.
_SCALAR: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "neg": lambda a: -a, "eq": lambda a, b: _compared(tir.EQ, a, b),
    "ne": lambda a, b: _compared(tir.NE, a, b), "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def _compared(kind: Callable[[Any, Any], PrimExpr], a: Number, b: Number) -> Number:
    """Equality as an expression: the sign ``==`` says whether two expressions are one."""
    if isinstance(a, PrimExpr) or isinstance(b, PrimExpr):
        a, b = (relax.PrimValue(v).value for v in (a, b))
        return simplify(kind(a, b))
    return a == b if kind is tir.EQ else a != b


def _binary(name: str, function: Callable[[Expr, Expr], Expr]) -> None:
    def convert(self: Importer, a: Value, b: Value, **_: Any) -> Value:
        if not self.is_tensor(a) and not self.is_tensor(b):
            return _SCALAR[name](a, b)
        a, b = self.promote(a, b)
        key = f"bitwise_{name.strip('_')}" if name.startswith("__") else name
        chosen: Any = _BOOLEAN.get(key, function) if dtype_of(a) == "bool" else function
        return self.emit(chosen(a, b))

    CONVERTERS[name] = convert


for _name, _function in _BINARY.items():
    _binary(_name, _function)


def _additive(kind: str) -> Callable[..., Any]:
    def convert(self: Importer, a: Value, b: Value, alpha: Number = 1, **_: Any) -> Value:
        if not self.is_tensor(a) and not self.is_tensor(b):
            return a + b if kind == "add" else a - b if kind == "sub" else b - a
        if kind == "rsub":
            a, b = b, a
            if alpha != 1:
                b = self.emit(op.multiply(*self.promote(b, alpha)))
        elif alpha != 1:
            b = self.emit(op.multiply(*self.promote(b, alpha))) if self.is_tensor(b) else b * alpha
        a, b = self.promote(a, b)
        return self.emit((op.add if kind == "add" else op.subtract)(a, b))

    return convert


for _kind in ("add", "sub", "rsub"):
    CONVERTERS[_kind] = _additive(_kind)


@converter("div", "true_divide", "truediv")
def _div(self: Importer, a: Value, b: Value, *, rounding_mode: str | None = None) -> Expr:
    a, b = self.promote(a, b)
    if rounding_mode is None:
        return self.emit(op.divide(self.floating(a), self.floating(b)))
    if rounding_mode == "floor":
        return self.emit(op.floor_divide(a, b))
    if dt.is_float(dtype_of(a)):
        return _trunc(self, self.emit(op.divide(a, b)))
    return _truncated_quotient(self, a, b)


def _truncated_quotient(self: Importer, a: Expr, b: Expr) -> Expr:
    """Of integers, exactly: the rounded-down quotient, one more where it is negative and not whole."""
    down = self.emit(op.floor_divide(a, b))
    if dt.is_uint(dtype_of(a)):
        return down
    zero = self.scalar(0, dtype_of(a))
    rest = self.emit(op.subtract(a, self.emit(op.multiply(down, b))))
    apart = self.emit(op.not_equal(self.emit(op.less(a, zero)), self.emit(op.less(b, zero))))
    more = self.emit(op.logical_and(self.emit(op.not_equal(rest, zero)), apart))
    return self.emit(op.add(down, self.cast(more, dtype_of(a))))


@converter("floor_divide", "floordiv")
def _floor_divide(self: Importer, a: Value, b: Value) -> Value:
    if not self.is_tensor(a) and not self.is_tensor(b):
        return a // b
    return self.emit(op.floor_divide(*self.promote(a, b)))


@converter("remainder", "mod")
def _remainder(self: Importer, a: Value, b: Value) -> Value:
    if not self.is_tensor(a) and not self.is_tensor(b):
        return a % b
    return self.emit(op.floor_mod(*self.promote(a, b)))


@converter("fmod")
def _fmod(self: Importer, a: Value, b: Value) -> Expr:
    return self.emit(op.mod(*self.promote(a, b)))


@converter("pow")
def _pow(self: Importer, a: Value, b: Value) -> Expr:
    if isinstance(b, (int, float)) and self.is_tensor(a):
        if b == 2:
            return self.emit(op.multiply(a, a))
        if b == 3:
            return self.emit(op.multiply(self.emit(op.multiply(a, a)), a))
        if b == 0.5:
            return self.emit(op.sqrt(self.floating(a)))
        if b == -0.5:
            return self.emit(op.rsqrt(self.floating(a)))
    a, b = self.promote(a, b)
    if dt.is_float(dtype_of(a)):
        return self.emit(op.power(a, b))
    # Double precision holds all powers up to 2 ** 53.
    return self.cast(self.emit(op.power(self.cast(a, "float64"), self.cast(b, "float64"))), dtype_of(a))


def _logical_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def convert(self: Importer, a: Value, b: Value) -> Expr:
        return self.emit(function(_truth(self, a), _truth(self, b)))

    return convert


for _name, _function in (
    ("logical_and", op.logical_and), ("logical_or", op.logical_or), ("logical_xor", op.logical_xor)
):  # fmt: skip
    CONVERTERS[_name] = _logical_of(_function)


def _truth(self: Importer, x: Value) -> Expr:
    x = self.tensor(x)
    return x if dtype_of(x) == "bool" else self.emit(op.not_equal(x, self.scalar(0, dtype_of(x))))


@converter("logical_not")
def _logical_not(self: Importer, x: Expr) -> Expr:
    return self.emit(op.logical_not(_truth(self, x)))


@converter("bitwise_not")
def _bitwise_not(self: Importer, x: Expr) -> Expr:
    return self.emit(op.logical_not(x) if dtype_of(x) == "bool" else op.bitwise_not(x))


_FLOAT_UNARY = ("acos acosh asin asinh atan atanh cos cosh exp erf log rsqrt sigmoid sin sinh sqrt tan tanh").split()
_UNARY = {
    "abs": op.abs, "ceil": op.ceil, "floor": op.floor, "sign": op.sign, "square": op.square,
    "isnan": op.isnan, "isinf": op.isinf, "isfinite": op.isfinite, "relu": op.nn.relu, "silu": op.nn.silu,
    "selu": op.nn.selu,
}  # fmt: skip


def _unary(function: Callable[..., Any], to_float: bool) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, **_: Any) -> Expr:
        if not self.is_tensor(x) and isinstance(x, PrimExpr):
            return -x
        return self.emit(function(self.floating(x) if to_float else x))

    return convert


for _name in _FLOAT_UNARY:
    CONVERTERS[_name] = _unary(getattr(op, _name), True)
for _name, _function in _UNARY.items():
    CONVERTERS[_name] = _unary(_function, False)


def _trunc(self: Importer, x: Expr) -> Expr:
    below = self.emit(op.less(x, self.scalar(0.0, dtype_of(x))))
    return self.emit(op.where(below, self.emit(op.ceil(x)), self.emit(op.floor(x))))


@converter("trunc", "fix")
def _trunc_converter(self: Importer, x: Expr) -> Expr:
    return _trunc(self, x)


@converter("round")
def _round(self: Importer, x: Expr, *, decimals: int = 0) -> Expr:
    if decimals == 0:
        return self.emit(op.round(x))
    scale = self.scalar(float(10**decimals), dtype_of(x))
    return self.emit(op.divide(self.emit(op.round(self.emit(op.multiply(x, scale)))), scale))


@converter("neg", "negative")
def _neg(self: Importer, x: Value) -> Value:
    if not self.is_tensor(x):
        return -x
    if dt.is_uint(dtype_of(x)):
        return self.emit(op.subtract(self.scalar(0, dtype_of(x)), x))
    return self.emit(op.negative(x))


@converter("reciprocal")
def _reciprocal(self: Importer, x: Expr) -> Expr:
    x = self.floating(x)
    return self.emit(op.divide(self.scalar(1.0, dtype_of(x)), x))


def _log_base(base: float) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr) -> Expr:
        x = self.floating(x)
        return self.emit(op.divide(self.emit(op.log(x)), self.scalar(math.log(base), dtype_of(x))))

    return convert


CONVERTERS["log2"] = _log_base(2)
CONVERTERS["log10"] = _log_base(10)


@converter("log1p")
def _log1p(self: Importer, x: Expr) -> Expr:
    x = self.floating(x)
    return self.emit(op.log(self.emit(op.add(x, self.scalar(1.0, dtype_of(x))))))


@converter("expm1", "special_expm1")
def _expm1(self: Importer, x: Expr) -> Expr:
    """``tanh(x / 2) * (exp(x) + 1)``: nothing cancels where ``exp(x)`` is close to one."""
    x = self.floating(x)
    half = self.emit(op.tanh(self.emit(op.multiply(x, self.scalar(0.5, dtype_of(x))))))
    return self.emit(op.multiply(half, self.emit(op.add(self.emit(op.exp(x)), self.scalar(1.0, dtype_of(x))))))


@converter("exp2")
def _exp2(self: Importer, x: Expr) -> Expr:
    x = self.floating(x)
    return self.emit(op.exp(self.emit(op.multiply(x, self.scalar(math.log(2), dtype_of(x))))))


@converter("gelu")
def _gelu(self: Importer, x: Expr, *, approximate: str = "none") -> Expr:
    return self.emit(op.nn.gelu(x) if approximate == "none" else op.nn.gelu_tanh(x))


@converter("leaky_relu")
def _leaky_relu(self: Importer, x: Expr, negative_slope: float = 0.01) -> Expr:
    return self.emit(op.nn.leakyrelu(x, negative_slope))


@converter("elu")
def _elu(self: Importer, x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    """``-alpha * relu(1 - exp(x)) + relu(x)``, where the input is not scaled: one of the two terms is always zero."""
    kind = dtype_of(x)
    one = self.scalar(1.0, kind)
    if input_scale == 1:
        below = self.emit(op.nn.relu(self.emit(op.subtract(one, self.emit(op.exp(x))))))
        below = self.emit(op.multiply(self.scalar(-alpha, kind), below))
        out = self.emit(op.add(below, self.emit(op.nn.relu(x))))
    else:
        below = self.emit(op.exp(self.emit(op.multiply(x, self.scalar(input_scale, kind)))))
        below = self.emit(op.multiply(self.emit(op.subtract(below, one)), self.scalar(alpha, kind)))
        out = self.emit(op.where(self.emit(op.greater(x, self.scalar(0.0, kind))), x, below))
    return out if scale == 1 else self.emit(op.multiply(out, self.scalar(scale, kind)))


@converter("celu")
def _celu(self: Importer, x: Expr, alpha: float = 1.0) -> Expr:
    """``alpha * min(0, exp(x) / alpha - 1) + relu(x)``, as v0.20 has it, is right for 1 only: else ``exp(x / alpha)``."""
    if alpha != 1:
        return _elu(self, x, alpha, 1.0, 1.0 / alpha)
    kind = dtype_of(x)
    factor = self.scalar(alpha, kind)
    grown = self.emit(op.divide(self.emit(op.exp(x)), factor))
    below = self.emit(op.minimum(self.scalar(0.0, kind), self.emit(op.subtract(grown, self.scalar(1.0, kind)))))
    return self.emit(op.add(self.emit(op.multiply(factor, below)), self.emit(op.nn.relu(x))))


@converter("hardtanh", "relu6")
def _hardtanh(self: Importer, x: Expr, min_val: float = 0.0, max_val: float = 6.0) -> Expr:
    return self.emit(op.clip(x, min_val, max_val))


CONVERTERS["hardtanh"] = lambda self, x, lo=-1.0, hi=1.0: self.emit(op.clip(x, lo, hi))


@converter("hardsigmoid")
def _hardsigmoid(self: Importer, x: Expr) -> Expr:
    kind = dtype_of(x)
    shifted = self.emit(op.clip(self.emit(op.add(x, self.scalar(3.0, kind))), 0, 6))
    return self.emit(op.divide(shifted, self.scalar(6.0, kind)))


@converter("hardswish")
def _hardswish(self: Importer, x: Expr) -> Expr:
    return self.emit(op.multiply(x, _hardsigmoid(self, x)))


@converter("softplus")
def _softplus(self: Importer, x: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    return self.emit(op.nn.softplus(x, beta, threshold))


@converter("mish")
def _mish(self: Importer, x: Expr) -> Expr:
    return self.emit(op.multiply(x, self.emit(op.tanh(self.emit(op.nn.softplus(x))))))


@converter("prelu", "_prelu_kernel")
def _prelu(self: Importer, x: Expr, weight: Expr) -> Expr:
    shape: list[Dim] = [1] * self.rank(x)
    if self.rank(x) > 1:
        shape[1] = self.shape(weight)[0] if self.rank(weight) else 1
    slope = self.emit(op.reshape(weight, shape))
    positive = self.emit(op.greater(x, self.scalar(0.0, dtype_of(x))))
    return self.emit(op.where(positive, x, self.emit(op.multiply(x, slope))))


@converter("clamp", "clip")
def _clamp(self: Importer, x: Expr, min: Value | None = None, max: Value | None = None) -> Expr:
    """Where the bounds cross, the upper one holds."""
    if self.is_tensor(min) or self.is_tensor(max):
        if min is not None:
            x = self.emit(op.maximum(*self.promote(x, min)))
        return x if max is None else self.emit(op.minimum(*self.promote(x, max)))
    bounds = [bound for bound in (min, max) if bound is not None]
    if any(isinstance(bound, float) for bound in bounds):
        x = self.floating(x)
    if any(isinstance(bound, float) and math.isnan(bound) for bound in bounds):
        return self.emit(op.full(self.shape(x), self.scalar(math.nan, dtype_of(x)), dtype_of(x)))
    if dt.is_float(dtype_of(x)):
        low, high = -math.inf, math.inf
    else:
        low, high = dt.min_value(dtype_of(x)), dt.max_value(dtype_of(x))
    bottom, top = low if min is None else min, high if max is None else max
    if isinstance(bottom, (int, float)) and isinstance(top, (int, float)) and bottom > top:
        bottom = top
    return self.emit(op.clip(x, bottom, top))


CONVERTERS["clamp_min"] = lambda self, x, min: _clamp(self, x, min, None)
CONVERTERS["clamp_max"] = lambda self, x, max: _clamp(self, x, None, max)


@converter("where")
def _where(self: Importer, condition: Expr, a: Value, b: Value) -> Expr:
    if not self.is_tensor(a) and not self.is_tensor(b):
        a = self.tensor(a)
    a, b = self.promote(a, b)
    return self.emit(op.where(condition, a, b))


@converter("softshrink")
def _softshrink(self: Importer, x: Expr, lambd: float = 0.5) -> Expr:
    kind = dtype_of(x)
    limit, zero = self.scalar(lambd, kind), self.scalar(0.0, kind)
    above = self.emit(op.maximum(self.emit(op.subtract(x, limit)), zero))
    below = self.emit(op.minimum(self.emit(op.add(x, limit)), zero))
    return self.emit(op.add(above, below))


@converter("masked_fill")
def _masked_fill(self: Importer, x: Expr, mask: Expr, value: Value) -> Expr:
    kind = dtype_of(x)
    if self.is_tensor(value):
        fill = self.cast(value, kind)
    else:
        # The number in a type of its own, and of the tensor where that one tells more numbers apart.
        own = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
        number = self.scalar(value, kind if kind in ("float64", "int64") else own)
        fill = self.emit(op.full_like(x, number))
    return self.emit(op.where(mask, fill, x))


def _added(combine: Callable[..., Any]) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, a: Expr, b: Expr, *, value: Number = 1) -> Expr:
        x, a, b = self.together(x, a, b)
        part = self.emit(combine(a, b))
        if value != 1:
            part = self.emit(op.multiply(part, self.scalar(value, dtype_of(part))))
        return self.emit(op.add(x, part))

    return convert


CONVERTERS["addcmul"] = _added(op.multiply)
CONVERTERS["addcdiv"] = _added(op.divide)


@converter("lerp")
def _lerp(self: Importer, start: Expr, end: Expr, weight: Value) -> Expr:
    step = self.emit(op.multiply(self.tensor(weight, start), self.emit(op.subtract(end, start))))
    return self.emit(op.add(start, step))


@converter("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "type_as", "to")
def _to(self: Importer, x: Expr, *args: Any, dtype: torch.dtype | Expr | None = None, **_: Any) -> Any:
    for arg in args:
        if self.is_tensor(arg):
            return self.cast(x, dtype_of(arg))
        if str(arg).startswith("torch.") and "device" not in str(arg):
            dtype = arg
            break
    if isinstance(dtype, torch.dtype) and dtype.is_complex:
        return complex_of(self, x, dtype)
    return x if dtype is None else self.emit(op.astype(x, torch_dtype(dtype)))


@converter(
    "detach", "alias", "contiguous", "clone", "lift_fresh_copy", "lift_fresh", "positive", "_assert_tensor_metadata",
    "detach_",
)  # fmt: skip
def _identity(self: Importer, x: Value, *_: Any, **__: Any) -> Value:
    return x


@converter("copy_", "copy")
def _copy(self: Importer, x: Expr, source: Expr, *_: Any) -> Expr:
    source = self.cast(source, dtype_of(x))
    return self.emit(op.broadcast_to(source, self.shape(x)))
