"""blockize: a subtree, or neighbouring subtrees, as one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer, IterMark, IterSumExpr, normalize_iter_map_to_expr, subspace_divide
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import Var, const
from ....ir.structural import same_expression
from ....support.errors import InternalError
from ...buffer import Buffer
from ...expr import IterVar
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, For, SeqStmt, Stmt
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..region import box_to_ranges, evaluate_region, union_sets
from ..sref import StmtSRef
from ..subst import and_predicate, is_true, realize_of
from ..walk import driving_loops, seq_or_single, vars_in
from .compute_at import lowest_common_ancestor
from .reduction import check_not_repeated, copy_var, init_predicate
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__ = ["blockize_realize"]

Division = list[tuple[Any, Any]]  # (outer mark, inner mark) per block variable; last the predicates, as extents


def _trivial(realize: BlockRealize, inner: set[Any], outer: set[Any]) -> Division | None:
    """The division when every binding is over loops of one side only, be it affine or not."""
    if not is_true(realize.predicate):
        return None
    out: Division = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        used = set(vars_in(value))
        one = IterMark(IterSumExpr((), const(0, value.dtype)), const(1, value.dtype))
        whole = IterMark(IterSumExpr((), value), iv.dom.extent)
        uses_outer, uses_inner = not used.isdisjoint(outer), not used.isdisjoint(inner)
        if uses_outer and uses_inner:
            return None
        out.append((whole if uses_outer else one, whole if uses_inner else one))
    nothing = IterMark(IterSumExpr((), const(0, "int32")), const(True, "bool"))
    out.append((nothing, nothing))
    return out


def divide(realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For], keep_units: bool) -> Division:
    """Split the bindings into what outer and inner loops contribute. Raises PrimitiveError."""
    if not checks.guarded_by_bounds_only(realize, (*outer_loops, *inner_loops)):
        # A division knows lengths, not where a part of a domain begins.
        raise PrimitiveError("The predicate of {0} takes a part of its domain only.", [realize.block])
    starts = {n.loop_var: n.min for n in (*outer_loops, *inner_loops)}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        first = Analyzer().simplify(substitute(value, starts))
        if not checks.is_zero(iv.dom.min) or not checks.is_zero(first):
            raise PrimitiveError(f'The values of "{iv.var.name}" in block {{0}} do not begin at zero.', [realize.block])
    inner = {n.loop_var for n in inner_loops}
    outer = {n.loop_var for n in outer_loops}
    ranges = {n.loop_var: Range.from_min_extent(n.min, n.extent) for n in (*outer_loops, *inner_loops)}
    found = subspace_divide(
        list(realize.iter_values),
        ranges,
        [n.loop_var for n in inner_loops],
        realize.predicate,
        simplify_trivial_iterators=not keep_units,
    )
    if found and all(_has_no_holes(mark) for pair in found[:-1] for mark in pair):
        return [(pair[0], pair[1]) for pair in found]
    quick = _trivial(realize, inner, outer)
    if quick is None:
        raise PrimitiveError(
            "The bindings of the inner block {0} can not be blockized by the loops starting at {1}.",
            [realize.block, inner_loops[0] if inner_loops else realize],
        )
    return quick


def _has_no_holes(mark: IterMark) -> bool:
    """Whether the values of a part step by one: those of ``i * 2`` reach beyond the number of them."""
    parts = mark.source.args if isinstance(mark.source, IterSumExpr) else ()
    return not parts or any(checks.is_one(part.scale) for part in parts)


class _Derived:
    """Outer and inner block variables of a division.

    ``subst`` says what the old variables are in their terms.  With ``shared`` outer variables (of a block before, over
    the same outer loops) no new ones are made.
    """

    def __init__(
        self, block: Block, division: Division, keep_units: bool, shared: tuple[list[IterVar], list[Any]] | None = None
    ) -> None:
        self.outer_vars: list[IterVar] = list(shared[0]) if shared else []
        self.outer_values: list[Any] = list(shared[1]) if shared else []
        self.inner_vars: list[IterVar] = []
        self.inner_values: list[Any] = []
        self.subst: dict[Any, Any] = {}
        if shared and len(shared[0]) != len(block.iter_vars):
            raise InternalError("blocks to blockize together must have the same number of variables")
        for index, (iv, (outer, inner)) in enumerate(zip(block.iter_vars, division, strict=False)):
            self._derive(index, iv, outer, inner, keep_units, shared is not None)

    def _derive(
        self, index: int, iv: IterVar, outer: IterMark, inner: IterMark, keep_units: bool, is_shared: bool
    ) -> None:
        value = normalize_iter_map_to_expr(outer.source)
        if is_shared:
            made = self.outer_vars[index]
            if not Analyzer().can_prove_equal(made.dom.extent, outer.extent) or not same_expression(
                value, self.outer_values[index]
            ):
                raise InternalError("blocks to blockize together must have equal outer bindings")
        else:
            made = _iter_var(iv, "_o", outer.extent)
            self.outer_vars.append(made)
            self.outer_values.append(value)
        if not checks.is_one(inner.extent):
            low = _iter_var(iv, "_i", inner.extent)
            self.inner_vars.append(low)
            self.inner_values.append(normalize_iter_map_to_expr(inner.source))
            is_unit = checks.is_one(outer.extent)
            self.subst[iv.var] = low.var if is_unit else made.var * inner.extent + low.var
        elif checks.is_one(outer.extent) and not keep_units:
            self.subst[iv.var] = const(0, outer.extent.dtype)
        else:
            self.subst[iv.var] = made.var


def _iter_var(old: IterVar, suffix: str, extent: PrimExpr) -> IterVar:
    var = copy_var(old.var, suffix)
    return IterVar(Range.from_min_extent(const(0, extent.dtype), extent), var, old.iter_type)


class _Substitute(Mutator):
    """Replaces variables; every expression that changes is simplified. ``reuse`` collects the blocks that changed."""

    def __init__(self, values: dict[Any, Any], analyzer: Analyzer) -> None:
        self.values, self.analyzer = values, analyzer
        self.reuse: dict[Any, Any] = {}

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.values.get(node, node)

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        made = self.default_visit(node)
        return node if made is node else self.analyzer.simplify(made)

    def visit_Block(self, node: Block) -> Block:
        made: Block = self.default_visit(node)
        if made is not node:
            self.reuse[node] = made
        return made


def _relaxed(regions: Sequence[BufferRegion], derived: _Derived, analyzer: Analyzer) -> tuple[BufferRegion, ...]:
    """Regions with the inner variables run over their domains."""
    doms = {iv.var: iv.dom for iv in derived.inner_vars}
    made = []
    for item in regions:
        box = evaluate_region(item.region, doms, const(True, "bool"), analyzer)
        made.append(BufferRegion(item.buffer, tuple(box_to_ranges(box or [], analyzer))))
    return tuple(made)


def _outer_init(init: Stmt, inner: BlockRealize, inner_loops: Sequence[For], name: str) -> Stmt:
    """The initialisation of an outer block: a nest over those inner variables, no reductions, that it needs."""
    block = inner.block
    used = vars_in(init)
    renamed: dict[Any, Any] = {}
    iter_vars, values = [], []
    for iv, value in zip(block.iter_vars, inner.iter_values, strict=True):
        if iv.iter_type != IterVar.CommReduce and iv.var in used:
            renamed[iv.var] = copy_var(iv.var, "_init")
            iter_vars.append(IterVar(iv.dom, renamed[iv.var], iv.iter_type))
            values.append(value)
    kept = driving_loops(inner_loops, vars_in(tuple(values)))
    renamed |= {n.loop_var: copy_var(n.loop_var, "") for n in kept}
    predicate = init_predicate(inner, [n for n in inner_loops if n not in kept])
    body: Any = BlockRealize(
        tuple(substitute(v, renamed) for v in values),
        substitute(predicate, renamed),
        Block(
            tuple(iter_vars),
            (),
            tuple(substitute(w, renamed) for w in block.writes),
            name,
            substitute(init, renamed),
        ),
    )
    for n in reversed(kept):
        extent, low = substitute(n.extent, renamed), substitute(n.min, renamed)
        body = For(renamed[n.loop_var], low, extent, n.kind, body, n.thread_binding, dict(n.annotations))
    return body


def _inner_realize(block: Block, derived: _Derived, predicate: PrimExpr, sums_into: bool) -> BlockRealize:
    """The block under its inner variables, without initialisation; one that ``sums_into`` its output reads that."""
    made = block.with_fields(
        iter_vars=tuple(derived.inner_vars),
        init=None,
        reads=(*block.writes, *block.reads) if sums_into else block.reads,
    )
    return BlockRealize(tuple(derived.inner_values), predicate, made)


def _has_outer_reduction(block: Block, derived: _Derived) -> bool:
    return block.init is not None and any(iv.iter_type == IterVar.CommReduce for iv in derived.outer_vars)


def blockize_realize(
    realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For], keep_units: bool
) -> tuple[BlockRealize, dict[Any, Any]]:
    """An outer block around ``inner_loops`` and the block; gives its realize and what became of the blocks below.

    Raises PrimitiveError.
    """
    block = realize.block
    if block.init is not None:
        check_not_repeated(realize, inner_loops, outer_loops, realize)
    division = divide(realize, inner_loops, outer_loops, keep_units)
    outer_pred, inner_pred = _predicates(division[-1], realize, inner_loops, outer_loops)
    derived = _Derived(block, division, keep_units)
    analyzer = Analyzer()
    for iv in derived.inner_vars:
        analyzer.bind(iv.var, iv.dom)
    rewriter = _Substitute(derived.subst, analyzer)
    block = rewriter.visit(block)
    inner = _inner_realize(block, derived, inner_pred, _has_outer_reduction(block, derived))
    reuse = {**rewriter.reuse, realize.block: inner.block}
    body: Any = inner
    for n in reversed(inner_loops):
        body = n.with_fields(body=body)
    init = None if block.init is None else _outer_init(block.init, inner, inner_loops, block.name_hint + "_init")
    outer = Block(
        tuple(derived.outer_vars),
        _relaxed(block.reads, derived, analyzer),
        _relaxed(block.writes, derived, analyzer),
        block.name_hint + "_o",
        body,
        init,
    )
    return BlockRealize(tuple(derived.outer_values), outer_pred, outer), reuse


def _predicates(
    marks: tuple[Any, Any], realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For]
) -> tuple[Any, Any]:
    """The parts of the predicate that stay outside and that go inside."""
    true = const(True, "bool")
    if is_true(realize.predicate):
        return true, true
    outer, inner = (mark.extent for mark in marks)
    analyzer = Analyzer()
    for n in (*outer_loops, *inner_loops):
        analyzer.bind(n.loop_var, Range.from_min_extent(n.min, n.extent))
    outside = {n.loop_var for n in outer_loops}
    inside = {n.loop_var for n in inner_loops}
    if inside.isdisjoint(vars_in(outer)) and outside.isdisjoint(vars_in(inner)):
        with analyzer.constraint_scope(and_predicate(outer, inner)):
            if analyzer.can_prove(realize.predicate):
                return outer, inner
    # The division may have put a bound on a single loop into that loop's range.
    used = vars_in(realize.predicate)
    if inside.issuperset(used):
        return true, realize.predicate
    if outside.issuperset(used):
        return realize.predicate, true
    raise PrimitiveError("The predicate of {0} cannot be divided into those of outer and inner loops.", [realize.block])


def only_realize_below(state: ScheduleState, loop_sref: StmtSRef) -> tuple[StmtSRef, BlockRealize]:
    """The one block below a loop. Raises PrimitiveError."""
    checks.check_loop(loop_sref)
    children = state.child_blocks(loop_sref)
    if len(children) != 1:
        raise PrimitiveError(
            f"The loop {{0}} is required to have only one child block, but it has {len(children)}", [loop_sref]
        )
    return children[0], realize_of(children[0])


def blockize_loop(state: ScheduleState, loop_sref: StmtSRef, keep_units: bool) -> StmtSRef:
    """Make a block of a loop and all below it; gives the new outer block."""
    block_sref, realize = only_realize_below(state, loop_sref)
    loops = checks.loops_above(block_sref)
    position = loops.index(loop_sref)
    made, reuse = blockize_realize(
        realize, [s.stmt for s in loops[position:]], [s.stmt for s in loops[:position]], keep_units
    )
    state.replace(loop_sref, made, reuse)
    outer = state.stmt2ref[made.block]
    _mark(state, outer)
    return outer


def _mark(state: ScheduleState, outer: StmtSRef) -> None:
    state.mark_new_block(outer)
    for child in state.child_blocks(outer):
        state.mark_new_block(child)


class _Joined:
    """Blocks under one loop or block made into one, with all loops above that outside and those below it inside."""

    def __init__(self, lca: StmtSRef, keep_units: bool) -> None:
        self.lca, self.keep_units = lca, keep_units
        self.shared: tuple[list[IterVar], list[Any]] | None = None
        self.predicate: Any = const(True, "bool")
        self.reuse: dict[Any, Any] = {}
        self.parts: list[Any] = []
        self.name = "outer_"
        self.boxes: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})

    def add(self, block_sref: StmtSRef) -> None:
        """One more block, in program order."""
        realize = realize_of(block_sref)
        loops = checks.loops_above(block_sref)
        cut = loops.index(self.lca) + 1 if self.lca in loops else 0
        inner_loops, outer_loops = [s.stmt for s in loops[cut:]], [s.stmt for s in loops[:cut]]
        division = divide(realize, inner_loops, outer_loops, self.keep_units)
        self.predicate, inner_pred = _predicates(division[-1], realize, inner_loops, outer_loops)
        derived = _Derived(realize.block, division, self.keep_units, self.shared)
        self.shared = (derived.outer_vars, derived.outer_values)
        analyzer = Analyzer()
        for iv in derived.inner_vars:
            analyzer.bind(iv.var, iv.dom)
        rewriter = _Substitute(derived.subst, analyzer)
        block = rewriter.visit(realize.block)
        if _has_outer_reduction(block, derived):
            raise InternalError("No reduction iter vars allowed for the outer loops when blockize multiple blocks")
        inner = _inner_realize(block, derived, inner_pred, False)
        self.reuse |= {**rewriter.reuse, realize.block: inner.block}
        body: Any = inner
        loop_vars = {n.loop_var for n in outer_loops}
        named = {
            value: iv.var
            for iv, value in zip(derived.outer_vars, derived.outer_values, strict=True)
            if value in loop_vars
        }
        for n in reversed(inner_loops):
            body = n.with_fields(extent=substitute(n.extent, named), body=body)
        self.parts.append(body)
        self.name += block.name_hint + "_"
        for table, regions in zip(self.boxes, (block.reads, block.writes), strict=True):
            self._widen(table, _relaxed(regions, derived, analyzer), analyzer)

    def _widen(self, table: dict[Any, Any], regions: Sequence[BufferRegion], analyzer: Analyzer) -> None:
        for r in regions:
            box = [(d.min, d.min if checks.is_one(d.extent) else d.min + d.extent - 1) for d in r.region]
            table[r.buffer] = box if r.buffer not in table else union_sets(table[r.buffer], box, analyzer)

    def realize(self) -> BlockRealize:
        """The block that holds all of them."""
        assert self.shared is not None
        analyzer = Analyzer()
        reads, writes = (
            tuple(BufferRegion(b, tuple(box_to_ranges(box, analyzer))) for b, box in table.items())
            for table in self.boxes
        )
        iter_vars, values = self.shared
        outer = Block(tuple(iter_vars), reads, writes, self.name, SeqStmt(self.parts))
        return BlockRealize(tuple(values), self.predicate, outer)


def blockize_blocks(state: ScheduleState, blocks: Sequence[StmtSRef], keep_units: bool) -> StmtSRef:
    """Make one block of neighbouring subtrees, each with one of ``blocks``."""
    lca = lowest_common_ancestor(blocks)
    if lca is None or not isinstance(lca.stmt.body, SeqStmt):
        raise InternalError("Target blocks must not be nested with each other!")
    joined = _Joined(lca, keep_units)
    for block in blocks:
        joined.add(block)
    made = joined.realize()
    parts = list(lca.stmt.body.seq)
    places = sorted({_place_of(block, lca, parts) for block in blocks})
    if places != list(range(places[0], places[-1] + 1)):
        raise InternalError("Target blocks must be consecutive!")
    old = lca.stmt
    new = old.with_fields(body=seq_or_single([*parts[: places[0]], made, *parts[places[-1] + 1 :]]))
    state.replace(lca, new, joined.reuse if isinstance(old, For) else {**joined.reuse, old: new})
    sref = state.stmt2ref[made.block]
    _mark(state, sref)
    return sref


def _place_of(block: StmtSRef, lca: StmtSRef, parts: Sequence[Any]) -> int:
    """Where in the sequence under ``lca`` the subtree with ``block`` stands."""
    at = block
    while at.parent is not lca:
        assert at.parent is not None
        at = at.parent
    return next(i for i, part in enumerate(parts) if getattr(part, "block", part) is at.stmt)


class Blockize(Step):
    """A subtree, or neighbouring blocks, as one block."""

    target: LoopRV | list[BlockRV] = operand()
    preserve_unit_iters: bool

    def run(self, sch: Schedule) -> Sequence[Output]:
        keep = self.preserve_unit_iters
        match self.target:
            case list() | tuple():
                return [blockize_blocks(sch.state, [sch.sref(b) for b in self.target], keep)]
            case target:
                return [blockize_loop(sch.state, sch.sref(target), keep)]
