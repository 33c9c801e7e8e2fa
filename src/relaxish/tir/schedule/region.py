"""Regions a block touches, seen from an outer loop: boxes given as (min, max) pairs per dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer, estimate_region_lower_bound, estimate_region_upper_bound, neg_inf, pos_inf
from ...arith.affine import Term, affine
from ...ir.expr import PrimExpr, Range
from ...ir.prim import IntImm, Var, const
from ..functor import substitute
from ..op import max as tir_max
from ..op import min as tir_min
from ..stmt import BlockRealize, BufferRegion, For
from .sref import StmtSRef
from .subst import conjuncts, is_true, realize_of
from .walk import vars_in

__all__ = [
    "box_to_ranges",
    "evaluate_region",
    "leaves_gaps",
    "loops_between",
    "may_be_left_out",
    "relax_region",
    "union_sets",
]

Box = list[tuple[Any, Any]]


def loops_between(low: StmtSRef | None, high: StmtSRef | None, extra_scope: str = "") -> dict[Any, Any]:
    """Ranges of the loops from ``low`` (included) up to ``high`` (excluded) or the nearest block.

    With ``extra_scope`` "shared", "warp" and so on, thread loops further out that such memory spans count too.
    """
    out: dict[Any, Any] = {}
    at = low
    while at is not None and at is not high and at.is_loop:
        out[at.stmt.loop_var] = Range.from_min_extent(at.stmt.min, at.stmt.extent)
        at = at.parent
    if extra_scope not in ("", "global"):
        while at is not None:
            loop = at.stmt
            if isinstance(loop, For) and loop.thread_binding is not None:
                if scope_spans_thread(extra_scope, loop.thread_binding.thread_tag):
                    out[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
            at = at.parent
    return out


def scope_spans_thread(storage_scope: str, thread_tag: str) -> bool:
    """Whether memory of this scope is one for all threads of this kind."""
    is_thread_idx = thread_tag.startswith(("threadIdx", "vthread", "cthread"))
    if storage_scope.startswith("global"):
        return is_thread_idx or thread_tag.startswith("blockIdx")
    if storage_scope.startswith("shared"):
        return is_thread_idx
    return storage_scope.startswith("warp") and thread_tag == "threadIdx.x"


class _NotLinear(Exception):
    """Interval evaluation by hand does not apply."""


def _sum(rest: Sequence[Term[int]], constant: int, dtype: str) -> PrimExpr:
    made: Any = None
    for each in rest:
        term = each.var if each.coef == 1 else each.var * const(each.coef, dtype)
        made = term if made is None else made + term
    if made is None:
        return const(constant, dtype)
    if constant > 0:
        return made + const(constant, dtype)
    return made if constant == 0 else made - const(-constant, dtype)


def _quick_dim(dim: Range, doms: Mapping[Any, Any], exact: bool, taken: set[Any]) -> tuple[Any, Any]:
    """The interval of one dimension; ``exact`` demands that every point of it is really touched."""
    if type(dim.extent) is not IntImm:
        raise _NotLinear
    form = affine(dim.min, digits=False, casts=False)
    coefs = {t.var: t.coef for t in form.terms if t.var in doms}
    rest = [t for t in form.terms if t.var not in doms]
    if any(not isinstance(t.var, Var) and any(v in doms for v in vars_in(t.var)) for t in rest):
        raise _NotLinear
    low = high = form.const
    reach = int(dim.extent.value)
    high += reach - 1
    for var, coef in sorted(coefs.items(), key=lambda item: abs(item[1])):
        dom = doms[var]
        if type(dom.extent) is not IntImm or type(dom.min) is not IntImm:
            raise _NotLinear
        first, last = int(dom.min.value), int(dom.min.value + dom.extent.value) - 1
        if exact:
            if var in taken or coef > reach or coef < 0:
                raise _NotLinear
            taken.add(var)
            reach += coef * (last - first)
        low += coef * (first if coef > 0 else last)
        high += coef * (last if coef > 0 else first)
    dtype = dim.min.dtype
    return _sum(rest, low, dtype), _sum(rest, high, dtype)


def evaluate_region(
    region: Sequence[Any], doms: Mapping[Any, Any], predicate: PrimExpr, analyzer: Analyzer, lower_bound: bool = False
) -> Box | None:
    """The box that ``region`` sweeps while the variables in ``doms`` run.

    With ``lower_bound`` the box must be covered entirely (None if that cannot be shown); otherwise it encloses.
    """
    if is_true(predicate):
        try:
            taken: set[Any] = set()
            return [_quick_dim(dim, doms, lower_bound, taken) for dim in region]
        except _NotLinear:
            pass
    estimate = estimate_region_lower_bound if lower_bound else estimate_region_upper_bound
    sets = estimate(list(region), dict(doms), predicate)
    if sets is None:
        return None
    return [(_simplify(s.min_value, analyzer), _simplify(s.max_value, analyzer)) for s in sets]


def _simplify(expr: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    return expr if isinstance(expr, (IntImm, Var)) else analyzer.simplify(expr)


def relax_region(
    region: BufferRegion,
    block_sref: StmtSRef,
    stop: StmtSRef | None,
    analyzer: Analyzer,
    lower_bound: bool = False,
    realize: BlockRealize | None = None,
    extra_scope: str = "",
) -> Box | None:
    """The box a block's ``region`` covers seen from ``stop``: bindings substituted, inner loops relaxed.

    When ``stop`` lies beyond the nearest block around, the walk goes on through that block's bindings.
    """
    realize = realize if realize is not None else realize_of(block_sref)
    values = {iv.var: value for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    doms = loops_between(block_sref.parent, stop, extra_scope)
    bound = [Range.from_min_extent(substitute(r.min, values), substitute(r.extent, values)) for r in region.region]
    return evaluate_region(bound, doms, realize.predicate, analyzer, lower_bound)


def leaves_gaps(region: BufferRegion, block_sref: StmtSRef, stop: StmtSRef) -> bool:
    """Whether a block's ``region`` seen from ``stop`` is no box: every second element, say, or parts of two rows."""
    unguarded = realize_of(block_sref).with_fields(predicate=const(True, "bool"))
    extents = [r.extent for r in loops_between(block_sref.parent, stop).values()]
    if any(type(extent) is not IntImm for extent in (*extents, *region.buffer.shape)):
        return False
    return relax_region(region, block_sref, stop, Analyzer(), lower_bound=True, realize=unguarded) is None


def may_be_left_out(
    realize: BlockRealize, block_sref: StmtSRef, stop: StmtSRef, analyzer: Analyzer, extra_scope: str = ""
) -> bool:
    """Whether a guard may leave a block out altogether while the loops below ``stop`` run.

    It does not where it speaks of these loops only, or lets the first iteration of all of them through, or the last.
    """
    inner = loops_between(block_sref.parent, stop, extra_scope)
    around: set[Any] = set()
    for above in (stop, *stop.ancestors()):
        node = above.stmt
        around |= {node.loop_var} if isinstance(node, For) else {iv.var for iv in node.iter_vars}
    terms = [t for t in conjuncts(realize.predicate) if any(v in around and v not in inner for v in vars_in(t))]
    first = {var: dom.min for var, dom in inner.items()}
    last = {var: dom.min + dom.extent - 1 for var, dom in inner.items()}
    return not any(all(analyzer.can_prove(substitute(term, turn)) for term in terms) for turn in (first, last))


def union_sets(a: Box, b: Box, analyzer: Analyzer) -> Box:
    """The box around two boxes."""
    return [
        (_extreme(x[0], y[0], analyzer, low=True), _extreme(x[1], y[1], analyzer, low=False))
        for x, y in zip(a, b, strict=True)
    ]


def _extreme(a: PrimExpr, b: PrimExpr, analyzer: Analyzer, low: bool) -> PrimExpr:
    if a is b:
        return a
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a if (a.value <= b.value) == low else b
    open_end = neg_inf() if low else pos_inf()
    if a is open_end or b is open_end:
        return open_end
    if analyzer.can_prove(a <= b):
        return a if low else b
    if analyzer.can_prove(b <= a):
        return b if low else a
    return tir_min(a, b) if low else tir_max(a, b)


def box_to_ranges(box: Box, analyzer: Analyzer) -> list[Range]:
    """(min, max) pairs as ranges with simplified ends."""
    out = []
    for low, high in box:
        low = _simplify(low, analyzer)
        if isinstance(low, IntImm) and isinstance(high, IntImm):
            extent: Any = const(int(high.value) - int(low.value) + 1, low.dtype)
        else:
            extent = analyzer.simplify(high - low + 1)
        out.append(Range.from_min_extent(low, extent))
    return out
