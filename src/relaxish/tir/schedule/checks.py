"""Legality checks that many primitives share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ...arith import Analyzer
from ...ir.prim import is_one, is_zero
from ...ir.expr import PrimExpr, Range
from ..buffer import Buffer
from ..expr import IterVar
from ..op import all as tir_all
from ..stmt import Block, BlockRealize, BufferStore, For
from .errors import PrimitiveError
from .sref import DepKind, StmtSRef
from .subst import conjuncts, realize_of
from .walk import vars_in

if TYPE_CHECKING:
    from .state import ScheduleState

__all__ = [
    "check_block",
    "check_loop",
    "check_reduction_block",
    "check_runs_whole_domain",
    "complete_reason",
    "guarded_by_bounds_only",
    "is_one",
    "is_zero",
    "loops_above",
    "reduction_reason",
    "scope_root",
]


def check_block(sref: StmtSRef) -> Block:
    """The block behind ``sref``."""
    if not sref.is_block:
        raise TypeError("expected a block, got a loop")
    return sref.stmt


def check_loop(sref: StmtSRef) -> For:
    """The loop behind ``sref``."""
    if not sref.is_loop:
        raise TypeError("expected a loop, got a block or a compute-location mark")
    return sref.stmt


def scope_root(state: ScheduleState, sref: StmtSRef, require_stage_pipeline: bool = False) -> StmtSRef:
    """The block whose scope ``sref`` belongs to."""
    at = sref.parent
    while at is not None and not at.is_block:
        at = at.parent
    if at is None:
        raise PrimitiveError(
            "The primitive does not operate on the root block {0}.",
            [sref],
            hint="take a block inside the function, not the root block",
        )
    if require_stage_pipeline and state.enable_check and not state.is_stage_pipeline(at):
        raise PrimitiveError(
            "The scope {0} is not a stage pipeline: every block must be complete or a reduction, and what a block "
            "reads must have been written in full before, with nothing overwriting it in between.",
            [at],
        )
    return at


def loops_above(sref: StmtSRef) -> list[StmtSRef]:
    """The loops between a block or loop and its enclosing block, outermost first."""
    out = []
    at = sref.parent
    while at is not None and at.is_loop:
        out.append(at)
        at = at.parent
    out.reverse()
    return out


def in_scope_of(sref: StmtSRef, ancestor: StmtSRef) -> bool:
    """Whether ``ancestor`` is strictly above ``sref``."""
    return any(a is ancestor for a in sref.ancestors())


def _is_dominant(state: ScheduleState, scope: StmtSRef, block_sref: StmtSRef) -> bool:
    """Whether the block is the only writer of what it writes, within a scope block or below a loop.

    Below a loop only writers inside other blocks count, not those blocks themselves: an initialisation split off a
    reduction may share the loop with it.
    """
    if scope.is_block:
        writers = state.get_block_scope(scope).buffer_writers
    else:
        writers = {}
        for child in state.child_blocks(scope):
            for buffer, found in state.get_block_scope(child).buffer_writers.items():
                writers.setdefault(buffer, found)
    return all(len(writers.get(region.buffer, (None,))) == 1 for region in block_sref.stmt.writes)


def complete_reason(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> str | None:
    """Why a block is not complete, None if it is: all axes parallel, the only writer, no overlap of in and out."""
    block = block_sref.stmt
    if any(iv.iter_type != IterVar.DataPar for iv in block.iter_vars):
        return "not all of its block variables are data parallel"
    if not _is_dominant(state, scope, block_sref):
        return "it is not the only writer of its output buffers"
    written = {region.buffer for region in block.writes}
    if any(region.buffer in written for region in block.reads):
        return "it reads and writes the same buffer"
    return None


def reduced_from_outside(block_sref: StmtSRef) -> str | None:
    """The name of a reduction variable that an outer block drives, None without one.

    Such a block goes on with its reduction each time that it is reached, and begins it the first time only.
    """
    outer = {iv.var for above in block_sref.ancestors() if above.is_block for iv in above.stmt.iter_vars}
    for iv, value in zip(block_sref.stmt.iter_vars, realize_of(block_sref).iter_values, strict=True):
        if iv.iter_type == IterVar.CommReduce and not outer.isdisjoint(vars_in(value)):
            return str(iv.var.name)
    return None


def reduction_reason(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> str | None:
    """Why a block is not a reduction block, None if it is."""
    block = block_sref.stmt
    if block.init is None:
        return "it has no init statement"
    if not state.is_affine(block_sref):
        return "its bindings are not quasi-affine"
    if any(iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce) for iv in block.iter_vars):
        return "its block variables are not all data parallel or reductions"
    if not _is_dominant(state, scope, block_sref):
        return "it is not the only writer of its output buffers"
    if reduces_output_index(block):
        return "a reduction variable indexes its output buffers"
    from .block_info import repeats_places

    if not _reduces_innermost(block_sref) and repeats_places(state, block_sref):
        return "its loops repeat updates of its output buffers"
    name = reduced_from_outside(block_sref)
    return f'an outer block decides which values of "{name}" it runs over at a time' if name is not None else None


def _reduces_innermost(block_sref: StmtSRef) -> bool:
    """Whether the loops that drive reduction variables lie inside those that drive the others."""
    realize = realize_of(block_sref)
    placed = {
        v
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.iter_type != IterVar.CommReduce
        for v in vars_in(value)
    }
    below = [s.stmt.loop_var in placed for s in loops_above(block_sref) if not is_one(s.stmt.extent)]
    return below == sorted(below, reverse=True)


def reduces_output_index(block: Block) -> bool:
    """Whether some store of the block is indexed by a reduction variable."""
    from ...ir.functor import Visitor

    reduction = {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}
    written = {region.buffer for region in block.writes}
    hit = False

    class Stores(Visitor):
        def visit_BufferStore(self, node: BufferStore) -> None:
            nonlocal hit
            if node.buffer in written and any(v in reduction for v in vars_in(node.indices)):
                hit = True

        def visit_PrimExpr(self, node: PrimExpr) -> None:
            pass

    Stores().visit(block.body)
    return hit


def check_complete(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> None:
    """Demand a complete block."""
    if not state.enable_check:
        return
    why = complete_reason(state, block_sref, scope)
    if why:
        raise PrimitiveError(f"The block {{0}} is not a complete block: {why}.", [block_sref])


def check_reduction_block(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> None:
    """Demand a reduction block."""
    if not state.enable_check:
        return
    why = reduction_reason(state, block_sref, scope)
    if why:
        raise PrimitiveError(f"The block {{0}} is not a reduction block: {why}.", [block_sref])


def check_complete_or_reduction(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> None:
    """Demand a complete or a reduction block."""
    if not state.enable_check:
        return
    why = complete_reason(state, block_sref, scope)
    if why is None:
        return
    other = reduction_reason(state, block_sref, scope)
    if other is not None:
        raise PrimitiveError(
            f"The block {{0}} is neither a complete block nor a reduction block: {why}, and {other}.", [block_sref]
        )


def check_partial_affine(state: ScheduleState, block_sref: StmtSRef, top: StmtSRef) -> None:
    """Demand bindings that are affine in the loops from ``top`` inwards, those further out taken as constants."""
    if not state.enable_check or state.is_affine(block_sref):
        return
    from .bindings import is_affine_binding
    from .block_info import loop_ranges

    realize = realize_of(block_sref)
    if not is_affine_binding(realize.iter_values, realize.predicate, loop_ranges(block_sref.parent, top.parent)):
        raise PrimitiveError("The bindings of {0} are not quasi-affine maps of the loops below {1}.", [block_sref, top])


def check_compact_dataflow(state: ScheduleState, sref: StmtSRef) -> None:
    """Demand that every block below a loop is, seen from that loop, complete or a reduction block."""
    if not state.enable_check:
        return
    for child in state.child_blocks(sref):
        why = complete_reason(state, child, sref)
        if why is None:
            continue
        other = reduction_reason(state, child, sref)
        if other is not None:
            raise PrimitiveError(
                f"The subtree of {{0}} does not have compact dataflow, because its child {{1}} is neither a local "
                f"complete block ({why}) nor a local reduction block ({other}).",
                [sref, child],
            )


def check_not_output(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> None:
    """Demand a block that writes only buffers allocated in its scope."""
    if is_output_block(block_sref, scope):
        raise PrimitiveError(
            "The block {0} is an output block: it writes a buffer that outlives its scope.", [block_sref]
        )


def is_output_block(block_sref: StmtSRef, scope: StmtSRef) -> bool:
    """Whether the block writes a buffer that its scope does not allocate."""
    own = set(scope.stmt.alloc_buffers)
    return any(region.buffer not in own for region in block_sref.stmt.writes)


def producers_of(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> list[StmtSRef]:
    """Blocks of the scope that write what ``block_sref`` reads or overwrites."""
    deps = state.get_block_scope(scope).get_deps_by_dst(block_sref)
    return _distinct(d.src for d in deps if d.kind in (DepKind.RAW, DepKind.WAW))


def consumers_of(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> list[StmtSRef]:
    """Blocks of the scope that read or overwrite what ``block_sref`` writes."""
    deps = state.get_block_scope(scope).get_deps_by_src(block_sref)
    return _distinct(d.dst for d in deps if d.kind in (DepKind.RAW, DepKind.WAW))


def _distinct(items: Iterable[StmtSRef]) -> list[StmtSRef]:
    return list(dict.fromkeys(items))


def sources_among(block: StmtSRef, nest: Sequence[StmtSRef]) -> list[StmtSRef]:
    """A block and those of a ``nest`` whose results its own come from."""
    found = [block]
    for user in found:
        read = {r.buffer for r in user.stmt.reads}
        found += [b for b in nest if b not in found and any(w.buffer in read for w in b.stmt.writes)]
    return found


def nth_buffer(block_sref: StmtSRef, index: int, write: bool) -> Buffer:
    """The buffer of the ``index``-th region that a block reads or writes."""
    regions = block_sref.stmt.writes if write else block_sref.stmt.reads
    word = "write" if write else "read"
    if not 0 <= index < len(regions):
        raise PrimitiveError(
            f"The {word} buffer index {index} of {{0}} is out of range: it has {len(regions)} {word} regions.",
            [block_sref],
        )
    return regions[index].buffer


def guarded_by_bounds_only(realize: BlockRealize, loops: Iterable[For]) -> bool:
    """Whether a predicate says no more than that block variables stay within their domains (as after a split).

    What it says of none of the ``loops`` decides whether the block runs at all, whatever its variables are.
    """
    if is_one(realize.predicate):
        return True
    analyzer = Analyzer()
    driven = set()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        driven.add(loop.loop_var)
    terms = conjuncts(realize.predicate)
    if not all(analyzer.can_prove(term) for term in terms if driven.isdisjoint(vars_in(term))):
        return False
    bounds = [
        bound
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        for bound in (value >= iv.dom.min, value < iv.dom.min + iv.dom.extent)
    ]
    with analyzer.constraint_scope(tir_all(*bounds)) if bounds else nullcontext():
        return bool(analyzer.can_prove(realize.predicate))


def check_runs_whole_domain(block_sref: StmtSRef) -> None:
    """Demand that no predicate takes anything out of the domain of a block."""
    if not guarded_by_bounds_only(realize_of(block_sref), [s.stmt for s in loops_above(block_sref)]):
        raise PrimitiveError("The block {0} runs under a predicate for part of its domain only.", [block_sref])
