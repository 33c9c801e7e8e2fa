"""The canonical simplifier: integer expressions as sums of ``index % upper // lower * scale``.

Collecting terms this way finds what local rules cannot: ``x // 4 * 4 + x % 4 -> x``, ``(x * 6 + y) % 3 -> y % 3``.
The normal form lists terms by falling scale, positive ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, TypeAlias

from ..ir.node import Node
from ..ir.prim import BinaryOp
from . import build as B
from ._ir import Add, Cast, Div, FloorDiv, FloorMod, IntImm, LT, Mod, Mul, PrimExpr, Reduce, Select, Sub
from .canonical_forms import FLOOR, INF, TRUNC, Split, Sum, divide, remainder, separate
from .products import cancel, multiply
from .reductions import keep_used_components
from .rewrite_simplify import LESS, MAX_RECURSION, RewriteSimplifier

if TYPE_CHECKING:
    from .analyzer import Analyzer


# An expression, or a form on the way to one.
Form: TypeAlias = PrimExpr | Split | Sum


class CanonicalSimplifier(RewriteSimplifier):
    """See the module docstring; :meth:`simplify` is the entry.

    A form that :meth:`mutate` gave may be asked for again: it is copied before it is changed.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self._forms: dict[int, tuple[Any, Any, int]] = {}
        # What stayed as it was, by its identity.
        self._kept: dict[int, Any] = {}

    def clear_memo(self) -> None:
        super().clear_memo()
        self._forms.clear()
        self._kept.clear()

    def swap_memos(self, memos: tuple[Any, ...] | None) -> tuple[Any, ...]:
        old = (*super().swap_memos(None if memos is None else memos[:1]), self._forms, self._kept)
        self._forms, self._kept = ({}, {}) if memos is None else memos[1:]
        return old

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """The canonical form of ``expr``."""
        return self.visit(expr)

    def visit(self, x: Any) -> Any:
        key = id(x)
        hit = self._memo.get(key)
        if hit is not None and self.depth <= hit[2]:
            return hit[1]
        result = self.mutate(x)
        kind = type(result)
        if kind is Sum or kind is Split:
            result = result.normalize()
        if isinstance(x, PrimExpr):
            # Keep the caller's object where nothing changed: identity lets everything above stay as it is.
            if result is not x and B.deep_equal(result, x):
                result = x
            if result is x:
                self._kept[key] = x
            else:
                self._kept.pop(key, None)
            form = self._forms.get(key)
            if form is not None:
                self._memo[key] = (x, result, form[2])
        return result

    def mutate(self, x: Node | Sequence[PrimExpr]) -> Any:
        """The canonical form before it is turned back into an expression."""
        kind = type(x)
        if kind is IntImm:
            return x
        key = id(x)
        if key in self._kept and kind not in _SUMMED:
            return x
        depth = self.depth
        hit = self._forms.get(key)
        if hit is not None and depth <= hit[2]:
            return hit[1]
        handler = self._table.get(kind)
        if handler is None:
            handler = self._resolve(kind)
        if not isinstance(x, PrimExpr):
            return handler(self, x)
        before, self._deepest = self._deepest, depth
        result = handler(self, x)
        deepest = self._deepest
        if deepest <= MAX_RECURSION:
            self._forms[key] = (x, result, MAX_RECURSION - (deepest - depth))
        if before > deepest:
            self._deepest = before
        return result

    # -- forms ---------------------------------------------------------------------------------------------

    @staticmethod
    def _normal(x: Form) -> PrimExpr:
        return x if isinstance(x, PrimExpr) else x.normalize()

    def _split(self, x: Form) -> Split:
        if isinstance(x, PrimExpr):
            return Split(x)
        if type(x) is Split:
            return x.copy()
        if x.base == 0 and len(x.args) == 1:
            return x.args[0].copy()
        return Split(x.normalize())

    def _sum(self, x: PrimExpr | Split | Sum) -> Sum:
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

    def _linear(self, e: BinaryOp, sign: int) -> Form:
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
        return multiply(self._normal(a), self._normal(b))

    def visit_Div(self, e: Div) -> Any:
        return self._division(e, TRUNC) if e.dtype in ("int32", "int64") else super().visit_Div(e)

    def visit_FloorDiv(self, e: FloorDiv) -> Any:
        return self._division(e, FLOOR) if e.dtype in ("int32", "int64") else super().visit_FloorDiv(e)

    def _division(self, e: BinaryOp, mode: int) -> PrimExpr | Split | Sum:
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm and type(b) is IntImm:
            return divide(a, b, mode)
        if type(b) is not IntImm or b.value <= 0:
            a, b = self._normal(a), self._normal(b)
            a, b, _ = cancel(a, b) or (a, b, None)
            return divide(a, b, mode)
        value = b.value
        if value == 1:
            return a
        nonneg = self.analyzer.can_prove_greater_equal
        if type(a) is Sum:
            quotient, rest = separate(a, value)
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

    def _resplit(self, e: PrimExpr) -> PrimExpr | Split | Sum:
        return self.mutate(e) if type(e) in _SUMMED else e

    def visit_Mod(self, e: Mod) -> Any:
        return self._remainder(e, TRUNC) if e.dtype in ("int32", "int64") else super().visit_Mod(e)

    def visit_FloorMod(self, e: FloorMod) -> Any:
        return self._remainder(e, FLOOR) if e.dtype in ("int32", "int64") else super().visit_FloorMod(e)

    def _remainder(self, e: BinaryOp, mode: int) -> PrimExpr | Split:
        a, b = self.mutate(e.a), self.mutate(e.b)
        if type(a) is IntImm and type(b) is IntImm:
            return remainder(a, b, mode)
        if type(b) is not IntImm or b.value <= 0:
            a, b = self._normal(a), self._normal(b)
            a, b, factor = cancel(a, b) or (a, b, None)
            made = remainder(a, b, mode)
            return made if factor is None else B.mul(made, factor)
        value = b.value
        nonneg = self.analyzer.can_prove_greater_equal
        if type(a) is Sum:
            divisible, rest = separate(a, value)
            if not rest.args and rest.base == 0:
                return B.const(e.dtype, 0)
            if mode == TRUNC and not (nonneg(divisible.normalize(), 0) and nonneg(rest.normalize(), 0)):
                return self._split_mod(self._split(self._lower_base(a, value)), value, mode)
            left = rest.normalize()
            if type(left) is IntImm:
                return remainder(left, b, mode)
            if self.compare(left, B.const(left.dtype, value)) == LESS and nonneg(left, 0):
                return left
            if mode == FLOOR:
                rest.base %= value
            else:
                rest = self._lower_base(rest, value)
            return self._split_mod(self._split(rest), value, mode)
        low, high = self.analyzer.const_int_bound.bound(self._normal(a))
        if low >= 0 and high < value:
            return a
        return self._split_mod(self._split(a), value, mode)

    def _lower_base(self, total: Sum, value: int) -> Sum:
        """``total`` with the remainder of its constant by ``value``, if it is not negative before nor after."""
        low = self.analyzer.const_int_bound.bound(total.normalize())[0]
        base = total.base - value * B.trunc_div(total.base, value)
        if base != total.base and low >= 0 and low - total.base + base >= 0:
            total = total.copy()
            total.base = base
        return total

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
            term.index = remainder(term.index, B.const(term.dtype, term.upper), mode)
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
        if term.scale < 0 and value % term.scale == 0 and term.lower == 1 and term.upper == INF:
            term.upper = value // term.scale
            return term
        if term.scale > 0 and value % term.scale == 0:
            upper = term.lower * (value // term.scale)
            if term.upper == INF or term.upper % upper == 0:
                if term.upper != INF and upper < term.upper:
                    inner = self._split(self.mutate(remainder(term.index, B.const(term.dtype, upper), mode)))
                    if term.lower != 1:
                        inner = self._split_div(inner, term.lower, mode)
                    inner.scale *= term.scale
                    return inner
                term.upper = upper
                return term
            if upper % term.upper == 0:
                return term
        return Split(term.normalize(), upper=value, mode=mode)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        index = ("int32", "int64")
        value = self.mutate(e.value)
        if type(value) in (Sum, Split) and e.dtype in index and value.dtype in index:
            if value.can_cast(e.dtype, self.analyzer):
                return value.cast(e.dtype)
        value = self._normal(value)
        if B.deep_equal(value, e.value):
            value = e.value
        if value is e.value and type(value) is not IntImm and value.dtype != e.dtype:
            return e
        return B.cast(e.dtype, value)

    def visit_Reduce(self, e: Reduce) -> PrimExpr:
        """Simplify below, under the ranges of the axes; drop unused components and a reduction over nothing."""
        node: Any = super().visit_Reduce(e)
        if node.axis:
            return keep_used_components(node, self.visit)
        start = node.init or node.combiner.identity_element
        return self.visit(Select(node.condition, node.source[node.value_index], start[node.value_index]))

    def visit_LT(self, e: LT) -> PrimExpr:
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
        divisible, rest = separate(diff, common)
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
