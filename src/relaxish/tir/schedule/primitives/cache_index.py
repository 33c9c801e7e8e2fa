"""cache_index: index expressions computed once, ahead of the block, into small buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....arith import Analyzer, IntervalSet, eval_set
from ....arith.effects import CallEffectKind, side_effect
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, Visitor, post_order_visit
from ....ir.prim import const
from ....ir.structural import same_expression
from ...buffer import Buffer, decl_buffer
from ...expr import Broadcast, BufferLoad, IterVar, Ramp, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, stmt_list
from .. import checks
from ..block_info import loop_ranges
from ..instruction import Output, Step, operand
from ..rewrite import ScopeRewriter
from ..sref import StmtSRef
from ..subst import and_predicate, conjuncts, realize_of
from ..walk import Nodes, block_realizes_below, driving_loops, vars_in
from .cache import check_scope_name
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Computations:
    """The pure computations of a store with how often each is done, equivalent ones counted together."""

    def __init__(self, store: BufferStore, threshold: int) -> None:
        self.entries: list[tuple[PrimExpr, PrimExpr, int]] = []  # (expression, simplest form, count)
        self.analyzer = Analyzer()
        for expr in _largest((store.indices, store.value)):
            self._add(expr, 1)
        waiting = True
        while waiting:
            # What is too rare as a whole may occur often enough in parts; the largest first, so that counts add up.
            self.entries.sort(key=lambda entry: -_size(entry[0]))
            rare = next((e for e in self.entries if e[2] < threshold and e[2] >= 0), None)
            waiting = rare is not None
            if rare is not None:
                self.entries[self.entries.index(rare)] = (rare[0], rare[1], -1)
                for part in _largest(rare[0], below=True):
                    self._add(part, rare[2])

    def _add(self, expr: PrimExpr, count: int) -> None:
        simple = self.analyzer.simplify(expr)
        for position, (known, form, times) in enumerate(self.entries):
            if same_expression(form, simple):
                self.entries[position] = (known, form, max(times, 0) + count)
                return
        self.entries.append((expr, simple, count))

    def find(self, expr: PrimExpr) -> PrimExpr | None:
        """The computation that ``expr`` is, if it is often enough."""
        if not _eligible(expr):
            return None
        simple = self.analyzer.simplify(expr)
        return next((e for e, form, count in self.entries if count >= 0 and same_expression(form, simple)), None)


def _eligible(expr: PrimExpr) -> bool:
    return not isinstance(expr, (Ramp, Broadcast)) and _size(expr) > 1 and side_effect(expr) <= CallEffectKind.Pure


def _largest(node: Nodes, below: bool = False) -> list[PrimExpr]:
    """The eligible expressions in ``node`` that are not part of another one; ``below`` leaves out itself."""
    found: list[PrimExpr] = []

    class Collect(Visitor):
        def visit_Buffer(self, node: Buffer) -> None:
            pass

        def visit_PrimExpr(self, inner: PrimExpr) -> None:
            if _eligible(inner) and not (below and inner is node):
                found.append(inner)
            else:
                self.default_visit(inner)

    Collect().visit(node)
    return found


def _size(expr: PrimExpr) -> int:
    count = 0

    class Count(Visitor):
        def visit_PrimExpr(self, node: PrimExpr) -> None:
            nonlocal count
            count += 1
            self.default_visit(node)

        def visit_Buffer(self, node: Buffer) -> None:
            pass

    Count().visit(expr)
    return count


def _expressions(block: Block, threshold: int) -> list[PrimExpr]:
    """What to compute ahead, the largest first: what a stored value computes at least ``threshold`` times."""
    out: list[PrimExpr] = []

    class Stores(Visitor):
        def visit_BufferStore(self, node: BufferStore) -> None:
            done = _Computations(node, threshold)

            def note(expr: PrimExpr | Buffer) -> None:
                known = done.find(expr) if isinstance(expr, PrimExpr) else None
                if known is not None and not any(known is e for e in out):
                    out.append(known)

            post_order_visit(node.value, note)
            out.sort(key=_size, reverse=True)

    Stores().visit(block.body)
    own = {iv.var for iv in block.iter_vars}
    return [e for e in out if vars_in(e) and all(v in own for v in vars_in(e))]


class _Load(Mutator):
    """Replaces the cached expressions by loads."""

    def __init__(self, pairs: Sequence[tuple[PrimExpr, PrimExpr]]) -> None:
        self.analyzer = Analyzer()
        self.pairs = [(self.analyzer.simplify(expr), load) for expr, load in pairs]

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        if _eligible(node):
            simple = self.analyzer.simplify(node)
            for form, load in self.pairs:
                if same_expression(form, simple):
                    return load
        return self.default_visit(node)


class _Staged(NamedTuple):
    """An expression computed ahead: the nest, its block, the load that stands for it, the buffer."""

    nest: Any
    block: Block
    load: PrimExpr
    buffer: Buffer


def _stage(expr: PrimExpr, sref: StmtSRef, number: int, storage_scope: str) -> _Staged:
    """Loops like those that drive the variables of the expression, around a block that stores it."""
    realize = realize_of(sref)
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    bound = dict(zip(doms, realize.iter_values, strict=True))
    used = list(vars_in(expr))
    loops = [s.stmt for s in checks.loops_above(sref)]
    ranges = loop_ranges(sref.parent)
    sets = {var: IntervalSet(r.min, r.min + r.extent - 1) for var, r in ranges.items()}
    analyzer = Analyzer()
    places = [eval_set(bound[v], sets) for v in used]
    buffer = decl_buffer(
        [reached.max_value + 1 for reached in places],
        expr.dtype,
        f"index_var_{number}",
        strides=[1],
        scope="" if storage_scope == "global" else storage_scope,
    )
    first = [v for v in vars_in(tuple(bound[v] for v in used)) if v in ranges]
    guards: list[PrimExpr] = []
    if not all(analyzer.can_prove(reached.min_value >= 0) for reached in places):  # what is left out indexes nothing
        driving = set(vars_in(tuple(bound[v] for v in used)))  # an outer block's variables among them
        guards = [t for t in conjuncts(realize.predicate) if not driving.isdisjoint(vars_in(t))]
        first = list(dict.fromkeys([*first, *(v for t in guards for v in vars_in(t) if v in ranges)]))
    nest = driving_loops(loops, first)
    if len(nest) == len(first) and not any(v in ranges for n in nest for v in vars_in((n.min, n.extent))):
        nest.sort(key=lambda n: first.index(n.loop_var))
    renamed = {v: Var(f"ax{i}", v.dtype) for i, v in enumerate([n.loop_var for n in nest])}
    iters = [IterVar(doms[v], Var(f"v{i}", v.dtype), IterVar.DataPar) for i, v in enumerate(used)]
    indices = [iv.var for iv in iters]
    value = substitute(expr, dict(zip(used, indices, strict=True)))
    region = BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices))
    made = Block(iters, (), (region,), f"index_{number}", BufferStore(buffer, value, indices))
    guard: Any = const(True, "bool")
    for term in guards:
        guard = and_predicate(guard, substitute(term, renamed))
    body: Any = BlockRealize(tuple(substitute(bound[v], renamed) for v in used), guard, made)
    for n in reversed(nest):
        low, extent = substitute(n.min, renamed), substitute(n.extent, renamed)
        body = For(renamed[n.loop_var], low, extent, ForKind.SERIAL, body)
    return _Staged(body, made, BufferLoad(buffer, used), buffer)


class _Insert(ScopeRewriter):
    def __init__(self, old: Block, new: Block) -> None:
        super().__init__()
        self.old, self.new = old, new

    def rewrite_block(self, node: Block) -> Block:
        return self.new if node is self.old else node


def cache_index(state: ScheduleState, sref: StmtSRef, storage_scope: str, threshold: int) -> list[StmtSRef]:
    """Compute index expressions of a block ahead of it; gives the computing blocks."""
    check_scope_name(storage_scope)
    block = checks.check_block(sref)
    scope = checks.scope_root(state, sref)
    expressions = _expressions(block, threshold)
    stages = [_stage(e, sref, i, storage_scope) for i, e in enumerate(expressions)]
    if not stages:
        return []
    worker = _Load([(e, s.load) for e, s in zip(expressions, stages, strict=True)])
    made = block.with_fields(body=worker.visit(block.body))
    rewriter = _Insert(block, made)
    old = scope.stmt
    parts = stmt_list(old.body)
    at = next(i for i, p in enumerate(parts) if any(r.block is block for r in block_realizes_below(p)))
    parts = [rewriter.visit(p) for p in parts]
    parts = [*parts[:at], *[s.nest for s in stages], *parts[at:]]
    allocs = (*old.alloc_buffers, *[s.buffer for s in stages])
    new = old.with_fields(body=SeqStmt(parts), alloc_buffers=allocs)
    state.replace(scope, new, {**rewriter.reuse, old: new})
    out = [state.stmt2ref[s.block] for s in stages]
    for one in out:
        state.mark_new_block(one)
    return out


class CacheIndex(Step):
    """Index expressions computed ahead."""

    many_outputs = True

    block: BlockRV = operand()
    storage_scope: str
    cse_thresh: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        return list(cache_index(sch.state, sch.sref(self.block), str(self.storage_scope), self.cse_thresh))
