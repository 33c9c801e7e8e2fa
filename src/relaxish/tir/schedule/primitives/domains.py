"""Domains of the variables of a moved block, from the regions of shared buffers that its partners require."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....arith import (
    Analyzer, IntervalSet, IterMapLevel, detect_iter_map, eval_set, inverse_affine_iter_map, neg_inf, pos_inf,
)  # fmt: skip
from ....ir.expr import PrimExpr
from ....ir.prim import IterVar, const
from ...expr import FloorDiv, FloorMod, IntImm, Mul, Var
from ...functor import substitute
from ...op import floordiv
from ...op import max as tir_max
from ...op import min as tir_min
from ...stmt import Block
from ..errors import PrimitiveError
from ..region import union_sets

__all__ = ["BlockDomains", "Interval", "VarDomain"]

Interval = tuple[Any, Any]


class VarDomain(NamedTuple):
    """Domain of a block variable; ``bound`` is the condition left for a predicate, None if there is none."""

    dom: Interval
    bound: Interval | None


class BlockDomains:
    """Collects, buffer by buffer, what each variable of ``block`` must run over.

    ``dom`` is what the partners ask for and ``bound`` what the buffers hold; a point of the first outside the
    second must not be computed.
    """

    def __init__(self, block: Block, analyzer: Analyzer, consuming: bool = False) -> None:
        self.block = block
        self.consuming = consuming
        self.analyzer = analyzer
        self.dom: dict[Any, Interval] = {}
        self.bound: dict[Any, Interval] = {}
        self.vars = {iv.var for iv in block.iter_vars}
        self._simple: dict[int, tuple[Any, Any]] = {}  # id of an expression -> (expression, its simplest form)

    def update(self, shape: Sequence[Any], provided: Sequence[Interval], required: Sequence[Interval]) -> None:
        """Make the block provide ``required`` of a buffer where one instance of it provides ``provided``."""
        required = [(self.simplify(low), self.simplify(high)) for low, high in required]
        if all(isinstance(low, Var) and low is high for low, high in provided) or not self._affine(
            shape, provided, required
        ):
            for extent, have, want in zip(shape, provided, required, strict=True):
                self._dimension(extent, have, want)

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """``expr`` in simplest form."""
        if isinstance(expr, (IntImm, Var)):
            return expr
        known = self._simple.get(id(expr))
        if known is None:
            made = self.analyzer.simplify(expr)
            known = self._simple[id(expr)] = (expr, made)
            self._simple[id(made)] = (made, made)
        return known[1]

    def _same(self, a: PrimExpr, b: PrimExpr) -> bool:
        return a is b or self.analyzer.can_prove_equal(a, b)

    def _join(self, table: dict[Any, Interval], var: PrimExpr, new: Interval) -> None:
        old = table.get(var)
        table[var] = new if old is None else union_sets([old], [new], self.analyzer)[0]

    def _last(self, extent: PrimExpr) -> PrimExpr:
        """The last index of a dimension, zero for an empty one."""
        if isinstance(extent, IntImm):
            return const(max(int(extent.value) - 1, 0), extent.dtype)
        zero = const(0, extent.dtype)
        return self.simplify(tir_max(extent - 1, zero))

    # -- through the inverse of the index map ----------------------------------------------------------------

    def _affine(self, shape: Sequence[Any], provided: Sequence[Interval], required: Sequence[Interval]) -> bool:
        """When an instance provides one point and the map from variables to points is one to one."""
        if any(not self._same(low, high) for low, high in provided):
            return False
        doms = {iv.var: iv.dom for iv in self.block.iter_vars}
        found = detect_iter_map(
            [low for low, _ in provided],
            doms,
            True,
            check_level=IterMapLevel.Bijective,
            simplify_trivial_iterators=False,
        )
        indices: Any = getattr(found, "indices", found)
        if not indices:
            return False
        whole = [(const(0, extent.dtype), self._last(extent)) for extent in shape]
        dom, bound = self._inverse(indices, required), self._inverse(indices, whole)
        if self.consuming:
            self._check_begins(provided, required, {var: low for var, (low, _) in dom.items()})
        for var, interval in dom.items():
            self._join(self.dom, var, interval)
            self._join(self.bound, var, bound[var])
        return True

    def _check_begins(
        self, provided: Sequence[Interval], required: Sequence[Interval], first: Mapping[Var, PrimExpr]
    ) -> None:
        """The first instance must not read what lies before the part that is produced."""
        for (have, _), (want, _) in zip(provided, required, strict=True):
            if not self._same(substitute(have, first), want):
                raise PrimitiveError(
                    f"The block {{0}} would read {have} from before {want}, which is not produced.", [self.block]
                )

    def _inverse(self, indices: Sequence[Any], points: Sequence[Interval]) -> dict[Any, Interval]:
        lows = inverse_affine_iter_map(indices, [low for low, _ in points])
        highs = inverse_affine_iter_map(indices, [high for _, high in points])
        out = {var: (self.simplify(low), self.simplify(highs[var])) for var, low in lows.items()}
        if all(self._same(low, high) for low, high in points):
            return out
        # The ends of a box need not map to the ends of a variable that is a remainder of an index.
        names = [Var(f"p{i}", low.dtype) for i, (low, _) in enumerate(points)]
        sets = {name: IntervalSet(low, high) for name, (low, high) in zip(names, points, strict=True)}
        for var, expr in inverse_affine_iter_map(indices, names).items():
            if isinstance(expr, Var):
                continue
            safe = eval_set(expr, sets, self.analyzer)
            low, high = self.simplify(safe.min_value), self.simplify(safe.max_value)
            if not (self._same(low, out[var][0]) and self._same(high, out[var][1])):
                out[var] = (low, high)
        return out

    # -- dimension by dimension ------------------------------------------------------------------------------

    def _dimension(self, extent: PrimExpr, have: Interval, want: Interval) -> None:
        low, high = self.simplify(have[0]), self.simplify(have[1])
        point = self._same(low, high)
        if point and isinstance(low, IntImm):
            return
        last = self._last(extent)
        if self.consuming and isinstance(low, Mul) and isinstance(low.b, IntImm):
            if not self.analyzer.can_prove_equal(want[0] % low.b, const(0, last.dtype)):
                # The first instance would read what lies before the part that is produced.
                raise PrimitiveError(
                    f"The block {{0}} reads in steps of {low.b}, but what is produced begins at {want[0]}.",
                    [self.block],
                )
        if not self._solve_dimension(low, point, want, last):
            raise PrimitiveError(
                f"The region [{low}, {high}] that block {{0}} accesses cannot be inverted.", [self.block]
            )

    def _solve_dimension(self, low: PrimExpr, point: bool, want: Interval, last: PrimExpr) -> bool:
        """Limit the variable of ``low`` so that it reaches ``want``; False for a form that cannot be solved.

        A remainder puts no limit on its variable, and next to none on an expression.
        """
        zero = const(0, last.dtype)
        if isinstance(low, Mul) and (isinstance(low.a, Var) or isinstance(low.b, Var)):
            var, step = (low.a, low.b) if isinstance(low.a, Var) else (low.b, low.a)
            end = want[1] if want[1] is pos_inf() else floordiv(want[1], step)
            self._set(var, (floordiv(want[0], step), end), (zero, floordiv(last, step)))
            return True
        if not point:
            return False
        match low:
            case Var():
                self._set(low, want, (zero, last))
                return True
            case FloorDiv() if self.analyzer.can_prove_greater_equal(low.b, 1):
                step = low.b
                end = want[1] if want[1] is pos_inf() else self.simplify(want[1] * step + step - 1)
                wider = (want[0] * step, end)
                if not isinstance(low.a, Var):
                    return self._solve_dimension(low.a, True, wider, last)
                self._set(low.a, wider, (zero, self.simplify(last * step + step - 1)))
                return True
            case FloorMod():
                if isinstance(low.a, Var):
                    return True
                if want[0] is not neg_inf() and self.analyzer.can_prove_greater_equal(want[0], 0):
                    return self._solve_dimension(low.a, True, (want[0], pos_inf()), last)
        return False

    def _set(self, var: PrimExpr, dom: Interval, bound: Interval) -> None:
        if var in self.vars:
            self._join(self.dom, var, (self.simplify(dom[0]), self.simplify(dom[1])))
            self._join(self.bound, var, (self.simplify(bound[0]), self.simplify(bound[1])))

    # -- the result --------------------------------------------------------------------------------------------

    def solve(self) -> list[VarDomain]:
        """The domain of each block variable, in order."""
        return [self._solve(iv) for iv in self.block.iter_vars]

    def _solve(self, iv: IterVar) -> VarDomain:
        full = (iv.dom.min, self.simplify(iv.dom.min + iv.dom.extent - 1))
        bound = self.bound.get(iv.var)
        bound = full if bound is None else self._intersect(bound, full)
        dom = self.dom.get(iv.var)
        if dom is None:
            return VarDomain(bound, None)
        dom = (self.simplify(dom[0]), self.simplify(dom[1]))
        both = self._intersect(dom, bound)
        if self._same(dom[0], both[0]) and self._same(dom[1], both[1]):
            return VarDomain(dom, None)
        if self._same(bound[0], both[0]) and self._same(bound[1], both[1]):
            return VarDomain(bound, None)
        if (isinstance(both[0], IntImm) and isinstance(both[1], IntImm)) or dom[1] is pos_inf():
            return VarDomain(both, None)
        return VarDomain(dom, bound)

    def _intersect(self, a: Interval, b: Interval) -> Interval:
        low = a[0] if self._at_most(b[0], a[0]) else b[0] if self._at_most(a[0], b[0]) else tir_max(a[0], b[0])
        high = a[1] if self._at_most(a[1], b[1]) else b[1] if self._at_most(b[1], a[1]) else tir_min(a[1], b[1])
        return self.simplify(low), self.simplify(high)

    def _at_most(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether ``a <= b`` already by the constant bounds of both."""
        if a is b or a is neg_inf() or b is pos_inf():
            return True
        if a is pos_inf() or b is neg_inf():
            return False
        bounds = self.analyzer.const_int_bound
        return bool(bounds.bound(a)[1] <= bounds.bound(b)[0])
