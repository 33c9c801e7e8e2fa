"""Building scalar expressions with type matching and constant folding: what Python's operators call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TYPE_CHECKING

import numpy as np

from .errors import CheckTypeError, CheckValueError
from . import dtype as dt
from .expr import OPERATORS, PrimExpr, as_expr
from .node import Node
from .op import Op
from .prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, Call, Cast, Div, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mod,
    Mul, Not, Or, Ramp, Sub, const, lanes_expr,
)  # fmt: skip

if TYPE_CHECKING:
    from .expr import ExprLike
    from .source import Span

__all__ = [
    "add", "bitwise_and", "bitwise_neg", "bitwise_or", "bitwise_xor", "cast", "div", "divide", "equal", "fold_binary",
    "floordiv", "floormod", "greater", "greater_equal", "left_shift", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "match_types", "max_", "min_", "multiply", "negative", "not_equal", "right_shift",
    "subtract", "truncdiv", "truncmod",
]  # fmt: skip


def _wrap(value: int, dtype: str) -> IntImm:
    """Bring a folded integer back into the range of its type, as the machine would."""
    parsed = dt.parse(dtype)
    if parsed.code == "bool":
        return IntImm(dtype, 1 if value else 0)
    mask = (1 << parsed.bits) - 1
    value &= mask
    if parsed.code == "int" and value >> (parsed.bits - 1):
        value -= 1 << parsed.bits
    return IntImm(dtype, value)


def cast(dtype: str, value: ExprLike) -> PrimExpr:
    """Convert to ``dtype``, folding constants and dropping casts that change nothing."""
    value = as_expr(value)
    dtype = dt.canonical(dtype)
    if value.dtype == dtype:
        return value
    lanes = dt.lanes(dtype)
    if dt.is_handle(value.dtype) and lanes == 1:
        raise CheckTypeError("Can't cast a handle to other types.")
    if dt.lanes(value.dtype) == lanes:
        if lanes == 1 and isinstance(value, IntImm):
            if dt.is_float(dtype):
                return FloatImm(dtype, float(value.value))
            if dt.is_bool(dtype):
                return IntImm("bool", 1 if value.value else 0)
            if dt.is_integral(dtype):
                return _wrap(value.value, dtype)
        if lanes == 1 and isinstance(value, FloatImm):
            if dt.is_float(dtype):
                return FloatImm(dtype, value.value)
            if dt.is_integral(dtype) and math.isfinite(value.value):
                return _wrap(int(value.value), dtype)
        match value:
            case Broadcast():
                return Broadcast(cast(dt.element_of(dtype), value.value), value.lanes)
            case Ramp() if dt.is_integral(dtype):
                element = dt.element_of(dtype)
                return Ramp(cast(element, value.base), cast(element, value.stride), value.lanes)
        return Cast(dtype, value)
    if dt.lanes(value.dtype) == 1:
        return Broadcast(cast(dt.element_of(dtype), value), lanes_expr(lanes))
    raise CheckTypeError(f"cannot cast {value.dtype} to {dtype}: the lanes differ")


def _float_rank(dtype: str) -> int:
    """Which float a mix becomes: IEEE floats win over bfloat16, that over 8, 6 and 4 bits; other types have rank 0."""
    code = dt.code(dtype)
    if code == "float":
        return 5
    if code == "bfloat":
        return 4
    return {"float8": 3, "float6": 2, "float4": 1}.get(code.split("_")[0], 0)


def _common_type(ta: str, tb: str) -> str | None:
    """The element type two different element types are brought to, or None if they do not mix."""
    rank_a, rank_b = _float_rank(ta), _float_rank(tb)
    if rank_a != rank_b:
        return ta if rank_a > rank_b else tb
    bits_a, bits_b = dt.bits(ta), dt.bits(tb)
    if rank_a:
        return (tb if bits_a < bits_b else ta) if rank_a == 5 else None
    if not (dt.is_integral(ta) and dt.is_integral(tb)):
        return None
    if bits_a != bits_b:
        return ta if bits_a > bits_b else tb
    return ta if dt.is_uint(ta) else tb


def match_types(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Cast both operands to a common type.

    Lanes broadcast; an integer meets a float as that float; of two integers the wider type wins, of two equally
    wide ones the unsigned.
    """
    if a.dtype == b.dtype:
        return a, b
    lanes_a, lanes_b = dt.lanes(a.dtype), dt.lanes(b.dtype)
    if lanes_a != lanes_b:
        if lanes_a == 1:
            a = Broadcast(a, lanes_expr(lanes_b))
        elif lanes_b == 1:
            b = Broadcast(b, lanes_expr(lanes_a))
        elif (lanes_a < 0) != (lanes_b < 0):
            raise CheckTypeError("Can't match scalable and fixed length vectors")
        else:
            raise CheckTypeError(f"Cannot match type {a.dtype} vs {b.dtype}")
    lanes = dt.lanes(a.dtype)
    ta, tb = dt.element_of(a.dtype), dt.element_of(b.dtype)
    if ta == tb:
        return a, b
    common = _common_type(ta, tb)
    if common is None:
        raise CheckTypeError(f"Cannot match type {a.dtype} vs {b.dtype}")
    goal = dt.with_lanes(common, lanes)
    return cast(goal, a), cast(goal, b)


def _floordiv(a: int, b: int) -> int:
    return a // b


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b)


_INT_FOLDS: dict[type, Callable[[int, int], int]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Div: _truncdiv,
    Mod: _truncmod,
    FloorDiv: _floordiv,
    FloorMod: lambda a, b: a % b,
    Min: min,
    Max: max,
}
_CMP_FOLDS: dict[type, Callable[[Any, Any], bool]] = {
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
}
_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)
_REMAINDERS = (Mod, FloorMod)
_INDEX_TYPES = ("int32", "int64")


# What lies beyond rounds to infinity.
_LARGEST_FLOAT32 = 3.4028235677973366e38


def _fold_float(kind: type, a: float, b: float, dtype: str) -> PrimExpr | None:
    """Arithmetic on float literals of 32 and 64 bits (others round where they run); extremes of all widths."""
    if kind is Min:
        return FloatImm(dtype, min(a, b))
    if kind is Max:
        return FloatImm(dtype, max(a, b))
    if dtype not in ("float32", "float64"):
        return None
    if dtype == "float32":
        a, b = float(np.float32(a)), float(np.float32(b))
    if kind is Add:
        value = a + b
    elif kind is Sub:
        value = a - b
    elif kind is Mul:
        value = a * b
    elif kind is Div:
        value = a / b
    elif kind is FloorDiv and math.isfinite(a / b):
        value = math.floor(a / b)
    else:
        return None
    if dtype == "float32" and math.isfinite(value):
        value = math.copysign(math.inf, value) if abs(value) > _LARGEST_FLOAT32 else float(np.float32(value))
    return FloatImm(dtype, value)


def _const_of(x: PrimExpr) -> int | float | None:
    return x.value if type(x) is IntImm or type(x) is FloatImm else None


def _identity(kind: type, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """x + 0, x * 1, 0 * x and the like; remainders only of index types."""
    if kind in _REMAINDERS and a.dtype not in _INDEX_TYPES:
        return None
    va, vb = _const_of(a), _const_of(b)
    if va is not None:
        if va == 0 and kind is Add:
            return b
        if kind is Mul and va == 1:
            return b
        if va == 0 and kind in (Mul, Div, FloorDiv, Mod, FloorMod):
            return a
    if vb is not None:
        if vb == 0 and kind in (Add, Sub):
            return a
        if vb == 0 and kind is Mul:
            return b
        if vb == 1 and kind in (Mul, Div, FloorDiv):
            return a
        if vb == 1 and kind in _REMAINDERS:
            return const(0, a.dtype)
    return None


def fold_binary(kind: type, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """The folded result of ``kind(a, b)`` for operands of one type, or None if nothing folds.

    Remainders fold on index types only.  Raises ValueError on division by a constant zero, and where an unsigned
    zero minus a constant would be negative.
    """
    ta, tb = type(a), type(b)
    if kind in _DIVISIONS and (tb is IntImm or tb is FloatImm) and b.value == 0:  # type: ignore[attr-defined]
        raise CheckValueError("Divide by zero")
    if ta is IntImm and tb is IntImm:
        if kind in _CMP_FOLDS:
            return IntImm("bool", int(_CMP_FOLDS[kind](a.value, b.value)))  # type: ignore[attr-defined]
        if kind in _REMAINDERS and a.dtype not in _INDEX_TYPES:
            return None
        if kind is Sub and a.value == 0 and b.value > 0 and dt.is_uint(a.dtype):  # type: ignore[attr-defined]
            raise CheckValueError(f"0 - {b.value} is negative, which {a.dtype} cannot hold")  # type: ignore[attr-defined]
        return _wrap(_INT_FOLDS[kind](a.value, b.value), a.dtype)  # type: ignore[attr-defined]
    if ta is FloatImm and tb is FloatImm:
        if kind in _CMP_FOLDS:
            return IntImm("bool", int(_CMP_FOLDS[kind](a.value, b.value)))  # type: ignore[attr-defined]
        folded = _fold_float(kind, a.value, b.value, a.dtype)  # type: ignore[attr-defined]
        return folded if folded is not None else _identity(kind, a, b)
    if kind in (Min, Max):
        return a if a is b else None
    if kind in _CMP_FOLDS:
        return None
    return _identity(kind, a, b)


def _binary(kind: type) -> Callable[..., PrimExpr]:
    def build(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
        a, b = match_types(as_expr(a), as_expr(b))
        folded = fold_binary(kind, a, b)
        return folded if folded is not None else kind(a, b, span)

    build.__name__ = kind.__name__.lower()
    build.__doc__ = f"``{kind.__name__}`` with operands brought to one type and constants folded."
    return build


def _integer_binary(kind: type) -> Callable[..., PrimExpr]:
    made = _binary(kind)

    def build(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
        a, b = as_expr(a), as_expr(b)
        for operand in (a, b):
            if not dt.is_integral(operand.dtype):
                raise CheckTypeError(f"{kind.__name__} needs integers, got {operand} of type {operand.dtype}")
        return made(a, b, span)

    build.__name__ = made.__name__
    build.__doc__ = f"``{kind.__name__}`` of integers, operands brought to one type and constants folded."
    return build


add, subtract, multiply = _binary(Add), _binary(Sub), _binary(Mul)
div, truncmod = _binary(Div), _binary(Mod)
floordiv, floormod, truncdiv = _integer_binary(FloorDiv), _integer_binary(FloorMod), _integer_binary(Div)
min_, max_ = _binary(Min), _binary(Max)
_compare, not_equal = _binary(EQ), _binary(NE)
less, less_equal, greater, greater_equal = _binary(LT), _binary(LE), _binary(GT), _binary(GE)


def _is_vscale(x: Any) -> bool:
    return isinstance(x, Call) and getattr(x.op, "name", "") == "tir.vscale"


def equal(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """``a == b`` as an expression, constants folded; the vector length unit equals itself."""
    if _is_vscale(a) and _is_vscale(b):
        return IntImm("bool", 1)
    return _compare(a, b, span)


def divide(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """``a / b`` on floats. Integers are refused: which rounding is meant must be said."""
    a, b = as_expr(a), as_expr(b)
    if dt.is_int(a.dtype) and dt.is_int(b.dtype):
        raise RuntimeError(
            "`/` on integers is ambiguous: use floordiv / floormod, truncdiv / truncmod, indexdiv / indexmod or tir.div"
        )
    return div(a, b, span)


def negative(a: ExprLike, span: Span | None = None) -> PrimExpr:
    """``-a``: constants fold, the rest becomes ``0 - a``... kept as a product with -1."""
    a = as_expr(a)
    if type(a) is IntImm:
        return _wrap(-a.value, a.dtype)
    if type(a) is FloatImm:
        return FloatImm(a.dtype, -a.value)
    return multiply(a, const(-1, a.dtype))


def logical_not(a: ExprLike, span: Span | None = None) -> PrimExpr:
    """Logical negation."""
    a = as_expr(a)
    if type(a) is IntImm:
        return IntImm("bool", int(not a.value))
    return Not(a, span=span)


def logical_and(a: ExprLike | Node, b: ExprLike | Node, span: Span | None = None) -> PrimExpr:
    """Conjunction that drops constant operands."""
    a, b = as_expr(a), as_expr(b)
    if type(a) is IntImm and dt.is_bool(a.dtype):
        return b if a.value else a
    if type(b) is IntImm and dt.is_bool(b.dtype):
        return a if b.value else b
    return And(a, b, span=span)


def logical_or(a: ExprLike | Node, b: ExprLike | Node, span: Span | None = None) -> PrimExpr:
    """Disjunction that drops constant operands."""
    a, b = as_expr(a), as_expr(b)
    if type(a) is IntImm and dt.is_bool(a.dtype):
        return a if a.value else b
    if type(b) is IntImm and dt.is_bool(b.dtype):
        return b if b.value else a
    return Or(a, b, span=span)


def _bit_op(op_name: str, fold: Callable[[int, int], int]) -> Callable[..., PrimExpr]:
    op = Op.register(f"tir.{op_name}")

    shift = op_name in ("shift_left", "shift_right")

    def build(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
        # A Python number takes the type of the other operand, unlike in arithmetic.
        if type(a) is int:
            a = const(a, as_expr(b).dtype)
        elif type(b) is int:
            b = const(b, as_expr(a).dtype)
        a, b = as_expr(a), as_expr(b)
        for operand in (a, b):
            if not dt.is_integral(operand.dtype):
                raise CheckTypeError(f"{op_name} needs integers, got {operand} of type {operand.dtype}")
        a, b = match_types(a, b)
        if type(b) is IntImm and a.dtype in _INDEX_TYPES:
            if shift and not 0 <= b.value < dt.bits(a.dtype):
                raise CheckValueError(
                    f"Shift amount must be non-negative and less than {dt.bits(a.dtype)} for type {a.dtype}"
                )
            if type(a) is IntImm:
                return _wrap(fold(a.value, b.value), a.dtype)
            if shift and b.value == 0:
                return a
        return Call(a.dtype, op, (a, b), span=span)

    build.__doc__ = f"``tir.{op_name}`` on integers of one type."
    return build


bitwise_and = _bit_op("bitwise_and", lambda a, b: a & b)
bitwise_or = _bit_op("bitwise_or", lambda a, b: a | b)
bitwise_xor = _bit_op("bitwise_xor", lambda a, b: a ^ b)
left_shift = _bit_op("shift_left", lambda a, b: a << b)
right_shift = _bit_op("shift_right", lambda a, b: a >> b)
_BITWISE_NOT = Op.register("tir.bitwise_not")


def bitwise_neg(a: ExprLike, span: Span | None = None) -> PrimExpr:
    """Bitwise complement."""
    a = as_expr(a)
    if not dt.is_integral(a.dtype):
        raise CheckTypeError(f"bitwise_not needs integers, got {a.dtype}")
    return Call(a.dtype, _BITWISE_NOT, (a,), span=span)


OPERATORS.update(
    add=add, subtract=subtract, multiply=multiply, divide=divide, floordiv=floordiv, floormod=floormod,
    negative=negative, left_shift=left_shift, right_shift=right_shift, bitwise_and=bitwise_and, bitwise_or=bitwise_or,
    bitwise_xor=bitwise_xor, bitwise_neg=bitwise_neg, less=less, less_equal=less_equal, greater=greater,
    greater_equal=greater_equal, equal=equal, not_equal=not_equal, cast=cast,
)  # fmt: skip
