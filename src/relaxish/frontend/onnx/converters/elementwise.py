"""Element-wise arithmetic, comparison, logic and rounding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import op, te, tir, topi
from ....ir import dtype as dt
from ....arith import Analyzer
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....tir import const, floordiv, floormod, fmod, if_then_else, reinterpret, truncdiv, truncmod
from ....tir import min as min_
from ..context import Array, Context, convert, dtype_name, Made


def _shape_arith(ctx: Context, a: Expr, b: Expr, scalar: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Expr | None:
    """Arithmetic on known shapes, element by element; None unless one side is one."""
    if not (ctx.is_shape(a) or ctx.is_shape(b)):
        return None
    left, right = ctx.scalars(a), ctx.scalars(b)
    if left is None or right is None:
        return None
    rank = max(ctx.ndim(a), ctx.ndim(b))
    count = max(len(left), len(right))
    left, right = (v * count if len(v) == 1 else v for v in (left, right))
    if len(left) != len(right):
        return None
    return ctx.from_scalars([scalar(x, y) for x, y in zip(left, right)], rank)


def _binary(
    name: str,
    emit: Callable[[Expr, Expr], Expr],
    numpy: Callable[..., Array],
    scalar: Callable[[PrimExpr, PrimExpr], PrimExpr] | None = None,
) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        a, b = inputs
        if scalar is not None:
            known = _shape_arith(ctx, a, b, scalar)
            if known is not None:
                return known
        folded = ctx.fold(numpy, [a, b])
        return folded if folded is not None else emit(*ctx.agreeing([a, b]))


def _np_div(a: Array, b: Array) -> Array:
    """Integer division goes towards zero."""
    if np.issubdtype(a.dtype, np.integer):
        if (b == 0).any():
            raise OpAttributeInvalid("division of integers by a constant zero")
        quotient, rest = np.floor_divide(a, b), np.remainder(a, b)
        return (quotient + ((rest != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)
    return (a / b).astype(a.dtype)


def _divide_sizes(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """As :func:`_np_div`; sizes that are known not to be negative divide as the simplifier likes it."""
    if const_int(b) == 0:
        raise OpAttributeInvalid("division of a shape by zero")
    analyzer = Analyzer()
    return floordiv(a, b) if analyzer.can_prove(a >= 0) and analyzer.can_prove(b > 0) else truncdiv(a, b)


_binary("Add", op.add, np.add, lambda a, b: a + b)
_binary("Sub", op.subtract, np.subtract, lambda a, b: a - b)
_binary("Mul", op.multiply, np.multiply, lambda a, b: a * b)
_binary("Div", op.divide, _np_div, _divide_sizes)
_binary("Less", op.less, np.less)
_binary("LessOrEqual", op.less_equal, np.less_equal)
_binary("Greater", op.greater, np.greater)
_binary("GreaterOrEqual", op.greater_equal, np.greater_equal)
_binary("And", op.logical_and, np.logical_and)
_binary("Or", op.logical_or, np.logical_or)
_binary("Xor", op.logical_xor, np.logical_xor)
_binary("BitwiseAnd", op.bitwise_and, np.bitwise_and)
_binary("BitwiseOr", op.bitwise_or, np.bitwise_or)
_binary("BitwiseXor", op.bitwise_xor, np.bitwise_xor)


@convert("Equal")
def _equal(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, b = inputs
    if ctx.is_shape(a) or ctx.is_shape(b):
        left, right = ctx.scalars(a), ctx.scalars(b)
        if left is not None and right is not None and len(left) == len(right):
            answers = [_same(x, y) for x, y in zip(left, right)]
            if all(v is not None for v in answers):
                value = answers[0] if max(ctx.ndim(a), ctx.ndim(b)) == 0 else answers
                return ctx.const(np.asarray(value), "bool")
    folded = ctx.fold(np.equal, [a, b])
    return folded if folded is not None else op.equal(ctx.tensor(a), ctx.tensor(b))


def _same(x: PrimExpr, y: PrimExpr) -> bool | None:
    """Whether two dimensions are equal; a symbolic one is taken to differ from a negative constant."""
    from ....relax.scalars import prove_equal

    a, b = const_int(x), const_int(y)
    if a is not None and b is not None:
        return a == b
    if prove_equal(x, y):
        return True
    known = a if a is not None else b
    return False if known is not None and known < 0 else None


@convert("Mod")
def _mod(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, b = inputs
    by_sign = bool(attrs.get("fmod", 0))
    known = _shape_arith(ctx, a, b, truncmod if by_sign else floormod)
    if known is not None:
        return known
    folded = ctx.fold(np.fmod if by_sign else np.mod, [a, b])
    if folded is not None:
        return folded
    a, b = ctx.tensor(a), ctx.tensor(b)
    if dt.is_float(ctx.dtype(a)):
        how = _float_remainder if by_sign else _float_modulus
        return ctx.builder.call_te(how, a, b, primfunc_name_hint="float_mod")
    return (op.mod if by_sign else op.floor_mod)(a, b)


def _float_remainder(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """What C's fmod gives: of the sign of ``a``, and ``a`` itself where ``b`` is infinite."""
    shape = topi.add(a, b).shape
    wide_a, wide_b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)
    return te.compute(shape, lambda *i: fmod(wide_a(*i), wide_b(*i)), "T_fmod")


def _float_modulus(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """What Python's % gives: of the sign of ``b``, of zeros and of infinite ``b``, too."""
    rest = _float_remainder(a, b)
    wide_b = topi.broadcast_to(b, rest.shape)
    zero = const(0, rest.dtype)

    def run(*i: PrimExpr) -> PrimExpr:
        left, by = rest(*i), wide_b(*i)
        turned = if_then_else(tir.NE(left < zero, by < zero), left + by, left)
        return if_then_else(tir.EQ(left, zero), if_then_else(by < zero, -zero, zero), turned)

    return te.compute(rest.shape, run, "T_mod")


@convert("BitShift")
def _bit_shift(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    shift = {"LEFT": op.left_shift, "RIGHT": op.right_shift}[attrs["direction"]]
    return shift(ctx.tensor(inputs[0]), ctx.tensor(inputs[1]))


@convert("Pow")
def _pow(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, b = (ctx.tensor(x) for x in inputs)
    folded = ctx.fold(lambda x, y: np.power(x, y).astype(x.dtype), [a, b])
    if folded is not None:
        return folded
    kind = ctx.dtype(a)
    exponent = ctx.constant(b)
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0 and exponent.ndim == 0:
        return op.multiply(a, a)
    if ctx.dtype(b) != kind:
        b = ctx.emit(op.astype(b, kind))
    if not dt.is_float(kind):
        wide = op.power(ctx.emit(op.astype(a, "float32")), ctx.emit(op.astype(b, "float32")))
        return op.astype(ctx.emit(op.round(ctx.emit(wide))), kind)
    return op.power(a, b)


def _unary(name: str, emit: Callable[[Expr], Expr], numpy: Callable[..., Array] | None = None) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        if numpy is not None:
            folded = ctx.fold(lambda x: np.asarray(numpy(x)).astype(x.dtype), inputs[:1])
            if folded is not None:
                return folded
        return emit(ctx.tensor(inputs[0]))


for _name, _emit, _numpy in (
    ("Log", op.log, np.log),
    ("Exp", op.exp, np.exp),
    ("Acos", op.acos, np.arccos),
    ("Acosh", op.acosh, np.arccosh),
    ("Asin", op.asin, np.arcsin),
    ("Asinh", op.asinh, np.arcsinh),
    ("Atan", op.atan, np.arctan),
    ("Atanh", op.atanh, np.arctanh),
    ("Cos", op.cos, np.cos),
    ("Cosh", op.cosh, np.cosh),
    ("Sin", op.sin, np.sin),
    ("Sinh", op.sinh, np.sinh),
    ("Tan", op.tan, np.tan),
    ("Tanh", op.tanh, np.tanh),
    ("Neg", op.negative, np.negative),
    ("Abs", op.abs, np.abs),
    ("Floor", op.floor, np.floor),
    ("Ceil", op.ceil, np.ceil),
    ("Round", op.round, np.round),
    ("Sqrt", op.sqrt, np.sqrt),
    ("Erf", op.erf, None),
    ("IsNaN", op.isnan, None),
    ("BitwiseNot", op.bitwise_not, np.bitwise_not),
    ("Not", op.logical_not, np.logical_not),
):
    _unary(_name, _emit, _numpy)


@convert("Sign")
def _sign(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    folded = ctx.fold(np.sign, inputs[:1])
    if folded is not None:
        return folded
    x = ctx.tensor(inputs[0])
    if not dt.is_float(ctx.dtype(x)):
        return op.sign(x)
    return op.where(ctx.emit(op.isnan(x)), x, ctx.emit(op.sign(x)))


@convert("Identity")
def _identity(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return inputs[0]


@convert("Dropout")
def _dropout(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    # Nothing is dropped at inference; the mask, where asked for, is all ones.
    x = ctx.tensor(inputs[0])
    if len(inputs) > 2 and inputs[2] is not None:
        training, ratio = ctx.constant(inputs[2]), None if inputs[1] is None else ctx.constant(inputs[1])
        if (training is None or bool(training)) and not (ratio is not None and float(ratio) == 0.0):
            warnings.warn(
                "Dropout in training mode is imported as the identity: what is compiled is inference", stacklevel=2
            )
    if attrs["__outputs__"] < 2:
        return x
    return [x, op.ones_like(x, "bool")]


@convert("Reciprocal")
def _reciprocal(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    return op.divide(ctx.const(1.0, ctx.dtype(x)), x)


@convert("IsInf")
def _is_inf(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    positive, negative = bool(attrs.get("detect_positive", 1)), bool(attrs.get("detect_negative", 1))
    if positive and negative:
        return op.isinf(x)
    if not positive and not negative:
        return op.zeros_like(x, "bool")
    limit = ctx.const(np.inf if positive else -np.inf, ctx.dtype(x))
    return op.equal(x, limit)


@convert("CastLike")
def _cast_like(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _converted(ctx, ctx.tensor(inputs[0]), ctx.dtype(inputs[1]), attrs)


def _converted(ctx: Context, x: Expr, to: str, attrs: dict[str, Any]) -> Expr:
    """``x`` in another dtype. Numbers too large for a float of 8 bits become its largest, unless told otherwise."""
    kind = ctx.dtype(x)
    if kind == to:
        return x
    if to == "bool":
        return op.not_equal(x, ctx.const(0, kind))
    if to == "float8_e8m0fnu":
        return _as_power_of_two(ctx, x, str(attrs.get("round_mode", "up")), bool(attrs.get("saturate", 1)))
    if to.startswith("float8") and dt.is_float(kind) and not kind.startswith("float8") and attrs.get("saturate", 1):
        import ml_dtypes

        most = float(ml_dtypes.finfo(dt.numpy_dtype(to)).max)
        x = ctx.emit(op.maximum(ctx.emit(op.minimum(x, ctx.const(most, kind))), ctx.const(-most, kind)))
    return op.astype(x, to)


def _as_power_of_two(ctx: Context, x: Expr, mode: str, saturate: bool) -> Expr:
    """Numbers as exponents alone: the power of two above, below or nearest; signs are dropped, 255 is NaN."""
    if mode not in ("up", "down", "nearest"):
        raise OpAttributeInvalid(f"Cast knows no round_mode {mode!r}")
    if ctx.dtype(x) != "float32":
        x = ctx.emit(op.astype(x, "float32"))

    def compute(data: te.Tensor) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            bits = reinterpret("uint32", data(*at)) & const(0x7FFFFFFF, "uint32")
            exponent, rest = bits >> const(23, "uint32"), bits & const(0x7FFFFF, "uint32")
            limit = {"up": 0, "nearest": 0x3FFFFF, "down": 0x7FFFFF}[mode]
            raised = exponent + (rest > const(limit, "uint32")).astype("uint32")
            # Below the smallest power there is none but it itself; what is beyond the largest stays it, or is none.
            special = exponent == const(255, "uint32")
            infinite = if_then_else(
                rest == const(0, "uint32"), const(254 if saturate else 255, "uint32"), const(255, "uint32")
            )
            finite = min_(raised, const(254, "uint32")) if saturate else raised
            return reinterpret("float8_e8m0fnu", if_then_else(special, infinite, finite).astype("uint8"))

        return te.compute(data.shape, body, "power_of_two")

    return ctx.builder.emit_te(compute, x, primfunc_name_hint="cast")


@convert("BitCast", 26)
def _bit_cast(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, to = ctx.tensor(inputs[0]), dtype_name(int(attrs["to"]))
    kind = ctx.dtype(x)
    if kind == to:
        return x
    if max(dt.bits(kind), 8) != max(dt.bits(to), 8):  # a truth value takes a byte
        raise OpAttributeInvalid(f"BitCast of {kind} to {to}, which has another number of bits")

    def compute(data: te.Tensor) -> te.Tensor:
        def body(*at: PrimExpr) -> PrimExpr:
            value = data(*at).astype("uint8") if kind == "bool" else data(*at)
            return value != const(0, value.dtype) if to == "bool" else reinterpret(to, value)

        return te.compute(data.shape, body, "bits")

    return ctx.builder.call_te(compute, x, primfunc_name_hint="bits")


@convert("Cast")
def _cast(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    to = dtype_name(int(attrs["to"]))
    x = inputs[0]
    if ctx.is_shape(x) and (to == "int64" or to == "int32" and ctx.constant(x) is None):
        return x  # sizes stay known; where they become a tensor of the model's, it has the type that the model says
    folded = ctx.fold(lambda v: v.astype(dt.numpy_dtype(to)), [x]) if not to.startswith("float8") else None
    return folded if folded is not None else _converted(ctx, ctx.tensor(x), to, attrs)


def _variadic(name: str, pair: Callable[[Expr, Expr], Expr]) -> None:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        total = ctx.tensor(inputs[0])
        for x in inputs[1:]:
            total = ctx.emit(pair(*ctx.agreeing([total, x])))
        if name == "Mean" and len(inputs) > 1:
            return op.divide(total, ctx.const(float(len(inputs)), ctx.dtype(total)))
        return total


_variadic("Sum", op.add)
_variadic("Mean", op.add)
_variadic("Min", op.minimum)
_variadic("Max", op.maximum)


@convert("Clip", 1)
def _clip_attr(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    # The defaults of old are the extreme finite numbers: with either bound given, infinities are clipped.
    open_end = np.inf if "min" not in attrs and "max" not in attrs else float(np.finfo("float32").max)
    low, high = float(attrs.get("min", -open_end)), float(attrs.get("max", open_end))
    return _clip(ctx, inputs[0], low, high)


@convert("Clip", 11)
def _clip_input(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    low = inputs[1] if len(inputs) > 1 else None
    high = inputs[2] if len(inputs) > 2 else None
    bounds = [None if b is None else ctx.constant(b) for b in (low, high)]
    if all(b is None or v is not None for b, v in zip((low, high), bounds)):
        values = [d if v is None else v.reshape(-1)[0].item() for v, d in zip(bounds, (-np.inf, np.inf))]
        return _clip(ctx, inputs[0], *values)
    x = ctx.tensor(inputs[0])
    if low is not None:
        x = ctx.emit(op.maximum(x, ctx.tensor(low)))
    return op.minimum(x, ctx.tensor(high)) if high is not None else x


def _clip(ctx: Context, x: Expr, low: float, high: float) -> Expr:
    x = ctx.tensor(x)
    if low <= high and np.isfinite(low) and np.isfinite(high) and abs(low) <= 2**53 and abs(high) <= 2**53:
        return op.clip(x, low, high)
    # The upper bound comes last, so that it is the result where it is below the lower one.
    if low != -np.inf:
        x = ctx.emit(op.maximum(x, ctx.const(low, ctx.dtype(x))))
    return op.minimum(x, ctx.const(high, ctx.dtype(x))) if high != np.inf else x


@convert("Where")
def _where(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    cond, a, b = inputs
    test = ctx.constant(cond)
    if test is not None and test.ndim <= 1 and (ctx.is_shape(a) or ctx.is_shape(b)):
        left, right = ctx.scalars(a), ctx.scalars(b)
        flags = test.reshape(-1)
        if left is not None and right is not None:
            count = max(len(left), len(right), len(flags))
            left, right = (v * count if len(v) == 1 else v for v in (left, right))
            chosen = [x if f else y for f, x, y in zip(np.resize(flags, count), left, right)]
            return ctx.from_scalars(chosen, max(ctx.ndim(a), ctx.ndim(b), test.ndim))
    folded = ctx.fold(np.where, [cond, a, b])
    return folded if folded is not None else op.where(*ctx.agreeing(inputs))
