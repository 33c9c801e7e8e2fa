"""compute_inline and reverse_compute_inline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....ir.op import op_name_of
from .... import arith
from ....arith.iter_map import detect_separate_iters
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, Visitor
from ....ir.structural import same_expression
from ...expr import And, BufferLoad, Call, IntImm, Select, Var
from ....ir.prim import const
from ...buffer import Buffer
from ...functor import substitute
from ...op import all as tir_all
from ...op import logical_and
from ...stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..rewrite import ScopeRewriter, dead_statement, signature_of, with_alloc
from ..sref import StmtSRef
from ..subst import and_predicate, is_true, realize_of
from ..walk import Nodes, vars_in
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Loads(Mutator):
    """Replaces the loads of one buffer through a callback."""

    def __init__(self, buffer: Buffer, replace: Callable[[BufferLoad], PrimExpr]) -> None:
        self.buffer = buffer
        self.replace = replace

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_IntImm(self, node: IntImm) -> IntImm:
        return node

    visit_FloatImm = visit_IntImm
    visit_Var = visit_IntImm
    visit_IterVar = visit_IntImm

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        made = self.default_visit(node)
        return self.replace(made) if made.buffer is self.buffer else made


class _InBlocks(_Loads):
    """Does so in blocks and the blocks inside them, finding the regions of those that change anew."""

    def __init__(self, buffer: Buffer, replace: Callable[[BufferLoad], PrimExpr], reuse: dict[Any, Any]) -> None:
        super().__init__(buffer, replace)
        self.reuse = reuse

    def rewritten(self, node: Block) -> Block:
        """The block with its loads replaced."""
        body = self.visit(node.body)
        init = None if node.init is None else self.visit(node.init)
        if body is node.body and init is node.init:
            return node
        made = node.with_fields(body=body, init=init)
        # A block need not declare what it reads through an index cache; then its regions stay as they are.
        declared = any(r.buffer is self.buffer for r in (*node.reads, *node.writes))
        return signature_of(made) if declared else made

    def visit_Block(self, node: Block) -> Stmt:
        made = self.rewritten(node)
        if made is not node:
            self.reuse[node] = made
        return made


class _CertainLoads(_Loads):
    """Leaves alone the loads that a condition may spare."""

    def visit_Call(self, node: Call) -> PrimExpr:
        if op_name_of(node) != "tir.if_then_else":
            return self.default_visit(node)
        self.visit(node.args[0])
        return node

    def visit_Select(self, node: Select) -> PrimExpr:
        self.visit(node.condition)
        return node

    def visit_And(self, node: And) -> PrimExpr:
        self.visit(node.a)
        return node

    visit_Or = visit_And


def loads_of(node: Stmt | PrimExpr | Sequence[PrimExpr], buffer: Buffer, certain: bool = False) -> list[Any]:
    """All loads of one buffer, or those that are ``certain``: done whatever the conditions around them say."""
    found: list[Any] = []

    def keep(load: PrimExpr) -> PrimExpr:
        found.append(load)
        return load

    (_CertainLoads if certain else _Loads)(buffer, keep).visit(node)
    return found


def _single_output(block_sref: StmtSRef) -> Buffer:
    writes = block_sref.stmt.writes
    if len(writes) != 1:
        raise PrimitiveError(
            f"The block is only allowed to write a single buffer region, but it writes {len(writes)} region(s): {{0}}",
            [block_sref],
        )
    return writes[0].buffer


def index_substitution(store: BufferStore, block: Block) -> tuple[list[Var], Any] | None:
    """Placeholders for the indices of a load and the stored value in terms of them, None if there is none.

    >>> from relaxish.testing.examples import chain, Schedule
    >>> sch = Schedule(chain)
    >>> block = sch.get(sch.get_block("B"))
    >>> index_substitution(block.body, block)
    ([vi, vj], A[vi, vj] * T.float32(2.0))
    """
    indices = store.indices
    if len(indices) == len(block.iter_vars):
        named = [(iv.var, i) for iv, i in zip(block.iter_vars, indices, strict=True)]
        unit = {iv.var for iv in block.iter_vars if checks.is_zero(iv.dom.min) and checks.is_one(iv.dom.extent)}
        if all(index is var or (checks.is_zero(index) and var in unit) for var, index in named):
            return [var for var, _ in named], store.value
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    result = arith.detect_iter_map(
        list(indices), doms, True, check_level=arith.IterMapLevel.Bijective, simplify_trivial_iterators=False
    )
    if result.errors:
        return None
    names = [Var(f"ph_{i}", index.dtype) for i, index in enumerate(indices)]
    values = dict(arith.inverse_affine_iter_map(result.indices, names))
    for iv in block.iter_vars:
        if isinstance(iv.dom.min, IntImm) and checks.is_one(iv.dom.extent):
            values[iv.var] = iv.dom.min
    return names, substitute(store.value, values)


class _Inliner(ScopeRewriter):
    """Replaces the loads of the producer's buffer everywhere in the scope, predicates and loop bounds included."""

    def __init__(self, scope: Block, buffer: Buffer, names: Sequence[Var], value: PrimExpr, dead: Stmt) -> None:
        super().__init__(dead)
        self.scope = scope
        self.buffer = buffer
        self.loads = _InBlocks(
            buffer, lambda load: substitute(value, dict(zip(names, load.indices, strict=True))), self.reuse
        )

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return self.loads.visit(node)

    def visit_For(self, node: For) -> Stmt:
        return self.default_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return self.default_visit(node)

    def rewrite_block(self, node: Block) -> Block:
        if node is self.scope:
            body = self.visit(node.body)
            return with_alloc(node.with_fields(body=body), remove=self.buffer)
        return self.loads.rewritten(node)


class _Opaque(Visitor):
    """Finds uses of a buffer that are neither loads nor stores: of its pointer, or by views of part of it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.hit = False

    def visit_Var(self, node: Var) -> None:
        self.hit = self.hit or node is self.buffer.data

    def visit_Buffer(self, node: Buffer) -> None:
        pass

    def visit_Block(self, node: Block) -> None:
        self.hit = self.hit or any(m.source.buffer is self.buffer for m in node.match_buffers)
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)


def _check_no_opaque_access(state: ScheduleState, scope: StmtSRef, buffer: Buffer) -> None:
    for child in state.child_blocks(scope):
        if any(r.buffer is buffer for r in (*child.stmt.reads, *child.stmt.writes)):
            visitor = _Opaque(buffer)
            visitor.visit(child.stmt)
            if visitor.hit:
                raise PrimitiveError(
                    f"The buffer {buffer.name} to be inlined has opaque access in block {{0}}: its pointer is used, or "
                    "part of it is viewed through match_buffer.",
                    [child],
                )


def _check_no_init(block_sref: StmtSRef) -> None:
    if block_sref.stmt.init is not None:
        raise PrimitiveError("The block {0} has init statement and cannot be inlined.", [block_sref])


def inline_block(state: ScheduleState, block_sref: StmtSRef, check_only: bool = False) -> None:
    """Put the expression of a producer into all its consumers and remove it."""
    block = checks.check_block(block_sref)
    _check_no_init(block_sref)
    scope = checks.scope_root(state, block_sref, require_stage_pipeline=True)
    buffer = _single_output(block_sref)
    checks.check_not_output(state, block_sref, scope)
    checks.check_complete(state, block_sref, scope)
    store = block.body
    if not isinstance(store, BufferStore) or store.buffer is not buffer or store.predicate is not None:
        raise PrimitiveError("The body of block {0} must be a single buffer store to be inlined.", [block_sref])
    mapping = index_substitution(store, block)
    if mapping is None:
        raise PrimitiveError(
            "The store of block {0} must be indexed by its block variables in an invertible way to be inlined.",
            [block_sref],
        )
    dead = dead_statement(block_sref, scope)
    _check_no_opaque_access(state, scope, buffer)
    if scope.stmt.init is not None and _uses(scope.stmt.init, buffer):
        raise PrimitiveError(
            f"The buffer {buffer.name} of block {{0}} is begun in the initialisation of {{1}}.", [block_sref, scope]
        )
    if check_only:
        return
    rewriter = _Inliner(scope.stmt, buffer, *mapping, dead)
    state.replace(scope, rewriter.visit(scope.stmt), rewriter.reuse)


class ComputeInline(Step):
    """A producer's expression into its consumers."""

    block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        inline_block(sch.state, sch.sref(self.block))
        return []


class _ReverseInliner(ScopeRewriter):
    """Exchanges the producer; the consumer's statement is dropped."""

    def __init__(self, scope: Block, producer: BlockRealize, made: BlockRealize, buffer: Buffer, dead: Stmt) -> None:
        super().__init__(dead)
        self.scope, self.producer, self.made, self.buffer = scope, producer, made, buffer

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if node is not self.producer:
            return super().visit_BlockRealize(node)
        self.reuse[node.block] = self.made.block
        return self.made

    def rewrite_block(self, node: Block) -> Block:
        made = super().rewrite_block(node)
        if node is self.scope:
            return with_alloc(made, remove=self.buffer)
        # A block around the producer declares what it writes, and that is another buffer now.
        return signature_of(made) if any(r.buffer is self.buffer for r in (*node.reads, *node.writes)) else made


class _StoreSwap(Mutator):
    """Puts another statement in the place of the stores to one buffer."""

    def __init__(self, buffer: Buffer, replace: Callable[[BufferStore], Any]) -> None:
        self.buffer, self.replace = buffer, replace

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        return self.replace(node) if node.buffer is self.buffer else node


def _producer_store(block: Block) -> BufferStore | None:
    """The store of a producer that is a store, perhaps under a condition or in the loops of an automatic copy."""
    body = block.body
    if isinstance(body, IfThenElse) and body.else_case is None:
        body = body.then_case
    elif "auto_copy" in block.annotations:
        while isinstance(body, For):
            body = body.body
    return body if isinstance(body, BufferStore) else None


def _inner_loops(block: Block) -> list[For]:
    """The loops that the body of a block begins with."""
    loops = []
    body = block.body
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    return loops


def _leaf_writers(scope: Block, buffer: Buffer) -> list[Block]:
    """The innermost blocks of a scope that write ``buffer``, those of initialisations included."""
    found: list[Block] = []

    class Find(Visitor):
        def visit_PrimExpr(self, node: PrimExpr) -> None:
            pass

        def visit_Block(self, node: Block) -> None:
            before = len(found)
            if node.init is not None:
                self.visit(node.init)
            self.visit(node.body)
            if len(found) == before and any(r.buffer is buffer for r in node.writes):
                found.append(node)

    Find().visit((scope.init, scope.body))
    return found


class _Uses(Visitor):
    """Finds loads, stores and declared regions of a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.hit = False

    def visit_Buffer(self, node: Buffer) -> None:
        self.hit = self.hit or node is self.buffer

    def visit_Block(self, node: Block) -> None:
        for part in (node.reads, node.writes, node.match_buffers, node.init, node.body):
            self.visit(part)


def _uses(node: Nodes, buffer: Buffer) -> bool:
    found = _Uses(buffer)
    found.visit(node)
    return found.hit


def _single_read(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef) -> Buffer:
    """The one buffer that a block reads and another block of the scope writes."""
    writers = state.get_block_scope(scope).buffer_writers
    made = list(dict.fromkeys(r.buffer for r in block_sref.stmt.reads if r.buffer in writers))
    if len(made) != 1:
        raise PrimitiveError(
            "The block {0} is only allowed to read a single buffer region that its scope computes, but it reads "
            f"{len(made)} of them.",
            [block_sref],
        )
    return made[0]


def _single_producer(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef, buffer: Buffer) -> StmtSRef:
    """The one complete block that makes ``buffer``, for no other consumer."""
    writers = _leaf_writers(scope.stmt, buffer)
    producer = state.stmt2ref.get(writers[0]) if len(writers) == 1 else None  # None for one in an initialisation
    if producer is None:
        raise PrimitiveError(
            "The consumer block {0} to be inlined is required to have only a single producer block, and the producer "
            f"block should be a complete block who has only a single consumer; it has {len(writers)} producers.",
            [block_sref],
        )
    checks.check_complete(state, producer, scope)
    for child in state.child_blocks(scope):
        if child is not block_sref and child is not producer and any(r.buffer is buffer for r in child.stmt.reads):
            raise PrimitiveError("The block {1} has other consumers than block {0}.", [block_sref, producer])
    return producer


def reverse_inline_block(state: ScheduleState, block_sref: StmtSRef, check_only: bool = False) -> None:
    """Put the expression of a consumer into its only producer and remove it."""
    consumer = checks.check_block(block_sref)
    _check_no_init(block_sref)
    scope = checks.scope_root(state, block_sref, require_stage_pipeline=True)
    _single_output(block_sref)
    buffer = _single_read(state, block_sref, scope)
    checks.check_complete(state, block_sref, scope)
    producer_sref = _single_producer(state, block_sref, scope, buffer)
    checks.check_not_output(state, producer_sref, scope)
    _check_no_init(producer_sref)
    if not is_true(realize_of(block_sref).predicate):
        raise PrimitiveError("The block {0} has a predicate and cannot be inlined into its producer.", [block_sref])
    if not isinstance(consumer.body, BufferStore):
        raise PrimitiveError("The body of block {0} must be a single buffer store to be inlined.", [block_sref])
    made = _merged_producer(block_sref, producer_sref, scope, buffer)
    if state.enable_check:
        _check_every_instance_runs(state, block_sref, producer_sref, scope, buffer)
    dead = dead_statement(block_sref, scope)
    _check_no_opaque_access(state, scope, buffer)
    rewriter = _ReverseInliner(scope.stmt, realize_of(producer_sref), made, buffer, dead)
    new_scope = rewriter.visit(scope.stmt)
    if _uses(new_scope, buffer):
        raise PrimitiveError(
            f"The block {{1}} has other consumers than block {{0}}, or {buffer.name} is begun or used elsewhere.",
            [block_sref, producer_sref],
        )
    if not check_only:
        state.replace(scope, new_scope, rewriter.reuse)


def _merged_producer(consumer_sref: StmtSRef, producer_sref: StmtSRef, scope: StmtSRef, buffer: Buffer) -> BlockRealize:
    """The producer computing what the consumer stored, where the consumer did."""
    consumer, producer = consumer_sref.stmt, producer_sref.stmt
    loads = loads_of(consumer.body, buffer)
    if not loads or any(not same_expression(x.indices, loads[0].indices) for x in loads[1:]):
        raise PrimitiveError(
            "The block {0} must read the buffer at one and the same index everywhere.", [consumer_sref]
        )
    store = _producer_store(producer)
    if store is None:
        raise PrimitiveError("The body of the producer {0} must be a single buffer store.", [producer_sref])
    values = _consumer_values(consumer_sref, loads[0], store.indices)
    analyzer = arith.Analyzer()
    for iv in producer.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    inner = _inner_loops(producer)
    for loop in inner:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    _check_covered(consumer_sref, producer_sref, scope, loads[0], store.indices, values, analyzer)

    def merged(own: BufferStore) -> Stmt:
        value = _Loads(buffer, lambda load: BufferLoad(store.buffer, store.indices)).visit(own.value)
        return _Loads(buffer, lambda load: value).visit(substitute(consumer.body, values))

    block = producer.with_fields(body=_StoreSwap(buffer, merged).visit(producer.body))
    bounds = [
        bound
        for iv in consumer.iter_vars
        for bound in (values[iv.var] >= iv.dom.min, values[iv.var] < iv.dom.min + iv.dom.extent)
    ]
    inside: Any = analyzer.simplify(tir_all(*bounds)) if bounds else const(True, "bool")
    if any(loop.loop_var in vars_in(inside) for loop in inner):
        raise PrimitiveError(
            "The block {0} takes a part of what {1} copies only, which no predicate of that block can express.",
            [consumer_sref, producer_sref],
        )
    return _guarded(producer_sref, block, inside, analyzer)


def _guarded(producer_sref: StmtSRef, block: Block, inside: PrimExpr, analyzer: arith.Analyzer) -> BlockRealize:
    """The producer's realize with its new block, run only ``inside`` the domain of the consumer it took over."""
    realize = realize_of(producer_sref)
    if is_true(inside):
        return realize.with_fields(block=signature_of(block))
    body = block.body
    if isinstance(body, IfThenElse) and body.else_case is None:
        if not same_expression(inside, analyzer.simplify(body.condition)):
            inside = analyzer.simplify(logical_and(inside, body.condition))
            block = block.with_fields(body=body.then_case)
    bound = {iv.var: value for iv, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    predicate = analyzer.simplify(substitute(inside, bound))
    around = arith.Analyzer()
    for loop in checks.loops_above(producer_sref):
        around.bind(loop.stmt.loop_var, Range.from_min_extent(loop.stmt.min, loop.stmt.extent))
    with around.constraint_scope(around.simplify(predicate)):
        implied = around.can_prove(realize.predicate)
    if not implied:
        raise PrimitiveError(
            f"ScheduleError: The producer block {{0}} has a non-trivial predicate {realize.predicate} that cannot be "
            f"implied by the synthesized predicate {predicate} of the new inlined block.",
            [realize.block],
        )
    return realize.with_fields(predicate=predicate, block=signature_of(block))


def _check_covered(
    consumer_sref: StmtSRef,
    producer_sref: StmtSRef,
    scope: StmtSRef,
    load: BufferLoad,
    indices: Sequence[Any],
    values: Mapping[Var, PrimExpr],
    analyzer: arith.Analyzer,
) -> None:
    """Every instance of the consumer must take its place with one of the producer's, and with the right one."""
    around = [a.stmt for a in producer_sref.ancestors() if a.is_block and checks.in_scope_of(a, scope)]
    doms = {
        iv.var: arith.IntervalSet(iv.dom.min, iv.dom.min + iv.dom.extent - 1)
        for block in (producer_sref.stmt, *around)
        for iv in block.iter_vars
    }
    for iv in consumer_sref.stmt.iter_vars:
        seen = arith.eval_set(values[iv.var], doms)
        last = iv.dom.min + iv.dom.extent - 1
        if (seen.has_lower() and analyzer.can_prove(seen.min_value > iv.dom.min)) or (
            seen.has_upper() and analyzer.can_prove(seen.max_value < last)
        ):
            raise PrimitiveError(
                f'The producer does not run over all values of "{iv.var.name}" of block {{0}}.', [consumer_sref]
            )
    for wanted, given in zip(load.indices, indices, strict=True):
        if not analyzer.can_prove_equal(substitute(wanted, values), given):
            raise PrimitiveError(
                "The block {0} reads some of what its producer computes only, in steps.", [consumer_sref]
            )


def _check_every_instance_runs(
    state: ScheduleState, consumer_sref: StmtSRef, producer_sref: StmtSRef, scope: StmtSRef, buffer: Buffer
) -> None:
    """Demand that no instance of the consumer is lost that reads ``buffer`` under a condition only.

    Such an instance stores a value even where the producer computed nothing for it to read: a padding writes its
    border.  Each must have a turn of the producer's loops that stores what it (perhaps) reads.
    """
    consumer, producer = consumer_sref.stmt, producer_sref.stmt
    if loads_of(consumer.body, buffer, certain=True):
        return
    wanted = loads_of(consumer.body, buffer)[0].indices
    store = _producer_store(producer)
    assert store is not None
    if not _has_turn_for_each(consumer, wanted, *_in_loops(state, producer_sref, scope, store.indices)):
        raise PrimitiveError(
            "The block {0} stores a value where it does not read what {1} computes, and not each of its instances has "
            "one of that block in whose place it could run.",
            [consumer_sref, producer_sref],
        )


def _in_loops(
    state: ScheduleState, producer_sref: StmtSRef, scope: StmtSRef, indices: Sequence[Any]
) -> tuple[tuple[Any, ...], Any, dict[Any, Range]]:
    """Store indices of a producer in terms of the loops of the scope, the condition it runs under, and their ranges.

    Over loops of unknown extent, where a split's bounds prove nothing, a block that runs over all of its domain counts
    by its variables.
    """
    body = producer_sref.stmt.body
    made = tuple(indices)
    condition: Any = body.condition if isinstance(body, IfThenElse) else const(True, "bool")
    doms = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in _inner_loops(producer_sref.stmt)}
    at: StmtSRef | None = producer_sref
    while at is not None and at is not scope:
        if at.is_block:
            realize, loops = realize_of(at), [s.stmt for s in checks.loops_above(at)]
            symbolic = any(not isinstance(loop.extent, IntImm) for loop in loops)
            if symbolic and state.is_affine(at) and checks.guarded_by_bounds_only(realize, loops):
                doms |= {iv.var: iv.dom for iv in at.stmt.iter_vars}
            else:
                doms |= {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
                bound = {iv.var: v for iv, v in zip(at.stmt.iter_vars, realize.iter_values, strict=True)}
                made = tuple(substitute(i, bound) for i in made)
                condition = and_predicate(substitute(condition, bound), realize.predicate)
        at = at.parent
    return made, condition, doms


def _has_turn_for_each(
    consumer: Block, wanted: Sequence[Any], given: Sequence[Any], condition: PrimExpr, doms: dict[Any, Range]
) -> bool:
    """Whether for each instance of the consumer some point of ``doms`` meets the condition and is ``wanted`` there."""
    analyzer = arith.Analyzer()
    for iv in consumer.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    found = detect_separate_iters(list(given), doms, condition, arith.IterMapLevel.NoCheck, False)
    turn: dict[Any, Any] = {var: dom.min for var, dom in doms.items()}
    if found:
        turn |= arith.inverse_affine_iter_map(found, list(wanted))
    terms = [t for var, dom in doms.items() for t in (turn[var] >= dom.min, turn[var] < dom.min + dom.extent)]
    return all(analyzer.can_prove(substitute(t, turn)) for t in (*terms, condition)) and all(
        analyzer.can_prove_equal(substitute(have, turn), want) for have, want in zip(given, wanted, strict=True)
    )


def _consumer_values(consumer_sref: StmtSRef, load: BufferLoad, indices: Sequence[Any]) -> dict[Any, Any]:
    """Each block variable of the consumer in terms of the producer's store indices."""
    consumer = consumer_sref.stmt
    values: dict[Any, Any] = {
        iv.var: iv.dom.min
        for iv in consumer.iter_vars
        if isinstance(iv.dom.min, IntImm) and checks.is_one(iv.dom.extent)
    }
    doms = {iv.var: iv.dom for iv in consumer.iter_vars}
    found = detect_separate_iters(list(load.indices), doms, True, arith.IterMapLevel.NoCheck, False)
    if load.indices and not found:
        raise PrimitiveError("The block {0} reads the buffer at an index that cannot be inverted.", [consumer_sref])
    values.update(arith.inverse_affine_iter_map(found, list(indices)))
    for iv in consumer.iter_vars:
        if iv.var not in values:
            raise PrimitiveError(
                f'The block variable "{iv.var.name}" of block {{0}} is not determined by the index it reads.',
                [consumer_sref],
            )
    return values


class ReverseComputeInline(Step):
    """A consumer's expression into its producer."""

    block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        reverse_inline_block(sch.state, sch.sref(self.block))
        return []
