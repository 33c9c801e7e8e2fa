"""Guards that a block keeps wherever it is moved: its predicate in terms of its own variables, and the ends of its
buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const
from ...buffer import Buffer
from ...expr import IntImm, Var
from ...functor import substitute
from ...op import all as tir_all
from ...stmt import BlockRealize, For
from .. import checks
from ..block_info import loop_ranges
from ..errors import PrimitiveError
from ..region import evaluate_region
from ..sref import StmtSRef
from ..subst import conjuncts, realize_of
from ..walk import vars_in
from .domains import VarDomain

__all__ = ["check_stays_in_bounds", "own_guards"]


def own_guards(block: StmtSRef, strict: bool) -> list[Any]:
    """Conditions of the predicate on the block's variables that are stronger than their domains.

    A guard that a split left merely keeps the binding in its domain, and goes with the loops that it belonged to; the
    guard that reverse_compute_inline of a crop leaves excludes elements, wherever the block goes. With ``strict``, one
    that excludes elements and speaks of loops that are no variable of the block raises PrimitiveError.
    """
    realize = realize_of(block)
    if checks.is_one(realize.predicate):
        return []
    loops = [loop.stmt for loop in checks.loops_above(block)]
    units = {loop.loop_var: loop.min for loop in loops if checks.is_one(loop.extent)}
    left = {loop.loop_var for loop in loops}
    analyzer = Analyzer()
    bound: list[tuple[Any, Any]] = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        analyzer.bind(iv.var, iv.dom)
        bound.append((iv.var, analyzer.simplify(substitute(value, units))))
    guards, others = [], []
    for term in conjuncts(realize.predicate):
        condition = _on_variables(substitute(term, units), bound, left, analyzer)
        if any(var in left for var in vars_in(condition)):
            others.append(term)
        elif not analyzer.can_prove(condition):
            guards.append(condition)
    if strict and others and not _exclude_nothing(realize, others, loops):
        raise PrimitiveError(
            f"The block {{0}} runs under {tir_all(*others)}, which is no condition on its variables and would be lost.",
            [block],
        )
    return guards


def _on_variables(term: Any, bound: Sequence[tuple[Any, Any]], loops: set[Any], analyzer: Analyzer) -> PrimExpr:
    """A term with block variables for the loops that drive them, as far as that is possible."""
    plain = {value: var for var, value in reversed(bound) if isinstance(value, Var)}
    condition: PrimExpr = substitute(term, plain)
    if hasattr(term, "a") and any(var in loops for var in vars_in(condition)):
        for var, value in bound:
            rest = analyzer.simplify(term.a - value)
            if not any(v in loops for v in vars_in(rest)):
                return type(term)(analyzer.simplify(var + rest), term.b)
    return condition


def _exclude_nothing(realize: BlockRealize, terms: Sequence[Any], loops: Sequence[For]) -> bool:
    """Whether a block runs over all of its domain, or ``terms`` of its predicate only keep it within that."""
    if checks.guarded_by_bounds_only(realize.with_fields(predicate=tir_all(*terms)), loops):
        return True
    analyzer = Analyzer()
    ranges = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    points = [Range.from_min_extent(value, const(1, value.dtype)) for value in realize.iter_values]
    box = evaluate_region(points, ranges, realize.predicate, analyzer, lower_bound=True)
    return box is not None and all(
        analyzer.can_prove(tir_all(low <= iv.dom.min, iv.dom.min + iv.dom.extent <= high + 1))
        for (low, high), iv in zip(box, realize.block.iter_vars, strict=True)
    )


def check_stays_in_bounds(
    block: StmtSRef, solved: Sequence[VarDomain], guards: Sequence[Any], analyzer: Analyzer
) -> None:
    """Refuse a move after which a block accesses its buffers beyond their ends, if it does not do so where it is.

    The domain of a block may be larger than what it runs over: of a padded copy that was cropped, say. ``analyzer``
    knows the loops around the new place.
    """
    realize = realize_of(block)
    regions = [
        (region.buffer, dim, int(extent.value))
        for region in (*block.stmt.writes, *block.stmt.reads)
        for dim, extent in zip(region.region, region.buffer.shape, strict=True)
        if isinstance(extent, IntImm)
    ]
    bounds = analyzer.const_int_bound
    runs = []
    for iv, (asked, bound) in zip(block.stmt.iter_vars, solved, strict=True):
        if not (isinstance(iv.dom.min, IntImm) and isinstance(iv.dom.extent, IntImm)):
            return
        known = [r for r in (asked, bound) if r is not None]
        low = max(iv.dom.min.value, *(bounds.bound(r[0])[0] for r in known))
        high = min(iv.dom.min.value + iv.dom.extent.value - 1, *(bounds.bound(r[1])[1] for r in known))
        runs.append((iv.var, low, high))
    beyond = _beyond(regions, runs, guards)
    if not beyond:
        return
    here = Analyzer()
    here.bind_map(loop_ranges(block.parent))
    with here.constraint_scope(realize.predicate):
        before = [
            (iv.var, max(iv.dom.min.value, low), min(iv.dom.min.value + iv.dom.extent.value - 1, high))
            for iv, value in zip(block.stmt.iter_vars, realize.iter_values, strict=True)
            for low, high in [here.const_int_bound.bound(value)]
        ]
    already = _beyond(regions, before, guards)
    buffer = next((b for place, b in beyond.items() if place not in already), None)
    if buffer is not None:
        raise PrimitiveError(
            f"The block {{0}} would run over values that lie beyond the end of {buffer.name}, which it leaves out where "
            "it is.",
            [block],
        )


def _beyond(
    regions: Sequence[tuple[Buffer, Range, int]], runs: Sequence[tuple[Any, int, int]], guards: Sequence[Any]
) -> dict[int, Buffer]:
    """The buffers that some of the dimensions leave, by position of the dimension, while variables run low to high."""
    analyzer = Analyzer()
    for var, low, high in runs:
        analyzer.bind(var, Range(low, max(low, high) + 1))
    out = {}
    with analyzer.constraint_scope(tir_all(*guards)) if guards else nullcontext():
        bounds = analyzer.const_int_bound
        for place, (buffer, dim, extent) in enumerate(regions):
            if bounds.bound(dim.min)[0] < 0 or bounds.bound(dim.min + dim.extent - 1)[1] >= extent:
                out[place] = buffer
    return out
