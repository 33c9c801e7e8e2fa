"""Estimating the region that multi-dimensional indices touch while variables run over ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import ExprLike
from . import build as B
from ._ir import IntImm, PrimExpr, Range
from .analyzer import Analyzer
from .functor import free_vars
from .int_set import IntervalSet, from_min_extent, intersect, normalize_dom_map, IntSetEvaluator, simplify_set, union
from .iter_map import IterMapError, IterMapLevel, IterSumExpr, detect, normalize_iter_map_to_expr


def _touched_dim(analyzer: Analyzer, total: IterSumExpr, extent: PrimExpr) -> IntervalSet | None:
    """The exact interval of one dimension of a region whose start is an iterator sum."""
    if not total.args:
        return from_min_extent(total.base, extent)
    if len(total.args) != 1:
        return None
    split = total.args[0]
    one = B.const(total.dtype, 1)
    falling = analyzer.can_prove(B.lt(split.scale, B.const(total.dtype, 0)))
    if not falling and not analyzer.can_prove_greater_equal(split.scale, 0):
        return None
    # Steps larger than the extent leave holes: no interval then.
    step = B.sub(B.const(total.dtype, 0), split.scale) if falling else split.scale
    if not analyzer.can_prove(B.ge(extent, step)):
        return None
    if falling:
        low = B.add(total.base, B.mul(B.sub(split.extent, one), split.scale))
        return IntervalSet(analyzer.simplify(low), analyzer.simplify(B.add(total.base, B.sub(extent, one))))
    top = B.add(B.add(total.base, B.mul(B.sub(split.extent, one), split.scale)), B.sub(extent, one))
    return IntervalSet(analyzer.simplify(total.base), analyzer.simplify(top))


def _skips_no_padding(analyzer: Analyzer, sums: Sequence[IterSumExpr]) -> bool:
    """Whether an iterator that was rounded up to split it still touches all values: its quotient on its own may.

    Of ``i % 7`` or of ``(i // 7, i % 7)`` over two iterations most would be padding.
    """
    moving = [total for total in sums if total.args]
    if len(moving) != 1 or len(moving[0].args) != 1:
        return not moving
    split = moving[0].args[0]
    whole, rounded = split.source.extent, split.source.source
    if not B.deep_equal(B.mul(split.lower_factor, split.extent), whole):
        return False
    if type(rounded) is not IterSumExpr or len(rounded.args) != 1 or not B.is_one(rounded.args[0].scale):
        return False
    before, own = rounded.base, rounded.args[0].extent
    ends = (before, B.sub(B.sub(whole, before), own))
    return all(analyzer.can_prove(B.lt(end, split.lower_factor)) for end in ends)


def estimate_region_strict_bound(
    region: Sequence[Range], var_dom: Mapping[Any, Range], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet] | None:
    """The exact region, or None where it is no box; ``analyzer`` brings facts on free variables."""
    analyzer = analyzer or Analyzer()
    for var, dom in var_dom.items():
        analyzer.bind(var, dom, True)
    if any(type(r.extent) is not IntImm and any(v in var_dom for v in free_vars(r.extent)) for r in region):
        return None  # of no one size
    mins = [r.min for r in region]
    try:
        sums, rewriter = detect(mins, var_dom, predicate, IterMapLevel.Surjective, True, analyzer)
    except IterMapError:
        return None
    if not B.is_zero(rewriter.padding) and not _skips_no_padding(analyzer, sums):
        return None
    out = []
    for total, r in zip(sums, region):
        dim = _touched_dim(analyzer, total, r.extent)
        if dim is None:
            return None
        out.append(dim)
    return out


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Mapping[Any, Range], predicate: ExprLike = True
) -> list[IntervalSet] | None:
    """A region that is certainly touched, or None where none is known."""
    if all(type(r.min) is IntImm and type(r.extent) is IntImm for r in region):
        return [from_min_extent(r.min, r.extent) for r in region]
    return estimate_region_strict_bound(region, var_dom, predicate)


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Any, Range], predicate: ExprLike = True, analyzer: Analyzer | None = None
) -> list[IntervalSet]:
    """A region that covers everything touched; ``analyzer`` brings facts on free variables."""
    exact = estimate_region_strict_bound(region, var_dom, predicate, analyzer)
    if exact is not None:
        return exact
    analyzer = analyzer or Analyzer()
    domains = normalize_dom_map(var_dom)
    one = B.const("int32", 1)
    out = []
    for r in region:
        hull = _single_dim(r, var_dom, predicate, analyzer)
        if hull is None:
            top = B.sub(B.add(r.min, r.extent), B.const(r.min.dtype, 1) if r.min.dtype != one.dtype else one)
            if type(r.extent) is not IntImm:
                top = analyzer.simplify(top)  # of the extent of a hull its begin cancels
            evaluator = IntSetEvaluator(analyzer, domains, True)
            hull = evaluator.eval_interval(IntervalSet(r.min, top))
        out.append(simplify_set(analyzer, hull))
    return out


def _single_dim(r: Range, var_dom: Mapping[Any, Range], predicate: ExprLike, analyzer: Analyzer) -> IntervalSet | None:
    """One dimension on its own; its iterators need not be independent of other dimensions."""
    exact = estimate_region_strict_bound([r], var_dom, predicate, analyzer)
    return exact[0] if exact is not None else None


def union_lower_bound(sets: Sequence[Any]) -> IntervalSet:
    """An interval inside the union of ``sets``: merged where they certainly touch, else the first."""
    from .int_set import nothing, to_int_set

    analyzer = Analyzer()
    items = [to_int_set(s) for s in sets]
    if not items:
        return nothing()
    result = items[0]
    for other in items[1:]:
        if other.is_nothing():
            continue
        if _reaches(analyzer, result, other) and _reaches(analyzer, other, result):
            result = union(analyzer, result, other)
    return simplify_set(analyzer, result)


def _reaches(analyzer: Analyzer, a: IntervalSet, b: IntervalSet) -> bool:
    """Whether ``a`` certainly ends no earlier than just below the start of ``b``."""
    if not a.has_upper() or not b.has_lower():
        return True
    return analyzer.can_prove(B.le(b.min_value, B.add(a.max_value, B.const(a.max_value.dtype, 1))))


__all__ = [
    "estimate_region_lower_bound", "estimate_region_strict_bound", "estimate_region_upper_bound", "free_vars",
    "intersect", "normalize_iter_map_to_expr", "union_lower_bound",
]  # fmt: skip
