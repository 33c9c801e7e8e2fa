"""decompose_padding: a padding block as a fill with the pad value and a copy of what lies inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....arith import Analyzer, IterMapLevel, detect_iter_map
from ....arith.effects import CallEffectKind, side_effect
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const, is_call_of
from ...expr import FloatImm, IntImm, IterVar, Var
from ...functor import substitute
from ...op import all as tir_all
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..sref import StmtSRef
from ..subst import conjuncts, realize_of
from ..walk import replace_stmts, vars_in
from .compute_at import lowest_common_ancestor
from .reduction import copy_var
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__ = ["can_decompose_padding"]


class _Padding(NamedTuple):
    """What a padding block does: its store, the values outside and inside, when and where (on loops) it is inside."""

    store: BufferStore
    outside: Any
    inside: Any
    predicate: Any
    region: tuple[Range, ...]


def _refuse(sref: StmtSRef, why: str) -> PrimitiveError:
    return PrimitiveError(
        f"ScheduleError: decompose_padding expect the block {{0}} to match padding pattern\n  {why}", [sref]
    )


def _match(sref: StmtSRef, loops: Sequence[StmtSRef], analyzer: Analyzer) -> _Padding:
    """The padding that a block does."""
    realize = realize_of(sref)
    store = realize.block.body
    if not isinstance(store, BufferStore):
        raise _refuse(sref, "Block body expect a BufferStore to the write buffer")
    call = store.value
    if not is_call_of(call, "tir.if_then_else"):
        raise _refuse(sref, "Value of BufferStore expect to be constrained by a padding predicate")
    condition, inside, outside = call.args
    if not isinstance(outside, (IntImm, FloatImm)):
        raise _refuse(sref, "Pad value should be constant")
    if side_effect(inside) > CallEffectKind.ReadState:
        raise _refuse(sref, "Inbound computation should not have side-effect")
    bound = {iv.var: value for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    terms = [*conjuncts(substitute(condition, bound)), *conjuncts(realize.predicate)]
    predicate = analyzer.simplify(tir_all(*[_unlikely(term) for term in terms]))
    if analyzer.can_prove(predicate):
        raise _refuse(sref, "The in-bound predicate is trivial")
    return _Padding(store, outside, inside, predicate, _inside_region(sref, realize, loops, predicate, analyzer))


def _unlikely(term: PrimExpr) -> PrimExpr:
    return term.args[0] if is_call_of(term, "tir.likely") else term


def _inside_region(
    sref: StmtSRef, realize: BlockRealize, loops: Sequence[StmtSRef], predicate: PrimExpr, analyzer: Analyzer
) -> tuple[Range, ...]:
    """The ranges of the block variables in which the padding condition holds."""
    doms = {loop.stmt.loop_var: Range.from_min_extent(loop.stmt.min, loop.stmt.extent) for loop in loops}
    found = detect_iter_map(list(realize.iter_values), doms, predicate, check_level=IterMapLevel.Surjective)
    if not found.indices:
        raise _refuse(sref, "Block iters are not independent wrt padding condition")
    region = []
    for total in found.indices:
        if not total.args:
            region.append(Range.from_min_extent(total.base, const(1, total.base.dtype)))
        elif len(total.args) == 1 and checks.is_one(analyzer.simplify(total.args[0].scale)):
            region.append(Range.from_min_extent(total.base, total.args[0].extent))
        else:
            raise _refuse(sref, "Strided iteration is not supported")
    return tuple(region)


def _movable(loops: Sequence[For], top: For) -> For:
    """The outermost loop, not beyond ``top``, below which there is nothing but the block."""
    found = None
    for loop in reversed(loops):
        if not isinstance(loop.body, (For, BlockRealize)):
            break
        found = loop
        if loop is top:
            break
    if found is None:
        raise PrimitiveError("The innermost loop {0} must hold nothing but the block to be decomposed.", [loops[-1]])
    return found


def decompose_padding(
    state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef, check_only: bool = False
) -> StmtSRef | None:
    """Split a padding block into a fill before ``loop`` and a copy of what lies inside; gives the fill block."""
    block = checks.check_block(sref)
    top = checks.check_loop(loop_sref)
    scope = checks.scope_root(state, sref)
    checks.check_complete(state, sref, scope)
    loop_srefs = checks.loops_above(sref)
    if loop_sref not in loop_srefs:
        raise PrimitiveError("The loop {1} is not an ancestor of block {0}.", [sref, loop_sref])
    analyzer = Analyzer()
    for above in loop_srefs:
        analyzer.bind(above.stmt.loop_var, Range.from_min_extent(above.stmt.min, above.stmt.extent))
    pad = _match(sref, loop_srefs, analyzer)
    loops = [above.stmt for above in loop_srefs]
    movable = _movable(loops, top)
    for inner in loops:
        if any(v is other.loop_var for other in loops for v in vars_in((inner.min, inner.extent))):
            raise PrimitiveError("How far the loop {0} runs depends on another loop.", [inner])
    if check_only:
        return None
    realize = realize_of(sref)
    fill, fill_block = _fill_nest(realize, pad, loops[loops.index(top) :], analyzer)
    copy, copy_block = _copy_nest(realize, pad, loops[loops.index(movable) :], analyzer)
    body = replace_stmts(top, {id(movable): copy})
    parent = loop_sref.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=replace_stmts(old.body, {id(top): SeqStmt((fill, body))}))
    reuse = {block: copy_block}
    if isinstance(old, Block):
        reuse[old] = new
    state.replace(parent, new, reuse)
    made = state.stmt2ref[fill_block]
    state.mark_new_block(made)
    _update_flags(state, sref, made, scope)
    return made


def _update_flags(state: ScheduleState, sref: StmtSRef, fill: StmtSRef, scope: StmtSRef) -> None:
    """Consumers under a loop that the fill stands outside of are no longer covered below that loop."""
    for consumer in checks.consumers_of(state, sref, scope):
        common = lowest_common_ancestor([consumer, sref])
        if common is not None and not checks.in_scope_of(fill, common):
            state.info(consumer).region_cover = False
            state.info(scope).stage_pipeline = False


def _fill_nest(realize: BlockRealize, pad: _Padding, loops: Sequence[For], analyzer: Analyzer) -> tuple[Any, Block]:
    """Copies of ``loops`` that store the pad value everywhere."""
    block = realize.block
    renamed: dict[Any, Any] = {iv.var: copy_var(iv.var, "") for iv in block.iter_vars}

    def rewritten(expr: PrimExpr) -> PrimExpr:
        return analyzer.simplify(substitute(expr, renamed))

    store = BufferStore(pad.store.buffer, pad.outside, [rewritten(i) for i in pad.store.indices])
    made = Block(
        tuple(IterVar(iv.dom, renamed[iv.var], IterVar.DataPar) for iv in block.iter_vars),
        (),
        tuple(_rewritten_region(r, rewritten) for r in block.writes),
        f"{block.name_hint}_pad_const",
        store,
    )
    renamed.update({loop.loop_var: copy_var(loop.loop_var, "") for loop in loops})
    body: Any = BlockRealize(tuple(rewritten(v) for v in realize.iter_values), rewritten(realize.predicate), made)
    for loop in reversed(loops):
        low, extent = substitute(loop.min, renamed), substitute(loop.extent, renamed)
        body = For(renamed[loop.loop_var], low, extent, ForKind.SERIAL, body)
    return body, made


def _rewritten_region(region: BufferRegion, rewritten: Callable[[PrimExpr], PrimExpr]) -> BufferRegion:
    dims = [Range.from_min_extent(rewritten(r.min), rewritten(r.extent)) for r in region.region]
    return BufferRegion(region.buffer, tuple(dims))


def _copy_nest(realize: BlockRealize, pad: _Padding, loops: Sequence[For], analyzer: Analyzer) -> tuple[Any, Block]:
    """The loops run over the inside only where a block variable is one of them; a predicate does the rest."""
    block = realize.block
    ranges = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    values: dict[Any, Any] = {}
    iters: list[IterVar] = []
    bindings: list[Any] = []
    for iv, value, inside in zip(block.iter_vars, realize.iter_values, pad.region, strict=True):
        var = copy_var(iv.var, "")
        dom = Range.from_min_extent(const(0, var.dtype), inside.extent)
        iters.append(IterVar(dom, var, IterVar.DataPar))
        values[iv.var] = var + inside.min
        if isinstance(value, Var) and value in ranges:
            ranges[value] = dom
            bindings.append(value)
            values[value] = value + inside.min
            analyzer.bind(value, dom, True)
        else:
            bindings.append(analyzer.simplify(value - inside.min))

    def rewritten(expr: PrimExpr) -> PrimExpr:
        return analyzer.simplify(substitute(expr, values))

    made = Block(
        tuple(iters),
        tuple(_rewritten_region(r, rewritten) for r in block.reads),
        tuple(_rewritten_region(r, rewritten) for r in block.writes),
        block.name_hint,
        BufferStore(pad.store.buffer, rewritten(pad.inside), [rewritten(i) for i in pad.store.indices]),
    )
    body: Any = BlockRealize(tuple(bindings), rewritten(pad.predicate), made)
    for loop in reversed(loops):
        dom = ranges[loop.loop_var]
        body = loop.with_fields(min=dom.min, extent=dom.extent, body=body)
    return body, made


def can_decompose_padding(state: ScheduleState, block: StmtSRef, loop: StmtSRef) -> bool:
    """Whether ``decompose_padding`` would succeed."""
    try:
        decompose_padding(state, block, loop, check_only=True)
    except PrimitiveError:
        return False
    return True


class DecomposePadding(Step):
    """Fill and copy of a padding block apart."""

    block: BlockRV = operand()
    loop: LoopRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return [decompose_padding(sch.state, sch.sref(self.block), sch.sref(self.loop))]
