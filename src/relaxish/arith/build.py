"""Folding constructors for scalar expressions, and cheap structural equality.

The simplifier builds far more nodes than it keeps; these functions skip the dtype matching of the Python
operators (both sides are known to agree here) and fold constants on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeGuard

from ..ir import dtype as dt
from ..ir.errors import CheckDivisionError
from ..ir.prim import CmpOp
from ..ir.prim import const as large_const
from ..ir.prim import const_int
from ..ir.prim import is_one as is_one
from ..ir.prim import is_zero as is_zero
from ._ir import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, Cast, Div, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mod, Mul,
    Not, Or, PrimExpr, Ramp, Select, Sub, Var, binary_classes,
)  # fmt: skip


as_int = const_int


@lru_cache(maxsize=4096)
def _scalar_const(dtype: str, value: int) -> PrimExpr:
    return IntImm(dtype, value)


def const(dtype: str, value: int | float | bool) -> PrimExpr:
    """A literal of any dtype; vector dtypes give a ``Broadcast``."""
    parsed = dt.parse(dtype)
    if parsed.lanes != 1:
        return Broadcast(const(dt.element_of(dtype), value), parsed.lanes)
    if parsed.code in ("int", "uint", "bool"):
        value = int(value)
        if -1024 < value < 4096:
            return _scalar_const(dtype, value)
        # What only the upper half of uint64 holds is not one literal.
        return large_const(value, dtype) if dtype == "uint64" and value >= 1 << 63 else IntImm(dtype, value)
    return FloatImm(dtype, float(value))


def wrap(dtype: str, value: int) -> int:
    """``value`` as it is kept in ``dtype``: modulo 2**bits."""
    parsed = dt.parse(dtype)
    bits = parsed.bits
    if parsed.code == "int":
        half = 1 << (bits - 1)
        if -half <= value < half:
            return value
        return ((value + half) & ((1 << bits) - 1)) - half
    return value & ((1 << bits) - 1)


def is_comparison(e: PrimExpr) -> TypeGuard[CmpOp]:
    """Whether an expression compares two others."""
    return isinstance(e, CmpOp)


def _floats(a: PrimExpr, b: PrimExpr) -> bool:
    return type(a) is FloatImm and type(b) is FloatImm


def _is(a: PrimExpr, value: int) -> bool:
    return (type(a) is IntImm or type(a) is FloatImm) and a.value == value


def add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a + b``."""
    if type(b) is IntImm:
        if type(a) is IntImm:
            return const(a.dtype, wrap(a.dtype, a.value + b.value))
        if b.value == 0:
            return a
    elif type(a) is IntImm:
        if a.value == 0:
            return b
    elif type(a) is FloatImm or type(b) is FloatImm:
        if type(a) is FloatImm and type(b) is FloatImm:
            return FloatImm(a.dtype, a.value + b.value)
        if _is(a, 0):
            return b
        if _is(b, 0):
            return a
    return Add(a, b)


def sub(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a - b``."""
    if type(b) is IntImm:
        if type(a) is IntImm:
            return const(a.dtype, wrap(a.dtype, a.value - b.value))
        if b.value == 0:
            return a
    elif type(b) is FloatImm:
        if type(a) is FloatImm:
            return FloatImm(a.dtype, a.value - b.value)
        if b.value == 0:
            return a
    return Sub(a, b)


def may_be_nan(e: PrimExpr) -> bool:
    """Whether ``e`` is data of a floating-point type, which may be NaN or infinite; variables count as numbers."""
    return not isinstance(e, (Var, IntImm, FloatImm)) and dt.is_float(e.dtype)


def mul(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a * b``."""
    if type(a) is IntImm and type(b) is IntImm:
        return const(a.dtype, wrap(a.dtype, a.value * b.value))
    if type(a) is FloatImm and type(b) is FloatImm:
        return FloatImm(a.dtype, a.value * b.value)
    if type(b) is IntImm or type(b) is FloatImm:
        if b.value == 1:
            return a
        if b.value == 0 and not may_be_nan(a):
            return b
    elif type(a) is IntImm or type(a) is FloatImm:
        if a.value == 1:
            return b
        if a.value == 0 and not may_be_nan(b):
            return a
    return Mul(a, b)


def floordiv(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a // b``, rounding down."""
    if type(b) is IntImm:
        if b.value == 0:
            raise CheckDivisionError("division by zero in an index expression")
        if type(a) is IntImm:
            return const(a.dtype, wrap(a.dtype, a.value // b.value))
        if b.value == 1:
            return a
    if type(a) is IntImm and a.value == 0:
        return a
    return FloorDiv(a, b)


def floormod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a % b`` with the sign of ``b``."""
    if type(b) is IntImm:
        if b.value == 0:
            raise CheckDivisionError("modulo by zero in an index expression")
        if type(a) is IntImm:
            return const(a.dtype, a.value % b.value)
        if b.value == 1:
            return const(a.dtype, 0)
    if type(a) is IntImm and a.value == 0:
        return a
    return FloorMod(a, b)


def trunc_div(a: int, b: int) -> int:
    """Integer division rounding to zero."""
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def truncdiv(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a / b``, rounding to zero for integers."""
    if type(b) is IntImm:
        if b.value == 0:
            raise CheckDivisionError("division by zero in an index expression")
        if type(a) is IntImm:
            return const(a.dtype, wrap(a.dtype, trunc_div(a.value, b.value)))
        if b.value == 1:
            return a
    elif type(b) is FloatImm:
        if type(a) is FloatImm and b.value != 0:
            return FloatImm(a.dtype, a.value / b.value)
        if b.value == 1:
            return a
    if _is(a, 0):
        return a
    return Div(a, b)


def truncmod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a`` modulo ``b`` with the sign of ``a``."""
    if type(b) is IntImm:
        if b.value == 0:
            raise CheckDivisionError("modulo by zero in an index expression")
        if type(a) is IntImm:
            return const(a.dtype, a.value - b.value * trunc_div(a.value, b.value))
        if b.value == 1:
            return const(a.dtype, 0)
    if type(a) is IntImm and a.value == 0:
        return a
    return Mod(a, b)


def widened(a: PrimExpr, b: PrimExpr) -> tuple[Any, Any]:
    """Two integers in the wider of their types: sets of one dimension may come from 32 and 64 bit indices."""
    if a.dtype == b.dtype:
        return a, b
    wide = a.dtype if dt.bits(a.dtype) >= dt.bits(b.dtype) else b.dtype
    return cast(wide, a), cast(wide, b)


def minimum(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``min(a, b)``."""
    if (type(a) is IntImm and type(b) is IntImm) or (type(a) is FloatImm and type(b) is FloatImm):
        return a if a.value <= b.value else b
    if a is b:
        return a
    return Min(a, b)


def maximum(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``max(a, b)``."""
    if (type(a) is IntImm and type(b) is IntImm) or (type(a) is FloatImm and type(b) is FloatImm):
        return a if a.value >= b.value else b
    if a is b:
        return a
    return Max(a, b)


def true(dtype: str = "bool") -> PrimExpr:
    """The constant true."""
    return const(dtype, 1)


def false(dtype: str = "bool") -> PrimExpr:
    """The constant false."""
    return const(dtype, 0)


def _fold_cmp(cls: Any, test: Callable[..., Any]) -> Callable[..., Any]:
    def compare(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if (type(a) is IntImm and type(b) is IntImm) or (type(a) is FloatImm and type(b) is FloatImm):
            return const("bool", test(a.value, b.value))
        return cls(a, b)

    return compare


eq = _fold_cmp(EQ, lambda a, b: a == b)
ne = _fold_cmp(NE, lambda a, b: a != b)
lt = _fold_cmp(LT, lambda a, b: a < b)
le = _fold_cmp(LE, lambda a, b: a <= b)
gt = _fold_cmp(GT, lambda a, b: a > b)
ge = _fold_cmp(GE, lambda a, b: a >= b)


def and_(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a and b``."""
    if type(a) is IntImm:
        return b if a.value else a
    if type(b) is IntImm:
        return a if b.value else b
    return And(a, b)


def or_(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a or b``."""
    if type(a) is IntImm:
        return a if a.value else b
    if type(b) is IntImm:
        return b if b.value else a
    return Or(a, b)


def not_(a: PrimExpr) -> PrimExpr:
    """``not a``."""
    if type(a) is IntImm:
        return const("bool", not a.value)
    return Not(a)


def select(cond: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a if cond else b`` (both evaluated)."""
    if type(cond) is IntImm:
        return a if cond.value else b
    return Select(cond, a, b)


def cast(dtype: str, value: PrimExpr) -> PrimExpr:
    """``value`` converted to ``dtype``; literals are converted at once."""
    if value.dtype == dtype:
        return value
    if dt.is_scalar(dtype):
        if type(value) is IntImm:
            if dt.is_bool(dtype):
                return const(dtype, value.value != 0)
            if dt.is_integral(dtype):
                return const(dtype, wrap(dtype, value.value))
            if dt.is_float(dtype):
                return FloatImm(dtype, float(value.value))
        if type(value) is FloatImm:
            if dt.is_float(dtype):
                return FloatImm(dtype, value.value)
            if dt.is_bool(dtype):
                return const(dtype, value.value != 0)
            if dt.is_integral(dtype) and not dt.is_bool(dtype) and abs(value.value) < 2.0**62:
                return const(dtype, wrap(dtype, int(value.value)))
    elif type(value) is Broadcast and dt.lanes(dtype) == dt.lanes(value.dtype):
        return Broadcast(cast(dt.element_of(dtype), value.value), value.lanes)
    return Cast(dtype, value)


def ramp(base: PrimExpr, stride: PrimExpr, lanes: PrimExpr) -> PrimExpr:
    """A vector ``base, base + stride, ...``."""
    return Ramp(base, stride, lanes)


def broadcast(value: PrimExpr, lanes: PrimExpr) -> PrimExpr:
    """A vector of equal lanes."""
    return Broadcast(value, lanes)


BUILDERS: dict[Any, Any] = {
    Add: add,
    Sub: sub,
    Mul: mul,
    Div: truncdiv,
    Mod: truncmod,
    FloorDiv: floordiv,
    FloorMod: floormod,
    Min: minimum,
    Max: maximum,
    EQ: eq,
    NE: ne,
    LT: lt,
    LE: le,
    GT: gt,
    GE: ge,
    And: and_,
    Or: or_,
}


def try_fold(cls: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """The constant-folded ``cls(a, b)``, or None where nothing folds."""
    ka, kb = type(a), type(b)
    if ka is not IntImm and kb is not IntImm and ka is not FloatImm and kb is not FloatImm and a is not b:
        return None
    result = BUILDERS[cls](a, b)
    if type(result) is cls and result.a is a and result.b is b:
        return None
    return result


def lanes_value(node: Ramp | Broadcast) -> PrimExpr | int:
    """Lanes of a ``Ramp`` or ``Broadcast`` as an int where constant."""
    lanes = node.lanes
    return lanes.value if type(lanes) is IntImm else lanes


def deep_equal(a: Any, b: Any) -> bool:
    """Whether two expressions are the same tree over the same variables."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in binary_classes:
        return deep_equal(a.a, b.a) and deep_equal(a.b, b.b)
    if kind is IntImm:
        return bool(a.value == b.value) and a.dtype == b.dtype
    if kind is FloatImm:
        # Zeros of either sign compare equal, but 1 / x tells them apart.
        return bool(a.value == b.value) and a.dtype == b.dtype and repr(a.value) == repr(b.value)
    if isinstance(a, Var):
        return False
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(deep_equal, a, b))
    plan = getattr(kind, "_equal_plan", None)
    if plan is None:
        return bool(a == b)
    if not isinstance(a, PrimExpr):
        return False
    for name, _role in plan:
        x, y = getattr(a, name), getattr(b, name)
        if x is not y and not deep_equal(x, y):
            return False
    return True


def constant_as(expr: PrimExpr, dtype: str) -> PrimExpr:
    """A constant in the dtype of the variable it bounds; other expressions as they are."""
    return IntImm(dtype, expr.value) if type(expr) is IntImm and expr.dtype != dtype else expr
