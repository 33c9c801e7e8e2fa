"""merge and loop_partition: sibling loops made one, one loop made siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import Range
from ....ir.prim import const
from ...expr import IntImm, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, For, ForKind, SeqStmt
from .. import checks
from ..bindings import simplify_bindings
from ..block_info import contains, loop_ranges
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..region import relax_region
from ..sref import StmtSRef
from ..subst import substitute_loops
from ..walk import replace_stmts, seq_or_single
from .compute_at import lowest_common_ancestor
from .loops import check_plain_loop

if TYPE_CHECKING:
    from ..schedule import Schedule
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
            if not isinstance(above.stmt, For):
                raise PrimitiveError("The loop {0} is in another scope than the loops it is to merge with.", [loop])
            if above.stmt.body is not chain[0].stmt:
                raise PrimitiveError("The loop {0} is not the only child of {1}.", [chain[0], above])
            chain.insert(0, above)
        chains.append([c.stmt for c in chain])
    if not isinstance(lca.stmt.body, SeqStmt) or len({c[0] for c in chains}) != len(chains):
        raise PrimitiveError("The loops to merge are not in separate nests.", list(loops))
    first = chains[0]
    analyzer = Analyzer()
    for other in chains[1:]:
        if len(other) != len(first):
            raise PrimitiveError("The loops to merge are at different depths.", list(loops))
        for a, b in zip(first, other, strict=True):
            if not analyzer.can_prove_equal(a.extent, b.extent):
                raise PrimitiveError("The loops {0} and {1} have different extents.", [a, b])
    _check_dependences(state, loops, chains)
    names = ["_".join(c[level].loop_var.name for c in chains) + "_m" for level in range(len(first))]
    fresh = [Var(name, n.loop_var.dtype) for name, n in zip(names, first, strict=True)]
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
    parts = list(old.body.seq)
    tops = [next(i for i, p in enumerate(parts) if p is chain[0]) for chain in chains]
    kept = [body if i == tops[0] else p for i, p in enumerate(parts) if i == tops[0] or i not in tops]
    new = old.with_fields(body=seq_or_single(kept))
    state.replace(parent, new, reuse if isinstance(old, For) else {**reuse, old: new})
    node = body
    for _ in range(len(fresh) - 1):
        node = node.body
    return state.stmt2ref[node]


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
            if not _follows(dep.src, loops[before], same, consumer, loops[at], renamed, analyzer):
                raise PrimitiveError("{1} needs more of what {0} computes than is there in a merged loop.", [dep.src, consumer])


def _follows(
    producer: StmtSRef, above: StmtSRef, same: Any, consumer: StmtSRef, below: StmtSRef, renamed: Any, analyzer: Analyzer
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


@register_kind
class Merge(InstructionKind):
    """Sibling nests into one."""

    name, method, positional = "Merge", "merge", True
    inputs = ("loops*",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        if len(inputs) < 2:
            raise ValueError("'merge' requires at least 2 loop(s)")
        return [merge_loops(sch.state, [sch.sref(x) for x in inputs])], None


def partition_loop(state: ScheduleState, loop: StmtSRef, factors: Sequence[Any], keep_units: bool) -> list[StmtSRef]:
    """Run consecutive pieces of a loop one after another, each in a block of its own."""
    node = check_plain_loop(loop)
    checks.scope_root(state, loop)
    checks.check_compact_dataflow(state, loop)
    analyzer = Analyzer()
    starts = [const(0, node.loop_var.dtype)]
    for factor in factors:
        starts.append(analyzer.simplify(starts[-1] + factor))
    if not analyzer.can_prove(starts[-1] <= node.extent):
        raise PrimitiveError(f"The pieces add up to {starts[-1]}, more than the extent {node.extent} of {{0}}.", [loop])
    if not analyzer.can_prove_equal(starts[-1], node.extent):
        starts.append(node.extent)
    ranges = loop_ranges(loop.parent)
    pieces: list[Any] = []
    new_loops: list[For] = []
    for index, (begin, end) in enumerate(zip(starts, starts[1:], strict=False)):
        piece, made = _piece(node, index, begin, analyzer.simplify(end - begin), ranges, keep_units)
        pieces.append(piece)
        new_loops.append(made)
    common = Block((), (), (), f"{node.loop_var.name}_partition_common", seq_or_single(pieces))
    from ..rewrite import signature_of

    common = signature_of(common)
    whole = BlockRealize((), const(True, "bool"), common)
    parent = loop.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=replace_stmts(old.body, {id(node): whole}))
    state.replace(parent, new, {} if isinstance(old, For) else {old: new})
    return [state.stmt2ref[n] for n in new_loops]


def _piece(node: For, index: int, begin: Any, extent: Any, ranges: Any, keep_units: bool) -> tuple[Any, For]:
    from ..rewrite import signature_of
    from .reduction import copy_var

    name = f"{node.loop_var.name}_{index}"
    var = Var(name, node.loop_var.dtype)
    body = _fresh_copy(substitute_loops(node.body, {node.loop_var: var}), str(index), copy_var)
    made = For(var, begin, extent, ForKind.SERIAL, body)
    made = simplify_bindings(made, {**ranges, var: Range.from_min_extent(begin, extent)}, keep_units, {})
    block = signature_of(Block((), (), (), f"{name}_partition", made))
    return BlockRealize((), const(True, "bool"), block), made


def _fresh_copy(stmt: Any, suffix: str, copy_var: Any) -> Any:
    """A copy whose blocks and loops are new nodes with new variables."""
    from ...functor import _RenewDefs

    class Renew(_RenewDefs):
        def visit_Buffer(self, buffer: Any) -> Any:
            return buffer

        def visit_Block(self, block: Any) -> Any:
            made = super().visit_Block(block)
            return made.with_fields(name_hint=f"{block.name_hint}_{suffix}")

    return Renew().visit(stmt)


@register_kind
class LoopPartition(InstructionKind):
    """One loop into consecutive pieces."""

    name, method, many_outputs = "LoopPartition", "loop_partition", True
    inputs, attrs = ("loop", "factors*"), ("preserve_unit_iters",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        loop = sch.sref(inputs[0])
        node = checks.check_loop(loop)
        given = [None if f is None else sch.value_of(f) for f in inputs[1:]]
        if sum(f is None for f in given) > 1:
            raise PrimitiveError("Only one of the factors may be left open (None).", [loop])
        total: Any = const(0, node.loop_var.dtype)
        for f in given:
            if f is not None:
                total = total + f
        rest = Analyzer().simplify(node.extent - total)
        factors = [rest if f is None else f for f in given]
        for factor in factors:
            if isinstance(factor, IntImm) and factor.value <= 0:
                raise PrimitiveError(f"All pieces of a partition must be positive; got {factor.value}.", [loop])
        return list(partition_loop(sch.state, loop, factors, bool(plain(attrs[0])))), None
