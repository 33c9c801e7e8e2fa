"""compute_inline and reverse_compute_inline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import arith
from ....ir.expr import Range
from ....ir.functor import Mutator, Visitor
from ....ir.structural import structural_equal
from ...expr import BufferLoad, IntImm, Var
from ....ir.prim import const
from ...functor import substitute
from ...op import all as tir_all
from ...stmt import Block, BlockRealize, BufferStore, IfThenElse
from .. import checks
from ..errors import PrimitiveError
from ..instruction import InstructionKind, register_kind
from ..rewrite import ScopeRewriter, dead_statement, signature_of, with_alloc
from ..sref import StmtSRef
from ..subst import is_true, realize_of
from ..walk import vars_in

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Loads(Mutator):
    """Replaces the loads of one buffer through a callback."""

    def __init__(self, buffer: Any, replace: Any) -> None:
        self.buffer = buffer
        self.replace = replace

    def visit_Buffer(self, node: Any) -> Any:
        return node

    def visit_IntImm(self, node: Any) -> Any:
        return node

    visit_FloatImm = visit_IntImm
    visit_Var = visit_IntImm
    visit_IterVar = visit_IntImm

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        made = self.default_visit(node)
        return self.replace(made) if made.buffer is self.buffer else made


class _InBlocks(_Loads):
    """Does so in blocks and the blocks inside them, finding the regions of those that change anew."""

    def __init__(self, buffer: Any, replace: Any, reuse: dict[Any, Any]) -> None:
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

    def visit_Block(self, node: Block) -> Any:
        made = self.rewritten(node)
        if made is not node:
            self.reuse[node] = made
        return made


def loads_of(node: Any, buffer: Any) -> list[Any]:
    """All loads of one buffer."""
    found: list[Any] = []

    def keep(load: Any) -> Any:
        found.append(load)
        return load

    _Loads(buffer, keep).visit(node)
    return found


def _single_output(block_sref: StmtSRef) -> Any:
    writes = block_sref.stmt.writes
    if len(writes) != 1:
        raise PrimitiveError("The block {0} must write exactly one buffer to be inlined.", [block_sref])
    return writes[0].buffer


def index_substitution(store: BufferStore, block: Block) -> Any:
    """A function from load indices to the values of the producer's block variables, None if there is none."""
    indices = store.indices
    unit = {iv.var: iv.dom.min for iv in block.iter_vars if checks.is_one(iv.dom.extent)}
    needed = [v for v in vars_in(store.value) if v in {iv.var for iv in block.iter_vars}]
    own = [i for i in indices if isinstance(i, Var)]
    if len(own) == len(indices) == len({id(v) for v in own}) and all(v in set(own) or v in unit for v in needed):
        rest = {v: m for v, m in unit.items() if v not in set(own)}
        return lambda given: {**rest, **dict(zip(own, given, strict=True))}
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    result = arith.detect_iter_map(list(indices), doms, True, check_level=arith.IterMapLevel.Bijective)
    found: Any = getattr(result, "indices", result)
    if not found:
        return None
    return lambda given: {**unit, **arith.inverse_affine_iter_map(found, list(given))}


class _Inliner(ScopeRewriter):
    def __init__(self, scope: Block, buffer: Any, store: BufferStore, mapping: Any, dead: Any) -> None:
        super().__init__(dead)
        self.scope = scope
        self.buffer = buffer
        self.loads = _InBlocks(buffer, lambda load: substitute(store.value, mapping(load.indices)), self.reuse)

    def rewrite_block(self, node: Block) -> Block:
        if node is self.scope:
            body = self.visit(node.body)
            return with_alloc(node.with_fields(body=body), remove=self.buffer)
        return self.loads.rewritten(node)


class _Opaque(Visitor):
    """Finds uses of a buffer that are neither loads nor stores: of its pointer, or by views of part of it."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.hit = False

    def visit_Var(self, node: Any) -> None:
        self.hit = self.hit or node is self.buffer.data

    def visit_Buffer(self, node: Any) -> None:
        pass

    def visit_Block(self, node: Block) -> None:
        self.hit = self.hit or any(m.source.buffer is self.buffer for m in node.match_buffers)
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)


def _check_no_opaque_access(state: ScheduleState, scope: StmtSRef, buffer: Any) -> None:
    for child in state.child_blocks(scope):
        if any(r.buffer is buffer for r in (*child.stmt.reads, *child.stmt.writes)):
            visitor = _Opaque(buffer)
            visitor.visit(child.stmt)
            if visitor.hit:
                raise PrimitiveError(
                    f"The buffer {buffer.name} to be inlined has opaque access in {{0}}: its pointer is used, or part "
                    "of it is viewed through match_buffer.",
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
        raise PrimitiveError("The body of {0} must be a single buffer store to be inlined.", [block_sref])
    mapping = index_substitution(store, block)
    if mapping is None:
        raise PrimitiveError(
            "The store of {0} must be indexed by its block variables in an invertible way to be inlined.", [block_sref]
        )
    dead = dead_statement(block_sref, scope)
    _check_no_opaque_access(state, scope, buffer)
    if check_only:
        return
    rewriter = _Inliner(scope.stmt, buffer, store, mapping, dead)
    state.replace(scope, rewriter.visit(scope.stmt), rewriter.reuse)


@register_kind
class ComputeInline(InstructionKind):
    """A producer's expression into its consumers."""

    name, method = "ComputeInline", "compute_inline"
    inputs = ("block",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        inline_block(sch.state, sch.sref(inputs[0]))
        return [], None


class _ReverseInliner(ScopeRewriter):
    def __init__(self, scope: Block, producer: BlockRealize, new_block: Block, buffer: Any, dead: Any) -> None:
        super().__init__(dead)
        self.scope, self.producer, self.new_block, self.buffer = scope, producer, new_block, buffer

    def rewrite_block(self, node: Block) -> Block:
        if node is self.producer.block:
            return self.new_block
        made = super().rewrite_block(node)
        return with_alloc(made, remove=self.buffer) if node is self.scope else made


def _producer_store(block: Block) -> tuple[Any, BufferStore] | None:
    """(condition or None, store) of a producer whose body is a store, perhaps under a condition."""
    body = block.body
    if isinstance(body, BufferStore):
        return None, body
    if isinstance(body, IfThenElse) and body.else_case is None and isinstance(body.then_case, BufferStore):
        return body.condition, body.then_case
    return None


def reverse_inline_block(state: ScheduleState, block_sref: StmtSRef, check_only: bool = False) -> None:
    """Put the expression of a consumer into its only producer and remove it."""
    consumer = checks.check_block(block_sref)
    _check_no_init(block_sref)
    scope = checks.scope_root(state, block_sref, require_stage_pipeline=True)
    _single_output(block_sref)
    checks.check_complete(state, block_sref, scope)
    read = [r.buffer for r in consumer.reads]
    producers = checks.producers_of(state, block_sref, scope)
    if len(producers) != 1:
        raise PrimitiveError(
            f"The block {{0}} must have exactly one producer to be inlined into it, but has {len(producers)}.",
            [block_sref],
        )
    producer_sref = producers[0]
    made = {r.buffer for r in producer_sref.stmt.writes}
    shared = [b for b in read if b in made]
    if len(shared) != 1 or len(made) != 1:
        raise PrimitiveError(
            "The producer {1} of {0} must write exactly the one buffer read.", [block_sref, producer_sref]
        )
    buffer = shared[0]
    users = checks.consumers_of(state, producer_sref, scope)
    if len(users) != 1:
        raise PrimitiveError("{1} has other consumers than {0}.", [block_sref, producer_sref])
    checks.check_not_output(state, producer_sref, scope)
    checks.check_complete(state, producer_sref, scope)
    _check_no_init(producer_sref)
    if not isinstance(consumer.body, BufferStore):
        raise PrimitiveError("The body of {0} must be a single buffer store to be inlined.", [block_sref])
    new_block = _merged_producer(block_sref, producer_sref, buffer)
    dead = dead_statement(block_sref, scope)
    _check_no_opaque_access(state, scope, buffer)
    rewriter = _ReverseInliner(scope.stmt, realize_of(producer_sref), new_block, buffer, dead)
    new_scope = rewriter.visit(scope.stmt)
    if not check_only:
        state.replace(scope, new_scope, rewriter.reuse)


def _merged_producer(consumer_sref: StmtSRef, producer_sref: StmtSRef, buffer: Any) -> Block:
    """The producer block computing what the consumer stored."""
    consumer, producer = consumer_sref.stmt, producer_sref.stmt
    realize = realize_of(consumer_sref)
    loads = loads_of(consumer.body, buffer)
    if not loads or any(not structural_equal(x.indices, loads[0].indices) for x in loads[1:]):
        raise PrimitiveError("{0} must read the buffer at one and the same index everywhere.", [consumer_sref])
    parts = _producer_store(producer)
    if parts is None:
        raise PrimitiveError("The body of the producer {0} must be a single buffer store.", [producer_sref])
    condition, store = parts
    values = _consumer_values(consumer_sref, loads[0], realize, store.indices)
    analyzer = arith.Analyzer()
    for iv in producer.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    values = {v: analyzer.simplify(e) for v, e in values.items()}
    _check_covered(consumer_sref, producer, loads[0], store.indices, values, analyzer)
    inlined = _Loads(buffer, lambda load: store.value).visit(consumer.body)
    body: Any = substitute(inlined, values)
    bounds = [
        b
        for iv in consumer.iter_vars
        for b in (values[iv.var] >= iv.dom.min, values[iv.var] < iv.dom.min + iv.dom.extent)
    ]
    guard: Any = analyzer.simplify(tir_all(*bounds)) if bounds else const(True, "bool")
    if condition is not None and not structural_equal(guard, analyzer.simplify(condition)):
        guard = analyzer.simplify(tir_all(guard, condition)) if not is_true(guard) else condition
    if not is_true(guard):
        body = IfThenElse(guard, body)
    return signature_of(producer.with_fields(body=body))


def _check_covered(
    consumer_sref: StmtSRef, producer: Block, load: Any, indices: Sequence[Any], values: Any, analyzer: Any
) -> None:
    """Every instance of the consumer must take its place with one of the producer's, and with the right one."""
    doms = {iv.var: arith.IntervalSet(iv.dom.min, iv.dom.min + iv.dom.extent - 1) for iv in producer.iter_vars}
    for iv in consumer_sref.stmt.iter_vars:
        seen = arith.eval_set(values[iv.var], doms)
        last = iv.dom.min + iv.dom.extent - 1
        if analyzer.can_prove(seen.min_value > iv.dom.min) or analyzer.can_prove(seen.max_value < last):
            raise PrimitiveError(
                f'The producer does not run over all values of "{iv.var.name}" of {{0}}.', [consumer_sref]
            )
    for wanted, given in zip(load.indices, indices, strict=True):
        if not analyzer.can_prove_equal(substitute(wanted, values), given):
            raise PrimitiveError("{0} reads some of what its producer computes only, in steps.", [consumer_sref])


def _consumer_values(
    consumer_sref: StmtSRef, load: Any, realize: BlockRealize, indices: Sequence[Any]
) -> dict[Any, Any]:
    """Each block variable of the consumer in terms of the producer's store indices."""
    consumer = consumer_sref.stmt
    values: dict[Any, Any] = {}
    pairs = list(zip(load.indices, indices, strict=True))
    if all(isinstance(i, (Var, IntImm)) for i, _ in pairs):
        for index, given in pairs:
            if isinstance(index, Var):
                values[index] = given
    else:
        doms = {iv.var: Range.from_min_extent(iv.dom.min, iv.dom.extent) for iv in consumer.iter_vars}
        result = arith.detect_iter_map(list(load.indices), doms, True, check_level=arith.IterMapLevel.NoCheck)
        found: Any = getattr(result, "indices", result)
        if not found:
            raise PrimitiveError("{0} reads the buffer at an index that cannot be inverted.", [consumer_sref])
        values.update(arith.inverse_affine_iter_map(found, list(indices)))
    for iv in consumer.iter_vars:
        if iv.var not in values:
            if not checks.is_one(iv.dom.extent):
                raise PrimitiveError(
                    f'The block variable "{iv.var.name}" of {{0}} is not determined by the index it reads.',
                    [consumer_sref],
                )
            values[iv.var] = iv.dom.min
    return values


@register_kind
class ReverseComputeInline(InstructionKind):
    """A consumer's expression into its producer."""

    name, method = "ReverseComputeInline", "reverse_compute_inline"
    inputs = ("block",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        reverse_inline_block(sch.state, sch.sref(inputs[0]))
        return [], None
