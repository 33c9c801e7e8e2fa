"""Quotients and remainders by symbolic sizes, as flat offsets of arrays of unknown shape have them.

The rules of :class:`Analyzer` divide by constants; here divisors are products such as ``h * w * 8``, and sizes are
known not to be negative. :class:`MixedRadix` takes digits apart and puts them together again::

    ((c * h + y) * w + x) // w % h                       is  y                 for y < h, x < w
    (i // (h * w)) * h * w + i % (h * w) // w * w + i % w   is  i
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import build as B
from . import polynomial as P
from ._ir import Add, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Sub, Var
from .polynomial import Poly, Product

__all__ = ["MixedRadix"]

# (kind, what of): ("of", expression), ("div" or "mod", numerator, divisor's product, divisor's constant).
_Atom = tuple[Any, ...]
_CLASSES = {"div": FloorDiv, "mod": FloorMod}


class MixedRadix:
    """Simplifies integer expressions under what is known of their variables."""

    def __init__(self) -> None:
        self._atoms: list[_Atom] = []
        self._known: dict[Any, int] = {}
        self._opaque: list[tuple[Any, int]] = []
        self._sizes: set[int] = set()
        self._positive: set[int] = set()
        self._extents: dict[int, Poly] = {}
        self._facts: list[tuple[Poly, Poly]] = []
        # How many terms of sums may be looked at: what is beyond is no offset.
        self.limit = 24

    # -- knowledge -----------------------------------------------------------------------------------------

    def mark_size(self, var: Var) -> None:
        """``var >= 0``: it is the size of something."""
        self._sizes.add(self._of(var))

    def bind(self, var: Var, extent: PrimExpr) -> None:
        """``0 <= var < extent``; where such a variable is used, ``extent`` is positive."""
        size = self.poly(extent)
        self._extents[self._of(var)] = size
        for other, atom in self._opaque:
            if type(other) is Cast and other.value is var:
                self._extents[atom] = size
        self._is_positive(size)

    def below(self, value: PrimExpr, limit: PrimExpr) -> None:
        """``value < limit``."""
        low, high = self.poly(value), self.poly(limit)
        if self._at_least_zero(low):
            self._is_positive(high)
        self._facts.append((low, high))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Scope at whose end all facts are forgotten but the extents of variables."""
        facts, positive = list(self._facts), set(self._positive)
        yield
        self._facts, self._positive = facts, positive

    def _is_positive(self, size: Poly) -> None:
        """A single product of sizes that is positive has positive factors; so has the sum that rounds it up."""
        if len(size) == 2 and () in size:
            size = {p: c for p, c in size.items() if p}
        for product, count in size.items():
            if len(size) == 1 and count > 0 and all(a in self._sizes for a in product):
                self._positive.update(product)
            if len(product) == 1 and self._atoms[product[0]][0] == "div" and len(size) == 1:
                self._is_positive(self._atoms[product[0]][1])

    # -- questions -----------------------------------------------------------------------------------------

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """The expression with its quotients, remainders and digits taken together; itself where nothing changes."""
        poly = self.poly(expr)
        if len(poly) > self.limit:
            return expr
        return self._expr(self._together(poly), expr.dtype)

    def is_at_least_zero(self, expr: PrimExpr) -> bool:
        """Whether the value is certainly not negative."""
        return self._at_least_zero(self.poly(expr))

    def is_below(self, value: PrimExpr, limit: PrimExpr) -> bool:
        """Whether ``0 <= value < limit`` certainly holds."""
        low, high = self.poly(value), self.poly(limit)
        return self._at_least_zero(low) and any(self._below(top, high) for top in self._tops(low))

    # -- expressions to polynomials ------------------------------------------------------------------------

    def poly(self, e: Any) -> Poly:
        """The normal form of an expression."""
        kind = type(e)
        if kind is IntImm:
            return P.number(e.value)
        if kind is Add:
            return P.add(self.poly(e.a), self.poly(e.b))
        if kind is Sub:
            return P.minus(self.poly(e.a), self.poly(e.b))
        if kind is Mul:
            a, b = self.poly(e.a), self.poly(e.b)
            if len(a) * len(b) <= self.limit:
                return P.multiply(a, b)
        if kind in (FloorDiv, FloorMod):
            divisor = self.poly(e.b)
            if len(divisor) == 1:
                ((product, count),) = divisor.items()
                if count > 0 and all(self._not_negative(a) for a in product):
                    divide = self._quotient if kind is FloorDiv else self._remainder
                    return divide(self.poly(e.a), product, count)
        return {(self._of(e),): 1}

    def _of(self, e: PrimExpr) -> int:
        if isinstance(e, Var):
            return self._atom(("of", e))
        for other, atom in self._opaque:
            if type(other) is type(e) and B.deep_equal(other, e):
                return atom
        atom = self._new(("of", e))
        self._opaque.append((e, atom))
        if type(e) is Cast and isinstance(e.value, Var):
            inner = self._of(e.value)
            if inner in self._extents:
                self._extents[atom] = self._extents[inner]
            if inner in self._sizes:
                self._sizes.add(atom)
            if inner in self._positive:
                self._positive.add(atom)
        return atom

    def _atom(self, atom: _Atom) -> int:
        key = (atom[0], id(atom[1])) if atom[0] == "of" else (atom[0], frozenset(atom[1].items()), *atom[2:])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new(atom)
        return found

    def _new(self, atom: _Atom) -> int:
        self._atoms.append(atom)
        return len(self._atoms) - 1

    # -- division ------------------------------------------------------------------------------------------

    def _quotient(self, a: Poly, product: Product, count: int) -> Poly:
        whole, rest = P.split_by(a, product, count)
        if not rest or self._fits(rest, product, count):
            return whole
        shared, times = P.common_factor(rest, product, count)
        rest = P.split_by(rest, shared, times)[0]
        product, count = P.without(product, shared) or (), count // times
        inner = self._single(rest, "div")
        if inner is not None:
            rest, outer, factor = inner
            made = self._quotient(rest, tuple(sorted((*outer, *product))), factor * count)
        else:
            made = rest if not product and count == 1 else {(self._atom(("div", rest, product, count)),): 1}
        return P.add(whole, made)

    def _remainder(self, a: Poly, product: Product, count: int) -> Poly:
        rest = P.split_by(a, product, count)[1]
        if not rest or self._fits(rest, product, count):
            return rest
        inner = self._single(rest, "mod")
        if inner is not None and P.is_multiple({inner[1]: inner[2]}, product, count):
            return self._remainder(inner[0], product, count)
        shared, times = P.common_factor(rest, product, count)
        rest = P.split_by(rest, shared, times)[0]
        product, count = P.without(product, shared) or (), count // times
        if not product and count == 1:
            return {}
        return P.scale({(self._atom(("mod", rest, product, count)),): 1}, shared, times)

    def _single(self, a: Poly, kind: str) -> tuple[Poly, Product, int] | None:
        """(numerator, divisor) where ``a`` is one quotient, or one remainder, and nothing else."""
        if len(a) != 1:
            return None
        ((product, count),) = a.items()
        if count != 1 or len(product) != 1 or self._atoms[product[0]][0] != kind:
            return None
        _, numerator, divisor, factor = self._atoms[product[0]]
        return numerator, divisor, factor

    # -- bounds --------------------------------------------------------------------------------------------

    def _fits(self, a: Poly, product: Product, count: int) -> bool:
        """Whether ``0 <= a < count * product``."""
        if not self._at_least_zero(a):
            return False
        return any(self._below(top, {product: count}) for top in self._tops(a))

    def _below(self, top: Poly, limit: Poly) -> bool:
        """Whether ``top < limit`` for all sizes: with positive ones written as ``1 + something``."""
        distance = P.add(P.minus(limit, top), P.number(-1))
        shifted: Poly = {}
        for product, count in distance.items():
            term = P.number(count)
            for atom in product:
                term = P.multiply(term, {(atom,): 1, (): 1} if atom in self._positive else {(atom,): 1})
            shifted = P.add(shifted, term)
        return all(count > 0 and all(self._not_negative(a) for a in product) for product, count in shifted.items())

    def _not_negative(self, atom: int) -> bool:
        if atom in self._sizes or atom in self._extents:
            return True
        kind, what = self._atoms[atom][:2]
        return kind == "mod" or (kind == "div" and self._at_least_zero(what))

    def _at_least_zero(self, a: Poly) -> bool:
        return all(count > 0 and all(self._not_negative(atom) for atom in product) for product, count in a.items())

    def _tops(self, a: Poly) -> list[Poly]:
        """Upper bounds of a value that is not negative, in terms of sizes."""
        found = []
        for low, high in self._facts:
            if low == a:
                found.append(P.add(high, P.number(-1)))
            else:
                found += self._part_of_fact(low, high, a)
        total: Poly | None = {}
        for product, count in a.items():
            most: Poly | None = P.number(count)
            for atom in product:
                top = self._top(atom)
                most = None if top is None or most is None else P.multiply(most, top)
            total = None if most is None or total is None else P.add(total, most)
        return [*found, total] if total is not None else found

    def _part_of_fact(self, low: Poly, high: Poly, a: Poly) -> list[Poly]:
        """``a`` is ``low // k`` for a constant ``k`` that divides the limit of ``low``."""
        for product, count in a.items():
            factor, left = divmod(low.get(product, 0), count)
            if left or factor < 2 or not product:
                continue
            limit = P.divide_exactly(high, (), factor)
            rest = self._together(P.minus(low, P.scale(a, (), factor)), depth=1)
            if limit is None or not self._at_least_zero(rest):
                continue
            if all(self._top(atom) is not None for p in rest for atom in p) and self._plain_fit(rest, factor):
                return [P.add(limit, P.number(-1))]
        return []

    def _plain_fit(self, a: Poly, limit: int) -> bool:
        total: Poly = {}
        for product, count in a.items():
            most = P.number(count)
            for atom in product:
                most = P.multiply(most, self._top(atom) or {})
            total = P.add(total, most)
        return self._below(total, P.number(limit))

    def _top(self, atom: int) -> Poly | None:
        """The largest value of an atom."""
        extent = self._extents.get(atom)
        if extent is not None:
            return P.add(extent, P.number(-1))
        if atom in self._sizes:
            return {(atom,): 1}
        kind, what, *divisor = self._atoms[atom]
        if kind == "of":
            return None
        product, count = divisor
        if kind == "mod":
            return P.add({product: count}, P.number(-1))
        if not self._at_least_zero(what):
            return None
        for top in self._tops(what):
            whole = P.divide_exactly(P.add(top, P.number(1)), product, count)
            if whole is not None:
                return P.add(whole, P.number(-1))
            if not product and set(top) <= {()}:
                return P.number(top.get((), 0) // count)
        return None

    # -- digits back together ------------------------------------------------------------------------------

    def _together(self, a: Poly, depth: int = 8) -> Poly:
        """``k * (b // d) + k / d * (b % d)`` becomes ``k / d * b``, and so on until nothing changes."""
        for _ in range(depth):
            made = self._one_step(a)
            if made is None:
                break
            a = made
        return a

    def _one_step(self, a: Poly) -> Poly | None:
        for term, count in a.items():
            for atom in term:
                kind, base, *divisor = self._atoms[atom]
                if kind == "of":
                    continue
                outer = P.without(term, (atom,)) or ()
                join = self._join_quotient if kind == "div" else self._join_remainder
                made = join(a, term, count, outer, base, *divisor)
                if made is not None:
                    return made
        return None

    def _join_quotient(
        self, a: Poly, term: Product, count: int, outer: Product, base: Poly, product: Product, factor: int
    ) -> Poly | None:
        left = P.without(outer, product)
        if left is None or count % factor:
            return None
        times = count // factor
        rest = P.minus(a, {term: count})
        if times < 0:  # b - b // d * d
            whole = P.scale(base, left, -times)
            if not _contains(a, whole):
                return None
            return P.add(P.minus(rest, whole), P.scale(self._remainder(base, product, factor), left, -times))
        low = P.scale(self._together(self._remainder(base, product, factor), 4), left, times)
        if low and _contains(a, low):
            return P.add(P.minus(rest, low), P.scale(base, left, times))
        return self._join_finer(rest, base, left, product, times, factor)

    def _join_finer(
        self, rest: Poly, base: Poly, left: Product, product: Product, times: int, factor: int
    ) -> Poly | None:
        """``k * d * (b // d) + c % (k * d)`` becomes ``c`` where ``b`` is ``c // k``."""
        for term, count in rest.items():
            if len(term) != 1 or count < 1 or times % count or self._atoms[term[0]][0] != "mod":
                continue
            _, whole, by, by_count = self._atoms[term[0]]
            ratio = times // count
            if by_count != ratio * factor or by != tuple(sorted((*left, *product))):
                continue
            digit = self._together(P.minus(whole, P.scale(base, left, ratio)), 1)
            if digit and self._fits(digit, left, ratio):
                return P.add(P.minus(rest, {term: count}), P.scale(whole, (), count))
        return None

    def _join_remainder(
        self, a: Poly, term: Product, count: int, outer: Product, base: Poly, product: Product, factor: int
    ) -> Poly | None:
        """``k * ((b + c // e) % m) + k / e * (c % e)`` becomes ``(k * b + k / e * c) % (k * m)``."""
        for inner, times in base.items():
            if len(inner) != 1 or self._atoms[inner[0]][0] != "div":
                continue
            _, numerator, by, by_count = self._atoms[inner[0]]
            left = P.without(outer, by)
            if left is None or (count * times) % by_count:
                continue
            low = P.scale(self._remainder(numerator, by, by_count), left, count * times // by_count)
            if not low or not _contains(a, low) or not self._fits(low, outer, count):
                continue
            whole = self._together(P.add(P.scale(base, outer, count), low), 4)
            rest = P.minus(P.minus(a, {term: count}), low)
            return P.add(rest, self._remainder(whole, tuple(sorted((*outer, *product))), count * factor))
        return None

    # -- polynomials to expressions ------------------------------------------------------------------------

    def _expr(self, a: Poly, dtype: str) -> PrimExpr:
        """Terms that share a factor are multiplied by it once."""
        uses: dict[int, int] = {}
        for product in a:
            for atom in set(product):
                uses[atom] = uses.get(atom, 0) + 1
        shared = max(uses, key=lambda atom: uses[atom], default=None)
        if shared is None or uses[shared] < 2:
            total = None
            for product, count in a.items():
                term = self._term(product, abs(count), dtype)
                total = (
                    (term if count > 0 else B.sub(B.const(dtype, 0), term))
                    if total is None
                    else (B.add if count > 0 else B.sub)(total, term)
                )
            return B.const(dtype, 0) if total is None else total
        inside = {P.without(p, (shared,)) or (): c for p, c in a.items() if shared in p}
        outside = {p: c for p, c in a.items() if shared not in p}
        made = B.mul(self._expr(inside, dtype), self._atom_expr(shared, dtype))
        return B.add(made, self._expr(outside, dtype)) if outside else made

    def _term(self, product: Product, count: int, dtype: str) -> PrimExpr:
        made: PrimExpr | None = None
        for atom in product:
            factor = self._atom_expr(atom, dtype)
            made = factor if made is None else B.mul(made, factor)
        return B.const(dtype, count) if made is None else B.mul(made, B.const(dtype, count))

    def _atom_expr(self, atom: int, dtype: str) -> PrimExpr:
        kind, what, *divisor = self._atoms[atom]
        if kind == "of":
            return B.cast(dtype, what)
        product, count = divisor
        return _CLASSES[kind](self._expr(self._together(what), dtype), self._term(product, count, dtype))


def _contains(a: Poly, part: Poly) -> bool:
    return all(a.get(product) == count for product, count in part.items())
