"""Index expressions in one normal form: ``const + sum(coef * ((var // lower) % extent)) + sum(coef * rest)``.

A *digit* of a variable is what fusing and splitting loops leaves of it: ``(var // lower) % extent``. A *rest* is what is
no digit: a quotient or remainder of a whole sum, an extreme, or an operation that is not looked into. The numbers are
of any kind: integers as an expression has them, formulas in a search's decisions, or columns with a value for each of
many candidates; variables are what the user of a form counts in: TIR variables, positions of loops, numbers of leaves.

:func:`affine` is the one reader of expressions into this form. With ``digits=False`` it only takes sums and multiples
apart, and every other operation counts as a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from ..ir.expr import PrimExpr
from ..ir.prim import BinaryOp
from ._ir import Add, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var
from .functor import uses_var

__all__ = ["Affine", "Rest", "Term", "affine", "coefficient", "quotient", "remainder"]

C = TypeVar("C")
D = TypeVar("D")


def quotient(x: float | np.ndarray[Any, Any], by: float | np.ndarray[Any, Any]) -> Any:
    """``x // by`` of numbers or columns; of columns of whole numbers below 2**23 several times as fast as NumPy's."""
    return np.floor(x / by) if isinstance(x, np.ndarray) or isinstance(by, np.ndarray) else x // by


def remainder(x: float | np.ndarray[Any, Any], by: float | np.ndarray[Any, Any]) -> Any:
    """``x % by``, as :func:`quotient`."""
    return x - quotient(x, by) * by


@dataclass
class Term(Generic[C]):
    """``coef * ((var // lower) % extent)``; an extent of 0 means "whatever the variable has left"."""

    coef: C
    var: Any
    lower: Any = 1
    extent: Any = 0

    @property
    def whole(self) -> bool:
        """Whether this is a multiple of the variable itself."""
        return bool(self.lower == 1 and self.extent == 0)

    def digit(self, value: int) -> Any:
        """The digit where the variable has a value."""
        value = quotient(value, self.lower) if self.lower != 1 else value
        return remainder(value, self.extent) if self.extent else value


@dataclass
class Rest(Generic[C]):
    """``coef * op(forms)``; op is ``div`` or ``mod`` (by ``divisor``), ``min``, ``max`` or ``opaque``."""

    coef: C
    op: str
    forms: list[Affine[C]]
    divisor: Any = 1

    def apply(self, values: list[Any]) -> Any:
        """Value of the operation on values of its forms; unknown operations count as sums."""
        if self.op == "div":
            return quotient(values[0], self.divisor)
        if self.op == "mod":
            return remainder(values[0], self.divisor)
        if self.op in ("min", "max"):
            return _EXTREMES[self.op, any(isinstance(v, np.ndarray) for v in values)](*values)
        total: Any = 0
        for value in values:
            total = total + value
        return total


_EXTREMES: dict[tuple[str, bool], Callable[..., Any]] = {
    ("min", False): min, ("max", False): max, ("min", True): np.minimum, ("max", True): np.maximum,
}  # fmt: skip


@dataclass
class Affine(Generic[C]):
    """A sum of a constant, multiples of digits, and multiples of rests."""

    const: C
    terms: list[Term[C]] = field(default_factory=list)
    rests: list[Rest[C]] = field(default_factory=list)

    def add(self, coef: C, var: PrimExpr, lower: int = 1, extent: int = 0) -> None:
        """Add a multiple of a digit in place; equal digits are one term."""
        for term in self.terms:
            if term.var is var and term.lower == lower and term.extent == extent:
                term.coef = term.coef + coef  # type: ignore[operator]
                return
        self.terms.append(Term(coef, var, lower, extent))

    def map(self, number: Callable[[C], D], var: Callable[[Any], Any] = lambda v: v) -> Affine[D]:
        """The same form with other numbers and variables."""
        return Affine(
            number(self.const),
            [Term(number(t.coef), var(t.var), t.lower, t.extent) for t in self.terms],
            [Rest(number(r.coef), r.op, [f.map(number, var) for f in r.forms], r.divisor) for r in self.rests],
        )

    def variables(self) -> set[Any]:
        """Every variable mentioned."""
        found = {t.var for t in self.terms}
        return found.union(*(form.variables() for rest in self.rests for form in rest.forms))

    def value(self, point: Mapping[Any, Any]) -> int:
        """The sum where variables stand at ``point``, those not in it at 0. For forms of numbers and columns."""
        total: Any = self.const
        for term in self.terms:
            total = total + term.coef * term.digit(point.get(term.var, 0))
        for rest in self.rests:
            total = total + rest.coef * rest.apply([form.value(point) for form in rest.forms])
        return total

    def step(self, var: Any) -> int:
        """Smallest step an integer form makes when a variable does, 0 if it does not move."""
        found: list[Any] = [abs(t.coef) for t in self.terms if t.var is var]  # type: ignore[arg-type]
        for rest in self.rests:
            inner = [c for form in rest.forms if (c := form.step(var))]
            if inner:
                least = max(1, min(inner) // rest.divisor) if rest.op == "div" else min(inner)
                found.append(abs(rest.coef) * least)  # type: ignore[arg-type]
        return min(found, default=0)

    def factors(self) -> dict[Any, C] | None:
        """The coefficients by variable of a form that is a sum of multiples of TIR variables; None for others."""
        if self.rests or not all(t.whole and isinstance(t.var, Var) for t in self.terms):
            return None
        return {t.var: t.coef for t in self.terms}


def affine(
    expr: PrimExpr, bindings: Mapping[Any, Any] | None = None, *, digits: bool = True, casts: bool = True
) -> Affine[int]:
    """The normal form of an integer expression, with variables replaced by ``bindings`` (expressions or forms).

    With ``digits`` quotients, remainders and extremes are looked into, else they are variables as all other operations;
    with ``casts`` a conversion counts as the value converted.

    >>> from relaxish import tir
    >>> i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    >>> form = affine(i * 8 + j // 4 * 2 - 3 + i)
    >>> form.const, [(t.coef, t.var.name, t.lower) for t in form.terms]
    (-3, [(9, 'i', 1), (2, 'j', 4)])
    """
    form: Affine[int] = Affine(0)
    _Reader(bindings or {}, digits, casts).read(expr, 1, form)
    if not all(t.coef for t in form.terms):
        form.terms = [t for t in form.terms if t.coef]
    return form


class _Reader:
    """Adds multiples of expressions to a form."""

    __slots__ = ("bindings", "casts", "digits")

    def __init__(self, bindings: Mapping[Any, Any], digits: bool, casts: bool) -> None:
        self.bindings = bindings
        self.digits = digits
        self.casts = casts

    def read(self, e: Any, scale: int, form: Affine[int]) -> None:
        """Add ``scale * e``."""
        kind = type(e)
        if kind is IntImm:
            form.const += scale * int(e.value)
        elif kind is Add or kind is Sub:
            self.read(e.a, scale, form)
            self.read(e.b, scale if kind is Add else -scale, form)
        elif kind is Mul:
            self._product(e, scale, form)
        elif isinstance(e, Var):
            self._variable(e, scale, form)
        elif kind is Cast and self.casts:
            self.read(e.value, scale, form)
        elif isinstance(e, int):
            form.const += scale * e
        elif not self.digits:
            form.add(scale, e)
        elif kind is FloorDiv or kind is FloorMod:
            self._divided(e, scale, form)
        elif kind is Min or kind is Max:
            op = "min" if kind is Min else "max"
            form.rests.append(Rest(scale, op, [self.whole(e.a), self.whole(e.b)]))
        else:
            form.rests.append(Rest(scale, "opaque", [self.whole(x) for x in _operands(e)]))

    def whole(self, e: PrimExpr) -> Affine[int]:
        """An expression as a form of its own."""
        form: Affine[int] = Affine(0)
        self.read(e, 1, form)
        form.terms = [t for t in form.terms if t.coef]
        return form

    def _variable(self, e: PrimExpr, scale: int, form: Affine[int]) -> None:
        bound = self.bindings.get(e) if self.bindings else None
        if bound is None or bound is e:
            form.add(scale, e)
        elif isinstance(bound, Affine):
            _add(form, bound, scale)
        else:
            self.read(bound, scale, form)

    def _product(self, e: Mul, scale: int, form: Affine[int]) -> None:
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if type(b) is IntImm:
                if b.value:
                    self.read(a, scale * int(b.value), form)
                return
        left, right = self.whole(e.a), self.whole(e.b)
        for one, other in ((left, right), (right, left)):
            if not one.terms and not one.rests:
                if one.const:
                    _add(form, other, scale * one.const)
                return
        if self.digits:
            form.rests.append(Rest(scale, "opaque", [left, right]))
        else:
            form.add(scale, e)

    def _divided(self, e: BinaryOp, scale: int, form: Affine[int]) -> None:
        inner, divisor, is_div = self.whole(e.a), self.whole(e.b), type(e) is FloorDiv
        by = divisor.const
        if divisor.terms or divisor.rests or by <= 0:
            form.rests.append(Rest(scale, "opaque", [inner]))
        elif by == 1:
            if is_div:
                _add(form, inner, scale)
        elif not inner.terms and not inner.rests:
            form.const += scale * (inner.const // by if is_div else inner.const % by)
        elif inner.const or inner.rests or len(inner.terms) > 1 or inner.terms[0].coef != 1:
            form.rests.append(Rest(scale, "div" if is_div else "mod", [inner], by))
        else:
            digit = inner.terms[0]
            if is_div:
                form.add(scale, digit.var, digit.lower * by, -(-digit.extent // by))
            else:
                form.add(scale, digit.var, digit.lower, min(by, digit.extent) if digit.extent else by)


def _add(form: Affine[int], other: Affine[int], scale: int) -> None:
    form.const += scale * other.const
    for t in other.terms:
        form.add(scale * t.coef, t.var, t.lower, t.extent)
    form.rests += [Rest(scale * r.coef, r.op, r.forms, r.divisor) for r in other.rests]


def _operands(e: PrimExpr) -> list[Any]:
    """What an operation is written in, as far as it has a type."""
    children = (x for child in e.iter_children() for x in (child if isinstance(child, (tuple, list)) else (child,)))
    return [x for x in children if hasattr(x, "dtype") and hasattr(x, "iter_children")]


def coefficient(expr: PrimExpr, var: PrimExpr) -> int | None:
    """The factor of ``var`` in a linear index; ``None`` when the index is not linear in it.

    >>> from relaxish import tir
    >>> i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    >>> coefficient(i * 8 + j, i), coefficient(i * 8 + j, j), coefficient(i * j, i)
    (8, 1, None)
    """
    found = 0
    for term in affine(expr, digits=False).terms:
        if term.var is var:
            found = term.coef
        elif not isinstance(term.var, Var) and uses_var(term.var, var):
            return None
    return found
