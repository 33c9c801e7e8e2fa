"""Dividing an iterator map into outer and inner spaces, and inverting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import ExprLike
from . import build as B
from ._ir import PrimExpr, Range, Var
from .analyzer import Analyzer
from .functor import free_vars, substitute
from .iter_map import (
    IterMapError, IterMapLevel, IterMark, IterSplitExpr, IterSumExpr, detect, normalize_iter_map_to_expr,
)  # fmt: skip


class _Division:
    """One expression as ``outer * inner_extent + inner``."""

    __slots__ = ("inner", "inner_extent", "outer", "outer_extent")

    def __init__(self, outer: IterSumExpr, outer_extent: PrimExpr, inner: IterSumExpr, inner_extent: PrimExpr) -> None:
        self.outer = outer
        self.outer_extent = outer_extent
        self.inner = inner
        self.inner_extent = inner_extent

    @property
    def is_outer(self) -> bool:
        """Nothing inside."""
        return not self.inner.args and B.is_one(self.inner_extent)

    @property
    def is_inner(self) -> bool:
        """Nothing outside."""
        return not self.outer.args and B.is_one(self.outer_extent)


class _Divider:
    def __init__(self, analyzer: Analyzer, sub_vars: set[int]) -> None:
        self.analyzer = analyzer
        self.sub_vars = sub_vars
        self.marks: dict[int, _Division] = {}
        self.split_map: dict[Any, _Division] = {}
        self.outer_pred: PrimExpr = B.true()
        self.inner_pred: PrimExpr = B.true()

    def _const(self, e: PrimExpr, value: int) -> PrimExpr:
        return B.const(e.dtype, value)

    def _empty(self, e: PrimExpr) -> IterSumExpr:
        return IterSumExpr((), self._const(e, 0))

    def divide_sum(self, total: IterSumExpr, limit: PrimExpr | None = None) -> _Division:
        """Divide a sum; ``limit`` is the extent of a mark that a predicate may have cut."""
        one = self._const(total, 1)
        if not total.args:
            return _Division(self._empty(total), one, IterSumExpr((), total.base), one)
        parts = [(s, self.divide_split(s)) for s in total.args]
        if len(parts) == 1 and limit is None:
            s, d = parts[0]
            if B.is_one(s.scale):
                if not B.is_zero(total.base):
                    target = d.inner if not d.is_outer else d.outer
                    moved = IterSumExpr(target.args, self.analyzer.simplify(B.add(target.base, total.base)))
                    if d.is_outer:
                        return _Division(moved, d.outer_extent, d.inner, d.inner_extent)
                    return _Division(d.outer, d.outer_extent, moved, d.inner_extent)
                return d
        inner_args: list[IterSplitExpr] = []
        outer_args: list[tuple[IterSplitExpr, PrimExpr]] = []
        inner_extent: PrimExpr = one
        outer_extent: PrimExpr = one
        seen_outer = False
        mul = B.mul  # As they come, from the innermost outwards: extents become domains of blocks.
        for s, d in reversed(parts):
            if d.is_outer:
                seen_outer = True
                outer_args.append((self._as_split(d.outer, d.outer_extent), s.scale))
                outer_extent = mul(outer_extent, d.outer_extent)
            elif d.is_inner:
                if seen_outer:
                    raise IterMapError("an inner iterator lies outside an outer one")
                inner_args.append(self._rescale(self._as_split(d.inner, d.inner_extent), s.scale))
                inner_extent = mul(inner_extent, d.inner_extent)
            else:
                if seen_outer:
                    raise IterMapError("an inner iterator lies outside an outer one")
                seen_outer = True
                inner_args.append(self._rescale(self._as_split(d.inner, d.inner_extent), s.scale))
                inner_extent = mul(inner_extent, d.inner_extent)
                outer_args.append((self._as_split(d.outer, d.outer_extent), self._times(s.scale, d.inner_extent)))
                outer_extent = mul(outer_extent, d.outer_extent)
        return self._assemble(total, inner_args, outer_args, inner_extent, outer_extent, limit)

    def _assemble(
        self,
        total: IterSumExpr,
        inner_args: list[IterSplitExpr],
        outer_args: list[tuple[IterSplitExpr, PrimExpr]],
        inner_extent: PrimExpr,
        outer_extent: PrimExpr,
        limit: PrimExpr | None,
    ) -> _Division:
        zero = self._const(total, 0)
        scaled = []
        for s, scale in outer_args:
            factor = self.analyzer.simplify(B.floordiv(scale, inner_extent))
            if not self.analyzer.can_prove_equal(B.mul(factor, inner_extent), scale):
                raise IterMapError("an outer scale is no multiple of the inner extent")
            scaled.append(self._rescale(s, factor))
        pure_outer = not inner_args
        base = total.base
        outer = IterSumExpr(tuple(reversed(scaled)), base if pure_outer else zero)
        inner = IterSumExpr(tuple(reversed(inner_args)), zero if pure_outer else base)
        if limit is not None:
            covered = self._times(outer_extent, inner_extent)
            if not self.analyzer.can_prove_equal(covered, limit):
                self._add_predicate(outer, inner, outer_extent, inner_extent, limit)
                if pure_outer:
                    outer_extent = limit
                elif not outer.args:
                    inner_extent = limit
        return _Division(outer, outer_extent, inner, inner_extent)

    def _add_predicate(
        self, outer: IterSumExpr, inner: IterSumExpr, outer_extent: PrimExpr, inner_extent: PrimExpr, limit: PrimExpr
    ) -> None:
        value = B.add(B.mul(normalize_iter_map_to_expr(outer), inner_extent), normalize_iter_map_to_expr(inner))
        cond = B.lt(value, limit)
        used = [id(v) in self.sub_vars for v in free_vars(value)]
        if used and not any(used):
            self.outer_pred = B.and_(self.outer_pred, cond)
        else:
            self.inner_pred = B.and_(self.inner_pred, cond)

    def _times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(B.mul(a, b))

    def _rescale(self, s: IterSplitExpr, scale: PrimExpr) -> IterSplitExpr:
        return IterSplitExpr(s.source, s.lower_factor, s.extent, self._times(s.scale, scale))

    def _as_split(self, total: IterSumExpr, extent: PrimExpr) -> IterSplitExpr:
        if len(total.args) == 1 and B.is_one(total.args[0].scale) and B.is_zero(total.base):
            return total.args[0]
        return IterSplitExpr(IterMark(total, extent))

    def divide_split(self, s: IterSplitExpr) -> _Division:
        """Divide one split, its own scale apart."""
        key = (id(s.source), _value(s.lower_factor), _value(s.extent))
        found = self.split_map.get(key)
        if found is not None:
            return found
        one = self._const(s, 1)
        source = s.source.source
        bare = IterSplitExpr(s.source, s.lower_factor, s.extent)
        if type(source) is not IterSumExpr:
            is_inner = all(id(v) in self.sub_vars for v in free_vars(source))
            total = IterSumExpr((bare,), self._const(s, 0))
            result = (
                _Division(self._empty(s), one, total, s.extent)
                if is_inner
                else _Division(total, s.extent, self._empty(s), one)
            )
        else:
            result = self._divide_fused(s, source)
        self.split_map[key] = result
        return result

    def _divide_fused(self, s: IterSplitExpr, source: IterSumExpr) -> _Division:
        mark = self.marks.get(id(s.source))
        if mark is None:
            mark = self.marks[id(s.source)] = self.divide_sum(source, s.source.extent)
        one = self._const(s, 1)
        if mark.is_inner or mark.is_outer:
            # Below, too, only what was divided: a part of the other space may have dropped out of an inner sum.
            part = IterMark(mark.inner if mark.is_inner else mark.outer, s.source.extent)
            total = IterSumExpr((IterSplitExpr(part, s.lower_factor, s.extent),), self._const(s, 0))
            if mark.is_inner:
                return _Division(self._empty(s), one, total, s.extent)
            return _Division(total, s.extent, self._empty(s), one)
        whole = B.is_one(s.lower_factor) and self.analyzer.can_prove_equal(s.extent, s.source.extent)
        if whole:
            return mark
        top = self._times(s.lower_factor, s.extent)
        inner_mark = IterMark(mark.inner, mark.inner_extent)
        outer_mark = IterMark(mark.outer, mark.outer_extent)
        if self._divisible(mark.inner_extent, top):
            made = IterSplitExpr(inner_mark, s.lower_factor, s.extent)
            return _Division(self._empty(s), one, IterSumExpr((made,), self._const(s, 0)), s.extent)
        if self._divisible(s.lower_factor, mark.inner_extent):
            lower = self.analyzer.simplify(B.floordiv(s.lower_factor, mark.inner_extent))
            made = IterSplitExpr(outer_mark, lower, s.extent)
            return _Division(IterSumExpr((made,), self._const(s, 0)), s.extent, self._empty(s), one)
        if self._divisible(mark.inner_extent, s.lower_factor) and self._divisible(top, mark.inner_extent):
            low_extent = self.analyzer.simplify(B.floordiv(mark.inner_extent, s.lower_factor))
            high_extent = self.analyzer.simplify(B.floordiv(top, mark.inner_extent))
            low = IterSplitExpr(inner_mark, s.lower_factor, low_extent)
            high = IterSplitExpr(outer_mark, one, high_extent)
            zero = self._const(s, 0)
            return _Division(IterSumExpr((high,), zero), high_extent, IterSumExpr((low,), zero), low_extent)
        raise IterMapError("a split cuts through the boundary of the inner space")

    def _divisible(self, a: PrimExpr, b: PrimExpr) -> bool:
        return self.analyzer.can_prove_equal(B.floormod(a, b), self._const(a, 0))


def _value(e: PrimExpr) -> int:
    value = B.as_int(e)
    return id(e) if value is None else value


def subspace_divide(
    bindings: Sequence[PrimExpr],
    input_iters: Mapping[Any, Range],
    sub_iters: Sequence[Var],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> list[list[IterMark]]:
    """Each binding as ``[outer, inner]`` marks with ``binding == outer * inner.extent + inner``.

    The extents of the last pair are the outer and inner predicates. Empty where the bindings cannot be divided.
    """
    level = IterMapLevel.from_str(check_level) if isinstance(check_level, str) else IterMapLevel(check_level)
    analyzer = Analyzer()
    try:
        sums, rewriter = detect(bindings, input_iters, predicate, level, simplify_trivial_iterators, analyzer, False)
        if not B.is_zero(rewriter.padding):
            return []
        divider = _Divider(analyzer, {id(v) for v in sub_iters})
        out = []
        for total in sums:
            d = _divide_index(divider, total)
            out.append([IterMark(d.outer, d.outer_extent), IterMark(d.inner, d.inner_extent)])
    except IterMapError:
        return []
    nothing = IterSumExpr((), B.const("int32", 0))
    out.append([IterMark(nothing, divider.outer_pred), IterMark(nothing, divider.inner_pred)])
    return out


def _divide_index(divider: _Divider, total: IterSumExpr) -> _Division:
    return divider.divide_sum(total)


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[Any]) -> dict[Var, PrimExpr]:
    """Each input variable in terms of the outputs of a bijective map, as it comes (not simplified).

    >>> from relaxish import arith, tir
    >>> from relaxish.ir import Range
    >>> i, a, b = (tir.Var(name, "int32") for name in "iab")
    >>> found = arith.detect_iter_map([i // 4, i % 4], {i: Range(0, 16)}, check_level="bijective")
    >>> arith.inverse_affine_iter_map(found.indices, [a, b])[i]
    b + a * 4
    """
    values: dict[int, PrimExpr] = {}
    marks: dict[int, IterMark] = {}
    order: list[int] = []

    def visit(s: IterSplitExpr) -> None:
        mark = s.source
        if id(mark) in marks:
            return
        marks[id(mark)] = mark
        if type(mark.source) is IterSumExpr:
            for inner in mark.source.args:
                visit(inner)
        order.append(id(mark))

    for total in iter_map:
        for s in total.args:
            visit(s)

    def back(total: IterSumExpr, output: PrimExpr) -> None:
        """Give the parts of a sum their shares, the last part first; the first part needs no modulus."""
        value = B.sub(output, total.base)
        for position in reversed(range(len(total.args))):
            s = total.args[position]
            if len(total.args) == 1:
                share = value if B.is_one(s.scale) else B.floordiv(value, s.scale)
            else:
                share = B.floordiv(value, s.scale)
                share = share if position == 0 else B.floormod(share, s.extent)
            share = B.mul(share, s.lower_factor)
            old = values.get(id(s.source))
            values[id(s.source)] = share if old is None else B.add(old, share)

    for total, output in reversed(list(zip(iter_map, outputs))):
        back(total, output)
    result: dict[Var, PrimExpr] = {}
    for key in reversed(order):
        source: Any = marks[key].source
        value = values[key]
        if type(source) is IterSumExpr:
            back(source, value)
        elif isinstance(source, Var):
            result[source] = value
        else:  # var - min
            result[source.a] = B.add(value, source.b)
    return result


__all__ = ["inverse_affine_iter_map", "subspace_divide", "substitute"]
