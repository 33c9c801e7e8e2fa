"""reindex and the reindexing caches: copies laid out by the variables of a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import const
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...expr import BufferLoad, IntImm, IterVar, Var
from ...index_map import IndexMap, with_index_dtype
from ...op import all as tir_all
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt, stmt_list
from .. import checks
from ..buffers import compact, derived_buffer
from ..errors import PrimitiveError
from ..instruction import Decision, plain, Output, Step, operand
from ..region import evaluate_region, loops_between
from ..rewrite import ScopeRewriter
from ..sref import StmtSRef
from ..subst import and_predicate, conjuncts, free_vars, realize_of
from ..walk import block_realizes_below, driving_loops, seq_or_single, vars_in
from .cache import (
    check_reads_follow, check_scope_name, check_starts_afresh, insert_at, only_writer, readers_of, stage_location,
)  # fmt: skip
from .layout import fit
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Accesses(Mutator):
    """Collects the index tuples of one buffer and, given new ones, replaces the accesses."""

    def __init__(self, old: Buffer, new: Buffer | None = None, indices: Sequence[PrimExpr] = ()) -> None:
        self.old, self.new, self.indices = old, new, indices
        self.found: list[Any] = []

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        if node.buffer is not self.old:
            return self.default_visit(node)
        self.found.append(node.indices)
        return node if self.new is None else BufferLoad(self.new, self.indices)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer is not self.old:
            return self.default_visit(node)
        self.found.append(node.indices)
        value = self.visit(node.value)
        return node.with_fields(value=value) if self.new is None else BufferStore(self.new, value, self.indices)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        if node.buffer is not self.old or self.new is None:
            return node
        return BufferRegion(self.new, points(self.indices))


def points(indices: Sequence[Any]) -> tuple[Range, ...]:
    """A region of single elements."""
    return tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices)


def _one_access(sref: StmtSRef, buffer: Buffer) -> tuple[Any, ...]:
    finder = _Accesses(buffer)
    finder.visit(sref.stmt.body)
    if sref.stmt.init is not None:
        finder.visit(sref.stmt.init)
    if not finder.found:
        raise PrimitiveError("The block {0} does not access the buffer directly.", [sref])
    if any(not same_expression(f, finder.found[0]) for f in finder.found):
        raise PrimitiveError("The block {0} accesses the buffer at more than one index.", [sref])
    own = {iv.var for iv in sref.stmt.iter_vars}
    inner = [v for v in vars_in(tuple(finder.found[0])) if v not in own and v not in free_vars(sref.stmt)]
    if inner:
        raise PrimitiveError(f"The block {{0}} accesses the buffer by {inner[0].name}, defined inside it.", [sref])
    return tuple(finder.found[0])


def _stage(
    iters: Sequence[IterVar],
    source: Buffer,
    source_indices: Sequence[PrimExpr],
    target: Buffer,
    target_indices: Sequence[PrimExpr],
    name: str,
) -> tuple[Any, Block]:
    block = Block(
        tuple(iters),
        (BufferRegion(source, points(source_indices)),),
        (BufferRegion(target, points(target_indices)),),
        name,
        BufferStore(target, BufferLoad(source, source_indices), target_indices),
    )
    loop_vars = [Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(iters)]
    body: Any = BlockRealize(tuple(loop_vars), const(True, "bool"), block)
    for var, iv in reversed(list(zip(loop_vars, iters, strict=True))):
        body = For(var, iv.dom.min, iv.dom.extent, ForKind.SERIAL, body)
    return body, block


class _Insert(ScopeRewriter):
    def __init__(self, scope: Block, block: Block, made: Block, stage: Stmt, buffer: Buffer, after: bool) -> None:
        super().__init__()
        self.scope, self.block, self.made, self.stage, self.buffer, self.after = (
            scope,
            block,
            made,
            stage,
            buffer,
            after,
        )

    def rewrite_block(self, node: Block) -> Block:
        if node is self.block:
            return self.made
        if node is not self.scope:
            return super().rewrite_block(node)
        parts = stmt_list(node.body)
        at = next(i for i, p in enumerate(parts) if any(r.block is self.block for r in block_realizes_below(p)))
        parts = [self.visit(p) for p in parts]
        parts.insert(at + 1 if self.after else at, self.stage)
        return node.with_fields(body=seq_or_single(parts), alloc_buffers=(*node.alloc_buffers, self.buffer))


def _apply_stage(
    state: ScheduleState, sref: StmtSRef, buffer: Buffer, write: bool, indices: Sequence[Any], used: Sequence[IterVar]
) -> StmtSRef:
    """Insert the copy between ``buffer`` and one laid out by the variables ``used``; the block uses the latter."""
    scope = checks.scope_root(state, sref)
    shape = tuple(_end(sref, iv) for iv in used)
    new = compact(derived_buffer(buffer, f"{buffer.name}_reindex", shape=shape, strides=(), axis_separators=()))
    renamed: dict[Any, Any] = {iv.var: Var(f"v{i}", iv.var.dtype) for i, iv in enumerate(used)}
    iters = [IterVar(iv.dom, renamed[iv.var], IterVar.DataPar) for iv in used]
    here, there = [iv.var for iv in iters], [substitute(i, renamed) for i in indices]
    pairs = ((new, here), (buffer, there)) if write else ((buffer, there), (new, here))
    (source, source_at), (target, target_at) = pairs
    stage, made = _stage(iters, source, source_at, target, target_at, f"{target.name}_reindex")
    block = _Accesses(buffer, new, tuple(iv.var for iv in used)).default_visit(sref.stmt)
    rewriter = _Insert(scope.stmt, sref.stmt, block, stage, new, write)
    changed = rewriter.visit(scope.stmt)
    state.replace(scope, changed, rewriter.reuse)
    result = state.stmt2ref[made]
    state.mark_new_block(result)
    return result


def _end(sref: StmtSRef, iv: IterVar) -> PrimExpr:
    """Where the values of a block variable end; as an index it must not begin below zero."""
    if checks.is_zero(iv.dom.min):
        return iv.dom.extent
    if not Analyzer().can_prove(iv.dom.min >= 0):
        raise PrimitiveError(
            f'The values of "{iv.var.name}" in block {{0}} may be negative: they index nothing.', [sref]
        )
    return Analyzer().simplify(iv.dom.min + iv.dom.extent)


def check_takes_variables(sref: StmtSRef, index_map: IndexMap) -> None:
    """Demand that a map takes as many indices as the block has variables."""
    have, want = len(index_map.initial_indices), len(sref.stmt.iter_vars)
    if have != want:
        raise PrimitiveError(f"The index map takes {have} indices, but block {{0}} has {want} variables.", [sref])


def check_alone(sref: StmtSRef) -> None:
    """Demand that the nest around a block holds nothing else, so that a copy may stand before or after all of it."""
    part: Any = realize_of(sref)
    for loop in reversed(checks.loops_above(sref)):
        if loop.stmt.body is not part:
            raise PrimitiveError(
                "The loop {1} holds other blocks than block {0}, so no copy can stand outside of it.", [sref, loop]
            )
        part = loop.stmt


def check_covers(sref: StmtSRef, used: Sequence[IterVar]) -> None:
    """Demand that the block runs over all of its variables: a copy of its results copies them all."""
    checks.check_runs_whole_domain(sref)
    check_decides_itself(sref, used)
    realize = realize_of(sref)
    bound = dict(zip(sref.stmt.iter_vars, realize.iter_values, strict=True))
    loops = loops_between(sref.parent, None)
    ends = [e for r in (*loops.values(), *(iv.dom for iv in used)) for e in (r.min, r.extent)]
    if not used or not all(isinstance(e, IntImm) for e in ends):
        return
    # All of them together: of the pairs of quotients and remainders, a loop that begins late leaves out the first.
    region, analyzer = points([bound[iv] for iv in used]), Analyzer()
    for predicate in (const(True, "bool"), realize.predicate):
        box = evaluate_region(region, loops, predicate, analyzer, lower_bound=True)
        if box is not None and all(
            analyzer.can_prove(tir_all(low <= iv.dom.min, iv.dom.min + iv.dom.extent <= high + 1))
            for (low, high), iv in zip(box, used, strict=True)
        ):
            return
    names = ", ".join(f'"{iv.var.name}"' for iv in used)
    raise PrimitiveError(f"The block {{0}} runs over part of the values of {names} only.", [sref])


def check_decides_itself(sref: StmtSRef, used: Sequence[IterVar]) -> None:
    """Demand that loops of its scope drive the variables: a copy for all of their values would be no part of what an
    outer block says it accesses."""
    bound = dict(zip(sref.stmt.iter_vars, realize_of(sref).iter_values, strict=True))
    loops = {loop.stmt.loop_var for loop in checks.loops_above(sref)}
    for iv in used:
        if not loops.issuperset(vars_in(bound[iv])) and not checks.is_one(iv.dom.extent):
            raise PrimitiveError(
                f'An outer block decides which values of "{iv.var.name}" block {{0}} runs over.', [sref]
            )


def check_in_bounds(sref: StmtSRef, buffer: Buffer, indices: Sequence[Any]) -> None:
    """Refuse indices that are known to leave the buffer: a guard around the access would not guard the copy."""
    analyzer = Analyzer()
    for iv in sref.stmt.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    for index, extent in zip(indices, buffer.shape, strict=True):
        if isinstance(extent, IntImm):
            low, high = analyzer.const_int_bound.bound(index)
            if low < 0 or high >= extent.value:
                raise PrimitiveError(
                    f"The block {{0}} reads {buffer.name} under a guard at {index}, which leaves the buffer elsewhere; "
                    "a copy would read there.",
                    [sref],
                )


def _simplified(index: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """An index in simplest form; one that can only be zero keeps its variables, which make a dimension."""
    made = analyzer.simplify(index)
    return index if isinstance(made, IntImm) else made


def _used(sref: StmtSRef, indices: Sequence[Any]) -> list[IterVar]:
    present = vars_in(tuple(indices))
    return [iv for iv in sref.stmt.iter_vars if iv.var in present]


class ReIndex(Step, method="reindex"):
    """A copy laid out by a block's variables."""

    block: BlockRV = operand()
    buffer_index: int
    buffer_index_type: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref, write = sch.sref(self.block), bool(self.buffer_index_type)
        buffer = checks.nth_buffer(sref, self.buffer_index, write)
        scope = checks.scope_root(sch.state, sref, require_stage_pipeline=True)
        check_alone(sref)
        if any(r.buffer is buffer for r in sref.stmt.writes):
            check_starts_afresh(sch.state, sref, scope, buffer)
        analyzer = Analyzer()
        for iv in sref.stmt.iter_vars:
            analyzer.bind(iv.var, iv.dom)
        original = [_simplified(index, analyzer) for index in _one_access(sref, buffer)]
        used = _used(sref, original)
        if write:
            check_covers(sref, used)
        else:
            check_decides_itself(sref, used)
            check_in_bounds(sref, buffer, original)
        return [_apply_stage(sch.state, sref, buffer, write, original, used)]

    @classmethod
    def as_python(cls, inputs: Sequence[str], attrs: Sequence[Any], decision: Decision, outputs: Sequence[str]) -> str:
        kind = "write" if plain(attrs[1]) else "read"
        return f'{outputs[0]} = sch.reindex(block={inputs[0]}, buffer=("{kind}", {plain(attrs[0])}))'


class _ReindexCache(Step):
    write = False

    block: BlockRV = operand()

    def _staged(self, sch: Schedule, index: int, storage: str, wanted: IndexMap) -> Sequence[Output]:
        state, sref = sch.state, sch.sref(self.block)
        check_scope_name(storage)
        block = checks.check_block(sref)
        buffer = checks.nth_buffer(sref, index, self.write)
        scope = checks.scope_root(state, sref, require_stage_pipeline=True)
        if any(r.buffer is buffer for r in block.writes):
            check_starts_afresh(state, sref, scope, buffer)
        region = next(r for r in (block.writes if self.write else block.reads) if r.buffer is buffer)
        if not all(checks.is_one(r.extent) for r in region.region):
            raise PrimitiveError(f"The block {{0}} accesses more than one element of {buffer.name} at a time.", [sref])
        check_in_bounds(sref, buffer, [r.min for r in region.region])
        analyzer = Analyzer()
        index_map = with_index_dtype(wanted, block.iter_vars[0].var.dtype if block.iter_vars else "int32")
        check_takes_variables(sref, index_map)
        values = dict(zip(index_map.initial_indices, [iv.var for iv in block.iter_vars], strict=True))
        own = [analyzer.simplify(substitute(e, values)) for e in index_map.final_indices]
        used = _same_variables(sref, region, own)
        shape = index_map.map_shape([_end(sref, iv) for iv in block.iter_vars])
        dtype = buffer.shape[0].dtype if buffer.shape else "int32"
        name, fitted = f"{buffer.name}_{storage}", tuple(fit(d, dtype) for d in shape)
        new = compact(derived_buffer(buffer, name, storage, shape=fitted, strides=(), axis_separators=()))
        at, position = self._location(state, sref, scope, buffer)
        nest, made = _stage_under_copied_loops(sref, buffer, new, region, own, used, self.write, at)
        changed = _Accesses(buffer, new, tuple(own)).default_visit(block)
        rewriter = _InsertAt(scope.stmt, block, changed, nest, new, at.stmt, position)
        state.replace(scope, rewriter.visit(scope.stmt), rewriter.reuse)
        result = state.stmt2ref[made]
        state.mark_new_block(result)
        return [result]

    def _location(self, state: ScheduleState, sref: StmtSRef, scope: StmtSRef, buffer: Buffer) -> tuple[StmtSRef, int]:
        if self.write:
            if only_writer(state, scope, buffer) is not sref:
                raise PrimitiveError("The block {0} is not the only writer of the buffer in its scope.", [sref])
            at, position = stage_location(sref, scope, readers_of(state, scope, sref))
            check_reads_follow(state, scope, sref, buffer, at)
            return at, position
        writer = only_writer(state, scope, buffer)
        if writer is None:
            return scope, 0
        order = state.child_blocks(scope)
        if state.enable_check and order.index(sref) < order.index(writer):
            raise PrimitiveError("The block {0} reads the buffer before {1} writes it.", [sref, writer])
        return stage_location(writer, scope, [sref])


def _same_variables(sref: StmtSRef, region: BufferRegion, own: Sequence[Any]) -> list[IterVar]:
    """The block variables that index the buffer, which must be those the map uses."""
    old = vars_in(tuple(region.region))
    new = vars_in(tuple(own))
    for iv in sref.stmt.iter_vars:
        if (iv.var in old) != (iv.var in new):
            where = "the region accessed, but not in the index map" if iv.var in old else "the index map only"
            raise PrimitiveError(f'The block variable "{iv.var.name}" of block {{0}} appears in {where}.', [sref])
    return [iv for iv in sref.stmt.iter_vars if iv.var in new]


def _stage_under_copied_loops(
    sref: StmtSRef,
    buffer: Buffer,
    new: Buffer,
    region: BufferRegion,
    own: Sequence[Any],
    used: Sequence[IterVar],
    write: bool,
    at: StmtSRef,
) -> tuple[Any, Block]:
    """The copy between ``buffer`` and ``new`` under copies of the loops below ``at`` that drive the variables."""
    realize = realize_of(sref)
    bound = {iv.var: v for iv, v in zip(sref.stmt.iter_vars, realize.iter_values, strict=True)}
    below = [s for s in checks.loops_above(sref) if checks.in_scope_of(s, at)]
    wanted, guards = _guards(realize, [s.stmt for s in below], vars_in(tuple(bound[iv.var] for iv in used)))
    loops = driving_loops([s.stmt for s in below], wanted)
    renamed: dict[Any, Any] = {n.loop_var: Var(n.loop_var.name, n.loop_var.dtype) for n in loops}
    iters = [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), IterVar.DataPar) for iv in used]
    renamed.update({iv.var: made.var for iv, made in zip(used, iters, strict=True)})
    there = [substitute(r.min, renamed) for r in region.region]
    here = [substitute(e, renamed) for e in own]
    pairs = ((buffer, there), (new, here))
    (source, source_at), (target, target_at) = pairs[::-1] if write else pairs
    block = Block(
        tuple(iters),
        (BufferRegion(source, points(source_at)),),
        (BufferRegion(target, points(target_at)),),
        new.name,
        BufferStore(target, BufferLoad(source, source_at), target_at),
    )
    values = tuple(substitute(bound[iv.var], renamed) for iv in used)
    predicate: Any = const(True, "bool")
    # A loop of one iteration that drives nothing may still stand in a predicate.
    renamed |= {s.stmt.loop_var: s.stmt.min for s in below if s.stmt.loop_var not in renamed}
    for term in guards:
        predicate = and_predicate(predicate, substitute(term, renamed))
    body: Any = BlockRealize(values, predicate, block)
    for n in reversed(loops):
        low, extent = substitute(n.min, renamed), substitute(n.extent, renamed)
        body = For(renamed[n.loop_var], low, extent, ForKind.SERIAL, body)
    return body, block


def _guards(realize: BlockRealize, below: Sequence[For], driving: Iterable[Any]) -> tuple[dict[Any, None], list[Any]]:
    """The loops that a copy of an access needs, besides those that drive it, and the terms of the predicate for it.

    A term about other loops alone (those of a reduction) holds somewhere, whatever is accessed; one that compares them
    with loops of the access says what is accessed at all.
    """
    several = {n.loop_var for n in below if not checks.is_one(n.extent)}
    wanted = dict.fromkeys(driving)
    left = conjuncts(realize.predicate)
    taken: list[Any] = []
    while True:
        more = [t for t in left if not wanted.keys().isdisjoint(vars_in(t)) or several.isdisjoint(vars_in(t))]
        if not more:
            break
        left = [t for t in left if t not in more]
        taken += more
        wanted |= {v: None for t in more for v in vars_in(t) if v in several}
    return wanted, [t for t in conjuncts(realize.predicate) if t in taken]


class _InsertAt(ScopeRewriter):
    """Exchanges one block and inserts a statement at a position of a loop or of the scope."""

    def __init__(
        self, scope: Block, block: Block, made: Block, nest: Stmt, buffer: Buffer, at: Block | For, position: int
    ) -> None:
        super().__init__()
        self.scope, self.block, self.made = scope, block, made
        self.nest, self.buffer, self.at, self.position = nest, buffer, at, position

    def visit_For(self, node: For) -> Stmt:
        made = self.within(node)
        return made.with_fields(body=insert_at(made.body, self.position, self.nest)) if node is self.at else made

    def rewrite_block(self, node: Block) -> Block:
        if node is self.block:
            return self.made
        if node is not self.scope:
            return node
        body = self.visit(node.body)
        if node is self.at:
            body = insert_at(body, self.position, self.nest)
        return node.with_fields(body=body, alloc_buffers=(*node.alloc_buffers, self.buffer))


class ReindexCacheRead(_ReindexCache):
    """A staging copy in a layout of the reader's choice."""

    read_buffer_index: int
    storage_scope: str
    index_map: IndexMap = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._staged(sch, self.read_buffer_index, str(self.storage_scope), self.index_map)


class ReindexCacheWrite(_ReindexCache):
    """A staging copy in a layout of the writer's choice."""

    write = True

    write_buffer_index: int
    storage_scope: str
    index_map: IndexMap = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._staged(sch, self.write_buffer_index, str(self.storage_scope), self.index_map)
