"""blockize and tensorize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer, subspace_divide
from ....ir.expr import Range
from ....ir.prim import const
from ...expr import IterVar, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, For
from .. import checks
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..region import box_to_ranges, evaluate_region, union_sets
from ..sref import StmtSRef
from ..subst import and_predicate, is_true, realize_of
from ..walk import vars_in
from .reduction import copy_var

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []

Division = list[tuple[Any, Any]]  # (outer mark, inner mark) per block variable, the predicates last


def _trivial(realize: BlockRealize, inner: set[Any], outer: set[Any]) -> Division | None:
    """The division when every binding is over loops of one side, or a plain product of both."""
    from ....arith import IterMark, IterSumExpr

    out: Division = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        used = set(vars_in(value))
        one = IterMark(IterSumExpr((), const(0, value.dtype)), const(1, value.dtype))
        if used <= inner:
            out.append((one, IterMark(value, iv.dom.extent)))
        elif used <= outer:
            out.append((IterMark(value, iv.dom.extent), one))
        else:
            return None
    true_mark = IterMark(const(True, "bool"), const(1, "int32"))
    out.append((true_mark, true_mark))
    return out


def divide(realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For], keep_units: bool) -> Division:
    """Split the bindings into what outer and inner loops contribute. Raises PrimitiveError."""
    inner = {n.loop_var for n in inner_loops}
    outer = {n.loop_var for n in outer_loops}
    for n in (*outer_loops, *inner_loops):
        if not checks.is_zero(n.min):
            raise PrimitiveError("The loop {0} does not start at zero.", [n])
    for value in realize.iter_values:
        for var in vars_in(value):
            if var not in inner and var not in outer:
                raise PrimitiveError(f"The bindings of {{0}} use {var.name}, no loop of its scope.", [realize])
    if not inner:
        quick = _trivial(realize, inner, outer)
        if quick is not None:
            return quick
    ranges = {n.loop_var: Range.from_min_extent(n.min, n.extent) for n in (*outer_loops, *inner_loops)}
    found = subspace_divide(
        list(realize.iter_values),
        ranges,
        [n.loop_var for n in inner_loops],
        realize.predicate,
        simplify_trivial_iterators=not keep_units,
    )
    if not found:
        quick = _trivial(realize, inner, outer)
        if quick is None or not is_true(realize.predicate):
            raise PrimitiveError(
                "The bindings of {0} cannot be divided into those of outer and inner loops.", [realize]
            )
        return quick
    return [(pair[0], pair[1]) for pair in found]


def _mark_expr(mark: Any) -> Any:
    from ....arith import normalize_iter_map_to_expr

    source = mark.source
    return normalize_iter_map_to_expr(source) if not isinstance(source, Var) else source


class _Derived:
    """Outer and inner block variables of a division."""

    def __init__(self, iter_vars: Sequence[IterVar], division: Division, keep_units: bool) -> None:
        self.outer_vars: list[IterVar] = []
        self.outer_values: list[Any] = []
        self.inner_vars: list[IterVar] = []
        self.inner_values: list[Any] = []
        self.subst: dict[Any, Any] = {}
        for iv, (outer_mark, inner_mark) in zip(iter_vars, division, strict=False):
            self._derive(iv, outer_mark, inner_mark, keep_units)

    def _derive(self, iv: IterVar, outer_mark: Any, inner_mark: Any, keep_units: bool) -> None:
        zero, one = const(0, iv.var.dtype), const(1, iv.var.dtype)
        outer, inner = _mark_expr(outer_mark), _mark_expr(inner_mark)
        outer_extent, inner_extent = outer_mark.extent, inner_mark.extent
        is_outer_unit = checks.is_one(outer_extent) and (not keep_units or not vars_in(outer))
        is_inner_unit = checks.is_one(inner_extent) and (not keep_units or not vars_in(inner))
        if is_inner_unit:
            # All of it is outside; the inner block does not see the variable.
            new = IterVar(Range.from_min_extent(zero, outer_extent), copy_var(iv.var, "_o"), iv.iter_type)
            self.outer_vars.append(new)
            self.outer_values.append(outer)
            made = IterVar(Range.from_min_extent(zero, one), copy_var(iv.var, "_i"), iv.iter_type)
            self.subst[iv.var] = new.var
            if vars_in(inner):
                self.inner_vars.append(made)
                self.inner_values.append(inner)
                self.subst[iv.var] = new.var + made.var
            return
        made = IterVar(Range.from_min_extent(zero, inner_extent), copy_var(iv.var, "_i"), iv.iter_type)
        self.inner_vars.append(made)
        self.inner_values.append(inner)
        if is_outer_unit:
            base = Analyzer().simplify(outer)
            self.outer_vars.append(IterVar(Range.from_min_extent(zero, one), copy_var(iv.var, "_o"), iv.iter_type))
            self.outer_values.append(base if checks.is_zero(base) else zero)
            self.subst[iv.var] = made.var
            return
        new = IterVar(Range.from_min_extent(zero, outer_extent), copy_var(iv.var, "_o"), iv.iter_type)
        self.outer_vars.append(new)
        self.outer_values.append(outer)
        self.subst[iv.var] = new.var * inner_extent + made.var


def _relax(
    regions: Sequence[BufferRegion],
    inner: Sequence[IterVar],
    loops: Sequence[For],
    subst: Any,
    analyzer: Analyzer,
) -> list[BufferRegion]:
    """Regions with the inner variables and loops run over their domains, one per buffer."""
    doms = {n.loop_var: Range.from_min_extent(n.min, n.extent) for n in loops}
    doms.update({iv.var: iv.dom for iv in inner})
    boxes: dict[Any, Any] = {}
    for item in regions:
        bound = [Range.from_min_extent(substitute(r.min, subst), substitute(r.extent, subst)) for r in item.region]
        box = evaluate_region(bound, doms, const(True, "bool"), analyzer)
        known = boxes.get(item.buffer)
        boxes[item.buffer] = box if known is None else union_sets(known, box, analyzer)  # type: ignore[arg-type]
    return [BufferRegion(buffer, tuple(box_to_ranges(box, analyzer))) for buffer, box in boxes.items()]


def _init_for(derived: _Derived, inner_block: Block, init: Any, writes: Any) -> Any:
    """The initialisation of an outer block: a nest over the inner data-parallel variables."""
    spatial = [
        (iv, v)
        for iv, v in zip(derived.inner_vars, derived.inner_values, strict=True)
        if iv.iter_type == IterVar.DataPar
    ]
    fresh = {iv.var: copy_var(iv.var, "_init") for iv, _ in spatial}
    block = Block(
        tuple(IterVar(iv.dom, fresh[iv.var], iv.iter_type) for iv, _ in spatial),
        (),
        tuple(substitute(w, fresh) for w in writes),
        inner_block.name_hint + "_init",
        substitute(init, fresh),
    )
    return block, [v for _, v in spatial]


def _wrap_init(block: Block, values: Sequence[Any], inner_loops: Sequence[For]) -> Any:
    used = vars_in(tuple(values))
    kept = [n for n in inner_loops if n.loop_var in used]
    renamed = {n.loop_var: copy_var(n.loop_var, "_init") for n in kept}
    body: Any = BlockRealize(tuple(substitute(v, renamed) for v in values), const(True, "bool"), block)
    for n in reversed(kept):
        body = For(renamed[n.loop_var], n.min, n.extent, n.kind, body, n.thread_binding, dict(n.annotations))
    return body


def blockize_realize(
    realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For], keep_units: bool
) -> tuple[BlockRealize, Block]:
    """An outer block around ``inner_loops`` and the block; gives its realize and the new inner block."""
    block = realize.block
    division = divide(realize, inner_loops, outer_loops, keep_units)
    derived = _Derived(block.iter_vars, division, keep_units)
    analyzer = Analyzer()
    for iv in (*derived.outer_vars, *derived.inner_vars):
        analyzer.bind(iv.var, iv.dom)
    subst = derived.subst
    outer_pred, inner_pred = _predicates(division[-1], realize, inner_loops, outer_loops)
    has_outer_reduction = any(
        iv.iter_type == IterVar.CommReduce and not checks.is_one(iv.dom.extent) for iv in derived.outer_vars
    )
    init = block.init
    outer_init = None
    if init is not None and has_outer_reduction:
        init_block, values = _init_for(
            derived, block, substitute(init, subst), [substitute(w, subst) for w in block.writes]
        )
        outer_init = _wrap_init(init_block, values, inner_loops)
    inner_block = block.with_fields(
        iter_vars=tuple(derived.inner_vars),
        reads=tuple(substitute(r, subst) for r in block.reads),
        writes=tuple(substitute(w, subst) for w in block.writes),
        body=substitute(block.body, subst),
        init=None if init is None or outer_init is not None else substitute(init, subst),
        match_buffers=tuple(substitute(m, subst) for m in block.match_buffers),
    )
    if outer_init is not None:
        inner_block = _reads_own(inner_block, block)
    body: Any = BlockRealize(tuple(derived.inner_values), inner_pred, inner_block)
    for n in reversed(inner_loops):
        body = n.with_fields(body=body)
    outer_block = Block(
        tuple(derived.outer_vars),
        tuple(_relax(block.reads, derived.inner_vars, inner_loops, subst, analyzer)),
        tuple(_relax(block.writes, derived.inner_vars, inner_loops, subst, analyzer)),
        block.name_hint + "_o",
        body,
        outer_init,
    )
    return BlockRealize(tuple(derived.outer_values), outer_pred, outer_block), inner_block


def _reads_own(inner: Block, old: Block) -> Block:
    """An inner block without init reads what it updates."""
    read = {r.buffer for r in inner.reads}
    return inner.with_fields(reads=(*[w for w in inner.writes if w.buffer not in read], *inner.reads))


def _predicates(
    marks: tuple[Any, Any], realize: BlockRealize, inner_loops: Sequence[For], outer_loops: Sequence[For]
) -> tuple[Any, Any]:
    """The parts of the predicate that stay outside and that go inside."""
    true = const(True, "bool")
    if is_true(realize.predicate):
        return true, true
    outer, inner = (_mark_expr(mark) for mark in marks)
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
    raise PrimitiveError("The predicate of {0} cannot be divided into those of outer and inner loops.", [realize])


def blockize_loop(state: ScheduleState, loop_sref: StmtSRef, keep_units: bool) -> StmtSRef:
    """Make a block of a loop and all below it; gives the new outer block."""
    checks.check_loop(loop_sref)
    children = state.child_blocks(loop_sref)
    if len(children) != 1:
        raise PrimitiveError("The subtree of {0} must hold exactly one block.", [loop_sref])
    block_sref = children[0]
    realize = realize_of(block_sref)
    loops = checks.loops_above(block_sref)
    position = loops.index(loop_sref)
    outer_loops = [s.stmt for s in loops[:position]]
    inner_loops = [s.stmt for s in loops[position:]]
    made, inner_block = blockize_realize(realize, inner_loops, outer_loops, keep_units)
    state.replace(loop_sref, made, {realize.block: inner_block})
    outer = state.stmt2ref[made.block]
    _mark(state, outer)
    return outer


def _mark(state: ScheduleState, outer: StmtSRef) -> None:
    state.mark_new_block(outer)
    for child in state.child_blocks(outer):
        state.mark_new_block(child)


def blockize_blocks(state: ScheduleState, blocks: Sequence[StmtSRef], keep_units: bool) -> StmtSRef:
    """Make one block of neighbouring blocks, with all loops outside."""
    parent = blocks[0].parent
    if parent is None or any(b.parent is not parent for b in blocks):
        raise PrimitiveError("The blocks to blockize must stand side by side.", list(blocks))
    parts = list(parent.stmt.body.seq) if hasattr(parent.stmt.body, "seq") else [parent.stmt.body]
    wanted = {b.stmt for b in blocks}
    places = [i for i, p in enumerate(parts) if isinstance(p, BlockRealize) and p.block in wanted]
    if places != list(range(places[0], places[0] + len(blocks))):
        raise PrimitiveError("The blocks to blockize must stand side by side.", list(blocks))
    loops = [s.stmt for s in checks.loops_above(blocks[0])]
    reuse: dict[Any, Any] = {}
    inner: list[BlockRealize] = []
    reads: dict[Any, Any] = {}
    writes: dict[Any, Any] = {}
    merged: list[tuple[IterVar, Any]] = []
    analyzer = Analyzer()
    for realize in (parts[i] for i in places):
        subst = _merge_vars(realize, merged)
        block = realize.block
        new = block.with_fields(
            iter_vars=(),
            reads=tuple(substitute(r, subst) for r in block.reads),
            writes=tuple(substitute(w, subst) for w in block.writes),
            body=substitute(block.body, subst),
            init=None if block.init is None else substitute(block.init, subst),
        )
        reuse[block] = new
        inner.append(BlockRealize((), realize.predicate, new))
        for table, regions in ((reads, new.reads), (writes, new.writes)):
            for r in regions:
                box = [(d.min, d.min if checks.is_one(d.extent) else d.min + d.extent - 1) for d in r.region]
                table[r.buffer] = box if r.buffer not in table else union_sets(table[r.buffer], box, analyzer)
    del loops
    from ..walk import replace_stmts, seq_or_single

    def regions_of(table: Any) -> tuple[BufferRegion, ...]:
        return tuple(BufferRegion(b, tuple(box_to_ranges(box, analyzer))) for b, box in table.items())

    outer = Block(
        tuple(iv for iv, _ in merged),
        regions_of(reads),
        regions_of(writes),
        "_".join(b.stmt.name_hint for b in blocks) + "_o" if len(blocks) == 1 else blocks[0].stmt.name_hint + "_o",
        seq_or_single(inner),
    )
    made = BlockRealize(tuple(v for _, v in merged), const(True, "bool"), outer)
    new_parts = [*parts[: places[0]], made, *parts[places[-1] + 1 :]]
    old = parent.stmt
    new_parent = old.with_fields(body=seq_or_single(new_parts))
    state.replace(parent, new_parent, reuse if isinstance(old, For) else {**reuse, old: new_parent})
    del replace_stmts
    sref = state.stmt2ref[outer]
    _mark(state, sref)
    return sref


def _merge_vars(realize: BlockRealize, merged: list[tuple[IterVar, Any]]) -> dict[Any, Any]:
    """Map block variables to shared ones; equal bindings share."""
    from ....ir.structural import structural_equal

    subst: dict[Any, Any] = {}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        for known, known_value in merged:
            if structural_equal(known_value, value):
                subst[iv.var] = known.var
                break
        else:
            made = IterVar(iv.dom, copy_var(iv.var, "_o"), iv.iter_type)
            merged.append((made, value))
            subst[iv.var] = made.var
    return subst


@register_kind
class Blockize(InstructionKind):
    """A subtree, or neighbouring blocks, as one block."""

    name, method = "Blockize", "blockize"
    inputs, attrs = ("target",), ("preserve_unit_iters",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        keep = bool(plain(attrs[0]))
        if isinstance(inputs[0], (list, tuple)):
            return [blockize_blocks(sch.state, [sch.sref(b) for b in inputs[0]], keep)], None
        return [blockize_loop(sch.state, sch.sref(inputs[0]), keep)], None
