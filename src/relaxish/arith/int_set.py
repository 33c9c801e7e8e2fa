"""Integer sets: intervals with symbolic ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from ..ir.prim import BinaryOp
from ..support.entry_points import lazy_package
from ..ir import dtype as dt
from ..ir.expr import ExprLike, as_expr
from ..ir.node import Node, field
from . import build as B
from ._ir import (
    EQ, GE, GT, LE, LT, Add, And, Broadcast, Call, Cast, Div, FloorDiv, FloorMod, IntImm, IterVar, Let, Max, Min, Mod,
    Mul, PrimExpr, Ramp, Range, Select, SizeVar, Sub, Var,
)  # fmt: skip
from .constraints import split_conjunction

if TYPE_CHECKING:
    from .analyzer import Analyzer

_POS_INF = Var("pos_inf", "handle")
_NEG_INF = Var("neg_inf", "handle")


def pos_inf() -> Var:
    """The symbol of an absent upper end."""
    return _POS_INF


def neg_inf() -> Var:
    """The symbol of an absent lower end."""
    return _NEG_INF


class IntSet(Node):
    """Base of integer sets."""

    def is_nothing(self) -> bool:
        """Whether the set is empty."""
        return False

    def is_everything(self) -> bool:
        """Whether nothing is excluded."""
        return False

    @staticmethod
    def vector(vec: PrimExpr) -> IntSet:
        """The lanes of a vector expression, or the single point of a scalar."""
        return int_set_of_vector(vec)

    @staticmethod
    def single_point(point: PrimExpr) -> IntervalSet:
        """The set of one value."""
        return IntervalSet(point, point)


class IntervalSet(IntSet):
    """All integers from ``min_value`` to ``max_value``, both included."""

    min_value: PrimExpr = field()
    max_value: PrimExpr = field()

    def __init__(self, min_value: ExprLike, max_value: ExprLike) -> None:
        self.min_value = _int(min_value)
        self.max_value = _int(max_value)

    def is_nothing(self) -> bool:
        return self.min_value is _POS_INF or self.max_value is _NEG_INF

    def is_everything(self) -> bool:
        return self.min_value is _NEG_INF and self.max_value is _POS_INF

    def is_single_point(self) -> bool:
        """Whether both ends are the same object or literal."""
        a, b = self.min_value, self.max_value
        return a is b or (type(a) is IntImm and type(b) is IntImm and a.value == b.value)

    def has_lower(self) -> bool:
        """Whether the lower end is finite."""
        return self.min_value is not _NEG_INF and self.min_value is not _POS_INF

    def has_upper(self) -> bool:
        """Whether the upper end is finite."""
        return self.max_value is not _POS_INF and self.max_value is not _NEG_INF

    @property
    def min(self) -> PrimExpr:
        """The lower end."""
        return self.min_value

    @property
    def max(self) -> PrimExpr:
        """The upper end."""
        return self.max_value

    def cover_range(self, max_range: Range | None = None) -> Range:
        """A range that holds the set; ``max_range`` where an end is missing."""
        if self.is_single_point():
            return Range.from_min_extent(self.min_value, B.const(self.min_value.dtype, 1))
        if self.has_lower() and self.has_upper():
            from .analyzer import Analyzer

            one = B.const(self.min_value.dtype, 1)
            extent = Analyzer().simplify(B.add(B.sub(self.max_value, self.min_value), one))
            return Range.from_min_extent(self.min_value, extent)
        if max_range is None:
            raise ValueError(f"the set {self} has no finite range")
        return max_range

    def __repr__(self) -> str:
        return f"IntervalSet[{self.min_value}, {self.max_value}]"

    __str__ = __repr__


class PresburgerSet(IntSet):
    """A union of affine regions; kept as the conditions that define it."""

    variables: tuple[Var, ...] = field(role="bind")
    constraint: PrimExpr = field()

    def is_nothing(self) -> bool:
        return B.is_zero(self.constraint)


def _int(value: ExprLike) -> PrimExpr:
    return B.const("int32", value) if isinstance(value, int) else as_expr(value)


def everything() -> IntervalSet:
    """All integers."""
    return IntervalSet(_NEG_INF, _POS_INF)


def nothing() -> IntervalSet:
    """No integer."""
    return IntervalSet(_POS_INF, _NEG_INF)


def from_min_extent(low: PrimExpr, extent: PrimExpr) -> IntervalSet:
    """The interval of a range."""
    if B.is_one(extent):
        return IntervalSet(low, low)
    return IntervalSet(low, B.sub(B.add(low, extent), B.const(low.dtype, 1)))


def from_range(r: Range) -> IntervalSet:
    """The interval of a range."""
    return from_min_extent(r.min, r.extent)


def int_set_of_vector(e: PrimExpr) -> IntervalSet:
    """Bounds of the lanes of ``e``."""
    if type(e) is Ramp:
        lanes = B.lanes_value(e)
        if not isinstance(lanes, int):
            # How many lanes a scalable vector has is not known.
            step = B.as_int(e.stride)
            if step is None:
                return everything()
            return IntervalSet(e.base, _POS_INF) if step >= 0 else IntervalSet(_NEG_INF, e.base)
        last = B.add(e.base, B.mul(e.stride, B.const(e.base.dtype, lanes - 1)))
        if type(e.stride) is IntImm and e.stride.value < 0:
            return IntervalSet(last, e.base)
        return IntervalSet(e.base, last)
    if type(e) is Broadcast:
        return IntervalSet(e.value, e.value)
    if dt.lanes(e.dtype) == 1:
        return IntervalSet(e, e)
    from .analyzer import Analyzer

    analyzer = Analyzer()
    return IntSetEvaluator(analyzer, {}, True).eval(e)


#: What stands for a set of integers: numbers and expressions for the set of themselves.
SetLike: TypeAlias = Union["IntSet", Range, IterVar, ExprLike]


def to_int_set(x: SetLike) -> IntervalSet:
    """A set from a set, range, expression or number."""
    match x:
        case IntervalSet():
            return x
        case Range():
            return from_range(x)
        case IterVar():
            return IntervalSet(x.var, x.var)
        case PrimExpr() | int():
            return IntervalSet(x, x)
    raise TypeError(f"cannot turn {type(x).__name__} into an integer set")


def _is_inf(e: PrimExpr) -> bool:
    return e is _POS_INF or e is _NEG_INF


def union(analyzer: Analyzer, a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The smallest interval that holds both."""
    if a.is_nothing():
        return b
    if b.is_nothing():
        return a
    low = _NEG_INF if not (a.has_lower() and b.has_lower()) else B.minimum(*B.widened(a.min_value, b.min_value))
    high = _POS_INF if not (a.has_upper() and b.has_upper()) else B.maximum(*B.widened(a.max_value, b.max_value))
    return IntervalSet(low, high)


def intersect(analyzer: Analyzer, a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The interval of common values."""
    if a.is_nothing() or b.is_nothing():
        return nothing()
    low, high = a.min_value, a.max_value
    if not a.has_lower():
        low = b.min_value
    elif b.has_lower():
        low = B.maximum(*B.widened(low, b.min_value))
    if not a.has_upper():
        high = b.max_value
    elif b.has_upper():
        high = B.minimum(*B.widened(high, b.max_value))
    if not _is_inf(low) and not _is_inf(high):
        if analyzer.can_prove(LT(*B.widened(high, low))):
            return nothing()
    return IntervalSet(low, high)


def union_all(sets: Iterable[Any]) -> IntervalSet:
    """Union of any number of sets, ends simplified."""
    from .analyzer import Analyzer

    analyzer = Analyzer()
    result = nothing()
    for each in sets:
        result = union(analyzer, result, to_int_set(each))
    return simplify_set(analyzer, result)


def intersect_all(sets: Iterable[Any]) -> IntervalSet:
    """Intersection of any number of sets, ends simplified."""
    from .analyzer import Analyzer

    analyzer = Analyzer()
    result = everything()
    for each in sets:
        result = intersect(analyzer, result, to_int_set(each))
    return simplify_set(analyzer, result)


def simplify_set(analyzer: Analyzer, s: IntervalSet) -> IntervalSet:
    """The set with simplified ends."""
    low = s.min_value if _is_inf(s.min_value) else analyzer.simplify(s.min_value)
    if s.min_value is s.max_value:
        return IntervalSet(low, low)
    high = s.max_value if _is_inf(s.max_value) else analyzer.simplify(s.max_value)
    return IntervalSet(low, high)


class IntSetEvaluator:
    """Interval arithmetic over a map from variables to sets."""

    def __init__(
        self,
        analyzer: Analyzer,
        dom_map: Mapping[Any, IntervalSet],
        eval_vec: bool = False,
        constraints: list[tuple[PrimExpr, IntervalSet]] | None = None,
    ) -> None:
        self.analyzer = analyzer
        self.dom_map = dom_map
        self.eval_vec = eval_vec
        self.constraints = constraints or []
        self._depth = 0

    def eval(self, e: PrimExpr) -> IntervalSet:
        """The set of values of ``e``."""
        kind = type(e)
        if kind is IntImm:
            return IntervalSet(e, e)
        handler = _EVAL.get(kind)
        if handler is None:
            return IntervalSet(e, e) if self._untouched(e) else everything()
        result = handler(self, e)
        for expr, allowed in self.constraints:
            if B.deep_equal(expr, e):
                result = intersect(self.analyzer, result, allowed)
        return result

    def eval_interval(self, s: IntervalSet) -> IntervalSet:
        """The hull of ``s`` once its ends are relaxed as well."""
        low, high = s.min_value, s.max_value
        if low is high or B.deep_equal(low, high):
            return self.eval(low) if not _is_inf(low) else s
        a = self.eval(low) if not _is_inf(low) else IntervalSet(low, low)
        b = self.eval(high) if not _is_inf(high) else IntervalSet(high, high)
        return IntervalSet(a.min_value, b.max_value)

    def _untouched(self, e: PrimExpr) -> bool:
        if not self.dom_map:
            return True
        from .functor import free_vars

        return not any(v in self.dom_map for v in free_vars(e))

    def _var(self, e: Var) -> IntervalSet:
        found = self.dom_map.get(e)
        if found is None:
            # What the lanes of a vector variable hold is not known.
            return everything() if self.eval_vec and dt.lanes(e.dtype) != 1 else IntervalSet(e, e)
        if self._depth > 8 or found.is_single_point() and found.min_value is e:
            return found
        # The domain of one relaxed variable may mention another.
        self._depth += 1
        try:
            if type(found.min_value) is IntImm and type(found.max_value) is IntImm:
                return found
            low = found.min_value
            high = found.max_value
            if found.is_single_point():
                return IntervalSet(e, e) if low is e else self._relax(found)
            return self._relax(IntervalSet(low, high))
        finally:
            self._depth -= 1

    def _relax(self, s: IntervalSet) -> IntervalSet:
        return s if self._closed(s) else self.eval_interval(s)

    def _closed(self, s: IntervalSet) -> bool:
        return all(_is_inf(v) or self._untouched(v) for v in (s.min_value, s.max_value))

    def _binary(self, e: BinaryOp) -> IntervalSet:
        a, b = self.eval(e.a), self.eval(e.b)
        if a.min_value is e.a and a.max_value is e.a and b.min_value is e.b and b.max_value is e.b:
            return IntervalSet(e, e)
        if a.is_nothing() or b.is_nothing():
            return nothing()
        dtype = dt.element_of(e.dtype) if self.eval_vec else e.dtype
        return combine(self.analyzer, type(e), a, b, dtype)

    def _select(self, e: Select) -> IntervalSet:
        return union(self.analyzer, self.eval(e.true_value), self.eval(e.false_value))

    def _cast(self, e: Cast) -> IntervalSet:
        s = self.eval(e.value)
        # The set of a vector is the set of its lanes.
        dtype = dt.element_of(e.dtype)
        low = s.min_value if _is_inf(s.min_value) else B.cast(dtype, s.min_value)
        high = s.max_value if _is_inf(s.max_value) else B.cast(dtype, s.max_value)
        return IntervalSet(low, low if s.min_value is s.max_value else high)

    def _ramp(self, e: PrimExpr) -> IntervalSet:
        if not self.eval_vec:
            return everything()
        return self.eval_interval(int_set_of_vector(e))

    def _broadcast(self, e: Broadcast) -> IntervalSet:
        return self.eval(e.value) if self.eval_vec else everything()

    def _call(self, e: Call) -> IntervalSet:
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            return union(self.analyzer, self.eval(e.args[1]), self.eval(e.args[2]))
        if name == "tir.likely":
            return self.eval(e.args[0])
        if name == "tir.shift_right" and type(e.args[1]) is IntImm:
            return self.eval(FloorDiv(e.args[0], B.const(e.dtype, 1 << e.args[1].value)))
        if name == "tir.shift_left" and type(e.args[1]) is IntImm:
            return self.eval(Mul(e.args[0], B.const(e.dtype, 1 << e.args[1].value)))
        return IntervalSet(e, e) if self._untouched(e) else everything()

    def _let(self, e: Let) -> IntervalSet:
        from .functor import substitute

        return self.eval(substitute(e.body, {e.var: e.value}))


def _add_end(a: PrimExpr, b: PrimExpr, op: Callable[[PrimExpr, PrimExpr], PrimExpr], inf: PrimExpr) -> PrimExpr:
    return inf if _is_inf(a) or _is_inf(b) else op(a, b)


def _point(s: IntervalSet) -> bool:
    return s.is_single_point() and not _is_inf(s.min_value)


def combine(analyzer: Analyzer, kind: type, a: IntervalSet, b: IntervalSet, dtype: str) -> IntervalSet:
    """The set of ``kind(x, y)`` for ``x`` in ``a``, ``y`` in ``b``."""
    build = B.BUILDERS[kind]
    if _point(a) and _point(b):
        value = build(a.min_value, b.min_value)
        return IntervalSet(value, value)
    if kind is Add:
        return IntervalSet(
            _add_end(a.min_value, b.min_value, B.add, _NEG_INF), _add_end(a.max_value, b.max_value, B.add, _POS_INF)
        )
    if kind is Sub:
        return IntervalSet(
            _add_end(a.min_value, b.max_value, B.sub, _NEG_INF), _add_end(a.max_value, b.min_value, B.sub, _POS_INF)
        )
    if kind is Mul:
        return _multiply(analyzer, a, b, dtype)
    if kind is FloorDiv or kind is Div:
        return _divide(analyzer, a, b, build)
    if kind is FloorMod or kind is Mod:
        return _modulo(analyzer, a, b, kind)
    if kind is Min or kind is Max:
        low = B.BUILDERS[kind](a.min_value, b.min_value) if a.has_lower() and b.has_lower() else None
        high = B.BUILDERS[kind](a.max_value, b.max_value) if a.has_upper() and b.has_upper() else None
        if kind is Min:
            low = low if low is not None else _NEG_INF
            high = high if high is not None else (a.max_value if a.has_upper() else b.max_value)
        else:
            low = low if low is not None else (a.min_value if a.has_lower() else b.min_value)
            high = high if high is not None else _POS_INF
        return IntervalSet(low, high)
    return IntervalSet(B.const("bool", 0), B.const("bool", 1)) if dtype == "bool" else everything()


def _multiply(analyzer: Analyzer, a: IntervalSet, b: IntervalSet, dtype: str) -> IntervalSet:
    if _point(a):
        a, b = b, a
    if not _point(b):
        if (
            a.has_lower()
            and b.has_lower()
            and analyzer.can_prove_greater_equal(a.min_value, 0)
            and (analyzer.can_prove_greater_equal(b.min_value, 0))
        ):
            return IntervalSet(B.mul(a.min_value, b.min_value), _add_end(a.max_value, b.max_value, B.mul, _POS_INF))
        return everything()
    factor = b.min_value
    if B.is_zero(factor):
        return IntervalSet(factor, factor)
    if B.is_one(factor):
        return a
    low = None if not a.has_lower() else B.mul(a.min_value, factor)
    high = None if not a.has_upper() else B.mul(a.max_value, factor)
    if analyzer.can_prove_greater_equal(factor, 0):
        return IntervalSet(_NEG_INF if low is None else low, _POS_INF if high is None else high)
    if analyzer.can_prove_less(factor, 1):
        return IntervalSet(_NEG_INF if high is None else high, _POS_INF if low is None else low)
    if low is not None and high is not None:
        sign = B.ge(factor, B.const(dtype, 0))
        return IntervalSet(B.select(sign, low, high), B.select(sign, high, low))
    return everything()


def _divide(analyzer: Analyzer, a: IntervalSet, b: IntervalSet, build: Callable[..., Any]) -> IntervalSet:
    if not _point(b):
        if (
            b.has_lower()
            and b.has_upper()
            and analyzer.can_prove_greater_equal(b.min_value, 1)
            and a.has_lower()
            and (analyzer.can_prove_greater_equal(a.min_value, 0))
        ):
            return IntervalSet(build(a.min_value, b.max_value), _add_end(a.max_value, b.min_value, build, _POS_INF))
        return everything()
    divisor = b.min_value
    if B.is_one(divisor):
        return a
    low = None if not a.has_lower() else build(a.min_value, divisor)
    high = None if not a.has_upper() else build(a.max_value, divisor)
    if analyzer.can_prove_greater_equal(divisor, 0):
        return IntervalSet(_NEG_INF if low is None else low, _POS_INF if high is None else high)
    if analyzer.can_prove_less(divisor, 1):
        return IntervalSet(_NEG_INF if high is None else high, _POS_INF if low is None else low)
    return everything()


def _modulo(analyzer: Analyzer, a: IntervalSet, b: IntervalSet, kind: type) -> IntervalSet:
    if not _point(b):
        return everything()
    divisor = b.min_value
    # A size is not negative, and where it is nothing there is no remainder.
    if not analyzer.can_prove_greater_equal(divisor, 0):
        return everything()
    if a.has_lower() and a.has_upper() and (kind is FloorMod or analyzer.can_prove_greater_equal(a.min_value, 0)):
        quotient = B.floordiv(a.min_value, divisor)
        # One block of the modulus: the remainder keeps the order.
        if analyzer.can_prove_equal(quotient, B.floordiv(a.max_value, divisor)):
            start = B.mul(quotient, divisor)
            return IntervalSet(B.sub(a.min_value, start), B.sub(a.max_value, start))
    zero, last = B.const(divisor.dtype, 0), B.sub(divisor, B.const(divisor.dtype, 1))
    if kind is FloorMod or (a.has_lower() and analyzer.can_prove_greater_equal(a.min_value, 0)):
        return IntervalSet(zero, last)
    return IntervalSet(B.sub(zero, last), last)


_EVAL: dict[type, Callable[[IntSetEvaluator, Any], IntervalSet]] = {
    Var: IntSetEvaluator._var,
    SizeVar: IntSetEvaluator._var,
    **dict.fromkeys(
        (Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod, Min, Max, EQ, LT, LE, GT, GE, And), IntSetEvaluator._binary
    ),
    Select: IntSetEvaluator._select,
    Cast: IntSetEvaluator._cast,
    Ramp: IntSetEvaluator._ramp,
    Broadcast: IntSetEvaluator._broadcast,
    Call: IntSetEvaluator._call,
    Let: IntSetEvaluator._let,
}


def eval_set(e: SetLike, dom_map: Mapping[Any, Any] | None = None, analyzer: Analyzer | None = None) -> IntervalSet:
    """The interval of ``e`` (an expression, range or set) when each variable runs over its set in ``dom_map``."""
    from .analyzer import Analyzer

    analyzer = analyzer or Analyzer()
    domains = normalize_dom_map(dom_map or {})
    evaluator = IntSetEvaluator(analyzer, domains, eval_vec=True)
    if isinstance(e, (PrimExpr, int)):
        return simplify_set(analyzer, evaluator.eval(_int(e)))
    return simplify_set(analyzer, evaluator.eval_interval(to_int_set(e)))


def normalize_dom_map(dom_map: Mapping[Any, Any]) -> dict[Any, IntervalSet]:
    """Keys as variables, values as interval sets."""
    return {(k.var if isinstance(k, IterVar) else k): to_int_set(v) for k, v in dom_map.items()}


def constraint_sets(cond: PrimExpr) -> list[tuple[PrimExpr, IntervalSet]]:
    """Facts ``(expr, set)`` from comparisons against expressions."""
    out: list[tuple[PrimExpr, IntervalSet]] = []
    for part in split_conjunction(cond):
        e: Any = part
        kind = type(e)
        if kind not in (LT, LE, GT, GE, EQ) or e.a.dtype not in ("int32", "int64"):
            continue
        one = B.const(e.a.dtype, 1)
        if kind is EQ:
            out.append((e.a, IntervalSet(e.b, e.b)))
            continue
        small, big = (e.a, e.b) if kind in (LT, LE) else (e.b, e.a)
        strict = kind in (LT, GT)
        if type(small) is not IntImm:
            out.append((small, IntervalSet(_NEG_INF, B.sub(big, one) if strict else big)))
        if type(big) is not IntImm:
            out.append((big, IntervalSet(B.add(small, one) if strict else small, _POS_INF)))
    return out


__getattr__, __dir__ = lazy_package(globals())  # bounds of regions have a file of their own
