"""merge and loop_partition: sibling loops made one, one loop made siblings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const
from ...expr import IntImm, IterVar, Var
from ...functor import renew_defs, substitute
from ...stmt import Block, BlockRealize, For, ForKind, SeqStmt, Stmt
from .. import checks
from ..block_info import contains
from ..errors import PrimitiveError
from ..instruction import Argument, Output, Step, operand
from ..region import relax_region
from ..sref import DepKind, StmtSRef
from ..subst import realize_of, substitute_loops
from ..walk import block_realizes_below, seq_or_single, vars_in
from .compute_at import lowest_common_ancestor
from .loops import check_plain_loop, fit, not_only_child, not_positive
from .piece import PieceBody
from .reduction import copy_var
from ..rv import LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def merge_loops(state: ScheduleState, loops: Sequence[StmtSRef]) -> StmtSRef:
    """Merge equally long outer chains of sibling nests, each given by its innermost loop to merge."""
    lca = lowest_common_ancestor(loops)
    if lca is None:
        raise PrimitiveError("The loops to merge have no common ancestor.", list(loops))
    chains = []
    for loop in loops:
        check_plain_loop(loop)
        chain = [loop]
        while chain[0].parent is not lca:
            above = chain[0].parent
            assert above is not None
            if not above.is_loop:
                raise PrimitiveError("The loop {0} is in another scope than the loops it is to merge with.", [loop])
            if above.stmt.body is not chain[0].stmt:
                raise not_only_child(above, chain[0])
            chain.insert(0, above)
        chains.append([c.stmt for c in chain])
    if not isinstance(lca.stmt.body, SeqStmt) or len({c[0] for c in chains}) != len(chains):
        raise PrimitiveError("The loops to merge are not in separate nests.", list(loops))
    parts = list(lca.stmt.body.seq)
    tops = [next(i for i, p in enumerate(parts) if p is chain[0]) for chain in chains]
    first = chains[0]
    analyzer = Analyzer()
    for other in chains[1:]:
        if len(other) != len(first):
            raise PrimitiveError("The loops to merge are at different depths.", list(loops))
        for a, b in zip(first, other, strict=True):
            if not analyzer.can_prove_equal(a.extent, b.extent):
                raise PrimitiveError("The loops {0} and {1} have different extents.", [a, b])
    # Whatever order the loops are named in, an iteration of the merged loop does things in the program's order.
    order = sorted(range(len(chains)), key=tops.__getitem__)
    loops, chains, tops = [loops[i] for i in order], [chains[i] for i in order], [tops[i] for i in order]
    _check_nothing_between(state, loops, lca, [parts[i] for i in range(tops[0], tops[-1]) if i not in tops])
    _check_dependences(state, loops, chains)
    fresh = [copy_var(n.loop_var, "_m") for n in first]
    reuse: dict[Any, Any] = {}
    bodies = [
        substitute_loops(chain[-1].body, {n.loop_var: v for n, v in zip(chain, fresh, strict=True)}, reuse)
        for chain in chains
    ]
    body: Any = seq_or_single(bodies)
    for var, node in reversed(list(zip(fresh, first, strict=True))):
        body = For(var, node.min, node.extent, ForKind.SERIAL, body)
    parent = lca
    old = parent.stmt
    # The merged nest stands where the last of the given nests stood.
    kept = [body if i == tops[-1] else p for i, p in enumerate(parts) if i == tops[-1] or i not in tops]
    new = old.with_fields(body=seq_or_single(kept))
    state.replace(parent, new, reuse if isinstance(old, For) else {**reuse, old: new})
    node = body
    for _ in range(len(fresh) - 1):
        node = node.body
    return state.stmt2ref[node]


def _check_nothing_between(
    state: ScheduleState, loops: Sequence[StmtSRef], parent: StmtSRef, between: Sequence[Any]
) -> None:
    """The nests move to where the last of them stands; what they pass must not depend on what they do."""
    if not state.enable_check or not between:
        return
    scope = state.get_block_scope(checks.scope_root(state, loops[0]))
    passed = {state.stmt2ref[realize.block] for stmt in between for realize in block_realizes_below(stmt)}
    for loop in loops[:-1]:
        for block in state.child_blocks(loop):
            late = next((dep.dst for dep in scope.get_deps_by_src(block) if dep.dst in passed), None)
            if late is not None:
                raise PrimitiveError("{0} would be computed after {1}, which depends on it.", [block, late])


def _check_dependences(state: ScheduleState, loops: Sequence[StmtSRef], chains: Sequence[Sequence[For]]) -> None:
    """What one nest reads of another's results must have been written by the time the merged loops come to it."""
    if not state.enable_check:
        return
    scope = state.get_block_scope(checks.scope_root(state, loops[0]))
    place = {child: i for i, loop in enumerate(loops) for child in state.child_blocks(loop)}
    analyzer = Analyzer()
    for node in chains[0]:
        analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
    for consumer, at in place.items():
        renamed = {n.loop_var: m.loop_var for n, m in zip(chains[at], chains[0], strict=True)}
        for dep in scope.get_deps_by_dst(consumer):
            before = place.get(dep.src)
            if before is None or before == at:
                continue
            same = {n.loop_var: m.loop_var for n, m in zip(chains[before], chains[0], strict=True)}
            nest = [child for child, position in place.items() if position == before]
            follows = dep.kind == DepKind.RAW and not any(
                _reduces_over(b, same) for b in checks.sources_among(dep.src, nest)
            )
            if not follows or not _follows(dep.src, loops[before], same, consumer, loops[at], renamed, analyzer):
                raise PrimitiveError(
                    "{1} needs more of what {0} computes than is there in a merged loop.", [dep.src, consumer]
                )


def _reduces_over(block: StmtSRef, loops: Mapping[Var, PrimExpr]) -> bool:
    """Whether a block's results are complete only after all iterations of one of the ``loops``."""
    realize = realize_of(block)
    return any(
        iv.iter_type == IterVar.CommReduce and any(v in loops for v in vars_in(value))
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    )


def _follows(
    producer: StmtSRef,
    above: StmtSRef,
    same: Mapping[Var, PrimExpr],
    consumer: StmtSRef,
    below: StmtSRef,
    renamed: Mapping[Var, PrimExpr],
    analyzer: Analyzer,
) -> bool:
    """Whether the part ``consumer`` reads in one iteration is in the part ``producer`` writes in the same one."""
    for wanted in consumer.stmt.reads:
        for made in producer.stmt.writes:
            if wanted.buffer is not made.buffer:
                continue
            need = relax_region(wanted, consumer, below, analyzer)
            have = relax_region(made, producer, above, analyzer, lower_bound=True)
            if need is None or have is None:
                return False
            need = [(substitute(a, renamed), substitute(b, renamed)) for a, b in need]
            have = [(substitute(a, same), substitute(b, same)) for a, b in have]
            if not contains(have, need, made.buffer.shape, analyzer):
                return False
    return not any(w.buffer is m.buffer for w in consumer.stmt.writes for m in producer.stmt.writes)


class Merge(Step):
    """Sibling nests into one."""

    positional = True

    loops: Sequence[LoopRV] = operand(rest=True)

    def run(self, sch: Schedule) -> Sequence[Output]:
        if len(self.loops) < 2:
            raise ValueError("'merge' requires at least 2 loop(s)")
        return [merge_loops(sch.state, [sch.sref(x) for x in self.loops])]


def partition_loop(state: ScheduleState, loop: StmtSRef, ends: Sequence[Any]) -> list[StmtSRef]:
    """Run consecutive pieces of a loop one after another, each in a block of its own, up to each of the ``ends``."""
    node = checks.check_loop(loop)
    if node.annotations or node.thread_binding is not None:
        raise PrimitiveError(
            "The primitive can't be applied because the loop {0} has annotation or thread binding", [loop]
        )
    _check_no_reduction(state, loop)
    dtype = node.loop_var.dtype
    prefix = f"{_first_block_name(node.body)}_{node.loop_var.name}"
    begin = node.min
    pieces: list[Any] = []
    loops: list[For] = []
    for index, end in enumerate(ends):
        var = Var(f"{node.loop_var.name}{index}", dtype)
        body = PieceBody(var, begin, end).visit(substitute(node.body, {node.loop_var: var}))
        made = For(var, begin, end - begin, ForKind.SERIAL, body)
        loops.append(made)
        if index > 0:
            made = loops[-1] = renew_defs(made)  # buffers are defined once, too
        pieces.append(BlockRealize((), end > 0, Block((), (), (), f"{prefix}{index}_partition", made)))
        begin = end
    common = Block((), (), (), f"{prefix}_common", SeqStmt(pieces))
    state.replace(loop, BlockRealize((), const(True, "bool"), common))
    state.undeclared = True
    return [state.stmt2ref[n] for n in loops]


def _check_no_reduction(state: ScheduleState, loop: StmtSRef) -> None:
    """Refuse a loop that a block with an initialisation reduces over, at any depth: every piece would begin anew."""
    _check_below(state, loop, loop, {loop.stmt.loop_var})


def _check_below(state: ScheduleState, loop: StmtSRef, parent: StmtSRef, driven: set[Var]) -> None:
    """Of the blocks in ``parent``, with the variables that the loop drives there."""
    for child in state.child_blocks(parent):
        realize = realize_of(child)
        below = set(driven)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if driven.isdisjoint(vars_in(value)):
                continue
            below.add(iv.var)
            if iv.iter_type == IterVar.CommReduce and realize.block.init is not None:
                raise PrimitiveError(
                    "The loop {0} drives a reduction of {1}, which would be initialised again in every piece.",
                    [loop, realize.block],
                    hint="decompose the reduction first",
                )
        _check_below(state, loop, child, below)


def _first_block_name(stmt: Stmt) -> str:
    realizes = block_realizes_below(stmt)
    return str(realizes[0].block.name_hint)


class LoopPartition(Step):
    """One loop into consecutive pieces."""

    many_outputs = takes_pieces = True

    loop: LoopRV = operand()
    factors: Sequence[Argument] = operand(rest=True)
    preserve_unit_iters: bool

    def run(self, sch: Schedule) -> Sequence[Output]:
        loop = sch.sref(self.loop)
        return list(partition_loop(sch.state, loop, _piece_ends(loop, self.factors, sch.value_of)))


def _piece_ends(loop: StmtSRef, factors: Sequence[Any], value_of: Callable[[Any], Any]) -> list[Any]:
    """Where each piece ends; without an open factor the rest of the loop is a piece of its own."""
    node = checks.check_loop(loop)
    if not isinstance(node.min, IntImm) or not isinstance(node.extent, IntImm):
        raise PrimitiveError("Detected dynamic shape in either min or extent of a loop {0}", [loop])
    sizes: list[Any] = []
    open_at = None
    total: Any = const(0, node.loop_var.dtype)
    for index, factor in enumerate(factors):
        value = None if factor is None else value_of(factor)
        if value is None:
            if open_at is not None:
                raise PrimitiveError("Only one factor can be specified as -1 or none")
            open_at = index
        else:
            if isinstance(value, IntImm) and value.value <= 0:
                raise not_positive(index, value.value)
            value = fit(value, node.loop_var.dtype)
            total = total + value
        sizes.append(value)
    analyzer = Analyzer()
    if analyzer.can_prove(total >= node.extent):
        raise PrimitiveError("The sum of factors is larger than or equal to the extent of loop {0}", [loop])
    rest = node.extent - total
    ends: list[Any] = []
    for size in sizes:
        size = rest if size is None else size
        ends.append(analyzer.simplify((ends[-1] if ends else node.min) + size))
    return ends if open_at is not None else [*ends, analyzer.simplify(node.min + node.extent)]
