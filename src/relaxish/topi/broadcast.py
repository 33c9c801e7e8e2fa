"""Two-operand element-wise operators with NumPy broadcasting, and ``broadcast_to``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, overload

from ..ir.errors import CheckValueError
from .. import te, tir
from ..ir.primops import match_types
from ..te.tensor import ARITHMETIC, ExprLike, Operand
from ..tir import PrimExpr, const
from . import tag as tags
from .utils import ax_compute, const_int, equal_dims, is_one, zero_of

__all__ = [
    "add",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "divide",
    "equal",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "log_add_exp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "right_shift",
    "subtract",
    "trunc_divide",
    "trunc_mod",
]


#: The meaning of an operator for two elements.
Scalar = Callable[[ExprLike, ExprLike], PrimExpr]


def _common_dim(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, bool, bool]:
    """The broadcast extent and whether each side is indexed by it."""
    ca, cb = const_int(a), const_int(b)
    if (ca is not None and ca == cb) or a is b or (ca is None and cb is None and equal_dims(a, b)):
        return a, True, True
    if ca == 1:
        return b, False, True
    if cb == 1:
        return a, True, False
    if ca is not None and cb is not None:
        raise CheckValueError(f"Incompatible broadcast dims: {a} and {b}")
    if ca is not None:
        return a, True, True
    if cb is not None:
        return b, True, True
    return te.max(a, b), True, True


def _broadcast_plan(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> tuple[list[PrimExpr], list[bool], list[bool]]:
    """Common shape, and for each operand which of the *trailing* axes index it."""
    shape: list[PrimExpr] = []
    use_a: list[bool] = []
    use_b: list[bool] = []
    for i in range(1, min(len(a), len(b)) + 1):
        dim, in_a, in_b = _common_dim(a[-i], b[-i])
        shape.append(dim)
        use_a.append(in_a)
        use_b.append(in_b)
    longer = a if len(a) > len(b) else b
    for i in range(min(len(a), len(b)) + 1, len(longer) + 1):
        shape.append(longer[-i])
        (use_a if longer is a else use_b).append(True)
    return shape[::-1], use_a[::-1], use_b[::-1]


def _pick(indices: Sequence[PrimExpr], used: Sequence[bool]) -> list[PrimExpr]:
    tail = indices[len(indices) - len(used) :]
    return [i if keep else zero_of(i) for i, keep in zip(tail, used)]


class _Operator(Protocol):
    """An operator of two operands, one of them at least a tensor for the result to be one."""

    __name__: str

    @overload
    def __call__(self, lhs: te.Tensor, rhs: Operand) -> te.Tensor: ...

    @overload
    def __call__(self, lhs: ExprLike, rhs: te.Tensor) -> te.Tensor: ...

    @overload
    def __call__(self, lhs: ExprLike, rhs: ExprLike) -> PrimExpr: ...


def _binary(name: str, scalar: Scalar) -> _Operator:
    """``name(a, b)`` on tensors, scalars or a mixture."""

    @overload
    def apply(lhs: te.Tensor, rhs: Operand) -> te.Tensor: ...

    @overload
    def apply(lhs: ExprLike, rhs: te.Tensor) -> te.Tensor: ...

    @overload
    def apply(lhs: ExprLike, rhs: ExprLike) -> PrimExpr: ...

    def apply(lhs: Operand, rhs: Operand) -> te.Tensor | PrimExpr:
        if isinstance(lhs, te.Tensor):
            if isinstance(rhs, te.Tensor):
                shape, use_a, use_b = _broadcast_plan(lhs.shape, rhs.shape)
                return ax_compute(
                    shape,
                    lambda i: scalar(lhs(*_pick(i, use_a)), rhs(*_pick(i, use_b))),
                    f"T_{name}",
                    tags.BROADCAST,
                )
            return ax_compute(lhs.shape, lambda i: scalar(lhs(*i), rhs), f"T_{name}", tags.ELEMWISE)
        if isinstance(rhs, te.Tensor):
            return ax_compute(rhs.shape, lambda i: scalar(lhs, rhs(*i)), f"T_{name}", tags.ELEMWISE)
        return scalar(lhs, rhs)

    apply.__name__ = name
    apply.__doc__ = f"Element-wise ``{name}`` with broadcasting; operands are tensors or scalars."
    return apply


def _div(a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = _matched(a, b)
    if str(a.dtype).startswith(("int", "uint")):
        return tir.truncdiv(a, b)
    return tir.div(a, b)


def _matched(a: ExprLike, b: ExprLike) -> tuple[PrimExpr, PrimExpr]:
    """Python numbers take the other operand's type."""
    if not isinstance(a, PrimExpr):
        a = const(a, str(b.dtype)) if isinstance(b, PrimExpr) else tir.convert(a)
    if not isinstance(b, PrimExpr):
        b = const(b, str(a.dtype))
    return a, b


def _floor_div(a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = _matched(a, b)
    if str(a.dtype).startswith(("int", "uint")) and str(b.dtype).startswith(("int", "uint")):
        return tir.floordiv(a, b)
    return tir.floor(tir.div(a, b))


def _floor_mod(a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = _matched(a, b)
    if str(a.dtype).startswith(("int", "uint")) and str(b.dtype).startswith(("int", "uint")):
        return tir.floormod(a, b)
    return a - _floor_div(a, b) * b


def _truncated_mod(a: ExprLike, b: ExprLike) -> PrimExpr:
    a, b = _matched(a, b)
    return tir.truncmod(a, b)


def _logical(op: str) -> Scalar:
    def scalar(a: ExprLike, b: ExprLike) -> PrimExpr:
        a, b = (tir.convert(x) if not isinstance(x, PrimExpr) else x for x in (a, b))
        if op == "xor":
            return a ^ b
        return (tir.And if op == "and" else tir.Or)(a, b)

    return scalar


def _compare(kind: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Scalar:
    def scalar(a: ExprLike, b: ExprLike) -> PrimExpr:
        a, b = _matched(a, b)
        a, b = match_types(a, b)
        return kind(a, b)

    return scalar


def _op(fn: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Scalar:
    def scalar(a: ExprLike, b: ExprLike) -> PrimExpr:
        return fn(*_matched(a, b))

    return scalar


add = _binary("add", _op(lambda a, b: a + b))
subtract = _binary("subtract", _op(lambda a, b: a - b))
multiply = _binary("multiply", _op(lambda a, b: a * b))
divide = _binary("divide", _div)
floor_divide = _binary("floor_divide", _floor_div)
trunc_divide = _binary("trunc_divide", _op(lambda a, b: tir.truncdiv(a, b)))
mod = _binary("mod", _truncated_mod)
floor_mod = _binary("floor_mod", _floor_mod)
trunc_mod = _binary("trunc_mod", _truncated_mod)
power = _binary("power", _op(lambda a, b: tir.power(a, b)))
maximum = _binary("maximum", _op(lambda a, b: te.max(a, b)))
minimum = _binary("minimum", _op(lambda a, b: te.min(a, b)))
equal = _binary("equal", _compare(tir.EQ))
not_equal = _binary("not_equal", _compare(tir.NE))
less = _binary("less", _compare(tir.LT))
less_equal = _binary("less_equal", _compare(tir.LE))
greater = _binary("greater", _compare(tir.GT))
greater_equal = _binary("greater_equal", _compare(tir.GE))
logical_and = _binary("logical_and", _logical("and"))
logical_or = _binary("logical_or", _logical("or"))
logical_xor = _binary("logical_xor", _logical("xor"))
bitwise_and = _binary("bitwise_and", _op(lambda a, b: a & b))
bitwise_or = _binary("bitwise_or", _op(lambda a, b: a | b))
bitwise_xor = _binary("bitwise_xor", _op(lambda a, b: a ^ b))
left_shift = _binary("left_shift", _op(lambda a, b: a << b))
right_shift = _binary("right_shift", _op(lambda a, b: a >> b))
log_add_exp = _binary(
    "log_add_exp", _op(lambda a, b: tir.log(tir.exp(a - te.max(a, b)) + tir.exp(b - te.max(a, b))) + te.max(a, b))
)


def bitwise_not(data: te.Tensor) -> te.Tensor:
    """Every bit flipped."""
    return te.compute(data.shape, lambda *i: ~data(*i), "T_bitwise_not", tags.ELEMWISE)


def logical_not(data: te.Tensor) -> te.Tensor:
    """Truth values negated."""
    return te.compute(data.shape, lambda *i: tir.Not(data(*i)), "T_logical_not", tags.ELEMWISE)


def broadcast_to(data: te.Tensor, shape: Sequence[ExprLike]) -> te.Tensor:
    """``data`` repeated along axes of extent one and new leading axes."""
    if len(shape) < len(data.shape):
        raise CheckValueError(f"not a broadcast, output dimensionality smaller than input: {data.shape} -> {shape}")
    target = [tir.convert(s) for s in shape]
    offset = len(target) - len(data.shape)
    used = []
    for dim, want in zip(data.shape, target[offset:]):
        if not (is_one(dim) and not is_one(want)) and const_int(dim) is not None and const_int(want) is not None:
            if const_int(dim) != const_int(want):
                raise CheckValueError(f"Incompatible broadcast dims: {dim} and {want}")
        used.append(not (is_one(dim) and not is_one(want)))
    return ax_compute(target, lambda i: data(*_pick(i, used)), "T_broadcast_to", tags.BROADCAST)


def _negative(lhs: te.Tensor, _: None) -> te.Tensor:
    return te.compute(lhs.shape, lambda *i: -lhs(*i), "compute", tags.ELEMWISE)


ARITHMETIC.update(
    add=add,
    subtract=subtract,
    multiply=multiply,
    divide=divide,
    floor_divide=floor_divide,
    floor_mod=floor_mod,
    less=less,
    greater=greater,
    less_equal=less_equal,
    greater_equal=greater_equal,
    negative=_negative,
)
