"""read_at and write_at: one block that moves a whole region of a buffer, placed under a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import Range
from ....ir.prim import const
from ...expr import BufferLoad, IntImm, IterVar, Var
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt, stmt_list
from .. import checks
from ..block_info import contains, loop_ranges
from ..buffers import compact, with_scope
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..region import Box, box_to_ranges, may_be_left_out, relax_region, union_sets
from ..rewrite import BufferSwap, ScopeRewriter
from ..sref import StmtSRef
from ..walk import block_realizes_below, vars_in
from .cache import begins, check_scope_name, check_starts_afresh
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class _Move:
    """The parts of a loop's body that use the buffer, and what they use of it."""

    def __init__(
        self, state: ScheduleState, loop_sref: StmtSRef, block: StmtSRef, index: int, storage_scope: str, reading: bool
    ) -> None:
        check_scope_name(storage_scope)
        self.state, self.loop_sref, self.reading = state, loop_sref, reading
        self.loop = checks.check_loop(loop_sref)
        checks.check_block(block)
        self.buffer = checks.nth_buffer(block, index, write=not reading)
        self.staged = compact(with_scope(self.buffer, storage_scope))
        self.parts = stmt_list(self.loop.body)
        self.analyzer = Analyzer()
        for var, dom in loop_ranges(loop_sref).items():
            self.analyzer.bind(var, dom)
        self.box: Box | None = None
        self.written: Box | None = None
        self.readers: list[int] = []
        self.writers: list[int] = []
        for position, part in enumerate(self.parts):
            self._scan(position, part)
        self.position, self.redirected = self._place()

    def _scan(self, position: int, part: Stmt) -> None:
        for realize in block_realizes_below(part):
            node = realize.block
            for places, regions in ((self.readers, node.reads), (self.writers, node.writes)):
                if any(r.buffer is self.buffer for r in regions) and position not in places:
                    places.append(position)
            for region in node.reads if self.reading else node.writes:
                if region.buffer is self.buffer:
                    self._relax(region, realize)

    def _relax(self, region: BufferRegion, realize: BlockRealize) -> None:
        sref = self.state.stmt2ref[realize.block]
        unguarded = realize.with_fields(predicate=const(True, "bool"))
        seen = relax_region(
            region, sref, self.loop_sref, self.analyzer, realize=unguarded, extra_scope=self.staged.scope()
        )
        assert seen is not None
        self.box = seen if self.box is None else union_sets(self.box, seen, self.analyzer)
        if not self.reading:
            scope = self.staged.scope()
            sure = relax_region(region, sref, self.loop_sref, self.analyzer, True, realize, scope)
            if sure is not None and not may_be_left_out(realize, sref, self.loop_sref, self.analyzer, scope):
                self.written = sure if self.written is None else union_sets(self.written, sure, self.analyzer)

    def _place(self) -> tuple[int, range]:
        """Where the copy goes, and which parts use it."""
        if self.reading:
            if not self.readers or (self.writers and self.writers[-1] >= self.readers[0]):
                raise PrimitiveError(
                    f"The loop {{0}} writes {self.buffer.name} after it is first read there.", [self.loop_sref]
                )
            return self.readers[0], range(self.readers[0], len(self.parts))
        if not self.writers or (self.readers and self.readers[-1] > self.writers[-1]):
            raise PrimitiveError(
                f"The loop {{0}} reads {self.buffer.name} after it is last written there.", [self.loop_sref]
            )
        return self.writers[-1] + 1, range(self.writers[-1] + 1)

    def run(self) -> StmtSRef:
        """Insert the copying block; gives it."""
        swap = BufferSwap({self.buffer: self.staged})
        parts = [swap.visit(p) if i in self.redirected else p for i, p in enumerate(self.parts)]
        assert self.box is not None
        self._check_in_bounds(self.box)
        copy = self._copy(box_to_ranges(self.box, self.analyzer))
        parts.insert(self.position, copy)
        new_loop = self.loop.with_fields(body=SeqStmt(parts))
        scope = checks.scope_root(self.state, self.loop_sref, require_stage_pipeline=True)
        if not self.reading:
            for writer in self.state.get_block_scope(scope).buffer_writers.get(self.buffer, ()):
                check_starts_afresh(self.state, writer, scope, self.buffer)
            self._check_reads_own()
        rewriter = _Replace(self.loop, new_loop)
        old = scope.stmt
        new = old.with_fields(body=rewriter.visit(old.body), alloc_buffers=(*old.alloc_buffers, self.staged))
        self.state.replace(scope, new, {**swap.reuse, old: new})
        made = self.state.stmt2ref[copy.block]
        self.state.mark_new_block(made)
        return made

    def _check_reads_own(self) -> None:
        """Refuse to redirect reads of what was written before this iteration: the new buffer does not hold it."""
        written = False
        for child in self.state.child_blocks(self.loop_sref):
            if not written and not begins(self.state, child, self.buffer):
                raise PrimitiveError(
                    f"The block {{0}} reads {self.buffer.name} before loop {{1}} writes it.", [child, self.loop_sref]
                )
            written = written or any(r.buffer is self.buffer for r in child.stmt.writes)

    def _check_in_bounds(self, box: Box) -> None:
        """Refuse a region known to leave the buffer: what guards the accesses would not guard the copy.

        And a copy out must not copy what was never written.
        """
        if not self.reading:
            written = self.written
            if written is None or not contains(written, box, self.buffer.shape, self.analyzer):
                raise PrimitiveError(
                    f"Not all of the region of {self.buffer.name} is sure to be written below loop {{0}}.",
                    [self.loop_sref],
                )
        bounds = self.analyzer.const_int_bound
        for (low, high), extent in zip(box, self.buffer.shape, strict=True):
            if isinstance(extent, IntImm) and (bounds.bound(low)[0] < 0 or bounds.bound(high)[1] >= extent.value):
                raise PrimitiveError(
                    f"The region [{low}, {high}] of {self.buffer.name} used below loop {{0}} leaves the buffer.",
                    [self.loop_sref],
                )

    def _copy(self, domain: Sequence[Range]) -> BlockRealize:
        """A block over the loops that the region depends on, with a loop nest that copies the region inside."""
        ranges = loop_ranges(self.loop_sref)
        used = [v for v in vars_in(tuple(domain)) if v in ranges]
        iters = [IterVar(ranges[v], Var(f"v{i}", v.dtype), IterVar.DataPar) for i, v in enumerate(used)]
        inside = dict(zip(used, [iv.var for iv in iters], strict=True))
        region = [Range.from_min_extent(substitute(r.min, inside), substitute(r.extent, inside)) for r in domain]
        loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(region)]
        indices = [r.min + v for r, v in zip(region, loops, strict=True)]
        source, target = (self.buffer, self.staged) if self.reading else (self.staged, self.buffer)
        body: Any = BufferStore(target, BufferLoad(source, indices), indices)
        for var, dim in reversed(list(zip(loops, region, strict=True))):
            body = For(var, const(0, var.dtype), dim.extent, ForKind.SERIAL, body)
        block = Block(
            iters,
            (BufferRegion(source, region),),
            (BufferRegion(target, region),),
            self.staged.name,
            body,
            annotations={"auto_copy": IntImm("int32", 1)},
        )
        return BlockRealize(tuple(used), const(True, "bool"), block)


class _Replace(ScopeRewriter):
    """Exchanges one loop."""

    def __init__(self, old: For, new: For) -> None:
        super().__init__()
        self.old, self.new = old, new

    def visit_For(self, node: For) -> Stmt:
        return self.new if node is self.old else super().visit_For(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return node


class _AtLoop(Step):
    reading = True

    loop: LoopRV = operand()
    block: BlockRV = operand()

    def _moved(self, sch: Schedule, index: int, scope: str) -> Sequence[Output]:
        return [_Move(sch.state, sch.sref(self.loop), sch.sref(self.block), index, str(scope), self.reading).run()]


class ReadAt(_AtLoop):
    """A copy of what is read below a loop, at its beginning."""

    read_buffer_index: int
    storage_scope: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._moved(sch, self.read_buffer_index, self.storage_scope)


class WriteAt(_AtLoop):
    """A copy of what is written below a loop, at its end."""

    reading = False

    write_buffer_index: int
    storage_scope: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._moved(sch, self.write_buffer_index, self.storage_scope)
