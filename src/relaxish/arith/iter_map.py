"""Iterator maps: index expressions seen as splits and fusions of loop iterators.

``detect_iter_map([x // 4, x % 4], {x: Range(0, 16)})`` says that both indices together walk ``x`` exactly once.
An index becomes an :class:`IterSumExpr` of :class:`IterSplitExpr`: ``source // lower_factor % extent * scale``.

Source: Feng et al., "TensorIR: an abstraction for automatic tensorized program optimization" (ASPLOS 2023), on the
validation of loop nests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Any

from ..ir.expr import ExprLike, as_expr
from ..ir.prim import BinaryOp
from . import build as B
from ._ir import GE, LE, LT, Add, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Range, Sub, Var
from .analyzer import Analyzer
from .functor import free_vars, substitute
from .iter_map_bounds import bounds_of, merged_bounds
from .iter_map_nodes import (
    IterMapError, IterMapExpr, IterMapLevel, IterMapResult, IterMark, IterSplitExpr, IterSumExpr,
)  # fmt: skip
from .products import product_terms


def _is_map(e: PrimExpr) -> bool:
    return type(e) is IterSumExpr or type(e) is IterSplitExpr


class IterMapRewriter:
    """Turns index expressions over ``input_iters`` into iterator sums.

    ``overlaps``: whether terms may meet, as in ``x * 7 + y`` with ten values of ``y`` (never in a bijective map).
    """

    def __init__(
        self,
        analyzer: Analyzer,
        input_iters: Mapping[Any, Range],
        check_level: IterMapLevel,
        simplify_trivial: bool,
        overlaps: bool = False,
    ) -> None:
        self.analyzer = analyzer
        self.level = check_level
        self.overlaps = overlaps and check_level != IterMapLevel.Bijective
        self.inputs: list[IterMark] = []
        self.var_map: dict[Any, PrimExpr] = {}
        self.fused: dict[Any, IterMark] = {}
        self.constrained: list[tuple[list[Any], IterMark, PrimExpr]] = []
        self.padding: PrimExpr = B.false()
        for var, dom in input_iters.items():
            low = B.constant_as(dom.min, var.dtype)
            extent = B.constant_as(analyzer.simplify(dom.extent), var.dtype)
            if simplify_trivial and B.is_one(extent):
                self.var_map[var] = IterSumExpr((), low)
                continue
            mark = IterMark(var if B.is_zero(low) else Sub(var, low), extent)
            split = IterSplitExpr(mark)
            self.inputs.append(mark)
            self.var_map[var] = split if B.is_zero(low) else IterSumExpr((split,), low)

    # -- small proofs --------------------------------------------------------------------------------------

    def equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        """``a == b``, certainly."""
        if type(a) is IntImm and type(b) is IntImm:
            return a.value == b.value
        return self.analyzer.can_prove_equal(a, b)

    def divides(self, a: PrimExpr, b: PrimExpr) -> bool:
        """``a % b == 0``, certainly."""
        if type(a) is IntImm and type(b) is IntImm:
            return b.value != 0 and a.value % b.value == 0
        if B.is_one(b) or B.is_zero(a) or _without_factors(a, b) is not None:
            return True
        return self.analyzer.can_prove_equal(B.floormod(a, b), B.const(a.dtype, 0))

    def quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """``a // b``, simplified."""
        if B.is_one(b):
            return a
        if type(a) is IntImm and type(b) is IntImm:
            return B.floordiv(a, b)
        rest = _without_factors(a, b)
        return rest if rest is not None else self.analyzer.simplify(B.floordiv(a, b))

    def times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """``a * b``, simplified."""
        made = B.mul(a, b)
        return made if type(made) is IntImm or B.is_one(a) or B.is_one(b) else self.analyzer.simplify(made)

    # -- entry ---------------------------------------------------------------------------------------------

    def rewrite(self, e: PrimExpr) -> IterSumExpr:
        """The fused form of one index. Raises IterMapError."""
        return self.fuse(self.to_sum(self.mutate(e)))

    def to_sum(self, e: PrimExpr) -> IterSumExpr:
        """Any form as a sum."""
        if type(e) is IterSumExpr:
            return e
        if type(e) is IterSplitExpr:
            return IterSumExpr((e,), B.const(e.dtype, 0))
        if any(v in self.var_map for v in free_vars(e)):
            raise IterMapError(f"{e} is not an affine use of the iterators")
        return IterSumExpr((), e)

    def mutate(self, e: Any) -> PrimExpr:
        """Rewrite below ``e``."""
        kind = type(e)
        if kind is IntImm:
            return e
        if isinstance(e, Var):
            return self.var_map.get(e, e)
        if kind in (Add, Sub):
            return self._linear(self.mutate(e.a), self.mutate(e.b), 1 if kind is Add else -1, e)
        if kind is Mul:
            return self._scaled(self.mutate(e.a), self.mutate(e.b), e)
        if kind in (FloorDiv, FloorMod):
            return self._divided(self.mutate(e.a), self.mutate(e.b), e)
        if any(v in self.var_map for v in free_vars(e)):
            raise IterMapError(f"{e} is not an affine use of the iterators")
        return e

    def _linear(self, a: PrimExpr, b: PrimExpr, sign: int, e: BinaryOp) -> PrimExpr:
        if not _is_map(a) and not _is_map(b):
            return e if a is e.a and b is e.b else (B.add if sign > 0 else B.sub)(a, b)
        left, right = self.to_sum(a), self.to_sum(b)
        args = list(left.args)
        for arg in right.args:
            scale = arg.scale if sign > 0 else self.times(arg.scale, B.const(arg.dtype, -1))
            for i, have in enumerate(args):
                if self._same_split(have, arg):
                    total = self.analyzer.simplify(B.add(have.scale, scale))
                    if B.is_zero(total):
                        del args[i]
                    else:
                        args[i] = IterSplitExpr(have.source, have.lower_factor, have.extent, total)
                    break
            else:
                args.append(IterSplitExpr(arg.source, arg.lower_factor, arg.extent, scale))
        base = (B.add if sign > 0 else B.sub)(left.base, right.base)
        return IterSumExpr(args, base if type(base) is IntImm else self.analyzer.simplify(base))

    def _same_split(self, a: IterSplitExpr, b: IterSplitExpr) -> bool:
        return a.source is b.source and self.equal(a.lower_factor, b.lower_factor) and self.equal(a.extent, b.extent)

    def _scaled(self, a: PrimExpr, b: PrimExpr, e: Mul) -> PrimExpr:
        if not _is_map(a) and not _is_map(b):
            return e if a is e.a and b is e.b else B.mul(a, b)
        if _is_map(a) and _is_map(b):
            # A sum without iterators is a plain value in disguise.
            if type(b) is IterSumExpr and not b.args:
                b = b.base
            elif type(a) is IterSumExpr and not a.args:
                a = a.base
            else:
                raise IterMapError(f"{e} multiplies two iterators")
        if _is_map(b):
            a, b = b, a
        if B.is_zero(b):
            return b
        total = self.to_sum(a)
        args = [IterSplitExpr(s.source, s.lower_factor, s.extent, self.times(s.scale, b)) for s in total.args]
        return IterSumExpr(args, self.times(total.base, b))

    def _divided(self, a: PrimExpr, b: PrimExpr, e: BinaryOp) -> PrimExpr:
        is_div = type(e) is FloorDiv
        if type(b) is IterSumExpr and not b.args:
            b = b.base
        if not _is_map(a) and not _is_map(b):
            return e if a is e.a and b is e.b else (B.floordiv if is_div else B.floormod)(a, b)
        if _is_map(b):
            raise IterMapError(f"{e} divides by an iterator")
        if B.is_one(b):
            return a if is_div else IterSumExpr((), B.const(e.dtype, 0))
        total = self.fuse(self.to_sum(a), allow_many=True)
        if not total.args:
            return (B.floordiv if is_div else B.floormod)(total.base, b)
        if len(total.args) > 1:
            return self._divide_parts(total, b, e, is_div)
        return self._divide_split(total.args[0], total.base, b, e, is_div)

    def _divide_parts(self, total: IterSumExpr, b: PrimExpr, e: PrimExpr, is_div: bool) -> PrimExpr:
        """Divide a sum that does not fuse: whole multiples of ``b`` apart from a rest that stays below it."""
        whole = [s for s in total.args if self.divides(s.scale, b)]
        rest = [s for s in total.args if not self.divides(s.scale, b)]
        if not whole or not self.divides(total.base, b):
            raise IterMapError(f"cannot divide the terms of {e}")
        left: Any = IterSumExpr((), B.const(e.dtype, 0))
        if rest:
            part = self.fuse(IterSumExpr(rest, B.const(e.dtype, 0)))
            left = self._divide_split(part.args[0], part.base, b, e, is_div)
        if not is_div:
            return left
        made = [IterSplitExpr(s.source, s.lower_factor, s.extent, self.quotient(s.scale, b)) for s in whole]
        out = self.to_sum(left)
        return IterSumExpr([*made, *out.args], B.add(out.base, self.quotient(total.base, b)))

    def _divide_split(self, s: IterSplitExpr, base: PrimExpr, b: PrimExpr, e: PrimExpr, is_div: bool) -> PrimExpr:
        zero = B.const(e.dtype, 0)
        if self.divides(s.scale, b):
            if not self.divides(base, b) and is_div:
                base = self.analyzer.simplify(B.floordiv(base, b))
                made = IterSplitExpr(s.source, s.lower_factor, s.extent, self.quotient(s.scale, b))
                return IterSumExpr((made,), base)
            if is_div:
                made = IterSplitExpr(s.source, s.lower_factor, s.extent, self.quotient(s.scale, b))
                return IterSumExpr((made,), self.quotient(base, b))
            return IterSumExpr((), self.analyzer.simplify(B.floormod(base, b)))
        scale = s.scale
        if type(scale) is IntImm and scale.value < 0:
            # Divided by its scale, the divisor would be negative, and blocks would be counted from the wrong end.
            raise IterMapError(f"{e} divides an iterator that falls")
        if not self.divides(b, scale) or not self.divides(base, scale):
            raise IterMapError(f"the divisor of {e} fits neither the scale nor the offset")
        divisor = self.quotient(b, scale)
        base = self.quotient(base, scale)
        if not B.is_zero(base):
            # The offset may vanish where everything stays in one block.
            span = B.add(base, s.extent)
            if self.analyzer.can_prove(GE(base, zero)) and self.analyzer.can_prove(LE(span, divisor)):
                if is_div:
                    return IterSumExpr((), zero)
                return IterSumExpr((IterSplitExpr(s.source, s.lower_factor, s.extent, scale),), B.mul(base, scale))
            if not self.divides(base, divisor):
                return self._divide_padded(s, base, divisor, scale, e, is_div)
        offset = self.quotient(base, divisor)
        lower, extent = self._split_factors(s, divisor, e, is_div)
        source = extent[1]
        if is_div:
            return IterSumExpr((IterSplitExpr(source, lower, extent[0], B.const(e.dtype, 1)),), offset)
        return IterSumExpr((IterSplitExpr(source, lower, extent[0], scale),), zero)

    def _split_factors(
        self, s: IterSplitExpr, divisor: PrimExpr, e: PrimExpr, is_div: bool
    ) -> tuple[Any, tuple[Any, IterMark]]:
        source = s.source
        if self.divides(s.extent, divisor):
            if is_div:
                return self.times(s.lower_factor, divisor), (self.quotient(s.extent, divisor), source)
            return s.lower_factor, (divisor, source)
        if self.analyzer.can_prove(LT(s.extent, divisor)) and not is_div:
            return s.lower_factor, (s.extent, source)
        whole = self.equal(B.mul(s.lower_factor, s.extent), source.extent)
        if not whole or self.level == IterMapLevel.Bijective or not isinstance(divisor, IntImm):
            raise IterMapError(f"the extent {s.extent} is not divisible in {e}")
        source, extent = self._pad(s, 0, divisor.value)
        if is_div:
            return self.times(s.lower_factor, divisor), (self.quotient(extent, divisor), source)
        return s.lower_factor, (divisor, source)

    def _divide_padded(
        self, s: IterSplitExpr, base: PrimExpr, divisor: PrimExpr, scale: PrimExpr, e: PrimExpr, is_div: bool
    ) -> PrimExpr:
        lower = B.as_int(s.lower_factor)
        top = lower is not None and self.equal(B.mul(s.lower_factor, s.extent), s.source.extent)
        if self.level == IterMapLevel.Bijective or not top or type(base) is not IntImm or type(divisor) is not IntImm:
            raise IterMapError(f"the offset of {e} is not divisible")
        source, extent = self._pad(s, base.value % divisor.value * (lower or 1), divisor.value)
        if is_div:
            made = IterSplitExpr(
                source, self.times(s.lower_factor, divisor), self.quotient(extent, divisor), B.const(e.dtype, 1)
            )
            return IterSumExpr((made,), B.const(e.dtype, base.value // divisor.value))
        return IterSumExpr((IterSplitExpr(source, s.lower_factor, divisor, scale),), B.const(e.dtype, 0))

    def _pad(self, s: IterSplitExpr, left: int, divisor: int) -> tuple[IterMark, PrimExpr]:
        """Widen the mark of ``s`` to a multiple of ``divisor``; remember which points are padding."""
        mark = s.source
        key = ("pad", id(mark), left)
        done = self.fused.get(key)
        factor = divisor * (s.lower_factor.value if type(s.lower_factor) is IntImm else 1)
        low = self.analyzer.const_int_bound.bound(mark.extent)
        if done is not None and self.divides(done.extent, B.const(mark.extent.dtype, factor)):
            return done, self.quotient(done.extent, s.lower_factor)
        unit = B.const(mark.extent.dtype, factor)
        total = B.add(mark.extent, B.const(mark.extent.dtype, left))
        extent = self.analyzer.simplify(
            B.mul(B.floordiv(B.add(total, B.const(mark.extent.dtype, factor - 1)), unit), unit)
        )
        inner = IterSumExpr((IterSplitExpr(mark),), B.const(mark.extent.dtype, left))
        padded = IterMark(inner, extent)
        self.fused[key] = padded
        if done is None and low[0] != low[1] or not self.equal(extent, mark.extent) or left:
            position = normalize_iter_map_to_expr(IterSplitExpr(mark))
            position = B.add(position, B.const(position.dtype, left))
            # "total <= position", said of the quotient and the remainder: those are what the map's results hold.
            outside = B.and_(
                B.eq(B.floordiv(position, unit), B.floordiv(total, unit)),
                B.ge(B.floormod(position, unit), B.floormod(total, unit)),
            )
            if self.analyzer.can_prove_equal(B.floormod(total, unit), B.const(total.dtype, 0)):
                outside = B.false()
            if left:
                before = B.lt(B.floormod(position, unit), B.const(position.dtype, left))
                first = B.eq(B.floordiv(position, unit), B.const(position.dtype, 0))
                outside = B.or_(B.and_(first, before), outside)
            self.padding = B.or_(self.padding, outside)
        return padded, self.quotient(extent, s.lower_factor)

    # -- fusion --------------------------------------------------------------------------------------------

    def fuse(self, total: IterSumExpr, allow_many: bool = False) -> IterSumExpr:
        """Bring a sum of several splits to one split of a fused mark. Raises IterMapError."""
        if not total.args:
            return total
        total = self.join_splits(total)
        found = None
        if self.constrained:
            found = self._apply_constraint(total)
            if found is not None:
                total = found
        if len(total.args) <= 1:
            return total
        ordered, base_scale, tail = self._order(list(total.args))
        if ordered is None:
            if allow_many:
                return total
            raise IterMapError(f"the terms of {normalize_iter_map_to_expr(total)} do not fuse to one iterator")
        key = tuple((id(s.source), _key(s.lower_factor), _key(s.extent), _key(s.scale)) for s in ordered)
        mark = self.fused.get(key)
        if mark is None:
            first = ordered[0]
            extent = self.times(first.scale, first.extent)
            if tail:
                extent = self.analyzer.simplify(B.add(extent, B.const(extent.dtype, tail)))
            mark = IterMark(IterSumExpr(ordered, B.const(total.dtype, 0)), extent)
            self.fused[key] = mark
        return IterSumExpr((IterSplitExpr(mark, scale=base_scale),), total.base)

    def join_splits(self, total: IterSumExpr) -> IterSumExpr:
        """Join neighbouring splits of one mark where the sum puts them together again: ``x // 4 * 4 + x % 4`` is ``x``."""
        sources = [id(s.source) for s in total.args]
        if len(set(sources)) == len(sources):
            return total
        left = list(total.args)
        joined: list[IterSplitExpr] = []
        while left:
            low = left.pop()
            upper: int | None = 0
            while upper is not None:
                upper = next((i for i, s in enumerate(left) if self._continues(s, low)), None)
                if upper is not None:
                    high = left.pop(upper)
                    low = IterSplitExpr(low.source, low.lower_factor, self.times(high.extent, low.extent), low.scale)
                    continue
                lower = next((i for i, s in enumerate(left) if self._continues(low, s)), None)
                if lower is not None:
                    below = left.pop(lower)
                    extent = self.times(low.extent, below.extent)
                    low, upper = IterSplitExpr(below.source, below.lower_factor, extent, below.scale), lower
            joined.append(low)
        return total if len(joined) == len(total.args) else IterSumExpr(joined[::-1], total.base)

    def _continues(self, high: IterSplitExpr, low: IterSplitExpr) -> bool:
        """Whether ``high`` takes the digits just above those of ``low``, at the scale that follows."""
        return (
            high.source is low.source
            and self.equal(high.lower_factor, self.times(low.lower_factor, low.extent))
            and self.equal(high.scale, self.times(low.scale, low.extent))
        )

    def _order(self, args: list[IterSplitExpr]) -> tuple[list[IterSplitExpr] | None, PrimExpr, int]:
        """Terms by falling scale with the smallest scale divided out, and by how much they reach into each other.

        No terms where they leave gaps, or overlap and must not.
        """
        base = self._smallest(args)
        if base is None:
            return None, args[0].scale, 0
        expected = base
        tail = 0
        left = list(args)
        picked: list[IterSplitExpr] = []
        while left:
            fitting = [i for i in range(len(left) - 1, -1, -1) if self.equal(left[i].scale, expected)]
            # Terms of one value take no room: several may have the same scale.
            index = next((i for i in fitting if B.is_one(left[i].extent)), fitting[0] if fitting else None)
            if index is None and self.overlaps and B.is_one(base) and type(expected) is IntImm:
                index = self._within(left, expected.value)
                if index is not None:
                    tail += expected.value - int(B.as_int(left[index].scale) or 0)
            if index is None and self.level == IterMapLevel.NoCheck:
                index = self._next_larger(left, expected)
            if index is None:
                return None, base, 0
            s = left.pop(index)
            expected = self.times(s.scale, s.extent)
            scale = s.scale if B.is_one(base) else self.quotient(s.scale, base)
            picked.append(IterSplitExpr(s.source, s.lower_factor, s.extent, scale))
        picked.reverse()
        return picked, base, tail

    @staticmethod
    def _within(left: list[IterSplitExpr], reached: int) -> int | None:
        """The last term that continues before the end of those below it, and leaves no gap."""
        for i in range(len(left) - 1, -1, -1):
            scale = B.as_int(left[i].scale)
            if scale is not None and 0 < scale <= reached:
                return i
        return None

    def _next_larger(self, left: list[IterSplitExpr], expected: PrimExpr) -> int | None:
        best = None
        for i, s in enumerate(left):
            if self.analyzer.can_prove(GE(s.scale, expected)) and self.divides(s.scale, expected):
                if best is None or self.analyzer.can_prove(LT(s.scale, left[best].scale)):
                    best = i
        return best

    def _smallest(self, args: list[IterSplitExpr]) -> PrimExpr | None:
        constants = [s.scale for s in args if type(s.scale) is IntImm]
        if constants:
            best = min(constants, key=lambda c: abs(c.value))
            return best if best.value > 0 else None
        for s in args:
            if all(self.divides(o.scale, s.scale) for o in args):
                return s.scale
        return None

    def _apply_constraint(self, total: IterSumExpr) -> IterSumExpr | None:
        """Replace terms that a predicate bounds by the bounded mark."""
        current = total
        for form, mark, base in self.constrained:
            args = list(current.args)
            factor = None
            used: list[int] = []
            for source, lower, extent, scale in form:
                for i, s in enumerate(args):
                    if i in used or s.source is not source or not self.equal(s.lower_factor, lower):
                        continue
                    if not self.equal(s.extent, extent) or not self.divides(s.scale, scale):
                        continue
                    ratio = self.quotient(s.scale, scale)
                    if factor is None or self.equal(ratio, factor):
                        factor = ratio
                        used.append(i)
                        break
                else:
                    break
            if factor is None or len(used) != len(form):
                continue
            rest = [s for i, s in enumerate(args) if i not in used]
            rest.append(IterSplitExpr(mark, scale=factor))
            shift = self.times(base, factor)
            current = IterSumExpr(rest, self.analyzer.simplify(B.add(current.base, shift)))
        return None if current is total else current

    def add_constraint(self, e: PrimExpr, low: PrimExpr | None, high: PrimExpr | None) -> None:
        """Use ``low <= e < high`` of a predicate to bound a fused iterator."""
        total = self.to_sum(self.mutate(e))
        if not total.args:
            return
        form = [(s.source, s.lower_factor, s.extent, s.scale) for s in total.args]
        fused = self.fuse(IterSumExpr(total.args, B.const(total.dtype, 0)))
        split = fused.args[0]
        if not B.is_one(split.scale) or not B.is_zero(fused.base):
            raise IterMapError(f"the predicate on {e} has a scale")
        mark = split.source
        if not B.is_one(split.lower_factor) or not self.equal(split.extent, mark.extent):
            # A bound on some digits of an iterator leaves the others as they are.
            mark = IterMark(IterSumExpr((split,), B.const(split.dtype, 0)), split.extent)
        zero = B.const(e.dtype, 0)
        top = mark.extent
        if high is not None:
            top = self._lesser(top, self.analyzer.simplify(B.sub(high, total.base)))
        bottom: PrimExpr = zero
        if low is not None:
            negative = B.sub(total.base, low)
            if not self.analyzer.can_prove(GE(negative, zero)):
                start = self.analyzer.simplify(B.sub(low, total.base))
                known = self.analyzer.can_prove(GE(start, zero))
                bottom = start if known else self.analyzer.simplify(B.maximum(start, zero))
        if top is mark.extent and bottom is zero:
            return
        extent = self.analyzer.simplify(B.sub(top, bottom))
        if B.is_zero(bottom):
            bounded = IterMark(mark.source, extent)
        else:
            base = self.times(bottom, B.const(bottom.dtype, -1))
            bounded = IterMark(IterSumExpr((IterSplitExpr(mark),), base), extent)
        self.constrained.append((form, bounded, bottom))

    def _lesser(self, extent: PrimExpr, limit: PrimExpr) -> PrimExpr:
        """The lesser of both, without ``min`` where that is known."""
        if self.analyzer.can_prove(LE(extent, limit)):
            return extent
        if self.analyzer.can_prove(LE(limit, extent)):
            return limit
        return self.analyzer.simplify(B.minimum(limit, extent))

    # -- checks --------------------------------------------------------------------------------------------

    def check(self, indices: Sequence[IterSumExpr], input_count: int) -> bool:
        """Whether all indices together satisfy the level."""
        if self.level == IterMapLevel.NoCheck:
            return True
        pending: dict[int, tuple[IterMark, list[IterSplitExpr]]] = {}
        for total in indices:
            for s in total.args:
                pending.setdefault(id(s.source), (s.source, []))[1].append(s)
        done: set[int] = set()
        leaves = 0
        while pending:
            # A fused mark is settled only when nothing still refers to it from above.
            key = next(k for k in pending if not self._used_above(k, pending))
            mark, splits = pending.pop(key)
            if key in done or not self._covers(mark, splits):
                return False
            done.add(key)
            if type(mark.source) is IterSumExpr:
                for s in mark.source.args:
                    pending.setdefault(id(s.source), (s.source, []))[1].append(s)
            else:
                # An iterator of one point need not appear.
                leaves += not B.is_one(mark.extent)
        return self.level != IterMapLevel.Bijective or leaves == input_count

    @staticmethod
    def _used_above(key: int, pending: Mapping[int, tuple[IterMark, Any]]) -> bool:
        for other, (mark, _) in pending.items():
            if other != key and type(mark.source) is IterSumExpr:
                stack = list(mark.source.args)
                while stack:
                    s = stack.pop()
                    if id(s.source) == key:
                        return True
                    if type(s.source.source) is IterSumExpr:
                        stack.extend(s.source.source.args)
        return False

    def _covers(self, mark: IterMark, splits: list[IterSplitExpr]) -> bool:
        expected: PrimExpr = B.const(mark.extent.dtype, 1)
        left = list(splits)
        while left:
            index = next((i for i, s in enumerate(left) if self.equal(s.lower_factor, expected)), None)
            if index is None:
                if self.level == IterMapLevel.Bijective:
                    return False
                index = self._skip(left, expected)
                if index is None:
                    return False
            s = left.pop(index)
            expected = self.times(s.lower_factor, s.extent)
        if self.level == IterMapLevel.Bijective:
            return self.equal(expected, mark.extent)
        return self.divides(mark.extent, expected) or self.equal(expected, mark.extent)

    def _skip(self, left: list[IterSplitExpr], expected: PrimExpr) -> int | None:
        best = None
        for i, s in enumerate(left):
            if not self.divides(s.lower_factor, expected):
                continue
            if best is None or self.analyzer.can_prove(LT(s.lower_factor, left[best].lower_factor)):
                best = i
        return best


def _without_factors(product: PrimExpr, divisor: PrimExpr) -> PrimExpr | None:
    """``product / divisor`` where the divisor's factors are all among the product's: exact, whatever their signs."""
    (left, scale), (gone, unit) = product_terms(product), product_terms(divisor)
    if unit == 0 or scale % unit:
        return None
    left = list(left)
    for factor in gone:
        place = next((i for i, f in enumerate(left) if B.deep_equal(f, factor)), None)
        if place is None:
            return None
        del left[place]
    rest: PrimExpr = B.const(product.dtype, scale // unit)
    if not left or scale == 0:
        return rest
    result: PrimExpr = left[0]
    for factor in left[1:]:
        result = B.mul(result, factor)
    return result if B.is_one(rest) else B.mul(result, rest)


def _key(e: PrimExpr) -> int:
    return e.value if type(e) is IntImm else id(e)


def _bind(analyzer: Analyzer, domains: Mapping[Any, Range], trivial: bool) -> None:
    for var, dom in domains.items():
        # Binding a range of one point would replace the variable, which is to stay when trivial iterators are kept.
        if trivial or not B.is_one(dom.extent):
            analyzer.bind(var, dom, True)


def _prepare(
    analyzer: Analyzer,
    inputs: Mapping[Any, Range],
    predicate: ExprLike,
    level: IterMapLevel,
    trivial: bool,
    overlaps: bool,
) -> IterMapRewriter:
    """A rewriter that knows the predicate. Raises IterMapError."""
    domains = {v: r for v, r in inputs.items()}
    bounds = bounds_of(as_expr(predicate), domains)
    if bounds is None:
        raise IterMapError("the predicate is not a conjunction of bounds on affine expressions")
    compound: list[tuple[PrimExpr, Any, Any]] = []
    for e, low, high in merged_bounds(bounds):
        if isinstance(e, Var) and e in domains:
            dom = domains[e]
            start = dom.min if low is None else analyzer.simplify(B.maximum(dom.min, low))
            end = B.add(dom.min, dom.extent)
            end = end if high is None else B.minimum(end, high)
            domains[e] = Range.from_min_extent(start, analyzer.simplify(B.sub(end, start)))
        else:
            compound.append((e, low, high))
    _bind(analyzer, domains, trivial)
    rewriter = IterMapRewriter(analyzer, domains, level, trivial, overlaps)
    for e, low, high in compound:
        rewriter.add_constraint(e, low, high)
    return rewriter


def detect(
    indices: Sequence[Any],
    inputs: Mapping[Any, Range],
    predicate: ExprLike,
    level: IterMapLevel,
    trivial: bool,
    analyzer: Analyzer | None = None,
    overlaps: bool = True,
) -> tuple[list[IterSumExpr], IterMapRewriter]:
    """The iterator sums and the rewriter that made them. Raises IterMapError.

    Without ``overlaps`` the terms of an index never meet: no two values of its iterators give the same one.
    A given ``analyzer`` knows the ranges of ``inputs`` afterwards, and nothing of the predicate.
    """
    if analyzer is None:
        return _detect(Analyzer(), indices, inputs, predicate, level, trivial, overlaps)
    try:
        return _detect(analyzer, indices, inputs, predicate, level, trivial, overlaps)
    finally:
        if not B.is_one(as_expr(predicate)):
            _bind(analyzer, inputs, trivial)


def _detect(
    analyzer: Analyzer,
    indices: Sequence[Any],
    inputs: Mapping[Any, Range],
    predicate: ExprLike,
    level: IterMapLevel,
    trivial: bool,
    overlaps: bool,
) -> tuple[list[IterSumExpr], IterMapRewriter]:
    rewriter = _prepare(analyzer, inputs, predicate, level, trivial, overlaps)
    out = [rewriter.rewrite(as_expr(e)) for e in indices]
    out = [rewriter.fuse(s) if rewriter.constrained else s for s in out]
    if not rewriter.check(out, sum(not B.is_one(m.extent) for m in rewriter.inputs)):
        raise IterMapError("the indices do not cover the iterators as the check level demands")
    return out, rewriter


def detect_separate_iters(
    indices: Sequence[Any],
    input_iters: Mapping[Any, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> tuple[IterSumExpr, ...]:
    """As :func:`detect_iter_map`, of indices whose terms never meet; empty if they do, or are no iterators."""
    try:
        return tuple(
            detect(indices, input_iters, predicate, check_level, simplify_trivial_iterators, analyzer, False)[0]
        )
    except IterMapError:
        return ()


def detect_iter_map(
    indices: Sequence[Any],
    input_iters: Mapping[Any, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Whether ``indices`` are independent splits and fusions of ``input_iters``; empty ``indices`` if not.

    Terms may overlap where the map need not be bijective: ``x * 7 + y`` with ten values of ``y``.
    ``analyzer`` brings facts on symbolic extents; the iterators are bound in it.
    """
    level = IterMapLevel.from_str(check_level) if isinstance(check_level, str) else IterMapLevel(check_level)
    try:
        found, rewriter = detect(indices, input_iters, predicate, level, simplify_trivial_iterators, analyzer)
    except IterMapError as error:
        return IterMapResult((), (str(error),), B.false())
    return IterMapResult(tuple(found), (), rewriter.padding)


def normalize_iter_map_to_expr(e: PrimExpr) -> PrimExpr:
    """The plain expression of an iterator map."""
    if type(e) is IterSumExpr:
        result: PrimExpr = B.const(e.base.dtype, 0)
        for arg in e.args:
            result = B.add(result, normalize_iter_map_to_expr(arg))
        return B.add(result, e.base)
    if type(e) is not IterSplitExpr:
        return e
    source = e.source.source
    value: PrimExpr = normalize_iter_map_to_expr(source) if type(source) is IterSumExpr else source
    total = e.source.extent
    lower, extent = e.lower_factor, e.extent
    if B.is_one(extent) and not B.is_one(total):
        return B.const(e.dtype, 0)
    covered = B.mul(lower, extent)
    whole = B.deep_equal(covered, total) or _provably_equal(covered, total)
    if not whole and not (type(covered) is IntImm and type(total) is IntImm):
        whole = Analyzer().can_prove_equal(covered, total)
    if not B.is_one(lower) or not whole:
        # The modulus goes inside, the division outside: both see non-negative values.
        if not whole:
            value = B.floormod(value, covered)
        value = B.floordiv(value, lower)
    return B.mul(value, e.scale)


def _provably_equal(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two extents are the same; constants that differ are not worth an analysis."""
    if type(a) is IntImm and type(b) is IntImm:
        return a.value == b.value
    return Analyzer().can_prove_equal(a, b)


def iter_map_simplify(
    indices: Sequence[Any],
    input_iters: Mapping[Any, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """Indices rewritten through their iterator map; as they are when they have none, not even without the predicate.

    ``analyzer`` brings facts on symbolic extents; the iterators are bound in it.

    >>> from relaxish import arith, tir
    >>> from relaxish.ir import Range
    >>> x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    >>> arith.iter_map_simplify([x // 4 * 4 + x % 4 + y * 8], {x: Range(0, 8), y: Range(0, 4)})
    [y * 8 + x]
    """
    level = IterMapLevel.from_str(check_level) if isinstance(check_level, str) else IterMapLevel(check_level)
    exprs = [as_expr(e) for e in indices]
    always = B.is_one(as_expr(predicate))
    for condition in [predicate] if always or level == IterMapLevel.Bijective else [predicate, True]:
        try:
            found = detect(exprs, input_iters, condition, level, simplify_trivial_iterators, analyzer or Analyzer())[0]
        except IterMapError:
            continue
        return [normalize_iter_map_to_expr(e) for e in found]
    return exprs


def normalize_to_iter_sum(index: PrimExpr, input_iters: Mapping[Any, Range]) -> IterSumExpr:
    """``index`` as a sum of splits, fused only where that keeps every term; strides from large to small."""
    analyzer = Analyzer()
    for var, dom in input_iters.items():
        analyzer.bind(var, dom, True)
    rewriter = IterMapRewriter(analyzer, input_iters, IterMapLevel.NoCheck, True)
    try:
        total = rewriter.to_sum(rewriter.mutate(analyzer.simplify(index)))
    except IterMapError as error:
        raise ValueError(str(error)) from None
    constants = [s for s in total.args if type(s.scale) is IntImm]
    symbolic = [s for s in total.args if type(s.scale) is not IntImm]
    constants.sort(key=lambda s: (-s.scale.value, -_const_or(s.extent, 0)))  # type: ignore[attr-defined]
    return IterSumExpr([*symbolic, *constants], total.base)


def _const_or(e: PrimExpr, default: int) -> int:
    return e.value if type(e) is IntImm else default


__all__ = [
    "IterMapError", "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr",
    "IterMapRewriter", "detect", "detect_iter_map", "detect_separate_iters", "iter_map_simplify", "lcm", "normalize_iter_map_to_expr",
    "normalize_to_iter_sum", "substitute",
]  # fmt: skip
