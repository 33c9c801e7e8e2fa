"""decompose_reduction: a reduction as initialisation and update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import IterMapLevel, detect_iter_map
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const
from ...expr import IterVar, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, For, Stmt
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..rewrite import ScopeRewriter
from ..sref import StmtSRef
from ..subst import and_predicate, conjuncts, realize_of
from ..walk import driving_loops, seq_or_single, vars_in
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def copy_var(var: Var, suffix: str) -> Var:
    """A fresh variable with a longer name."""
    handle = var.type_annotation if var.dtype == "handle" else None
    return Var(var.name + suffix, handle or var.dtype)


def init_predicate(realize: BlockRealize, others: Sequence[For]) -> PrimExpr:
    """Part of a block's predicate that holds for its initialisation, which runs without the loops in ``others``.

    What is said of reduction loops is about updates: elements that are never updated are initialised, too. A unit loop
    that drives nothing has one value.
    """
    bindings = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    reduced = vars_in(tuple(value for iv, value in bindings if iv.iter_type != IterVar.DataPar))
    units = {n.loop_var: n.min for n in others if checks.is_one(n.extent) and n.loop_var not in reduced}
    dropped = {n.loop_var for n in others if n.loop_var not in units}
    predicate: Any = const(True, "bool")
    for term in reversed(conjuncts(realize.predicate)):
        if dropped.isdisjoint(vars_in(term)):
            predicate = and_predicate(predicate, substitute(term, units))
    return predicate


def make_init_nest(realize: BlockRealize, loops: Sequence[StmtSRef]) -> tuple[Any, Block]:
    """The initialisation of a reduction under copies of those ``loops`` (outer to inner) that it needs."""
    block = realize.block
    renamed: dict[Any, Any] = {}
    iter_vars, values = [], []
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type == IterVar.DataPar:
            fresh = IterVar(iv.dom, copy_var(iv.var, ""), iv.iter_type, iv.thread_tag)
            renamed[iv.var] = fresh.var
            iter_vars.append(fresh)
            values.append(value)
    assert block.init is not None
    init_block = Block(
        tuple(iter_vars),
        (),
        tuple(substitute(region, renamed) for region in block.writes),
        block.name_hint + "_init",
        substitute(block.init, renamed),
        annotations=dict(block.annotations),
    )
    kept = driving_loops([s.stmt for s in loops], vars_in(tuple(values)))
    predicate = init_predicate(realize, [s.stmt for s in loops if s.stmt not in kept])
    body: Any = BlockRealize(tuple(values), predicate, init_block)
    loop_map: dict[Any, Any] = {}
    for node in reversed(kept):
        fresh_var = copy_var(node.loop_var, "_init")
        loop_map[node.loop_var] = fresh_var
        binding = node.thread_binding
        if binding is not None:
            binding = IterVar(binding.dom, copy_var(binding.var, ""), binding.iter_type, binding.thread_tag)
        body = For(fresh_var, node.min, node.extent, node.kind, body, binding)
    from ..subst import substitute_loops

    body = substitute_loops(body, loop_map)
    return body, _block_in(body)


def _block_in(stmt: Stmt) -> Block:
    while isinstance(stmt, For):
        stmt = stmt.body
    assert isinstance(stmt, BlockRealize)
    return stmt.block


def make_update_block(block: Block) -> Block:
    """A reduction block without its initialisation; it reads what it updates."""
    read = {r.buffer for r in block.reads}
    own = tuple(w for w in block.writes if w.buffer not in read)
    return block.with_fields(name_hint=block.name_hint + "_update", init=None, reads=(*own, *block.reads))


class _Decompose(ScopeRewriter):
    def __init__(self, loop: For, realize: BlockRealize, update: Block, init: Stmt) -> None:
        super().__init__()
        self.loop, self.realize, self.update, self.init = loop, realize, update, init

    def visit_For(self, node: For) -> Stmt:
        made = super().visit_For(node)
        return seq_or_single([self.init, made]) if node is self.loop else made

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if node is self.realize:
            self.reuse[node.block] = self.update
            return node.with_fields(block=self.update)
        return node


def decompose(state: ScheduleState, block_sref: StmtSRef, loop_sref: StmtSRef) -> StmtSRef:
    """Split the initialisation off, to stand right before ``loop``; gives the init block."""
    block = checks.check_block(block_sref)
    checks.check_loop(loop_sref)
    loops = checks.loops_above(block_sref)
    if loop_sref not in loops:
        raise PrimitiveError(
            "The input loop {0} of decompose_reduction is required to be an ancestor of block {1}.",
            [loop_sref, block_sref],
        )
    scope = checks.scope_root(state, block_sref)
    checks.check_reduction_block(state, block_sref, scope)
    if block.init is None:
        raise PrimitiveError("The block {0} has no init statement to split off.", [block_sref])
    position = loops.index(loop_sref)
    realize = realize_of(block_sref)
    _check_height(block_sref, loop_sref, loops[:position], realize)
    if state.enable_check:
        nodes = [s.stmt for s in loops]
        check_not_repeated(block_sref, nodes[position:], nodes[:position], realize)
    init, init_block = make_init_nest(realize, loops[position:])
    rewriter = _Decompose(loop_sref.stmt, realize, make_update_block(block), init)
    parent = loop_sref.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=rewriter.visit(old.body))
    state.replace(parent, new, rewriter.reuse if isinstance(old, For) else {**rewriter.reuse, old: new})
    made = state.stmt2ref[init_block]
    state.mark_new_block(made)
    return made


def check_not_repeated(
    block: StmtSRef | BlockRealize, inner: Sequence[For], outer: Sequence[For], realize: BlockRealize
) -> None:
    """Refuse to initialise a reduction before its ``inner`` loops if they repeat updates: each time, it begins anew."""
    hint = "take it apart at a loop further in"
    driving = vars_in(tuple(realize.iter_values))
    for loop in inner:
        if loop.loop_var not in driving and not checks.is_one(loop.extent):
            raise PrimitiveError(
                "The loop {0} repeats the reduction of block {1}, which has to be initialised every time.",
                [loop, block],
                hint=hint,
            )
    outer = [loop for loop in outer if loop.loop_var in driving]
    if not updates_once(realize, inner) and not updates_once(realize, [*outer, *inner]):
        raise PrimitiveError(
            "Turns of the loops from {0} inwards repeat updates of block {1}, which has to be initialised every time.",
            [inner[0], block],
            hint=hint,
        )


def updates_once(realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether no two turns of the loops, those further out standing still, give the block variables the same values."""
    units = {n.loop_var: n.min for n in loops if checks.is_one(n.extent)}
    ranges = {n.loop_var: Range.from_min_extent(n.min, n.extent) for n in loops if n.loop_var not in units}
    values = [substitute(value, units) for value in realize.iter_values]
    # A predicate may say what the loops really run over; without it they may run over more, and still never meet.
    return not ranges or any(
        bool(detect_iter_map(values, ranges, predicate, IterMapLevel.Bijective).indices)
        for predicate in (const(True, "bool"), substitute(realize.predicate, units))
    )


def _check_height(block: StmtSRef, loop: StmtSRef, above: Sequence[StmtSRef], realize: BlockRealize) -> None:
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type != IterVar.CommReduce:
            continue
        used = vars_in(value)
        for outer in above:
            if outer.stmt.loop_var in used:
                raise PrimitiveError(
                    "decompose_reduction expect the loop {0} to be higher than all the loops related to reduce "
                    "block var of block {1}",
                    [loop, block],
                    hint="reorder the reduction loops inside, or decompose at a loop further out",
                )


class DecomposeReduction(Step):
    """Init and update of a reduction apart."""

    block: BlockRV = operand()
    loop: LoopRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return [decompose(sch.state, sch.sref(self.block), sch.sref(self.loop))]
