"""Constant lower and upper bounds of integer expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Any

from ._ir import NE
from ..ir import dtype as dt
from ..ir.prim import BinaryOp
from ..support.errors import InternalError
from . import build as B
from ._ir import (
    EQ, GE, GT, LE, LT, Add, Broadcast, Call, Cast, Div, FloorDiv, FloorMod, IntImm, Let, Max, Min, Mod, Mul, PrimExpr,
    Ramp, Select, SizeVar, Sub, Var,
)  # fmt: skip
from .constraints import split_conjunction
from .memo import KnowsVariables
from .scalable import known_vscale_values

if TYPE_CHECKING:
    from .analyzer import Analyzer

POS_INF = (1 << 63) - 1
NEG_INF = -POS_INF
Bound = tuple[int, int]


class ConstIntBound:
    """The inclusive range ``[min_value, max_value]`` an expression stays in."""

    POS_INF = POS_INF
    NEG_INF = NEG_INF
    __slots__ = ("max_value", "min_value")

    def __init__(self, min_value: int, max_value: int) -> None:
        self.min_value = min_value
        self.max_value = max_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstIntBound):
            return NotImplemented
        return self.min_value == other.min_value and self.max_value == other.max_value

    def __hash__(self) -> int:
        return hash((self.min_value, self.max_value))

    def __repr__(self) -> str:
        show = {POS_INF: "pos_inf", NEG_INF: "neg_inf"}
        low, high = (show.get(v, str(v)) for v in (self.min_value, self.max_value))
        return f"ConstIntBound[{low}, {high}]"

    __str__ = __repr__


def _sat(v: int) -> int:
    return POS_INF if v >= POS_INF else NEG_INF if v <= NEG_INF else v


def inf_add(x: int, y: int) -> int:
    """The sum, where infinity stays infinity."""
    if x == POS_INF or x == NEG_INF:
        return x
    if y == POS_INF or y == NEG_INF:
        return y
    return _sat(x + y)


def _inf_mul(x: int, y: int) -> int:
    if x == 0 or y == 0:
        return 0
    return _sat(x * y)


def _inf_floordiv(x: int, y: int) -> int:
    if x == POS_INF or x == NEG_INF:
        return x if y > 0 else -x
    return x // y


def _inf_truncdiv(x: int, y: int) -> int:
    if x == POS_INF or x == NEG_INF:
        return x if y > 0 else -x
    return B.trunc_div(x, y)


@lru_cache(maxsize=None)
def everything(dtype: str) -> Bound:
    """All values of a dtype; 64-bit and non-integer types are unbounded."""
    parsed = dt.parse(dtype)
    if parsed.code not in ("int", "uint", "bool"):
        return NEG_INF, POS_INF
    bits = parsed.bits - (1 if parsed.code == "int" else 0)
    high = POS_INF if bits >= 63 else (1 << bits) - 1
    if parsed.code != "int":
        return 0, high
    return (NEG_INF if bits >= 63 else -(1 << bits)), high


def _corners(a: Bound, b: Bound, op: Callable[[int, int], int]) -> Bound:
    values = (op(a[0], b[0]), op(a[0], b[1]), op(a[1], b[0]), op(a[1], b[1]))
    return min(values), max(values)


def _intersect(a: Bound, b: Bound) -> Bound:
    return max(a[0], b[0]), min(a[1], b[1])


class ConstIntBoundAnalyzer(KnowsVariables[Bound]):
    """Computes :class:`ConstIntBound`; calling it on an expression gives the bound."""

    def __init__(self, parent: Analyzer) -> None:
        self.parent = parent
        self.vars: dict[Any, Bound] = {}
        self.extra: list[tuple[PrimExpr, Bound]] = []
        self._memo: dict[int, tuple[Any, Bound]] = {}

    def __call__(self, expr: PrimExpr) -> ConstIntBound:
        low, high = self.bound(expr)
        return ConstIntBound(low, high)

    def update(self, var: Var, bound: Bound, allow_override: bool = False) -> None:
        """Set the bound of a variable. Raises InternalError where it contradicts an earlier one."""
        old = self.vars.get(var)
        if not allow_override and old is not None and old != bound:
            raise InternalError(
                f"Trying to update var '{var.name}' with a different const bound: original=ConstIntBound{list(old)}, "
                f"new=ConstIntBound{list(bound)}"
            )
        self.vars[var] = bound
        self._memo.clear()
        self.parent.version += 1

    def bind(self, var: Var, low: PrimExpr, extent: PrimExpr, allow_override: bool = False) -> None:
        """Bind a variable to the range ``[low, low + extent)``."""
        a, b = self.bound(low), self.bound(extent)
        self.update(var, (a[0], inf_add(a[1], inf_add(b[1], -1))), allow_override)

    def enter_constraint(self, cond: PrimExpr) -> Callable[[], None] | None:
        """Take facts from a condition that holds; returns the undo."""
        found = [info for part in split_conjunction(cond) for info in _bounds_of(part)]
        if not found:
            return None
        size = len(self.extra)
        self.extra.extend(found)
        self._memo.clear()

        def undo() -> None:
            del self.extra[size:]
            self._memo.clear()

        return undo

    def bound(self, e: PrimExpr) -> Bound:
        """Lower and upper bound of ``e``, both inclusive."""
        kind = type(e)
        if kind is IntImm:
            return e.value, e.value  # type: ignore[attr-defined]
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        handler = _HANDLERS.get(kind)
        result = handler(self, e) if handler is not None else everything(e.dtype)
        for expr, bound in self.extra:
            if expr is e or (type(expr) is kind and B.deep_equal(expr, e)):
                result = _intersect(result, bound)
        self._memo[id(e)] = (e, result)
        return result

    def _var(self, e: PrimExpr) -> Bound:
        found = self.vars.get(e)
        if found is not None:
            return found
        if isinstance(e, SizeVar):
            return 0, POS_INF
        return everything(e.dtype)

    def _add(self, e: Add) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        return inf_add(a[0], b[0]), inf_add(a[1], b[1])

    def _sub(self, e: Sub) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        return inf_add(a[0], -b[1]), inf_add(a[1], -b[0])

    def _mul(self, e: Mul) -> Bound:
        return _corners(self.bound(e.a), self.bound(e.b), _inf_mul)

    def _divide(self, e: BinaryOp, op: Callable[[int, int], int]) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        if b == (0, 0):
            return everything(e.dtype)
        if b[0] <= 0 <= b[1]:
            parts = []
            if b[0] < 0:
                parts.append(_corners(a, (b[0], -1), op))
            if b[1] > 0:
                parts.append(_corners(a, (1, b[1]), op))
            return min(p[0] for p in parts), max(p[1] for p in parts)
        return _corners(a, b, op)

    def _truncdiv(self, e: Div) -> Bound:
        return self._divide(e, _inf_truncdiv)

    def _floordiv(self, e: FloorDiv) -> Bound:
        return self._divide(e, _inf_floordiv)

    def _truncmod(self, e: Mod) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        if b[0] <= 0:
            return everything(e.dtype)
        cap = inf_add(b[1], -1)
        if a[0] >= 0:
            return a if a[1] < b[0] else (0, min(a[1], cap))
        return max(a[0], -cap), min(max(a[1], 0), cap)

    def _floormod(self, e: FloorMod) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        if b[0] > 0 or (b[0] == 0 and b[1] > 0):
            cap = inf_add(b[1], -1)
            if a[0] >= 0:
                if a[1] < b[0]:
                    return a
                result = (0, min(a[1], cap))
            else:
                result = (0, cap)
            if b[0] == b[1]:
                coeff, base = self.parent.modular_set.entry(e.a)
                step = gcd(coeff, b[0])
                if step > 1:
                    result = _intersect(result, (base % step, b[0] - step + base % step))
            return result
        low, high = inf_add(b[0], 1), inf_add(b[1], -1)
        return _intersect((min(0, low), max(0, high)), everything(e.dtype))

    def _min(self, e: Min) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        return min(a[0], b[0]), min(a[1], b[1])

    def _max(self, e: Max) -> Bound:
        a, b = self.bound(e.a), self.bound(e.b)
        return max(a[0], b[0]), max(a[1], b[1])

    def _select(self, e: Select) -> Bound:
        a, b = self.bound(e.true_value), self.bound(e.false_value)
        return min(a[0], b[0]), max(a[1], b[1])

    def _cast(self, e: Cast) -> Bound:
        if not dt.is_integral(e.value.dtype):
            return self._ceil_log2(e.value) or everything(e.dtype)
        value, allowed = self.bound(e.value), everything(e.dtype)
        return _intersect(value, allowed)

    def _ceil_log2(self, e: PrimExpr) -> Bound | None:
        """``ceil(log2(x))`` of an integer: how many bits a counter needs."""
        for name in ("tir.ceil", "tir.log2"):
            if type(e) is not Call or getattr(e.op, "name", "") != name:
                return None
            e = e.args[0]
        if type(e) is not Cast or not dt.is_integral(e.value.dtype):
            return None
        low, high = self.bound(e.value)
        return None if low <= 0 else ((low - 1).bit_length(), (high - 1).bit_length())

    def _let(self, e: Let) -> Bound:
        return self.of_let(e, self.bound)

    def _ramp(self, e: Ramp) -> Bound:
        base, stride = self.bound(e.base), self.bound(e.stride)
        lanes = B.lanes_value(e)
        last = lanes - 1 if isinstance(lanes, int) and lanes > 0 else POS_INF
        spread = _corners(stride, (0, last), _inf_mul)
        return inf_add(base[0], spread[0]), inf_add(base[1], spread[1])

    def _broadcast(self, e: Broadcast) -> Bound:
        return self.bound(e.value)

    def _call(self, e: Call) -> Bound:
        name = getattr(e.op, "name", "")
        if name == "tir.shift_right":
            a, b = self.bound(e.args[0]), self.bound(e.args[1])
            if b[0] >= 0 and b[1] < 63:
                return _corners(a, (1 << b[0], 1 << b[1]), _inf_floordiv)
        elif name == "tir.shift_left":
            a, b = self.bound(e.args[0]), self.bound(e.args[1])
            if b[0] >= 0 and b[1] < 63:
                return _intersect(_corners(a, (1 << b[0], 1 << b[1]), _inf_mul), everything(e.dtype))
        elif name == "tir.bitwise_and":
            a, b = self.bound(e.args[0]), self.bound(e.args[1])
            if a[0] >= 0 and b[0] >= 0:
                return 0, min(a[1], b[1])
            if b[0] >= 0:
                return 0, b[1]
            if a[0] >= 0:
                return 0, a[1]
        elif name == "tir.if_then_else":
            a, b = self.bound(e.args[1]), self.bound(e.args[2])
            return min(a[0], b[0]), max(a[1], b[1])
        elif name == "tir.likely":
            return self.bound(e.args[0])
        elif name == "tir.vscale":
            values = known_vscale_values()
            return (values[0], values[-1]) if values else everything(e.dtype)
        return everything(e.dtype)


def _bounds_of(cond: PrimExpr) -> list[tuple[PrimExpr, Bound]]:
    """Facts ``(expr, bound)`` that a single comparison states."""
    if not B.is_comparison(cond) or type(cond) is NE or not dt.is_integral(cond.a.dtype):
        return []
    kind, a, b = type(cond), cond.a, cond.b
    if kind is GT:
        kind, a, b = LT, b, a
    elif kind is GE:
        kind, a, b = LE, b, a
    out: list[tuple[PrimExpr, Bound]] = []
    strict = 1 if kind is LT else 0
    if type(b) is IntImm:
        value = b.value
        out.append((a, (value, value)) if kind is EQ else (a, (NEG_INF, value - strict)))
    elif type(a) is IntImm:
        value = a.value
        out.append((b, (value, value)) if kind is EQ else (b, (value + strict, POS_INF)))
    return out


_HANDLERS: dict[type, Callable[[ConstIntBoundAnalyzer, Any], Bound]] = {
    Var: ConstIntBoundAnalyzer._var,
    SizeVar: ConstIntBoundAnalyzer._var,
    Add: ConstIntBoundAnalyzer._add,
    Sub: ConstIntBoundAnalyzer._sub,
    Mul: ConstIntBoundAnalyzer._mul,
    Div: ConstIntBoundAnalyzer._truncdiv,
    Mod: ConstIntBoundAnalyzer._truncmod,
    FloorDiv: ConstIntBoundAnalyzer._floordiv,
    FloorMod: ConstIntBoundAnalyzer._floormod,
    Min: ConstIntBoundAnalyzer._min,
    Max: ConstIntBoundAnalyzer._max,
    Select: ConstIntBoundAnalyzer._select,
    Cast: ConstIntBoundAnalyzer._cast,
    Let: ConstIntBoundAnalyzer._let,
    Ramp: ConstIntBoundAnalyzer._ramp,
    Broadcast: ConstIntBoundAnalyzer._broadcast,
    Call: ConstIntBoundAnalyzer._call,
}
