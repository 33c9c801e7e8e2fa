"""Computing the cached facts of a schedule state: affine bindings, region cover, stage pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ...arith import neg_inf, pos_inf
from ...arith.analyzer import Analyzer
from ...ir.expr import PrimExpr, Range
from ..expr import IntImm
from ..stmt import Block, BufferRegion
from .sref import DepKind, StmtSRef
from .subst import realize_of

if TYPE_CHECKING:
    from .state import ScheduleState

__all__ = ["affine_binding", "bind_shape_vars", "contains", "covered", "loop_ranges", "region_flags", "repeats_places"]

_REMEMBERED: OrderedDict[Any, dict[int, tuple[bool, bool]]] = OrderedDict()
_REMEMBER_LIMIT = 128


def loop_ranges(sref: StmtSRef | None, stop: StmtSRef | None = None) -> dict[Any, Any]:
    """Ranges of the loops from ``sref`` outwards to the nearest block (or to ``stop``, excluded)."""
    out: dict[Any, Any] = {}
    at = sref
    while at is not None and at is not stop and at.is_loop:
        loop = at.stmt
        out[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        at = at.parent
    return out


def affine_binding(state: ScheduleState, block_sref: StmtSRef) -> bool:
    """Whether the block's bindings are affine and independent; remembered while bindings and loops stay."""
    from ...arith import Analyzer
    from .bindings import is_affine_binding

    if block_sref.parent is None:
        return True
    realize = realize_of(block_sref)
    key: list[Any] = [*realize.iter_values, realize.predicate]
    at: StmtSRef | None = block_sref.parent
    while at is not None and at.is_loop:
        key += [at.stmt.loop_var, at.stmt.extent]
        at = at.parent
    info = state.info(block_sref)
    old = info.affine_key
    if len(old) == len(key) and all(x is y for x, y in zip(old, key, strict=True)):
        return info.affine
    ranges = loop_ranges(block_sref.parent)
    analyzer = None
    if not all(isinstance(r.extent, IntImm) for r in ranges.values()):
        analyzer = Analyzer()
        bind_shape_vars(state, block_sref, analyzer)
    info.affine = is_affine_binding(realize.iter_values, realize.predicate, ranges, analyzer)
    info.affine_key = tuple(key)
    return info.affine


def repeats_places(state: ScheduleState, block_sref: StmtSRef) -> bool:
    """Whether the affine bindings of a block overlap, so that several turns of its loops compute one place."""
    from ...arith import Analyzer
    from .bindings import is_affine_binding

    realize = realize_of(block_sref)
    ranges = loop_ranges(block_sref.parent)
    analyzer = Analyzer()
    bind_shape_vars(state, block_sref, analyzer)
    return state.is_affine(block_sref) and not is_affine_binding(
        realize.iter_values, realize.predicate, ranges, analyzer, False
    )


def region_flags(state: ScheduleState, block_sref: StmtSRef) -> None:
    """Fill in ``region_cover`` and ``stage_pipeline`` of a block, from the program the state began with."""
    info = state.info(block_sref)
    if info.region_cover is not None and info.stage_pipeline is not None:
        return
    origin = state.origin_of(block_sref)
    if origin is not None:
        root_block, srefs = origin
        flags = _REMEMBERED.get(root_block)
        if flags is None:
            flags = _compute_tree(root_block)
            _REMEMBERED[root_block] = flags
            if len(_REMEMBERED) > _REMEMBER_LIMIT:
                _REMEMBERED.popitem(last=False)
        for index, sref in enumerate(srefs):
            found = state.info(sref)
            if found.region_cover is None:
                found.region_cover = flags[index][0]
            if found.stage_pipeline is None:
                found.stage_pipeline = flags[index][1]
    if info.region_cover is None or info.stage_pipeline is None:
        cover, pipeline = _flags_of_scope(state, block_sref)
        info.stage_pipeline = pipeline if info.stage_pipeline is None else info.stage_pipeline
        if info.region_cover is None:
            scope = _enclosing_block(block_sref)
            info.region_cover = True if scope is None else _flags_of_scope(state, scope)[0].get(block_sref, True)


def _enclosing_block(sref: StmtSRef) -> StmtSRef | None:
    at = sref.parent
    while at is not None and not at.is_block:
        at = at.parent
    return at


def _compute_tree(root_block: Block) -> dict[int, tuple[bool, bool]]:
    """Flags of every block of a program, by position in a preorder walk of the blocks."""
    from ...ir.prim import const
    from ..function import PrimFunc
    from ..stmt import BlockRealize
    from .state import ScheduleState, blocks_in_order

    func = PrimFunc((), BlockRealize((), const(True, "bool"), root_block))
    state = ScheduleState(func)
    order = [state.stmt2ref[b] for b in blocks_in_order(root_block)]
    cover: dict[StmtSRef, bool] = {}
    pipeline: dict[StmtSRef, bool] = {}
    for sref in order:
        child_cover, pipeline[sref] = _flags_of_scope(state, sref)
        cover.update(child_cover)
    return {i: (cover.get(s, True), pipeline[s]) for i, s in enumerate(order)}


def _flags_of_scope(state: ScheduleState, scope_sref: StmtSRef) -> tuple[dict[StmtSRef, bool], bool]:
    """``region_cover`` of the children and ``stage_pipeline`` of the scope."""
    scope = state.get_block_scope(scope_sref)
    cover: dict[StmtSRef, bool] = {}
    for child in scope.children:
        producers: dict[Any, list[StmtSRef]] = {}
        for dep in scope.get_deps_by_dst(child):
            if dep.kind == DepKind.RAW:
                for region in dep.src.stmt.writes:
                    producers.setdefault(region.buffer, []).append(dep.src)
        cover[child] = all(
            covered(state, child, region, producers[region.buffer])
            for region in child.stmt.reads
            if region.buffer in producers
        )
    pipeline = all(cover.values())
    for deps in scope.src2deps.values():
        if any(dep.kind in (DepKind.WAR, DepKind.OPAQUE) for dep in deps):
            pipeline = False
    return cover, pipeline


def covered(state: ScheduleState, consumer: StmtSRef, region: BufferRegion, producers: Sequence[StmtSRef]) -> bool:
    """Whether the region of a buffer that ``consumer`` reads is completely written before.

    Producers that share the same lowest loop with the consumer are judged together, and every such group must
    cover what is read.
    """
    from ...arith import Analyzer
    from .region import relax_region, union_sets

    above = list(consumer.ancestors())
    groups: dict[StmtSRef, list[StmtSRef]] = {}
    for producer in producers:
        lca = next(a for a in producer.ancestors() if a in above)
        groups.setdefault(lca, []).append(producer)
    scope_name = region.buffer.scope()
    for lca, members in groups.items():
        analyzer = Analyzer()
        for var, dom in loop_ranges(lca).items():
            analyzer.bind(var, dom)
        bind_shape_vars(state, consumer, analyzer)
        produced: list[Any] | None = None
        for producer in members:
            for written in producer.stmt.writes:
                if written.buffer is not region.buffer:
                    continue
                part = relax_region(written, producer, lca, analyzer, lower_bound=True, extra_scope=scope_name)
                if part is None:
                    return False
                produced = part if produced is None else union_sets(produced, part, analyzer)
        wanted = relax_region(region, consumer, lca, analyzer, extra_scope=scope_name)
        if produced is None or wanted is None or not contains(produced, wanted, region.buffer.shape, analyzer):
            return False
    return True


def bind_shape_vars(state: ScheduleState, sref: StmtSRef, analyzer: Analyzer) -> None:
    """Tell an analyzer that the symbolic dimensions of the function's parameters are not negative."""
    _, func, _ = state.func_of(sref)
    for buffer in func.buffer_map.values():
        for dim in buffer.shape:
            if not isinstance(dim, IntImm):
                analyzer.mark_global_non_neg_value(dim)


def contains(produced: list[Any], wanted: list[Any], shape: Sequence[PrimExpr], analyzer: Analyzer) -> bool:
    """Whether the box ``produced`` holds the box ``wanted``, as far as that lies in a buffer of ``shape``."""
    for have, need, extent in zip(produced, wanted, shape, strict=True):
        low, high = need[0], need[1]
        if not (_at_most(have[0], low, analyzer) or _at_most(have[0], IntImm(extent.dtype, 0), analyzer)):
            return False
        if not (_at_most(high, have[1], analyzer) or _at_most(extent - 1, have[1], analyzer)):
            return False
    return True


def _at_most(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    # A bound is infinite where the index depends on data (a gathered position, say).
    if a is b or a is neg_inf() or b is pos_inf():
        return True
    if a is pos_inf() or b is neg_inf():
        return False
    return bool(analyzer.can_prove(a <= b))
