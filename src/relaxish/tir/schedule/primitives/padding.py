"""pad_einsum: the axes of a block rounded up, with padded copies of what it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import const
from ....ir.structural import same_expression
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad, IntImm, IterVar, Var
from ...op import all as tir_all
from ...op import ceildiv, if_then_else
from ...op import min as tir_min
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt, stmt_list
from .. import checks
from ..errors import PrimitiveError
from ..instruction import plain, Output, Step, operand
from ..rewrite import BufferSwap, ScopeRewriter
from ..sref import StmtSRef
from ..subst import realize_of
from ..walk import block_realizes_below, seq_or_single, vars_in
from .reindex import check_alone, check_covers, check_decides_itself, points
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def _check_einsum(sref: StmtSRef) -> None:
    """Demand that each buffer is accessed once, each dimension at a block variable or a constant."""
    seen: set[Any] = set()
    for region in (*sref.stmt.reads, *sref.stmt.writes):
        trivial = all(isinstance(r.min, (Var, IntImm)) and checks.is_one(r.extent) for r in region.region)
        if region.buffer in seen or not trivial:
            raise PrimitiveError(
                "The block {0} is not a computation of Einsum pattern: each of its buffers must be accessed at one "
                "place, each dimension at a block variable.",
                [sref],
            )
        seen.add(region.buffer)


def _check_results(sref: StmtSRef, extents: Mapping[Any, Any], analyzer: Analyzer) -> None:
    """Demand that padding only adds to the results: they are copied out whole, and each from one instance."""
    iters = {iv.var: iv for iv in sref.stmt.iter_vars}
    for region in sref.stmt.writes:
        places = [r.min for r in region.region]
        lost = [v for v, iv in iters.items() if v in extents and iv.iter_type == IterVar.DataPar and v not in places]
        if lost:
            raise PrimitiveError(
                f'The block variable "{lost[0].name}" of block {{0}} does not index {region.buffer.name}, so what is '
                "computed for its padding would overwrite results.",
                [sref],
            )
        if not any(place in extents for place in places if isinstance(place, Var)):
            continue
        check_covers(sref, [iv for var, iv in iters.items() if var in places])
        for place, dim in zip(places, region.buffer.shape, strict=True):
            covered = iters[place].dom.extent if place in iters else const(1, dim.dtype)
            if not analyzer.can_prove_equal(dim, covered):
                raise PrimitiveError(
                    f"The block {{0}} computes a part of {region.buffer.name} only, which cannot be padded.", [sref]
                )


def _check_summands(sref: StmtSRef, extents: Mapping[Any, Any]) -> None:
    """A longer reduction adds zeros only if it is a sum, and each term is zero where what its variable indexes is."""
    indices = {dim.min for region in sref.stmt.reads for dim in region.region if isinstance(dim.min, Var)}
    for iv in sref.stmt.iter_vars:
        if iv.iter_type != IterVar.CommReduce or iv.var not in extents:
            continue
        if iv.var not in indices:
            raise PrimitiveError(
                f'The reduction variable "{iv.var.name}" of block {{0}} indexes nothing that is read, so longer runs of it '
                "would add to the sum.",
                [sref],
            )
        if not _adds_nothing(sref.stmt, iv.var):
            raise PrimitiveError(
                f'The block {{0}} is no sum of terms that are zero where the padding along "{iv.var.name}" is.', [sref]
            )


def _adds_nothing(block: Block, var: Var) -> bool:
    """Whether the update is a sum and leaves it as it is if all that is read at ``var`` is zero."""

    class Zeros(Mutator):
        def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
            return const(0, node.dtype) if var in vars_in(tuple(node.indices)) else node

    update = block.body
    if not isinstance(update, BufferStore):
        return False
    before = BufferLoad(update.buffer, update.indices)
    return same_expression(Analyzer().simplify(Zeros().visit(update.value)), before)


def _check_own(sref: StmtSRef, region: BufferRegion) -> None:
    """The copy is of all of the buffer: more than what a block around says it accesses, where that takes part in it."""
    own = {iv.var: iv for iv in sref.stmt.iter_vars}
    places = [r.min for r in region.region if isinstance(r.min, Var)]
    if any(place not in own for place in places):
        raise PrimitiveError(f"An outer block decides which part of {region.buffer.name} block {{0}} accesses.", [sref])
    check_decides_itself(sref, [own[place] for place in places])


class _Copy(NamedTuple):
    """A buffer, its padded twin, and the shape of what the block used before it grew: the rest reads as zero."""

    buffer: Buffer
    padded: Buffer
    used: tuple[Any, ...]

    def nest(self, reading: bool, analyzer: Analyzer) -> tuple[Any, Block]:
        """The copy into the padded buffer (zeros outside) or out of it, and its block."""
        source, target = (self.buffer, self.padded) if reading else (self.padded, self.buffer)
        extents = target.shape
        iters = [
            IterVar(Range.from_min_extent(const(0, e.dtype), e), Var(f"v{i}", e.dtype), IterVar.DataPar)
            for i, e in enumerate(extents)
        ]
        indices = [iv.var for iv in iters]
        value: Any = BufferLoad(source, indices)
        if reading:
            pairs = zip(indices, self.used, self.padded.shape, strict=True)
            inside = tir_all(*[v < old for v, old, new in pairs if not analyzer.can_prove_equal(old, new)])
            value = if_then_else(inside, value, const(0, value.dtype))
        block = Block(
            tuple(iters),
            (BufferRegion(source, points(indices)),),
            (BufferRegion(target, points(indices)),),
            self.padded.name,
            BufferStore(target, value, indices),
        )
        loop_vars = [Var(f"i{i}", e.dtype) for i, e in enumerate(extents)]
        body: Any = BlockRealize(tuple(loop_vars), const(True, "bool"), block)
        for var, extent in reversed(list(zip(loop_vars, extents, strict=True))):
            body = For(var, const(0, var.dtype), extent, ForKind.SERIAL, body)
        return body, block


def _padded(region: BufferRegion, block: Block, extents: Mapping[Any, Any]) -> _Copy | None:
    """The padded twin of a buffer; None where no index is one of the variables that grew."""
    before: dict[Any, Any] = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.var in extents}
    places = [r.min for r in region.region]
    if not any(place in extents for place in places if isinstance(place, Var)):
        return None
    buffer = region.buffer
    shape = [
        IntImm(place.dtype, 1) if isinstance(place, IntImm) else extents.get(place, dim)
        for place, dim in zip(places, buffer.shape, strict=True)
    ]
    # A block that is padded again may ask for more than is there, where its own condition leaves it out.
    used = tuple(tir_min(before.get(place, dim), dim) for place, dim in zip(places, buffer.shape, strict=True))
    return _Copy(buffer, decl_buffer(shape, buffer.dtype, f"{buffer.name}_pad", scope=buffer.scope()), used)


class _Pad(ScopeRewriter):
    """Grows loops and block variables and exchanges the buffers."""

    def __init__(self, extents: Mapping[Any, Any], buffers: Mapping[Any, Any]) -> None:
        super().__init__()
        self.extents, self.swap = extents, BufferSwap(buffers)

    def visit_For(self, node: For) -> Stmt:
        made = super().visit_For(node)
        return made.with_fields(extent=self.extents.get(node.loop_var, node.extent))

    def rewrite_block(self, node: Block) -> Block:
        iters = [
            IterVar(Range.from_min_extent(iv.dom.min, self.extents[iv.var]), iv.var, iv.iter_type)
            if iv.var in self.extents
            else iv
            for iv in node.iter_vars
        ]
        return self.swap.default_visit(node).with_fields(iter_vars=tuple(iters))


def pad_einsum(state: ScheduleState, sref: StmtSRef, padding: Sequence[int]) -> None:
    """Round the axes of a block up, with padded copies of what it reads and writes."""
    block = checks.check_block(sref)
    scope = checks.scope_root(state, sref, require_stage_pipeline=True)
    if len(padding) != len(block.iter_vars) or any(p <= 0 for p in padding):
        raise PrimitiveError(
            f"The padding {list(padding)} must hold one positive number for each of the {len(block.iter_vars)} "
            "block variables of block {0}.",
            [sref],
        )
    check_alone(sref)
    _check_einsum(sref)
    analyzer = Analyzer()
    extents: dict[Any, Any] = {}
    for iv, value, factor in zip(block.iter_vars, realize_of(sref).iter_values, padding, strict=True):
        if not checks.is_zero(iv.dom.min):
            raise PrimitiveError(f'The values of "{iv.var.name}" in block {{0}} do not begin at zero.', [sref])
        rounded = analyzer.simplify(ceildiv(iv.dom.extent, factor) * factor)
        if not analyzer.can_prove_equal(iv.dom.extent, rounded):
            if not isinstance(value, Var):
                raise PrimitiveError(
                    f'The block variable "{iv.var.name}" of block {{0}} must be bound to a loop to be padded.', [sref]
                )
            extents[iv.var] = extents[value] = rounded
    _check_results(sref, extents, analyzer)
    _check_summands(sref, extents)
    for region in (*block.reads, *block.writes):
        if _padded(region, block, extents) is not None:
            _check_own(sref, region)
    read = [c for c in (_padded(r, block, extents) for r in block.reads) if c is not None]
    written = [c for c in (_padded(r, block, extents) for r in block.writes) if c is not None]
    worker = _Pad(extents, {c.buffer: c.padded for c in (*read, *written)})
    old = scope.stmt
    parts = stmt_list(old.body)
    at = next(i for i, part in enumerate(parts) if any(r.block is block for r in block_realizes_below(part)))
    before = [c.nest(True, analyzer) for c in read]
    after = [c.nest(False, analyzer) for c in written]
    parts[at : at + 1] = [*[nest for nest, _ in before], worker.visit(parts[at]), *[nest for nest, _ in after]]
    allocs = (*old.alloc_buffers, *[c.padded for c in (*read, *written)])
    new = old.with_fields(body=seq_or_single(parts), alloc_buffers=allocs)
    state.replace(scope, new, {**worker.reuse, old: new})
    for _, copy in (*before, *after):
        state.mark_new_block(state.stmt2ref[copy])


class PadEinsum(Step):
    """Axes of an einsum-like block rounded up to multiples."""

    block: BlockRV = operand()
    padding: Sequence[int]

    def run(self, sch: Schedule) -> Sequence[Output]:
        pad_einsum(sch.state, sch.sref(self.block), [int(x) for x in plain(self.padding)])
        return []
