"""The canonical simplifier: integer expressions as sums of ``index % upper // lower * scale``.

Collecting terms this way finds what local rules cannot: ``x // 4 * 4 + x % 4 -> x``, ``(x * 6 + y) % 3 -> y % 3``.
The normal form lists terms by falling scale, positive ones first.
"""

from __future__ import annotations

from functools import cmp_to_key
from math import gcd
from typing import Any

from . import build as B
from ._ir import Add, Cast, Div, FloorDiv, FloorMod, IntImm, LT, Mod, Mul, PrimExpr, Sub
from .rewrite_simplify import LESS, RewriteSimplifier

INF = (1 << 63) - 1
FLOOR, TRUNC = 1, 0


class Split:
    """``index % upper // lower * scale`` in one division mode; without bounds lower is 1, upper INF."""

    __slots__ = ("index", "lower", "mode", "scale", "upper")

    def __init__(self, index: PrimExpr, lower: int = 1, upper: int = INF, scale: int = 1, mode: int = TRUNC) -> None:
        self.index = index
        self.lower = lower
        self.upper = upper
        self.scale = scale
        self.mode = mode

    @property
    def dtype(self) -> str:
        """Type of the index."""
        return self.index.dtype

    def copy(self) -> Split:
        """A changeable copy."""
        return Split(self.index, self.lower, self.upper, self.scale, self.mode)

    def compatible(self, mode: int) -> bool:
        """Whether the term means the same in ``mode``."""
        return self.mode == mode or (self.lower == 1 and self.upper == INF)

    def normalize(self, sign: int = 1) -> PrimExpr:
        """The term as an expression."""
        dtype = self.index.dtype
        scale = self.scale * sign
        if scale == 0 or self.upper == self.lower:
            return B.const(dtype, 0)
        result = self.index
        if self.upper != INF:
            result = _mod(result, B.const(dtype, self.upper), self.mode)
        if self.lower != 1:
            result = _div(result, B.const(dtype, self.lower), self.mode)
        if scale != 1:
            result = B.mul(result, B.const(dtype, scale))
        return result


def _div(a: PrimExpr, b: PrimExpr, mode: int) -> PrimExpr:
    return B.floordiv(a, b) if mode == FLOOR else B.truncdiv(a, b)


def _mod(a: PrimExpr, b: PrimExpr, mode: int) -> PrimExpr:
    return B.floormod(a, b) if mode == FLOOR else B.truncmod(a, b)


def _same_index(a: Split, b: Split) -> bool:
    return a.index is b.index or B.deep_equal(a.index, b.index)


class Sum:
    """A sum of terms and a constant; equal indices are neighbours, by falling lower factor."""

    __slots__ = ("args", "base", "dtype")

    def __init__(self, dtype: str, base: int = 0) -> None:
        self.dtype = dtype
        self.args: list[Split] = []
        self.base = base

    def copy(self) -> Sum:
        """A changeable copy."""
        made = Sum(self.dtype, self.base)
        made.args = [a.copy() for a in self.args]
        return made

    def multiply(self, scale: int) -> None:
        """Scale every term."""
        for arg in self.args:
            arg.scale *= scale
        self.base *= scale

    def divide(self, scale: int) -> None:
        """Divide every term; all are multiples."""
        for arg in self.args:
            arg.scale //= scale
        self.base //= scale

    def add_term(self, other: Split, scale: int) -> None:
        """Add ``other * scale``, keeping the order of neighbours."""
        if other.scale == 0:
            return
        args = self.args
        start = 0
        while start < len(args) and not _same_index(args[start], other):
            start += 1
        for j in range(start, len(args)):
            arg = args[j]
            if not _same_index(arg, other) or other.lower > arg.lower:
                made = other.copy()
                made.scale *= scale
                args.insert(j, made)
                return
            if other.lower == arg.lower and other.upper == arg.upper and other.compatible(arg.mode):
                arg.scale += other.scale * scale
                return
        made = other.copy()
        made.scale *= scale
        args.append(made)

    def add_sum(self, other: Sum, scale: int) -> None:
        """Add ``other * scale``."""
        for arg in other.args:
            self.add_term(arg, scale)
        self.base += other.base * scale

    def normalize(self) -> PrimExpr:
        """The sum as an expression."""
        dtype = self.dtype
        if not self.args:
            return B.const(dtype, B.wrap(dtype, self.base))
        terms = _merge_terms([a.copy() for a in self.args])
        result: PrimExpr = B.const(dtype, 0)
        for term in terms:
            if term.scale > 0:
                result = B.add(result, term.normalize())
        lowest = -(1 << 63) if dtype == "int64" else -(1 << 31)
        if self.base > 0 or self.base == lowest:
            result = B.add(result, B.const(dtype, B.wrap(dtype, self.base)))
        for term in terms:
            if term.scale < 0:
                result = B.sub(result, term.normalize(-1))
        if self.base < 0 and self.base != lowest:
            result = B.sub(result, B.const(dtype, B.wrap(dtype, -self.base)))
        return result


def _merge_terms(args: list[Split]) -> list[Split]:
    count = len(args)
    for i in range(count):
        left = args[i]
        if left.scale == 0:
            continue
        for j in range(i + 1, count):
            right = args[j]
            if not _same_index(left, right) or left.upper < right.lower:
                break
            if left.upper == right.upper and left.lower == right.lower and left.compatible(right.mode):
                right.scale += left.scale
                left.scale = 0
            elif (
                left.lower == right.upper
                and right.scale != 0
                and left.scale % right.scale == 0
                and left.lower == left.scale // right.scale * right.lower
                and left.compatible(right.mode)
            ):
                right.upper = left.upper
                left.scale = 0
                break
    if count > 1:
        args.sort(key=cmp_to_key(_term_order))
    return args


def _term_order(a: Split, b: Split) -> int:
    for x, y in ((a.scale, b.scale), (a.lower, b.lower), (a.upper, b.upper), (a.mode, b.mode)):
        if x != y:
            return -1 if x > y else 1
    return 0


def _separate(total: Sum, coeff: int) -> tuple[Sum, Sum]:
    """The terms that ``coeff`` divides, and the others."""
    divisible, rest = Sum(total.dtype), Sum(total.dtype)
    if total.base % coeff == 0:
        divisible.base = total.base
    else:
        rest.base = total.base
    for arg in total.args:
        (divisible if arg.scale % coeff == 0 else rest).args.append(arg.copy())
    return divisible, rest


class CanonicalSimplifier(RewriteSimplifier):
    """See the module docstring; :meth:`simplify` is the entry."""

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """The canonical form of ``expr``."""
        return self.visit(expr)  # type: ignore[no-any-return]

    def visit(self, x: Any) -> Any:
        result = self.mutate(x)
        kind = type(result)
        if kind is Sum or kind is Split:
            result = result.normalize()
        if isinstance(x, PrimExpr):
            # Keep the caller's object where nothing changed: identity lets everything above stay as it is.
            if result is not x and B.deep_equal(result, x):
                result = x
            self._memo[id(x)] = (x, result)
        return result

    def mutate(self, x: Any) -> Any:
        """The canonical form before it is turned back into an expression."""
        kind = type(x)
        if kind is IntImm:
            return x
        hit = self._memo.get(id(x))
        if hit is not None and hit[1] is x and kind not in _SUMMED:
            return x
        handler = self._table.get(kind)
        if handler is None:
            handler = self._resolve(kind)
        return handler(self, x)

    # -- forms ---------------------------------------------------------------------------------------------

    @staticmethod
    def _normal(x: Any) -> Any:
        return x.normalize() if type(x) in (Sum, Split) else x

    def _split(self, x: Any) -> Split:
        if type(x) is Split:
            return x.copy()
        if type(x) is Sum:
            if x.base == 0 and len(x.args) == 1:
                return x.args[0].copy()
            return Split(x.normalize())
        return Split(x)

    def _sum(self, x: Any) -> Sum:
        if type(x) is Sum:
            return x.copy()
        made = Sum(x.dtype)
        if type(x) is IntImm:
            made.base = x.value
        else:
            made.args.append(self._split(x))
        return made

    # -- operators -----------------------------------------------------------------------------------------

    def visit_Add(self, e: Add) -> Any:
        return self._linear(e, 1) if e.dtype in ("int32", "int64") else super().visit_Add(e)

    def visit_Sub(self, e: Sub) -> Any:
        return self._linear(e, -1) if e.dtype in ("int32", "int64") else super().visit_Sub(e)

    def _linear(self, e: Any, sign: int) -> Any:
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm and type(b) is IntImm:
            return B.const(a.dtype, B.wrap(a.dtype, a.value + sign * b.value))
        result = self._sum(a)
        if type(b) is IntImm:
            result.base += sign * b.value
        elif type(b) is Sum:
            result.add_sum(b, sign)
        else:
            result.add_term(self._split(b), sign)
        return result

    def visit_Mul(self, e: Mul) -> Any:
        if e.dtype not in ("int32", "int64"):
            return super().visit_Mul(e)
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm:
            a, b = b, a
        if type(b) is IntImm:
            if type(a) is IntImm:
                return B.mul(a, b)
            if b.value == 0:
                return b
            if type(a) is Sum:
                total = a.copy()
                total.multiply(b.value)
                return total
            term = self._split(a)
            term.scale *= b.value
            return term
        return _multiply(self._normal(a), self._normal(b))

    def visit_Div(self, e: Div) -> Any:
        return self._division(e, TRUNC) if e.dtype in ("int32", "int64") else super().visit_Div(e)

    def visit_FloorDiv(self, e: FloorDiv) -> Any:
        return self._division(e, FLOOR) if e.dtype in ("int32", "int64") else super().visit_FloorDiv(e)

    def _division(self, e: Any, mode: int) -> Any:
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm and type(b) is IntImm:
            return _div(a, b, mode)
        if type(b) is not IntImm or b.value <= 0:
            return _div(self._normal(a), self._normal(b), mode)
        value = b.value
        if value == 1:
            return a
        nonneg = self.analyzer.can_prove_greater_equal
        if type(a) is Sum:
            quotient, rest = _separate(a, value)
            if not rest.args and rest.base == 0:
                quotient.divide(value)
                return quotient
            # Truncation does not distribute over terms of both signs.
            if mode == TRUNC and not (nonneg(quotient.normalize(), 0) and nonneg(rest.normalize(), 0)):
                return self._split_div(self._split(a), value, mode)
            quotient.divide(value)
            left = rest.normalize()
            if type(left) is IntImm:
                quotient.base += left.value // value if mode == FLOOR else B.trunc_div(left.value, value)
            elif not (self.compare(left, B.const(left.dtype, value)) == LESS and nonneg(left, 0)):
                quotient.add_term(self._split_div(self._split(self._resplit(left)), value, mode), 1)
            return quotient
        low, high = self.analyzer.const_int_bound.bound(self._normal(a))
        if low >= 0 and high < value:
            return B.const(e.dtype, 0)
        return self._split_div(self._split(a), value, mode)

    def _resplit(self, e: PrimExpr) -> Any:
        return self.mutate(e) if type(e) in _SUMMED else e

    def visit_Mod(self, e: Mod) -> Any:
        return self._remainder(e, TRUNC) if e.dtype in ("int32", "int64") else super().visit_Mod(e)

    def visit_FloorMod(self, e: FloorMod) -> Any:
        return self._remainder(e, FLOOR) if e.dtype in ("int32", "int64") else super().visit_FloorMod(e)

    def _remainder(self, e: Any, mode: int) -> Any:
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm and type(b) is IntImm:
            return _mod(a, b, mode)
        if type(b) is not IntImm or b.value <= 0:
            return _mod(self._normal(a), self._normal(b), mode)
        value = b.value
        nonneg = self.analyzer.can_prove_greater_equal
        if type(a) is Sum:
            divisible, rest = _separate(a, value)
            if mode == TRUNC and not (nonneg(divisible.normalize(), 0) and nonneg(rest.normalize(), 0)):
                return self._split_mod(self._split(a), value, mode)
            left = rest.normalize()
            if type(left) is IntImm:
                return _mod(left, b, mode)
            if self.compare(left, B.const(left.dtype, value)) == LESS and nonneg(left, 0):
                return left
            if mode == FLOOR:
                rest.base %= value
            elif rest.base < 0 or rest.base >= value:
                return self._split_mod(self._split(a), value, mode)
            return self._split_mod(self._split(rest), value, mode)
        low, high = self.analyzer.const_int_bound.bound(self._normal(a))
        if low >= 0 and high < value:
            return a
        return self._split_mod(self._split(a), value, mode)

    def _convert(self, term: Split, mode: int) -> Split:
        if term.compatible(mode):
            term.mode = mode
            return term
        return Split(term.normalize(), mode=mode)

    def _split_div(self, term: Split, value: int, mode: int) -> Split:
        """``term // value`` as one term."""
        term = self._convert(term, mode)
        if term.scale % value == 0:
            term.scale //= value
            return term
        if term.scale > 0 and value % term.scale == 0:
            scaled = value // term.scale
            if term.upper == INF or term.upper % (term.lower * scaled) == 0:
                term.scale = 1
                term.lower *= scaled
                return term
            if term.upper <= term.lower * scaled:
                return Split(B.const(term.dtype, 0))
            term.index = _mod(term.index, B.const(term.dtype, term.upper), mode)
            term.upper = INF
            term.scale = 1
            term.lower *= scaled
            return term
        return Split(term.normalize(), lower=value, mode=mode)

    def _split_mod(self, term: Split, value: int, mode: int) -> Split:
        """``term % value`` as one term."""
        term = self._convert(term, mode)
        if term.scale % value == 0:
            term.scale = 0
            return term
        if term.scale > 0 and value % term.scale == 0:
            upper = term.lower * (value // term.scale)
            if term.upper == INF or term.upper % upper == 0:
                if term.upper != INF and upper < term.upper:
                    inner = self._split(self.mutate(_mod(term.index, B.const(term.dtype, upper), mode)))
                    if term.lower != 1:
                        inner = self._split_div(inner, term.lower, mode)
                    inner.scale *= term.scale
                    return inner
                term.upper = upper
                return term
            if upper % term.upper == 0:
                return term
        return Split(term.normalize(), upper=value, mode=mode)

    def visit_Cast(self, e: Cast) -> Any:
        value = self.visit(e.value)
        if value is e.value and type(value) is not IntImm and value.dtype != e.dtype:
            return e
        return B.cast(e.dtype, value)

    def visit_LT(self, e: LT) -> Any:
        if e.a.dtype not in ("int32", "int64"):
            return super().visit_LT(e)
        diff = self.mutate(Sub(e.a, e.b))
        if type(diff) is not Sum:
            return super().visit_LT(e)
        common = abs(diff.base)
        scaled = False
        for arg in diff.args:
            if arg.scale > 1 or arg.scale < -1:
                scaled = True
                common = gcd(common, abs(arg.scale))
        if not scaled or common <= 1:
            return super().visit_LT(e)
        divisible, rest = _separate(diff, common)
        left = rest.normalize()
        zero = B.const(diff.dtype, 0)
        low, high = self.analyzer.const_int_bound.bound(left)
        if low >= 0 and high < common:
            divisible.divide(common)
            return super().visit_LT(LT(divisible.normalize(), zero))
        if len(rest.args) == 1 and rest.base == 0 and rest.args[0].scale == 1:
            term = rest.args[0]
            if term.upper != INF and term.upper % (common * term.lower) == 0 and term.mode == FLOOR:
                divisible.divide(common)
                lower = common * term.lower
                quotient = B.floormod(
                    B.floordiv(term.index, B.const(term.dtype, lower)), B.const(term.dtype, term.upper // lower)
                )
                return super().visit_LT(LT(B.add(divisible.normalize(), quotient), zero))
        return super().visit_LT(e)


_SUMMED = frozenset((Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod))


def _multiply(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """A product with its constant factors gathered at the end."""
    factor = 1
    result: PrimExpr | None = None
    stack: list[Any] = [b, a]
    while stack:
        e = stack.pop()
        if type(e) is Mul:
            stack.append(e.b)
            stack.append(e.a)
        elif type(e) is IntImm:
            factor *= e.value
        else:
            result = e if result is None else Mul(result, e)
    if result is None:
        return B.const(a.dtype, factor)
    return result if factor == 1 else B.mul(result, B.const(a.dtype, factor))
