"""compute_at and reverse_compute_at: moving a block under a loop of its consumers or producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer, IterMapLevel, detect_iter_map, inverse_affine_iter_map
from ....ir import dtype as dt
from ....ir.prim import const
from ...expr import IntImm, IterVar, Var
from ...op import floordiv
from ...op import max as tir_max
from ...op import min as tir_min
from ...stmt import Block, BlockRealize, For, ForKind
from .. import checks
from ..block_info import loop_ranges
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..region import relax_region, union_sets
from ..rewrite import ScopeRewriter, dead_statement
from ..sref import StmtSRef
from ..subst import and_predicate, realize_of
from ..walk import block_realizes_below, seq_or_single, vars_in

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []

Interval = tuple[Any, Any]


# -- domains of block variables ----------------------------------------------------------------------------


def _both_const(a: Any, b: Any) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm)


class _Domains:
    """What each block variable must run over, and the bounds that no instance may leave."""

    def __init__(self, block: Block, analyzer: Analyzer) -> None:
        self.block = block
        self.analyzer = analyzer
        self.dom: dict[Any, Interval] = {}
        self.bound: dict[Any, Interval] = {}
        self.vars = {iv.var for iv in block.iter_vars}

    def _join(self, table: dict[Any, Interval], var: Any, new: Interval) -> None:
        old = table.get(var)
        if old is None:
            table[var] = new
        else:
            table[var] = union_sets([old], [new], self.analyzer)[0]

    def update(self, shape: Sequence[Any], provided: Sequence[Interval], required: Sequence[Interval]) -> None:
        """Make the block provide ``required`` of a buffer where an instance provides ``provided``."""
        if all(isinstance(low, Var) and low is high for low, high in provided) or not self._affine(
            shape, provided, required
        ):
            for extent, have, want in zip(shape, provided, required, strict=True):
                self._dimension(extent, have, want)

    def _affine(self, shape: Sequence[Any], provided: Sequence[Interval], required: Sequence[Interval]) -> bool:
        """Through the inverse of the index map, when the map is one to one and the request a single point."""
        if any(low is not high for low, high in provided):
            return False
        doms = {iv.var: iv.dom for iv in self.block.iter_vars}
        found = detect_iter_map([low for low, _ in provided], doms, True, check_level=IterMapLevel.Bijective)
        indices = getattr(found, "indices", found)
        if not indices:
            return False
        ends = []
        for position in (0, 1):
            ends.append(inverse_affine_iter_map(indices, [want[position] for want in required]))
        point = all(self._same(low, high) for low, high in required)
        for var in ends[0]:
            low, high = (self.analyzer.simplify(end[var]) for end in ends)
            if not point and not self._monotone(provided, var):
                return False
            self._join(self.dom, var, (low, high))
            iv = next(iv for iv in self.block.iter_vars if iv.var is var)
            self._join(self.bound, var, (iv.dom.min, self.analyzer.simplify(iv.dom.min + iv.dom.extent - 1)))
        return True

    def _monotone(self, provided: Sequence[Interval], var: Any) -> bool:
        """Whether ends of the request map to ends of the variable's domain: it alone makes up an index."""
        used = [low for low, _ in provided if var in vars_in(low)]
        return len(used) == 1 and set(vars_in(used[0])) & self.vars == {var}

    def _same(self, a: Any, b: Any) -> bool:
        return a is b or (a.value == b.value if _both_const(a, b) else self.analyzer.can_prove_equal(a, b))

    def _dimension(self, extent: Any, have: Interval, want: Interval) -> None:
        from ...expr import FloorDiv, Mul

        low, high = have
        dim_max = (
            self.analyzer.simplify(extent - 1)
            if not isinstance(extent, IntImm)
            else const(extent.value - 1, extent.dtype)
        )
        zero = const(0, dim_max.dtype)
        if low is high or self._same(low, high):
            if isinstance(low, Var):
                self._set(low, want, (zero, dim_max))
            elif isinstance(low, Mul) and isinstance(low.a, Var) and isinstance(low.b, IntImm):
                e = low.b
                self._set(low.a, (floordiv(want[0], e), floordiv(want[1], e)), (zero, floordiv(dim_max, e)))
            elif isinstance(low, FloorDiv) and isinstance(low.a, Var) and isinstance(low.b, IntImm):
                e = low.b
                self._set(low.a, (want[0] * e, want[1] * e + e - 1), (zero, dim_max * e + e - 1))
            return
        # An instance provides a piece of fixed length: var * step .. var * step + length - 1.
        length = self.analyzer.simplify(high - low + 1)
        if isinstance(low, Mul) and isinstance(low.a, Var) and isinstance(low.b, IntImm) and isinstance(length, IntImm):
            e = low.b
            self._set(low.a, (floordiv(want[0], e), floordiv(want[1], e)), (zero, floordiv(dim_max, e)))
        elif isinstance(low, Var):
            self._set(low, want, (zero, dim_max))

    def _set(self, var: Any, dom: Interval, bound: Interval) -> None:
        if var in self.vars:
            self._join(self.dom, var, dom)
            self._join(self.bound, var, bound)

    def solve(self) -> list[tuple[Interval, Interval | None]]:
        """(domain, bound to be checked at run time or None) for each block variable."""
        out: list[tuple[Interval, Interval | None]] = []
        for iv in self.block.iter_vars:
            full = (iv.dom.min, self._simplify(iv.dom.min + iv.dom.extent - 1))
            bound = self.bound.get(iv.var)
            bound = full if bound is None else self._intersect(bound, full)
            dom = self.dom.get(iv.var)
            if dom is None:
                out.append((bound, None))
                continue
            dom = (self._simplify(dom[0]), self._simplify(dom[1]))
            both = self._intersect(dom, bound)
            if self._same(dom[0], both[0]) and self._same(dom[1], both[1]):
                out.append((dom, None))
            elif self._same(bound[0], both[0]) and self._same(bound[1], both[1]):
                out.append((bound, None))
            else:
                out.append((dom, bound))
        return out

    def _simplify(self, expr: Any) -> Any:
        return expr if isinstance(expr, IntImm) else self.analyzer.simplify(expr)

    def _intersect(self, a: Interval, b: Interval) -> Interval:
        return self._simplify(_larger(a[0], b[0])), self._simplify(_smaller(a[1], b[1]))


def _larger(a: Any, b: Any) -> Any:
    return a if a is b else tir_max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return a if a is b else tir_min(a, b)


# -- the move ----------------------------------------------------------------------------------------------


class _Move(ScopeRewriter):
    """Takes the block out of its old place and puts its new nest into the body of the loop."""

    def __init__(self, loop: For, position: int, nest: Any, dead: Any) -> None:
        super().__init__(dead)
        self.loop, self.position, self.nest = loop, position, nest

    def visit_For(self, node: For) -> Any:
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

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        return node


def _insertion_point(
    state: ScheduleState, loop: For, producers: Sequence[StmtSRef], consumers: Sequence[StmtSRef], index: int
) -> int:
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
            "{0} holds a producer after the first consumer, so there is no place for the block.", [loop]
        )
    if index == -1:
        return first_consumer
    if index == -2:
        return last_producer + 1
    if not last_producer < index <= first_consumer:
        raise PrimitiveError(
            f"The insertion index {index} is not between {last_producer + 1} and {first_consumer}, "
            "the places in {0} after all producers and before all consumers.",
            [loop],
        )
    return index


def _check_place(state: ScheduleState, block: StmtSRef, loop: StmtSRef, scope: StmtSRef) -> None:
    if checks.scope_root(state, loop) is not scope:
        raise PrimitiveError("The block {0} and the {1} are not in the same scope.", [block, loop])
    if checks.in_scope_of(block, loop):
        raise PrimitiveError("The block {0} already stands under {1}.", [block, loop])


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
    _check_place(state, block_sref, loop_sref, scope)
    checks.check_complete_or_reduction(state, block_sref, scope)
    if not backwards:
        checks.check_not_output(state, block_sref, scope)
    producers = checks.producers_of(state, block_sref, scope)
    consumers = checks.consumers_of(state, block_sref, scope)
    partners = producers if backwards else consumers
    word = "producers" if backwards else "consumers"
    for partner in partners:
        if not checks.in_scope_of(partner, loop_sref):
            raise PrimitiveError(
                f"Not all {word} of {{0}} stand under {{1}}: {{2}} does not.", [block_sref, loop_sref, partner]
            )
    position = _insertion_point(state, loop, producers, consumers, index)
    dead = dead_statement(block_sref, scope)
    if check_only:
        return
    analyzer = Analyzer()
    ranges = loop_ranges(loop_sref)
    for var, dom in ranges.items():
        analyzer.bind(var, dom)
    domains = _Domains(block, analyzer)
    _collect(block, partners, loop_sref, backwards, domains, analyzer)
    nest = _new_nest(block, domains.solve(), keep_units, analyzer)
    _place(state, scope, loop_sref, loop, position, nest, dead)


def _collect(
    block: Block, partners: Sequence[StmtSRef], loop: StmtSRef, backwards: bool, domains: _Domains, analyzer: Analyzer
) -> None:
    """Gather what the partners require of each shared buffer and tell the solver."""
    own = block.reads if backwards else block.writes
    provided: dict[Any, list[Interval]] = {}
    for region in own:
        box = [
            (r.min, r.min if checks.is_one(r.extent) else analyzer.simplify(r.min + r.extent - 1))
            for r in region.region
        ]
        known = provided.get(region.buffer)
        provided[region.buffer] = box if known is None else union_sets(known, box, analyzer)
    required: dict[Any, list[Interval]] = {}
    for partner in partners:
        regions = partner.stmt.writes if backwards else partner.stmt.reads
        for region in regions:
            if region.buffer not in provided:
                continue
            seen = relax_region(region, partner, loop, analyzer, extra_scope=region.buffer.scope())
            assert seen is not None
            known = required.get(region.buffer)
            required[region.buffer] = seen if known is None else union_sets(known, seen, analyzer)
    for buffer, have in provided.items():
        if buffer in required:
            domains.update(buffer.shape, have, required[buffer])


def _new_nest(
    block: Block, solved: Sequence[tuple[Interval, Interval | None]], keep_units: bool, analyzer: Analyzer
) -> Any:
    """Loops over the solved domains around the block."""
    loops: list[tuple[Any, Any]] = []
    values: list[Any] = []
    predicate: Any = const(True, "bool")
    from ....ir.expr import Range

    for iv, ((low, high), bound) in zip(block.iter_vars, solved, strict=True):
        extent = _extent(low, high, analyzer)
        if keep_units or not checks.is_one(extent):
            dtype = low.dtype if dt.bits(low.dtype) >= dt.bits(extent.dtype) else extent.dtype
            var = Var(f"ax{len(loops)}", dtype)
            loops.append((var, extent))
            value = var if checks.is_zero(low) else analyzer.simplify(low + var)
            analyzer.bind(var, Range.from_min_extent(const(0, dtype), extent))
        else:
            value = analyzer.simplify(low) if not isinstance(low, IntImm) else low
        if value.dtype != iv.var.dtype and isinstance(value, IntImm):
            value = IntImm(iv.var.dtype, value.value)
        values.append(value)
        if bound is not None:
            for condition in (value >= bound[0], value < bound[1] + 1):
                if not analyzer.can_prove(condition):
                    predicate = and_predicate(predicate, condition)
    if not isinstance(predicate, IntImm):
        predicate = analyzer.simplify(predicate)
    body: Any = BlockRealize(tuple(values), predicate, block)
    for var, extent in reversed(loops):
        body = For(var, const(0, var.dtype), extent, ForKind.SERIAL, body)
    return body


def _extent(low: Any, high: Any, analyzer: Analyzer) -> Any:
    if _both_const(low, high):
        return const(high.value - low.value + 1, low.dtype)
    return analyzer.simplify(high - low + 1)


def _place(
    state: ScheduleState, scope: StmtSRef, loop_sref: StmtSRef, loop: For, position: int, nest: Any, dead: Any
) -> None:
    rewriter = _Move(loop, position, nest, dead)
    old = scope.stmt
    new = old.with_fields(body=rewriter.visit(old.body))
    state.replace(scope, new, {**rewriter.reuse, old: new})


class _At(InstructionKind):
    inputs, attrs = ("block", "loop"), ("preserve_unit_loops", "index")
    backwards = False

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        block, loop = sch.sref(inputs[0]), sch.sref(inputs[1])
        keep_units, index = bool(plain(attrs[0])), int(plain(attrs[1]))
        if loop is StmtSRef.root_mark():
            return [], None
        if loop is StmtSRef.inline_mark():
            from .inline import inline_block, reverse_inline_block

            (reverse_inline_block if self.backwards else inline_block)(sch.state, block)
            return [], None
        move_block(sch.state, block, loop, keep_units, index, self.backwards)
        return [], None


@register_kind
class ComputeAt(_At):
    """A producer under a loop of its consumers."""

    name, method = "ComputeAt", "compute_at"


@register_kind
class ReverseComputeAt(_At):
    """A consumer under a loop of its producers."""

    name, method, backwards = "ReverseComputeAt", "reverse_compute_at", True


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


def loop_iter_type(state: ScheduleState, loop: StmtSRef) -> int:
    """The type of the block variables a loop drives: data parallel, reduction, or opaque when mixed."""
    kinds = set()
    var = loop.stmt.loop_var
    for child in state.child_blocks(loop):
        realize = realize_of(child)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if var in vars_in(value):
                kinds.add(iv.iter_type)
    if kinds <= {IterVar.DataPar}:
        return IterVar.DataPar
    return IterVar.CommReduce if kinds == {IterVar.CommReduce} else IterVar.Opaque


def compute_locations(state: ScheduleState, block: StmtSRef) -> tuple[list[StmtSRef], list[int]]:
    """Where ``block`` may be computed: marks and loops, with the integers that stand for them in decisions."""
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
    consumers = checks.consumers_of(state, block, checks.scope_root(state, block))
    if not consumers:
        return places, indices
    boundary = lowest_common_ancestor(consumers) if len(consumers) > 1 else consumers[0].parent
    if boundary is None or not isinstance(boundary.stmt, For):
        return places, indices
    loops = checks.loops_above(consumers[0])
    count = loops.index(boundary) + 1
    while count and loop_iter_type(state, loops[count - 1]) != IterVar.DataPar:
        count -= 1
    for position in range(count):
        if can_compute_at(state, block, loops[position], True):
            places.append(loops[position])
            indices.append(position)
    return places, indices


def lowest_common_ancestor(srefs: Sequence[StmtSRef]) -> StmtSRef | None:
    """The deepest reference strictly above all of ``srefs``."""
    common = list(srefs[0].ancestors())
    for sref in srefs[1:]:
        above = set(sref.ancestors())
        common = [c for c in common if c in above]
    return common[0] if common else None
