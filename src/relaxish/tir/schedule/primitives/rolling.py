"""rolling_buffer: a circular buffer that keeps what neighbouring tiles share, so that it is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import const
from ...analysis.block_access import get_block_read_write_region
from ...buffer import Buffer
from ...expr import BufferLoad, FloorDiv, FloorMod, IntImm, IterVar, Mul, Var
from ...functor import substitute
from ...op import all as tir_all
from ...op import any as tir_any
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, Stmt
from .. import checks
from ..block_info import covered
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..region import box_to_ranges, relax_region
from ..sref import DepKind, StmtSRef
from ..subst import realize_of
from ..walk import vars_in
from .compute_at import lowest_common_ancestor
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Axis(NamedTuple):
    """How a dimension of the region moves: by the iterations of ``var``, which share ``overlap`` elements."""

    var: Var | None
    overlap: int


def _axis(dim: Range) -> _Axis | None:
    """What moves a dimension; None when that cannot be told."""
    low: Any = dim.min
    if not isinstance(dim.extent, IntImm):
        return None
    if isinstance(low, IntImm):
        return _Axis(None, 0)
    divisor = 1
    if isinstance(low, FloorDiv) and isinstance(low.b, IntImm):
        low, divisor = low.a, int(low.b.value)
        if not isinstance(low, Mul):
            return None
    match low:
        case Var():
            var, step = low, 1
        case Mul() if isinstance(low.a, Var) and isinstance(low.b, IntImm):
            var, step = low.a, -(-int(low.b.value) // divisor)
        case _:
            return None
    overlap = int(dim.extent.value) - step
    # Without overlap there is nothing to keep; compacting the buffer is another pass's work.
    return _Axis(var if overlap > 0 else None, overlap)


class _Roll(Mutator):
    """Wraps the accesses around and skips what an earlier iteration computed."""

    def __init__(
        self, scope: Block, writer: Block, old: Buffer, new: Buffer, axes: Sequence[_Axis], rolling: int
    ) -> None:
        self.scope, self.writer = scope, writer
        self.old, self.new, self.axes, self.rolling = old, new, axes, rolling
        self.extent = new.shape[rolling]
        self.reuse: dict[Any, Any] = {}

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.new if node is self.old else node

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def _wrap(self, indices: Sequence[Any]) -> list[Any]:
        return [FloorMod(i, self.extent) if k == self.rolling else i for k, i in enumerate(indices)]

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        indices = self.visit(node.indices)
        if node.buffer is self.old:
            return BufferLoad(self.new, self._wrap(indices))
        return node if indices is node.indices else node.with_fields(indices=indices)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        value, indices = self.visit(node.value), self.visit(node.indices)
        if node.buffer is not self.old:
            return node.with_fields(value=value, indices=indices)
        return BufferStore(self.new, value, self._wrap(indices))

    def visit_Block(self, node: Block) -> Stmt:
        made = self.default_visit(node)
        if node is not self.scope:
            carried = self._carried(node)
            made = made.with_fields(
                iter_vars=tuple(
                    IterVar(iv.dom, iv.var, IterVar.Opaque) if iv.var in carried else iv for iv in made.iter_vars
                )
            )
        if node is not self.scope and any(r.buffer is self.old for r in (*node.reads, *node.writes)):
            found = get_block_read_write_region(made, {self.new.data: self.new})
            kept = []
            for declared, seen in zip((made.reads, made.writes), found, strict=True):
                mine = next((r for r in seen if r.buffer is self.new), None)
                kept.append(tuple(mine if r.buffer is self.old and mine is not None else r for r in declared))
            made = made.with_fields(reads=kept[0], writes=kept[1])
        if made is not node:
            self.reuse[node] = made
        return made

    def _carried(self, block: Block) -> set[Any]:
        """The variables of the rolling axis count as opaque: each of their values builds on all before."""
        region = next((r for r in block.writes if r.buffer is self.old), None)
        if region is not None:
            return set(vars_in(region.region[self.rolling].min))
        # A reduction variable stays one: the block knows by it when to begin anew.
        return {iv.var for iv in block.iter_vars[self.rolling : self.rolling + 1] if iv.iter_type == IterVar.DataPar}

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        made = self.default_visit(node)
        if node.block is not self.writer:
            return made
        # A block inside the writer knows nothing of the loops that bring the overlap about.
        condition = made.predicate
        analyzer = Analyzer()
        bound = {iv.var: value for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True)}
        region = next(r for r in node.block.writes if r.buffer is self.old)
        for axis, dim in zip(self.axes, region.region, strict=True):
            if axis.var is None:
                continue
            value = substitute(dim.min, bound)
            at_start = analyzer.simplify(substitute(value, {axis.var: const(0, axis.var.dtype)}))
            fresh = tir_any(axis.var < 1, at_start >= const(axis.overlap, at_start.dtype))
            condition = analyzer.simplify(tir_all(condition, fresh))
        return made.with_fields(predicate=condition)


def rolling_buffer(state: ScheduleState, sref: StmtSRef, index: int) -> None:
    """Make the buffer a block writes circular along the outermost loop whose iterations overlap in it."""
    block = checks.check_block(sref)
    buffer = checks.nth_buffer(sref, index, write=True)
    scope = checks.scope_root(state, sref)
    checks.check_not_output(state, sref, scope)
    deps = state.get_block_scope(scope)
    for dep in (*deps.get_deps_by_src(sref), *deps.get_deps_by_dst(sref)):
        if dep.kind != DepKind.RAW:
            raise PrimitiveError("The target block {0} is required to have only RAW dependencies.", [sref])
    lca = lowest_common_ancestor([*checks.consumers_of(state, sref, scope), sref])
    if lca is None or not lca.is_loop:
        raise PrimitiveError(
            "rolling_buffer expects block {0} to be under a loop that its consumers share.",
            [sref],
            hint="move it there with compute_at first",
        )
    checks.check_runs_whole_domain(sref)
    _check_read_when_written(state, sref, scope)
    realize = realize_of(sref)
    unguarded = realize.with_fields(predicate=const(True, "bool"))
    box = relax_region(block.writes[index], sref, lca, Analyzer(), realize=unguarded)
    assert box is not None
    region = box_to_ranges(box, Analyzer())
    axes = [_axis(dim) for dim in region]
    rolling = _rolling_axis(sref, axes)
    if rolling is None or any(a is None for a in axes):
        raise PrimitiveError(
            "rolling_buffer expects the region block {0} writes to move with a loop of its own in steps smaller than "
            "itself.",
            [sref],
        )
    if not checks.is_one(block.writes[index].region[rolling].extent):
        raise PrimitiveError(
            "rolling_buffer expects block {0} to write one element of the rolling axis at a time, so that what is "
            "there already can be left out.",
            [sref],
        )
    shape = [region[i].extent if i == rolling else d for i, d in enumerate(buffer.shape)]
    new = buffer.with_fields(shape=tuple(shape))
    worker = _Roll(scope.stmt, block, buffer, new, [a for a in axes if a is not None], rolling)
    old = scope.stmt
    made = worker.visit(old)
    made = made.with_fields(alloc_buffers=tuple(new if b is buffer else b for b in old.alloc_buffers))
    state.replace(scope, made, {**worker.reuse, old: made})
    state.forget_flags()


def _check_read_when_written(state: ScheduleState, sref: StmtSRef, scope: StmtSRef) -> None:
    """Elements are computed in the first iteration that wants them only: what they need must be there by then."""
    producers = checks.producers_of(state, sref, scope)
    for region in sref.stmt.reads:
        writers = [p for p in producers if any(w.buffer is region.buffer for w in p.stmt.writes)]
        if state.enable_check and writers and not covered(state, sref, region, writers):
            raise PrimitiveError(
                f"The block {{0}} may read elements of {region.buffer.name} that {{1}} writes in a later iteration.",
                [sref, writers[0]],
            )


def _rolling_axis(sref: StmtSRef, axes: Sequence[_Axis | None]) -> int | None:
    """The dimension that the outermost of the loops moves."""
    for loop in checks.loops_above(sref):
        for position, axis in enumerate(axes):
            if axis is not None and axis.var is loop.stmt.loop_var:
                return position
    return None


class RollingBuffer(Step):
    """A circular buffer for what neighbouring tiles share."""

    block: BlockRV = operand()
    write_buffer_index: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        rolling_buffer(sch.state, sch.sref(self.block), self.write_buffer_index)
        return []
