"""The two forms of the canonical simplifier: one term ``index % upper // lower * scale``, and sums of such terms."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING, final

from ..ir import dtype as dt
from . import build as B
from ._ir import PrimExpr
from .const_int_bound import everything

if TYPE_CHECKING:
    from .analyzer import Analyzer

INF = (1 << 63) - 1
FLOOR, TRUNC = 1, 0


@final
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
            result = remainder(result, B.const(dtype, self.upper), self.mode)
        if self.lower != 1:
            result = divide(result, B.const(dtype, self.lower), self.mode)
        if scale != 1:
            result = B.mul(result, B.const(dtype, scale))
        return result

    def can_cast(self, dtype: str, analyzer: Analyzer) -> bool:
        """Whether a cast to ``dtype`` may be applied to the index instead: no step leaves the range of ``dtype``."""
        if dt.bits(dtype) >= dt.bits(self.dtype) or self.scale == 0:
            return True
        steps = [self.index]
        if self.upper != INF:
            steps.append(remainder(steps[-1], B.const(self.dtype, self.upper), self.mode))
        if self.lower != 1:
            steps.append(divide(steps[-1], B.const(self.dtype, self.lower), self.mode))
        if self.scale != 1:
            steps.append(B.mul(steps[-1], B.const(self.dtype, self.scale)))
        return all(fits(step, dtype, analyzer) for step in steps)

    def cast(self, dtype: str) -> Split:
        """The term over the index cast to ``dtype``."""
        return Split(B.cast(dtype, self.index), self.lower, self.upper, self.scale, self.mode)


def fits(e: PrimExpr, dtype: str, analyzer: Analyzer) -> bool:
    """Whether all values of ``e`` can be kept in ``dtype``."""
    low, high = analyzer.const_int_bound.bound(e)
    return low >= everything(dtype)[0] and high <= everything(dtype)[1]


def divide(a: PrimExpr, b: PrimExpr, mode: int) -> PrimExpr:
    return B.floordiv(a, b) if mode == FLOOR else B.truncdiv(a, b)


def remainder(a: PrimExpr, b: PrimExpr, mode: int) -> PrimExpr:
    return B.floormod(a, b) if mode == FLOOR else B.truncmod(a, b)


def same_index(a: Split, b: Split) -> bool:
    return a.index is b.index or B.deep_equal(a.index, b.index)


@final
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
        while start < len(args) and not same_index(args[start], other):
            start += 1
        for j in range(start, len(args)):
            arg = args[j]
            if not same_index(arg, other) or other.lower > arg.lower:
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
        if self.base == -lowest:  # too large to add, but the opposite can be taken away
            result = B.sub(result, B.const(dtype, lowest))
        elif self.base > 0 or self.base == lowest:
            result = B.add(result, B.const(dtype, B.wrap(dtype, self.base)))
        for term in terms:
            if term.scale < 0:
                result = B.sub(result, term.normalize(-1))
        if self.base < 0 and self.base != lowest:
            result = B.sub(result, B.const(dtype, B.wrap(dtype, -self.base)))
        return result

    def can_cast(self, dtype: str, analyzer: Analyzer) -> bool:
        """Whether a cast to ``dtype`` may be applied to each term instead: no partial sum leaves its range."""
        if dt.bits(dtype) >= dt.bits(self.dtype):
            return True
        result: PrimExpr = B.const(self.dtype, 0)
        partial: list[PrimExpr] = []
        for term in self.args:
            if term.scale > 0:
                result = B.add(result, term.normalize())
                partial.append(result)
        if self.base:
            result = B.add(result, B.const(self.dtype, self.base))
            partial.append(result)
        for term in self.args:
            if term.scale < 0:
                result = B.sub(result, term.normalize(-1))
                partial.append(result)
        return all(fits(e, dtype, analyzer) for e in partial) and all(a.can_cast(dtype, analyzer) for a in self.args)

    def cast(self, dtype: str) -> Sum:
        """The sum of the terms cast to ``dtype``."""
        made = Sum(dtype, self.base)
        made.args = [a.cast(dtype) for a in self.args]
        return made


def _merge_terms(args: list[Split]) -> list[Split]:
    count = len(args)
    for i in range(count):
        left = args[i]
        if left.scale == 0:
            continue
        for j in range(i + 1, count):
            right = args[j]
            if not same_index(left, right) or left.upper < right.lower:
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


def separate(total: Sum, coeff: int) -> tuple[Sum, Sum]:
    """The terms that ``coeff`` divides, and the others."""
    divisible, rest = Sum(total.dtype), Sum(total.dtype)
    if total.base % coeff == 0:
        divisible.base = total.base
    else:
        rest.base = total.base
    for arg in total.args:
        (divisible if arg.scale % coeff == 0 else rest).args.append(arg.copy())
    return divisible, rest
