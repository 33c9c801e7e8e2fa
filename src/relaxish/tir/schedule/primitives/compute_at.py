"""compute_at and reverse_compute_at: moving a block under a loop of its consumers or producers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer, IntervalSet, IterMapLevel, ProofStrength, detect_iter_map, eval_set
from ....arith.iter_map import detect_separate_iters
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const
from ...expr import FloorMod, IntImm, IterVar, Mul, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, For, ForKind, Stmt
from .. import checks
from ..block_info import bind_shape_vars, loop_ranges
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..region import Box, leaves_gaps, relax_region, union_sets
from ..rewrite import ScopeRewriter, dead_statement
from ..sref import StmtSRef
from ..subst import and_predicate, conjuncts, realize_of
from ..walk import block_realizes_below, seq_or_single, vars_in
from .domains import BlockDomains, VarDomain
from .guards import check_stays_in_bounds, own_guards
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


# -- the move ----------------------------------------------------------------------------------------------


class _Move(ScopeRewriter):
    """Takes the block out of its old place and puts its new nest into the body of the loop."""

    def __init__(self, loop: For, position: int, nest: Stmt, dead: Stmt) -> None:
        super().__init__(dead)
        self.loop, self.position, self.nest = loop, position, nest

    def visit_For(self, node: For) -> Stmt:
        if node is not self.loop:
            return super().visit_For(node)
        parts = list(node.body.seq) if hasattr(node.body, "seq") else [node.body]
        at = self.position
        if any(p is self.dead for p in parts):
            index = next(i for i, p in enumerate(parts) if p is self.dead)
            parts.pop(index)
            at -= index < at
        parts.insert(at, self.nest)
        return node.with_fields(body=seq_or_single(parts))

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return node


def _insertion_point(loop: For, producers: Sequence[StmtSRef], consumers: Sequence[StmtSRef], index: int) -> int:
    parts = list(loop.body.seq) if hasattr(loop.body, "seq") else [loop.body]
    last_producer, first_consumer = -1, len(parts)
    producer_blocks = {p.stmt for p in producers}
    consumer_blocks = {c.stmt for c in consumers}
    for position, part in enumerate(parts):
        blocks = [r.block for r in block_realizes_below(part)]
        if any(b in producer_blocks for b in blocks):
            last_producer = position
        if first_consumer == len(parts) and any(b in consumer_blocks for b in blocks):
            first_consumer = position
    if last_producer >= first_consumer:
        raise PrimitiveError(
            "Cannot find the insertion point that satisfies the producer-consumer constraint: loop {0} holds a "
            "producer after the first consumer.",
            [loop],
        )
    if index == -1:
        return first_consumer
    if index == -2:
        return last_producer + 1
    if not last_producer < index <= first_consumer:
        raise PrimitiveError(
            f"The insertion index {index} is not between {last_producer + 1} and {first_consumer}, "
            "the places in loop {0} after all producers and before all consumers.",
            [loop],
        )
    return index


def _check_place(block: StmtSRef, loop: StmtSRef, scope: StmtSRef) -> None:
    at: StmtSRef | None = loop
    while at is not None and at.is_loop:
        at = at.parent
    if at is not scope:
        raise PrimitiveError("Expected block {0} and loop {1} to be under the same block scope.", [block, loop])
    if checks.in_scope_of(block, loop):
        raise PrimitiveError("The input loop {1} is an ancestor of block {0}.", [block, loop])


def move_block(
    state: ScheduleState,
    block_sref: StmtSRef,
    loop_sref: StmtSRef,
    keep_units: bool,
    index: int,
    backwards: bool,
    check_only: bool = False,
) -> None:
    """Move a block under a loop; ``backwards`` follows producers (reverse_compute_at)."""
    block = checks.check_block(block_sref)
    loop = checks.check_loop(loop_sref)
    scope = checks.scope_root(state, block_sref, require_stage_pipeline=True)
    checks.check_complete_or_reduction(state, block_sref, scope)
    _check_place(block_sref, loop_sref, scope)
    if not backwards:
        checks.check_not_output(state, block_sref, scope)
    producers = checks.producers_of(state, block_sref, scope)
    consumers = checks.consumers_of(state, block_sref, scope)
    partners = producers if backwards else consumers
    word = "producer" if backwards else "consumer"
    outside = [p for p in partners if not checks.in_scope_of(p, loop_sref)]
    if outside:
        raise PrimitiveError(
            f"The primitive requires all the {word}(s) of the given block to be present under the target loop. "
            f"However, there are {len(outside)} {word}(s) not satisfying the constraint: block {{2}} is one of them "
            "(block {0} is to go under loop {1}).",
            [block_sref, loop_sref, outside[0]],
        )
    if backwards and state.enable_check:
        _check_before_consumers(state, block_sref, loop_sref, scope, consumers)
        _check_no_gaps(block_sref, loop_sref, producers)
    guards = own_guards(block_sref, strict=state.enable_check)
    dead = dead_statement(block_sref, scope)
    position = _insertion_point(loop, producers, consumers, index)
    if check_only and _plainly_indexed(block, backwards):
        return
    analyzer = Analyzer()
    ranges = loop_ranges(loop_sref)
    for var, dom in ranges.items():
        analyzer.bind(var, dom)
    bind_shape_vars(state, scope, analyzer)
    domains = BlockDomains(block, analyzer, backwards)
    _collect(block, partners, loop_sref, backwards, domains, analyzer)
    solved = domains.solve()
    if backwards and state.enable_check:
        _check_all_computed(block_sref, solved, analyzer)
        _check_turns_suffice(block_sref, loop_sref, solved)
        _check_computed_once(block_sref, loop_sref, solved)
        _check_residues_written(block_sref, loop_sref, producers, solved, analyzer)
        _check_sums_complete(state, block_sref, loop_sref, solved)
        _check_last_turn_produces(state, block_sref, loop_sref, scope, producers, solved)
    if state.enable_check:
        _check_within_outer_choice(block_sref, solved)
        check_stays_in_bounds(block_sref, solved, guards, analyzer)
    if check_only:
        return
    nest = _new_nest(block, guards, solved, keep_units, analyzer)
    _place(state, scope, loop_sref, loop, position, nest, dead)


def _check_before_consumers(
    state: ScheduleState, block: StmtSRef, loop: StmtSRef, scope: StmtSRef, consumers: Sequence[StmtSRef]
) -> None:
    """Consumers elsewhere must come after the loop: a block without producers could go anywhere."""
    order = {child: i for i, child in enumerate(state.child_blocks(scope))}
    last = max(order[child] for child in state.child_blocks(loop))
    for consumer in consumers:
        if not checks.in_scope_of(consumer, loop) and order[consumer] < last:
            raise PrimitiveError("The block {0} would move behind its consumer {1}.", [block, consumer])


def _check_within_outer_choice(block: StmtSRef, solved: Sequence[VarDomain]) -> None:
    """Where an outer block decides which values of a variable the block runs over, it must not run over others."""
    realize = realize_of(block)
    ranges = loop_ranges(block.parent)
    if ranges.keys() >= vars_in(tuple(realize.iter_values)).keys():
        return
    analyzer = Analyzer()
    for above in block.ancestors():
        for iv in getattr(above.stmt, "iter_vars", ()):
            analyzer.bind(iv.var, iv.dom)
    sets = {var: IntervalSet(r.min, r.min + r.extent - 1) for var, r in ranges.items()}
    for iv, value, (asked, bound) in zip(block.stmt.iter_vars, realize.iter_values, solved, strict=True):
        if ranges.keys() >= vars_in(value).keys():
            continue
        before = eval_set(value, sets)
        lows, highs = zip(*(r for r in (asked, bound) if r is not None), strict=True)
        starts = any(analyzer.can_prove(low >= before.min_value) for low in lows)
        if not starts or not any(analyzer.can_prove(high <= before.max_value) for high in highs):
            raise PrimitiveError(
                f'An outer block decides which values of "{iv.var.name}" block {{0}} runs over; it would run over others.',
                [block],
            )


def _check_no_gaps(block: StmtSRef, loop: StmtSRef, producers: Sequence[StmtSRef]) -> None:
    """What is produced under the loop must not leave out elements in between, unless they are not read either."""
    for read in block.stmt.reads:
        if any(isinstance(dim.min, Mul) for dim in read.region):
            continue
        writers = [(p, w) for p in producers for w in p.stmt.writes if w.buffer is read.buffer]
        if writers and all(leaves_gaps(written, producer, loop) for producer, written in writers):
            raise PrimitiveError(
                "The producer {1} of block {0} leaves elements out under the loop; they would be read before they are "
                "there.",
                [block, writers[0][0]],
            )


def _check_all_computed(block: StmtSRef, solved: Sequence[VarDomain], analyzer: Analyzer) -> None:
    """What the producers do not touch (a padded border) would be computed no more."""
    bounds = analyzer.const_int_bound
    for iv, (asked, allowed) in zip(block.stmt.iter_vars, solved, strict=True):
        first, size = iv.dom.min, iv.dom.extent
        if not (isinstance(first, IntImm) and isinstance(size, IntImm)):
            continue
        lows = [bounds.bound(r[0])[0] for r in (asked, allowed) if r is not None]
        highs = [bounds.bound(r[1])[1] for r in (asked, allowed) if r is not None]
        if max(lows) > first.value or min(highs) < first.value + size.value - 1:
            low, high = asked
            raise PrimitiveError(
                f"The producers under the loop call for block {{0}} at [{low}, {high}] only, less than all of "
                f'"{iv.var.name}".',
                [block],
            )


def _check_turns_suffice(block: StmtSRef, loop: StmtSRef, solved: Sequence[VarDomain]) -> None:
    """Variables that the same loops drive (``i // 4`` and ``i % 4``) may each reach all values, but not all pairs."""
    driven = vars_in(tuple(asked[0] for asked, _ in solved))
    sizes = [iv.dom.extent for iv in block.stmt.iter_vars]
    turns = [s.stmt.extent for s in (loop, *checks.loops_above(loop)) if s.stmt.loop_var in driven]
    runs = [_extent(*asked) for asked, _ in solved]
    if not all(isinstance(e, IntImm) for e in (*sizes, *turns, *runs)):
        return
    wanted, met = (math.prod(int(e.value) for e in extents) for extents in (sizes, (*turns, *runs)))
    if met < wanted:
        raise PrimitiveError(
            f"The producers under the loop call for at most {met} of the {wanted} instances of block {{0}}.", [block]
        )


def _check_computed_once(block: StmtSRef, loop: StmtSRef, solved: Sequence[VarDomain]) -> None:
    """A reduction taken apart by outer loops must not come to the same term twice: it would add it again."""
    if block.stmt.init is None:
        return
    lows = [asked[0] for asked, _ in solved]
    driven = vars_in(tuple(lows))
    above = (loop, *checks.loops_above(loop))
    for around in above:
        if around.stmt.loop_var not in driven and not checks.is_one(around.stmt.extent):
            raise PrimitiveError("The block {0} is a reduction and would be repeated by loop {1}.", [block, around])
    terms = [low for iv, low in zip(block.stmt.iter_vars, lows, strict=True) if iv.iter_type == IterVar.CommReduce]
    if not vars_in(tuple(terms)):
        return
    ranges = {s.stmt.loop_var: Range.from_min_extent(s.stmt.min, s.stmt.extent) for s in above}
    # What the loops begin at, and then how far each turn runs: neighbouring turns must not overlap either.
    values, inside = [], _TRUE
    for low, (asked, bound) in zip(lows, solved, strict=True):
        run = Var("run", low.dtype)
        ranges[run] = Range.from_min_extent(const(0, low.dtype), _extent(*asked))
        values.append(low + run)
        if bound is not None:
            inside = and_predicate(inside, low + run < bound[1] + 1)
    if not detect_iter_map(values, ranges, inside, IterMapLevel.Bijective).indices:
        raise PrimitiveError("The block {0} is a reduction and would repeat terms of it under loop {1}.", [block, loop])


def _check_residues_written(
    block: StmtSRef, loop: StmtSRef, producers: Sequence[StmtSRef], solved: Sequence[VarDomain], analyzer: Analyzer
) -> None:
    """A run of a variable meets more residues ``v % k`` than are written: the others are still to come."""
    runs = {iv.var: _extent(*asked) for iv, (asked, _) in zip(block.stmt.iter_vars, solved, strict=True)}
    for read in block.stmt.reads:
        for at, dim in enumerate(read.region):
            index, run = dim.min, runs.get(getattr(dim.min, "a", None))
            if not (isinstance(index, FloorMod) and isinstance(index.b, IntImm) and isinstance(run, IntImm)):
                continue
            sizes = [
                _extent(*relaxed[at])
                for producer in producers
                for written in producer.stmt.writes
                if written.buffer is read.buffer
                for relaxed in [relax_region(written, producer, loop, analyzer)]
                if relaxed is not None
            ]
            known = [size.value for size in sizes if isinstance(size, IntImm)]
            if sizes and len(known) == len(sizes) and min(run.value, index.b.value) > max(known):
                raise PrimitiveError(
                    f"Block {{0}} reads more of {read.buffer.name} than is written in a turn of loop {{1}}.",
                    [block, loop],
                )


def _check_sums_complete(state: ScheduleState, block: StmtSRef, loop: StmtSRef, solved: Sequence[VarDomain]) -> None:
    """Where a producer reduces over the loops, the last turn to come to an instance must be one that ends a reduction."""
    starts = [asked[0] for asked, _ in solved]
    driven = vars_in(tuple(starts))
    for producer in checks.sources_among(block, state.child_blocks(loop))[1:]:
        ranges = loop_ranges(producer.parent)
        realize = realize_of(producer)
        bindings = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        terms = [value for iv, value in bindings if iv.iter_type == IterVar.CommReduce]
        shared = {
            v for v in vars_in(tuple(terms)) if v in driven and v in ranges and not checks.is_one(ranges[v].extent)
        }
        mixed = [e for e in (*starts, *terms) if not shared.isdisjoint(vars_in(e))]
        if shared and not detect_separate_iters(mixed, ranges, _TRUE, IterMapLevel.Surjective):
            raise PrimitiveError(
                "Loop {2} comes to instances of block {0} before the reduction of {1} over it is complete.",
                [block, producer, loop],
            )


def _check_last_turn_produces(
    state: ScheduleState,
    block: StmtSRef,
    loop: StmtSRef,
    scope: StmtSRef,
    producers: Sequence[StmtSRef],
    solved: Sequence[VarDomain],
) -> None:
    """The last of the turns that come to the same instances must not be one whose guard leaves the producers out.

    A buffer that is used under the loop only becomes a part of it made anew in each turn: what an earlier turn wrote is
    gone. A loop that a producer reduces over keeps its buffer outside.
    """
    driven = vars_in(tuple(asked for asked, _ in solved))
    others = [b.stmt for b in state.child_blocks(scope) if b is not block and not checks.in_scope_of(b, loop)]
    allocated = {b for above in block.ancestors() for b in getattr(above.stmt, "alloc_buffers", ())}
    passing = {r.buffer for r in block.stmt.reads} & allocated
    passing -= {r.buffer for other in others for r in (*other.reads, *other.writes)}
    above = [s.stmt for s in (loop, *checks.loops_above(loop))]
    for producer in producers:
        if passing.isdisjoint(w.buffer for w in producer.stmt.writes):
            continue
        realize = realize_of(producer)
        bindings = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        summed = vars_in(tuple(value for iv, value in bindings if iv.iter_type == IterVar.CommReduce))
        idle = [n for n in above if not checks.is_one(n.extent) and n.loop_var not in driven | summed]
        last = {n.loop_var: n.min + n.extent - 1 for n in idle}
        analyzer = Analyzer()
        for var, dom in loop_ranges(producer.parent).items():
            analyzer.bind(var, dom)
        for term in conjuncts(realize.predicate):
            if any(v in last for v in vars_in(term)) and not analyzer.can_prove(substitute(term, last)):
                raise PrimitiveError(
                    f"The producer {{1}} of block {{0}} runs under {term} only, and loop {{2}} would bring the block back "
                    "after that, to read what is not there.",
                    [block, producer, loop],
                )


def _plainly_indexed(block: Block, backwards: bool) -> bool:
    """Whether each dimension of what the block shares is one of its variables, so that any request can be met."""
    regions = block.reads if backwards else block.writes
    return all(isinstance(r.min, Var) and checks.is_one(r.extent) for region in regions for r in region.region)


def _collect(
    block: Block,
    partners: Sequence[StmtSRef],
    loop: StmtSRef,
    backwards: bool,
    domains: BlockDomains,
    analyzer: Analyzer,
) -> None:
    """Gather what the partners require of each shared buffer and tell the solver.

    Predicates of the partners play no part: what they exclude is excluded by the bounds of the buffers.
    """
    own = block.reads if backwards else block.writes
    provided: dict[Any, Box] = {}
    for region in own:
        box = [
            (r.min, r.min if checks.is_one(r.extent) else analyzer.simplify(r.min + r.extent - 1))
            for r in region.region
        ]
        known = provided.get(region.buffer)
        provided[region.buffer] = box if known is None else union_sets(known, box, analyzer)
    required: dict[Any, Box] = {}
    for partner in partners:
        realize = realize_of(partner)
        unguarded = realize if checks.is_one(realize.predicate) else realize.with_fields(predicate=_TRUE)
        regions = partner.stmt.writes if backwards else partner.stmt.reads
        for region in regions:
            if region.buffer not in provided:
                continue
            spanned = "" if backwards else region.buffer.scope()
            seen = relax_region(region, partner, loop, analyzer, realize=unguarded, extra_scope=spanned)
            assert seen is not None
            known = required.get(region.buffer)
            required[region.buffer] = seen if known is None else union_sets(known, seen, analyzer)
    for buffer, have in provided.items():
        if buffer in required:
            domains.update(buffer.shape, have, required[buffer])


_TRUE = const(True, "bool")
_PLAIN = Analyzer()  # knows nothing: whether a loop is a unit loop is decided without the loops around it


def _extent(low: PrimExpr, high: PrimExpr) -> PrimExpr:
    if isinstance(low, IntImm) and isinstance(high, IntImm):
        return const(high.value - low.value + 1, low.dtype)
    return _PLAIN.simplify(high + 1 - low)


def _new_nest(
    block: Block, guards: Sequence[Any], solved: Sequence[VarDomain], keep_units: bool, analyzer: Analyzer
) -> Stmt:
    """Loops over the solved domains around the block, which keeps its ``guards``."""
    loops: list[tuple[Any, Any]] = []
    values: list[Any] = []
    predicate: Any = _TRUE
    for iv, (asked, bound) in zip(block.iter_vars, solved, strict=True):
        # An outer loop of one iteration decides nothing: its variable is not part of the binding.
        low, high = (_constant_if_known(end, analyzer) for end in asked)
        extent = _extent(low, high)
        if keep_units or not checks.is_one(extent):
            dtype = low.dtype if dt.bits(low.dtype) >= dt.bits(extent.dtype) else extent.dtype
            var = Var(f"ax{len(loops)}", dtype)
            extent = extent if isinstance(extent, IntImm) else analyzer.simplify(extent)
            loops.append((var, extent))
            value = low + var
            analyzer.bind(var, Range.from_min_extent(const(0, dtype), extent))
        else:
            value = low
        if value.dtype != iv.var.dtype and isinstance(value, IntImm):
            value = IntImm(iv.var.dtype, value.value)
        values.append(value)
        if bound is not None:
            for condition in (value >= bound[0], value < bound[1] + 1):
                if not analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND):
                    predicate = and_predicate(predicate, condition)
    placed = {iv.var: value for iv, value in zip(block.iter_vars, values, strict=True)}
    for guard in guards:
        condition = substitute(guard, placed)
        if not analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND):
            predicate = and_predicate(predicate, condition)
    if not isinstance(predicate, IntImm):
        predicate = analyzer.simplify(predicate)
    body: Any = BlockRealize(tuple(values), predicate, block)
    for var, extent in reversed(loops):
        body = For(var, const(0, var.dtype), extent, ForKind.SERIAL, body)
    return body


def _constant_if_known(end: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    value = analyzer.simplify(end)
    return value if isinstance(value, IntImm) else end


def _place(
    state: ScheduleState, scope: StmtSRef, loop_sref: StmtSRef, loop: For, position: int, nest: Stmt, dead: Stmt
) -> None:
    rewriter = _Move(loop, position, nest, dead)
    old = scope.stmt
    new = old.with_fields(body=rewriter.visit(old.body))
    state.replace(scope, new, {**rewriter.reuse, old: new})


class _At(Step):
    backwards = False

    block: BlockRV = operand()
    loop: LoopRV = operand()
    preserve_unit_loops: bool
    index: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        block, loop = sch.sref(self.block), sch.sref(self.loop)
        keep_units, index = self.preserve_unit_loops, self.index
        if loop is StmtSRef.root_mark():
            return []
        if loop is StmtSRef.inline_mark():
            from .inline import inline_block, reverse_inline_block

            (reverse_inline_block if self.backwards else inline_block)(sch.state, block)
            return []
        move_block(sch.state, block, loop, keep_units, index, self.backwards)
        return []


class ComputeAt(_At):
    """A producer under a loop of its consumers."""


class ReverseComputeAt(_At):
    """A consumer under a loop of its producers."""

    backwards = True


# -- where a block could go --------------------------------------------------------------------------------


def can_compute_at(
    state: ScheduleState, block: StmtSRef, loop: StmtSRef, keep_units: bool, backwards: bool = False
) -> bool:
    """Whether the move is legal."""
    try:
        move_block(state, block, loop, keep_units, -1, backwards, check_only=True)
    except PrimitiveError:
        return False
    return True


def loop_iter_types(state: ScheduleState, loops: Sequence[StmtSRef]) -> list[int]:
    """Kind of the block variables each loop of a nest drives: data parallel, reduction, or opaque when mixed."""
    kinds: dict[Any, set[int]] = {}
    for child in state.child_blocks(loops[0]):
        realize = realize_of(child)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            for var in (value,) if isinstance(value, Var) else vars_in(value):
                kinds.setdefault(var, set()).add(iv.iter_type)
    return [_joint_type(kinds.get(loop.stmt.loop_var, set())) for loop in loops]


def _joint_type(kinds: set[int]) -> int:
    if kinds <= {IterVar.DataPar}:
        return IterVar.DataPar
    return IterVar.CommReduce if kinds == {IterVar.CommReduce} else IterVar.Opaque


def compute_locations(state: ScheduleState, block: StmtSRef) -> tuple[list[StmtSRef], list[int]]:
    """Candidate locations of ``block``: marks and loops, with the integers that stand for them in decisions."""
    from .inline import inline_block

    places: list[StmtSRef] = []
    indices: list[int] = []
    try:
        inline_block(state, block, check_only=True)
        places.append(StmtSRef.inline_mark())
        indices.append(-2)
    except PrimitiveError:
        pass
    places.append(StmtSRef.root_mark())
    indices.append(-1)
    for position, loop in _loops_to_try(state, block):
        if can_compute_at(state, block, loop, True):
            places.append(loop)
            indices.append(position)
    return places, indices


def nearest_location(state: ScheduleState, block: StmtSRef, wanted: int) -> tuple[StmtSRef, int]:
    """The legal place closest to ``wanted`` that is not further inside, the root if there is none: the choice among
    what :func:`compute_locations` gives, without trying the places that do not matter."""
    if wanted >= 0:
        for position, loop in reversed(_loops_to_try(state, block)):
            if position <= wanted and can_compute_at(state, block, loop, True):
                return loop, position
    elif wanted < -1:
        places, indices = compute_locations(state, block)
        if indices[0] == wanted:
            return places[0], wanted
    return StmtSRef.root_mark(), -1


def _loops_to_try(state: ScheduleState, block: StmtSRef) -> list[tuple[int, StmtSRef]]:
    """Loops of the consumers under which ``block`` may be worth computing, with their numbers."""
    consumers = checks.consumers_of(state, block, checks.scope_root(state, block))
    if not consumers:
        return []
    boundary = lowest_common_ancestor(consumers) if len(consumers) > 1 else consumers[0].parent
    if boundary is None or not boundary.is_loop:
        return []
    loops = checks.loops_above(consumers[0])
    loops = loops[: loops.index(boundary) + 1]
    return [(position, loops[position]) for position in _promising(loops, loop_iter_types(state, loops))]


def _promising(loops: Sequence[StmtSRef], kinds: Sequence[int]) -> list[int]:
    """Positions worth trying: no unit loops, none behind a reduction but the loops before the last parallel one."""
    last_parallel = max((i for i, kind in enumerate(kinds) if kind == IterVar.DataPar), default=-1)
    out: list[int] = []
    seen_other = False
    for position, (loop, kind) in enumerate(zip(loops, kinds, strict=True)):
        if checks.is_one(loop.stmt.extent):
            continue
        if kind == IterVar.DataPar:
            if seen_other:
                break
        else:
            seen_other = True
            if position > last_parallel:
                break
        out.append(position)
    return out


def lowest_common_ancestor(srefs: Sequence[StmtSRef]) -> StmtSRef | None:
    """The deepest reference strictly above all of ``srefs``."""
    common = list(srefs[0].ancestors())
    for sref in srefs[1:]:
        above = set(sref.ancestors())
        common = [c for c in common if c in above]
    return common[0] if common else None
