"""Ranges under an index map, and its inverse, through the iterator-map analysis."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.expr import PrimExpr, Range
from ..support.errors import RelaxishError
from ..ir.prim import Var, const
from .. import arith
from ..arith import Analyzer, IterSumExpr
from ..arith.build import as_int
from ..arith.iter_map import IterMapError, detect
from .functor import substitute
from .index_map import IndexMap

__all__ = ["invert", "map_ranges"]


def map_ranges(index_map: IndexMap, ranges: Sequence[Range], analyzer: Analyzer | None = None) -> list[Range]:
    """Ranges covering the image of ``ranges``; see :meth:`IndexMap.map_ranges`."""
    analyzer = analyzer if analyzer is not None else arith.Analyzer()
    if not index_map.initial_indices:
        return [Range.from_min_extent(e, const(1, e.dtype)) for e in index_map.final_indices]
    domain = {var: _typed(rng, var.dtype) for var, rng in zip(index_map.initial_indices, ranges)}
    found = arith.detect_iter_map(
        list(index_map.final_indices), domain, const(1, "bool"), arith.IterMapLevel.NoCheck, False
    )
    if found.indices:
        return [_extent_of(item, analyzer) for item in found.indices]
    out = []
    sets = {var: arith.IntervalSet(r.min, analyzer.simplify(r.min + r.extent - 1)) for var, r in domain.items()}
    for expr in index_map.final_indices:
        interval = analyzer.int_set(expr, sets)
        low = interval.min_value
        out.append(Range.from_min_extent(analyzer.simplify(low), analyzer.simplify(interval.max_value - low + 1)))
    return out


def _typed(rng: Range, dtype: str) -> Range:
    """The range in the integer type of the index it belongs to."""
    if rng.min.dtype == dtype and rng.extent.dtype == dtype:
        return rng
    return Range.from_min_extent(rng.min.astype(dtype), rng.extent.astype(dtype))


def _extent_of(item: IterSumExpr, analyzer: Analyzer) -> Range:
    """An iterator sum covers ``[base, base + extent)``, the extent being scale times that of its outermost part."""
    if not item.args:
        return Range.from_min_extent(item.base, const(1, item.base.dtype))
    extent: PrimExpr = const(1, item.base.dtype)
    for split in item.args:
        extent = extent + (split.extent - const(1, split.extent.dtype)) * split.scale
    return Range.from_min_extent(analyzer.simplify(item.base), analyzer.simplify(extent))


def invert(
    index_map: IndexMap, ranges: Sequence[Range], level: arith.IterMapLevel = arith.IterMapLevel.NoCheck
) -> tuple[IndexMap, PrimExpr]:
    """An inverse of the map and the padding condition in terms of the new indices."""
    analyzer = arith.Analyzer()
    outputs: list[Var] = []
    for number, expr in enumerate(index_map.final_indices):
        name = expr.name if isinstance(expr, Var) and expr in index_map.initial_indices else f"axis{number}"
        outputs.append(Var(name, expr.dtype))
    ranges = [_typed(rng, var.dtype) for var, rng in zip(index_map.initial_indices, ranges)]
    domain = dict(zip(index_map.initial_indices, ranges))
    try:
        found, rewriter = detect(index_map.final_indices, domain, const(1, "bool"), level, False, overlaps=False)
    except IterMapError as error:
        raise RelaxishError(f"Could not parse mapping as sum of iterators. Error: {error}") from None
    mapped = arith.inverse_affine_iter_map(found, list(outputs))
    final: list[PrimExpr] = []
    for var, rng in zip(index_map.initial_indices, ranges):
        old = mapped.get(var)
        if old is None:
            if as_int(rng.extent) != 1:
                raise RelaxishError(f"the map drops index {var.name}, so it has no inverse")
            old = rng.min
        final.append(analyzer.simplify(old))
    # Quotients and remainders of the old indices fall away once the ranges of the new ones are known.
    for var, rng in zip(outputs, map_ranges(index_map, ranges, analyzer)):
        analyzer.bind(var, rng)
    padding = substitute(rewriter.padding, dict(zip(index_map.initial_indices, final)))
    padding = analyzer.simplify(padding, 10)
    return IndexMap(outputs, final), padding
