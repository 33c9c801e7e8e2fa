"""rfactor: a reduction as partial results per iteration of one loop, and their final reduction.

Source: Suriana, Adams and Kamil, "Parallel associative reductions in Halide" (CGO 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.prim import const
from ...buffer import Buffer
from ...expr import BufferLoad, IterVar, Var
from ...functor import substitute
from ...op import if_then_else
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, LetStmt, Stmt
from .. import checks
from ..buffers import compact, derived_buffer
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..rewrite import ScopeRewriter
from ..sref import StmtSRef
from ..subst import and_predicate, conjuncts, realize_of
from ..walk import block_realizes_below, seq_or_single, uses_var, vars_in
from .reducers import Reducer
from .reduction import copy_var
from ..rv import LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def _stores(buffers: Sequence[Any], values: Sequence[Any], indices: Sequence[Any]) -> Stmt:
    """The stores of a (possibly tuple) reduction; tuple values are computed before any is stored."""
    if len(buffers) == 1:
        return BufferStore(buffers[0], values[0], indices)
    names = [Var(f"v_{b.name}", b.dtype) for b in buffers]
    body: Any = seq_or_single(BufferStore(b, v, indices) for b, v in zip(buffers, names, strict=True))
    for name, value in reversed(list(zip(names, values, strict=True))):
        body = LetStmt(name, value, body)
    return body


def _points(indices: Sequence[Any]) -> tuple[Range, ...]:
    return tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices)


class _Factor:
    """One rfactor: everything both new blocks share."""

    def __init__(self, state: ScheduleState, loop_sref: StmtSRef, factor_axis: int) -> None:
        self.loop = checks.check_loop(loop_sref)
        children = state.child_blocks(loop_sref)
        if len(children) != 1:
            raise PrimitiveError("The loop {0} must have exactly one block below it.", [loop_sref])
        self.block_sref = children[0]
        self.block = self.block_sref.stmt
        self.realize = realize_of(self.block_sref)
        self.scope = checks.scope_root(state, self.block_sref, require_stage_pipeline=True)
        checks.check_reduction_block(state, self.block_sref, self.scope)
        self.loops = [s.stmt for s in checks.loops_above(self.block_sref)]
        self.reduce_vars = self._classify(loop_sref)
        self.reducer = Reducer(self.block_sref)
        rank = len(self.reducer.buffers[0].shape)
        if not -(rank + 1) <= factor_axis <= rank:
            raise PrimitiveError(
                f"The factor axis {factor_axis} is out of range [-{rank + 1}, {rank}] for the output of {{0}}.",
                [self.block_sref],
            )
        self.axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
        self.buffers = [self._rf_buffer(b) for b in self.reducer.buffers]

    def _classify(self, loop_sref: StmtSRef) -> set[Any]:
        data: set[Any] = set()
        reduce: set[Any] = set()
        for iv, value in zip(self.block.iter_vars, self.realize.iter_values, strict=True):
            (data if iv.iter_type == IterVar.DataPar else reduce).update(vars_in(value))
        if self.loop.kind != ForKind.SERIAL:
            raise PrimitiveError("The loop {0} to be factored is not serial.", [loop_sref])
        if self.loop.loop_var not in reduce:
            raise PrimitiveError("The loop {0} is not a reduction loop.", [loop_sref])
        for node in self.loops:
            if node.loop_var in data and node.loop_var in reduce:
                raise PrimitiveError("The loop {0} drives both data-parallel and reduction variables.", [node])
        first = block_realizes_below(self.loops[0])[0]
        if first.block is not self.block:
            raise PrimitiveError(
                "The first block under the outermost loop {0} is not the reduction block.", [loop_sref]
            )
        if not checks.is_zero(self.loop.min):
            raise PrimitiveError("The loop {0} does not start at zero.", [loop_sref])
        return {node.loop_var for node in self.loops if node.loop_var in reduce}

    def _rf_buffer(self, buffer: Buffer) -> Buffer:
        extent = self.loop.extent
        if buffer.shape and buffer.shape[0].dtype != extent.dtype and hasattr(extent, "value"):
            extent = const(extent.value, buffer.shape[0].dtype)
        shape = (*buffer.shape[: self.axis], extent, *buffer.shape[self.axis :])
        return compact(derived_buffer(buffer, buffer.name + "_rf", shape=shape, strides=()))

    def _insert(self, indices: Sequence[Any], extra: Range | PrimExpr) -> tuple[Any, ...]:
        return (*indices[: self.axis], extra, *indices[self.axis :])

    def _loop_iter(self, node: For, kind: int) -> IterVar:
        dom = Range.from_min_extent(node.min, node.extent)
        return IterVar(dom, Var("v" + node.loop_var.name, node.loop_var.dtype), kind)

    def rf_nest(self) -> tuple[Any, Block]:
        """The block of partial results under copies of all loops."""
        extra = self._loop_iter(self.loop, IterVar.DataPar)
        iter_vars = [extra]
        values: list[Any] = [self.loop.loop_var]
        binding: dict[Any, Any] = {self.loop.loop_var: extra.var}
        var_map: dict[Any, Any] = {}
        by_var = {n.loop_var: n for n in self.loops}
        for iv, value in zip(self.block.iter_vars, self.realize.iter_values, strict=True):
            if iv.iter_type == IterVar.DataPar or self.loop.loop_var not in vars_in(value):
                iter_vars.append(iv)
                values.append(value)
                continue
            for var in vars_in(value):
                if var in by_var and var not in binding:
                    made = self._loop_iter(by_var[var], IterVar.CommReduce)
                    binding[var] = made.var
                    iter_vars.append(made)
                    values.append(var)
            var_map[iv.var] = substitute(value, binding)
        predicate, guards = self._guards(binding)
        sources = [substitute(r, var_map) for r in self.reducer.rhs]
        for guard in guards:
            pairs = zip(sources, self.reducer.identities, strict=True)
            sources = [if_then_else(guard, source, identity) for source, identity in pairs]
        block = self._reduction_block(
            self.block.name_hint + "_rf",
            iter_vars,
            var_map,
            self.buffers,
            self._insert(self.reducer.indices, extra.var),
            sources,
            (tuple(substitute(r, var_map) for r in self.block.reads), self._rf_writes(extra.var, var_map)),
        )
        renamed = {n.loop_var: copy_var(n.loop_var, "") for n in self.loops}
        body: Any = BlockRealize(tuple(substitute(v, renamed) for v in values), substitute(predicate, renamed), block)
        for n in reversed(self.loops):
            body = n.with_fields(
                loop_var=renamed[n.loop_var],
                min=substitute(n.min, renamed),
                extent=substitute(n.extent, renamed),
                body=body,
            )
        return body, block

    def _guards(self, binding: dict[Any, Any]) -> tuple[Any, list[Any]]:
        """What of the predicate the block of partial results keeps, and what becomes a condition on its values.

        Where a term leaves some partial result without one single update, nobody would initialise it either.
        """
        analyzer = Analyzer()
        for node in self.loops:
            analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
        first = {n.loop_var: n.min for n in self.loops if n.loop_var in self.reduce_vars and n is not self.loop}
        kept: Any = const(True, "bool")
        guards = []
        for term in conjuncts(self.realize.predicate):
            names = vars_in(term)
            if self.loop.loop_var not in names or analyzer.can_prove(substitute(term, first)):
                kept = and_predicate(kept, term)
                continue
            unbound = [v for v in names if v not in binding and any(n.loop_var is v for n in self.loops)]
            if unbound:
                raise PrimitiveError(
                    f"The predicate of {{0}} compares the loop to be factored with {unbound[0].name}; factor before "
                    "these loops are fused.",
                    [self.block_sref],
                )
            guards.append(substitute(term, binding))
        return kept, guards

    def _reduction_block(
        self,
        name: str,
        iter_vars: Sequence[IterVar],
        var_map: Mapping[Var, PrimExpr],
        buffers: Sequence[Any],
        indices: Sequence[Any],
        rhs: Sequence[Any],
        regions: tuple[tuple[Any, ...], tuple[Any, ...]],
    ) -> Block:
        """A block that reduces ``rhs`` into ``buffers``; if it has no reduction variable it just stores them."""
        indices = tuple(substitute(i, var_map) for i in indices)
        reads, writes = regions
        init: Any = None
        if any(iv.iter_type == IterVar.CommReduce for iv in iter_vars):
            own = [BufferLoad(b, indices) for b in buffers]
            body = _stores(buffers, self.reducer.combine(own, rhs), indices)
            identities = zip(buffers, self.reducer.identities, strict=True)
            init = seq_or_single(BufferStore(b, v, indices) for b, v in identities)
        else:
            body = seq_or_single(BufferStore(b, v, indices) for b, v in zip(buffers, rhs, strict=True))
        return Block(tuple(iter_vars), reads, writes, name, body, init, annotations=dict(self.block.annotations))

    def _rf_writes(self, extra: Var, var_map: Mapping[Var, PrimExpr]) -> tuple[Any, ...]:
        """What the block of partial results writes: the old regions with one more dimension."""
        new_of = dict(zip(self.reducer.buffers, self.buffers, strict=True))
        made = []
        for old in self.block.writes:
            ranges = tuple(substitute(r, var_map) for r in old.region)
            made.append(BufferRegion(new_of[old.buffer], self._insert(ranges, _points((extra,))[0])))
        return tuple(made)

    def write_back(self) -> BlockRealize:
        """The block that reduces the partial results; it stands where the old block stood."""
        extra = self._loop_iter(self.loop, IterVar.CommReduce)
        iter_vars = [extra]
        values: list[Any] = [self.loop.loop_var]
        var_map: dict[Any, Any] = {}
        for iv, value in zip(self.block.iter_vars, self.realize.iter_values, strict=True):
            if iv.iter_type == IterVar.DataPar:
                made = IterVar(iv.dom, copy_var(iv.var, ""), iv.iter_type, iv.thread_tag)
                var_map[iv.var] = made.var
                iter_vars.append(made)
                values.append(value)
        indices = [substitute(i, var_map) for i in self.reducer.indices]
        source = self._insert(indices, extra.var)
        partial = [BufferLoad(b, source) for b in self.buffers]
        reads = tuple(BufferRegion(b, _points(source)) for b in self.buffers)
        writes = tuple(BufferRegion(b, _points(indices)) for b in self.reducer.buffers)
        block = self._reduction_block(
            self.block.name_hint,
            iter_vars,
            var_map,
            self.reducer.buffers,
            self.reducer.indices,
            partial,
            (reads, writes),
        )
        predicate: Any = const(True, "bool")
        for term in conjuncts(self.realize.predicate):
            if not any(v in self.reduce_vars for v in vars_in(term)):
                predicate = and_predicate(predicate, term)
        return BlockRealize(tuple(values), predicate, block)


class _Place(ScopeRewriter):
    def __init__(self, factor: _Factor, nest: For, write_back: BlockRealize) -> None:
        super().__init__()
        self.factor, self.nest, self.write_back = factor, nest, write_back
        self.gone = factor.reduce_vars - {factor.loop.loop_var}

    def visit_For(self, node: For) -> Stmt:
        kept = self.within(node)
        made = kept.body if node.loop_var in self.gone else kept
        if node is self.factor.loops[0]:
            return seq_or_single([self.nest, made])
        return made

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if node is self.factor.realize:
            self.reuse[node.block] = self.write_back.block
            return self.write_back
        self._check_independent(node)
        return node

    def _check_independent(self, node: BlockRealize) -> None:
        """A block that follows the reduction under its loops stays there, without those that only reduce."""
        if uses_var(node, self.gone.__contains__):
            raise PrimitiveError(
                "{0} depends on a loop that only the reduction {1} is to keep.", [node.block, self.factor.block_sref]
            )


class RFactor(Step):
    """Partial results per iteration of one reduction loop."""

    loop: LoopRV = operand()
    factor_axis: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        state = sch.state
        factor = _Factor(state, sch.sref(self.loop), self.factor_axis)
        nest, rf_block = factor.rf_nest()
        rewriter = _Place(factor, nest, factor.write_back())
        old = factor.scope.stmt
        new = old.with_fields(body=rewriter.visit(old.body), alloc_buffers=(*old.alloc_buffers, *factor.buffers))
        state.replace(factor.scope, new, {**rewriter.reuse, old: new})
        made = state.stmt2ref[rf_block]
        state.mark_new_block(made)
        return [made]
