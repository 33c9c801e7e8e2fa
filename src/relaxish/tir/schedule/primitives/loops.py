"""Splitting, fusing, reordering and adding loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer, ProofStrength
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ...expr import IntImm, IterVar, Var
from ....ir.prim import const
from ...op import floordiv, floormod
from ...stmt import BlockRealize, For, ForKind, Stmt
from .. import checks
from ..bindings import is_affine_binding, simplify_bindings
from ..block_info import loop_ranges
from ..errors import PrimitiveError
from ..instruction import plain, Argument, Output, Step, operand
from ..sref import StmtSRef
from ..subst import append_predicate, realize_of, substitute_loops
from ..walk import vars_in
from .reduction import updates_once
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def check_plain_loop(loop: StmtSRef) -> For:
    """Demand a loop from zero without annotations or thread binding."""
    node = checks.check_loop(loop)
    if node.annotations or node.thread_binding is not None:
        raise PrimitiveError(
            "The primitive can't be applied because the loop {0} has annotation or thread binding",
            [loop],
            hint="transform loops before annotating or binding them",
        )
    if not checks.is_zero(node.min):
        raise PrimitiveError("The loop {0} does not start with 0, which is not supported", [loop])
    return node


def _wider(a: str, *others: Any) -> str:
    best = a
    for other in others:
        if isinstance(other, IntImm):
            continue
        if dt.bits(other.dtype) > dt.bits(best):
            best = other.dtype
    return best


def fit(expr: PrimExpr, dtype: str) -> PrimExpr:
    """An expression in another integer type; constants stay constants."""
    if expr.dtype == dtype:
        return expr
    return IntImm(dtype, expr.value) if isinstance(expr, IntImm) else expr.astype(dtype)


def split_loop(
    state: ScheduleState, loop: StmtSRef, factors: Sequence[Any], keep_units: bool, no_predicate: bool
) -> list[StmtSRef]:
    """Split one loop into a nest with the given extents."""
    node = check_plain_loop(loop)
    dtype = _wider(node.loop_var.dtype, *factors)
    factors = [fit(f, dtype) for f in factors]
    ranges = loop_ranges(loop.parent)
    new_vars = []
    value: Any = const(0, dtype)
    for index, factor in enumerate(factors):
        var = Var(f"{node.loop_var.name}_{index}", dtype)
        new_vars.append(var)
        value = value * factor + var
    reuse: dict[Any, Any] = {}
    body = substitute_loops(node.body, {node.loop_var: value}, reuse)
    if not no_predicate and not _fits(node.extent, factors, value, new_vars):
        body = append_predicate(body, value < fit(node.extent, dtype))
    for var, factor in zip(reversed(new_vars), reversed(factors), strict=True):
        body = For(var, const(0, dtype), factor, ForKind.SERIAL, body)
    body = simplify_bindings(body, ranges, keep_units, reuse)
    state.replace(loop, body, reuse)
    return nest_of(state, body, len(factors))


def nest_of(state: ScheduleState, stmt: Stmt, count: int) -> list[StmtSRef]:
    """References of the ``count`` loops that start at ``stmt``."""
    out = []
    for _ in range(count):
        assert isinstance(stmt, For)
        out.append(state.stmt2ref[stmt])
        stmt = stmt.body
    return out


def _fits(extent: PrimExpr, factors: Sequence[Any], value: PrimExpr, new_vars: Sequence[Any]) -> bool:
    """Whether the product of the factors cannot exceed the extent."""
    if isinstance(extent, IntImm) and all(isinstance(f, IntImm) for f in factors):
        product = 1
        for f in factors:
            product *= int(f.value)
        return product <= int(extent.value)
    analyzer = Analyzer()
    for var, factor in zip(new_vars, factors, strict=True):
        analyzer.bind(var, Range.from_min_extent(const(0, var.dtype), factor))
    return bool(analyzer.can_prove(value < extent, ProofStrength.SYMBOLIC_BOUND))


def resolve_factors(loop: StmtSRef, factors: Sequence[Any], dtype_of: Callable[[Any], Any]) -> list[Any]:
    """Fill in the one factor left open and check that the factors cover the loop."""
    node = loop.stmt
    dtype = node.loop_var.dtype
    known: list[Any] = []
    missing = -1
    total: Any = const(1, dtype)
    for index, factor in enumerate(factors):
        if factor is None:
            if missing >= 0:
                raise PrimitiveError("Only one factor can be specified as -1 or none")
            missing = index
            known.append(None)
            continue
        value = dtype_of(factor)
        if isinstance(value, IntImm) and value.value <= 0:
            raise not_positive(index, value.value)
        value = fit(value, dtype) if isinstance(value, IntImm) else value
        known.append(value)
        total = total * value
    analyzer = Analyzer()
    if missing >= 0:
        open_factor = analyzer.simplify(floordiv(node.extent + total - 1, total))
        known[missing] = open_factor
    elif not _covers(node.extent, total, analyzer):
        raise PrimitiveError(
            "The product of factors is not larger than or equal to the extent of loop {0}",
            [loop],
            hint=f"the product is {total}, the extent {node.extent}; leave one factor open (None) to have it inferred",
        )
    return known


def not_positive(index: int, value: int) -> PrimitiveError:
    """The error about a factor that is zero or negative."""
    return PrimitiveError(
        f"All the constant factors are required to be positive. However, the factor at position {index} is {value}"
    )


def _covers(extent: PrimExpr, total: PrimExpr, analyzer: Analyzer) -> bool:
    if isinstance(extent, IntImm) and isinstance(total, IntImm):
        return bool(total.value >= extent.value)
    return bool(analyzer.can_prove(total >= extent))


class Split(Step):
    """One loop into a nest."""

    many_outputs = True

    loop: LoopRV = operand()
    factors: Sequence[Argument] = operand(rest=True)
    preserve_unit_iters: bool = False
    disable_predication: bool = False

    def run(self, sch: Schedule) -> Sequence[Output]:
        loop = sch.sref(self.loop)
        checks.check_loop(loop)
        factors = resolve_factors(loop, self.factors, sch.value_of)
        return list(split_loop(sch.state, loop, factors, self.preserve_unit_iters, self.disable_predication))


def _check_chain(loops: Sequence[StmtSRef]) -> None:
    """Demand that each loop is the only statement in the body of the one before."""
    for outer, inner in zip(loops, loops[1:], strict=False):
        if inner.parent is not outer:
            raise PrimitiveError(
                "The loops can't be fused because the outer loop {0} is not the parent of the inner loop {1}",
                [outer, inner],
            )
        if outer.stmt.body is not inner.stmt:
            raise not_only_child(outer, inner)


def not_only_child(outer: StmtSRef, inner: StmtSRef) -> PrimitiveError:
    """The error about two loops with more between them than nothing."""
    return PrimitiveError(
        "The loops can't be fused because the inner loop {1} is not the only child of outer loop {0}.", [outer, inner]
    )


def fuse_loops(state: ScheduleState, loops: Sequence[StmtSRef], keep_units: bool) -> StmtSRef:
    """Make one loop of a chain of loops."""
    nodes = [check_plain_loop(loop) for loop in loops]
    _check_chain(loops)
    outer_vars: set[Any] = set()
    for index, node in enumerate(nodes):
        used = [v for v in vars_in(node.extent) if v in outer_vars]
        if used:
            raise PrimitiveError(f"A loop {{0}}'s `extent` is dependent on another loop {used[0].name}", [loops[index]])
        outer_vars.add(node.loop_var)
    dtype = _wider(nodes[0].loop_var.dtype, *[n.loop_var for n in nodes])
    fused = Var("_".join(n.loop_var.name for n in nodes) + "_fused", dtype)
    values: dict[Any, Any] = {}
    lower: Any = const(1, dtype)
    for node in reversed(nodes[1:]):
        extent = fit(node.extent, dtype)
        if checks.is_one(extent):
            values[node.loop_var] = const(0, dtype)
        else:
            values[node.loop_var] = floordiv(floormod(fused, lower * extent), lower)
        lower = lower * extent
    first = nodes[0]
    values[first.loop_var] = const(0, dtype) if checks.is_one(first.extent) else floordiv(fused, lower)
    extent = fit(first.extent, dtype) * lower
    if not isinstance(extent, IntImm):
        extent = Analyzer().simplify(extent)
    reuse: dict[Any, Any] = {}
    body = substitute_loops(nodes[-1].body, values, reuse)
    made: Any = For(fused, const(0, dtype), extent, ForKind.SERIAL, body)
    made = simplify_bindings(made, loop_ranges(loops[0].parent), keep_units, reuse)
    state.replace(loops[0], made, reuse)
    return state.stmt2ref[made]


class Fuse(Step):
    """A chain of loops into one."""

    positional = True

    loops: Sequence[LoopRV] = operand(rest=True)
    preserve_unit_iters: bool

    def run(self, sch: Schedule) -> Sequence[Output]:
        loops = [sch.sref(x) for x in self.loops]
        if not loops:
            raise ValueError("'fuse' requires at least 1 loop(s)")
        return [fuse_loops(sch.state, loops, self.preserve_unit_iters)]


def reorder_loops(state: ScheduleState, ordered: Sequence[StmtSRef]) -> None:
    """Put the loops of one nest into the given order, at the places they hold together."""
    wanted: dict[StmtSRef, None] = {}
    for loop in ordered:
        checks.check_loop(loop)
        if loop in wanted:
            raise PrimitiveError("Loop {0} appears in the input array for multiple times.", [loop])
        wanted[loop] = None
    chain = _chain_through(ordered, wanted)
    _check_blocks_below(state, chain[0])
    remaining = list(ordered)
    new_order = [remaining.pop(0) if loop in wanted else loop for loop in chain]
    _check_begun_first(state, chain, new_order)
    body: Any = chain[-1].stmt.body
    inner: set[Any] = set()
    for loop in reversed(new_order):
        node = loop.stmt
        used = [v for v in (*vars_in(node.min), *vars_in(node.extent)) if v in inner or v is node.loop_var]
        if used:
            raise PrimitiveError(
                f"Outer Loop {{0}}'s `min` or `extent` is dependent on an inner loop {used[0].name} in the new order",
                [loop],
            )
        inner.add(node.loop_var)
        body = node.with_fields(body=body)
    state.replace(chain[0], body)


def _check_begun_first(state: ScheduleState, chain: Sequence[StmtSRef], new_order: Sequence[StmtSRef]) -> None:
    """Refuse an order in which a reduction goes on before the iteration that initialises it.

    Loops that drive what is reduced over and nothing else may stand in any order; those that drive the place of the
    result as well (a fused loop, split again) come to the first iteration of a result first in their old order only.
    A loop that drives nothing repeats the reduction, or single updates of it if it is put inside.
    """
    if not state.enable_check:
        return
    for block in state.child_blocks(chain[0]):
        realize = realize_of(block)
        if realize.block.init is None:
            continue
        driven: dict[bool, set[Any]] = {True: set(), False: set()}
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            driven[iv.iter_type == IterVar.CommReduce].update(vars_in(value))
        both = driven[True] & driven[False]
        before, after = (
            [s for s in order if s.stmt.loop_var in both and not checks.is_one(s.stmt.extent)]
            for order in (chain, new_order)
        )
        if before != after:
            raise PrimitiveError(
                "The loops {1} and {2} drive both what {0} reduces over and where its results are; in another order a "
                "reduction would go on before it is initialised.",
                [block, *before[:2]],
                hint="decompose the reduction first",
            )
        _check_still_repeated(block, chain, new_order, driven[True], driven[False])


def _check_still_repeated(
    block: StmtSRef, chain: Sequence[StmtSRef], new_order: Sequence[StmtSRef], reduced: set[Any], placed: set[Any]
) -> None:
    """Refuse an order in which loops would repeat single updates of a reduction that they repeat as a whole."""
    sums = [[s.stmt for s in order if s.stmt.loop_var in reduced] for order in (chain, new_order)]
    driving = [s.stmt for s in chain if s.stmt.loop_var in reduced | placed]
    known = all(isinstance(node.extent, IntImm) for node in driving)
    if known and sums[0] != sums[1] and not updates_once(realize_of(block), driving):
        raise PrimitiveError(
            "Turns of the loops {1} and {2} repeat updates of {0}; in another order they would do so in between.",
            [block, *sums[0][:2]],
        )
    for loop in chain:
        if loop.stmt.loop_var in reduced or checks.is_one(loop.stmt.extent):
            continue
        around = [{s for s in order[: order.index(loop)] if s.stmt.loop_var in reduced} for order in (chain, new_order)]
        if around[0] != around[1] and (loop.stmt.loop_var not in placed or _overlap(block, chain[0])):
            raise PrimitiveError(
                "The loop {1} repeats the reduction of {0}; in another order it would repeat single updates.",
                [block, loop],
            )


def _overlap(block: StmtSRef, top: StmtSRef) -> bool:
    """Whether the bindings overlap over the loops from ``top`` inwards, which then repeat what they compute."""
    realize = realize_of(block)
    ranges = loop_ranges(block.parent, top.parent)
    separate, meeting = (
        is_affine_binding(realize.iter_values, realize.predicate, ranges, None, overlaps) for overlaps in (False, True)
    )
    return meeting and not separate


def _chain_through(ordered: Sequence[StmtSRef], wanted: dict[StmtSRef, None]) -> list[StmtSRef]:
    """The loops from the outermost to the innermost of those listed, all on one line."""
    best: list[StmtSRef] = []
    for loop in ordered:
        line = [loop, *[a for a in _loops_up(loop)]]
        if all(x in line for x in wanted):
            best = line
            break
    if not best:
        raise PrimitiveError("The loops are not in a chain because they are not under the same scope.")
    top = max(best.index(x) for x in wanted)
    chain = best[: top + 1][::-1]
    for outer, inner in zip(chain, chain[1:], strict=False):
        if outer.stmt.body is not inner.stmt:
            raise PrimitiveError(
                "The loops are not in a chain because there is a non-single-branch stmt in between. "
                "Problematic stmt: {0}",
                [outer],
            )
    return chain


def _loops_up(loop: StmtSRef) -> list[StmtSRef]:
    out = []
    at = loop.parent
    while at is not None and at.is_loop:
        out.append(at)
        at = at.parent
    return out


def _check_blocks_below(state: ScheduleState, top: StmtSRef) -> None:
    if not state.enable_check:
        return
    for child in state.child_blocks(top):
        for iter_var in child.stmt.iter_vars:
            if iter_var.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
                raise PrimitiveError(
                    "The block {0} under the loops to be reordered have block iter type other than "
                    "data-parallel or reduction",
                    [child],
                )
        checks.check_partial_affine(state, child, top)


class Reorder(Step):
    """A new order for loops of one nest."""

    positional = True

    loops: Sequence[LoopRV] = operand(rest=True)

    def run(self, sch: Schedule) -> Sequence[Output]:
        loops = [sch.sref(x) for x in self.loops]
        if len(loops) > 1:
            reorder_loops(sch.state, loops)
        return []


class ReorderBlockIterVar(Step):
    """A new order for the variables of a block."""

    block: BlockRV = operand()
    new_order: Sequence[int] = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        block = checks.check_block(sref)
        order = [int(plain(x)) for x in self.new_order]
        if sorted(order) != list(range(len(block.iter_vars))):
            raise PrimitiveError(
                f"{order} is not a permutation of the {len(block.iter_vars)} block variables of {{0}}.", [sref]
            )
        realize = realize_of(sref)
        new_block = block.with_fields(iter_vars=tuple(block.iter_vars[i] for i in order))
        new_realize = BlockRealize(tuple(realize.iter_values[i] for i in order), realize.predicate, new_block)
        replace_realize(sch.state, sref, realize, new_realize)
        return []


def replace_realize(state: ScheduleState, sref: StmtSRef, realize: BlockRealize, new_realize: BlockRealize) -> None:
    """Exchange a block together with its bindings."""
    from ..walk import replace_stmts

    parent = sref.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=replace_stmts(old.body, {id(realize): new_realize}))
    reuse = {realize.block: new_realize.block}
    if not isinstance(old, For):
        reuse[old] = new
    state.replace(parent, new, reuse)


class AddUnitLoop(Step):
    """A loop of one iteration around a block or loop."""

    block_or_loop: BlockRV | LoopRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block_or_loop)
        state = sch.state
        if sref.is_loop:
            made = For(Var("u", "int32"), 0, 1, ForKind.SERIAL, sref.stmt)
            state.replace(sref, made)
            return [state.stmt2ref[made]]
        if sref.parent is None:
            raise ValueError("Cannot add loops on top of the root block")
        realize = realize_of(sref)
        made = For(Var("u", "int32"), 0, 1, ForKind.SERIAL, realize)
        parent = sref.parent
        from ..walk import replace_stmts

        old = parent.stmt
        new = old.with_fields(body=replace_stmts(old.body, {id(realize): made}))
        state.replace(parent, new, {} if isinstance(old, For) else {old: new})
        return [state.stmt2ref[made]]
