"""cache_read, cache_write and their relatives: staging copies of buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor, all_nodes
from ....ir.prim import const, is_call_of
from ...buffer import Buffer
from ...expr import BufferLoad, IntImm, IterVar, Var
from ...op import all as tir_all
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, IfThenElse, Stmt, stmt_list
from .. import checks
from ..block_info import contains, loop_ranges
from ..buffers import compact, with_scope
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..region import Box, box_to_ranges, leaves_gaps, may_be_left_out, relax_region
from ..rewrite import BufferSwap, ScopeRewriter
from ..sref import DepKind, StmtSRef
from ..state import ScheduleState, blocks_in_order
from ..subst import realize_of
from ..walk import block_realizes_below, seq_or_single, unwrap
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule

__all__: list[str] = []


def region_of(regions: Sequence[BufferRegion], buffer: Buffer) -> BufferRegion | None:
    """The region of ``buffer`` among ``regions``."""
    return next((r for r in regions if r.buffer is buffer), None)


def only_writer(state: ScheduleState, scope: StmtSRef, buffer: Buffer) -> StmtSRef | None:
    """The one block of the scope that writes ``buffer``, None for an input of the scope."""
    writers = state.get_block_scope(scope).buffer_writers.get(buffer, [])
    if len(writers) > 1:
        raise PrimitiveError(
            f"The buffer {buffer.name} is expected to be written by single block, but got {len(writers)} blocks who "
            "write it in scope {0}.",
            [scope],
        )
    return writers[0] if writers else None


def full_region(buffer: Buffer) -> list[Range]:
    """All of a buffer."""
    return [Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape]


class Stage:
    """One staging copy: what is copied, into what, and how far indices shift when only ``region`` is held.

    Below a loop the staging buffer is as large as the original, since other iterations use other parts; directly in
    the scope block it holds just the region that the scope touches.
    """

    def __init__(self, buffer: Buffer, storage_scope: str, region: Sequence[Range], whole: bool, reading: bool) -> None:
        self.buffer, self.region, self.whole, self.reading = buffer, list(region), whole, reading
        self.name = f"{buffer.name}_{storage_scope}"
        self.staged = compact(with_scope(buffer, storage_scope))
        if not whole:
            self.staged = self.staged.with_fields(shape=tuple(r.extent for r in region))
        self.analyzer = Analyzer()

    def nest(self) -> tuple[Any, Block]:
        """Loops that copy the region, and the copying block."""
        loops, values, iters, here, there = [], [], [], [], []
        for index, (dim, extent) in enumerate(zip(self.region, self.buffer.shape, strict=True)):
            loop_var = Var(f"ax{index}", dim.extent.dtype)
            loops.append((loop_var, dim.extent))
            values.append(dim.min + loop_var if self.whole else loop_var)
            size = extent if self.whole else dim.extent
            var = Var(f"v{index}", dim.extent.dtype)
            iters.append(IterVar(Range.from_min_extent(const(0, size.dtype), size), var, IterVar.DataPar))
            there.append(var if self.whole else dim.min + var)
            here.append(var)
        pairs = ((self.buffer, there), (self.staged, here))
        (source, source_at), (target, target_at) = pairs if self.reading else pairs[::-1]
        block = Block(
            tuple(iters),
            (BufferRegion(source, _points(source_at)),),
            (BufferRegion(target, _points(target_at)),),
            self.name,
            BufferStore(target, BufferLoad(source, source_at), target_at),
        )
        body: Any = BlockRealize(tuple(values), const(True, "bool"), block)
        for loop_var, extent in reversed(loops):
            body = For(loop_var, const(0, loop_var.dtype), extent, ForKind.SERIAL, body)
        return body, block

    def swap(self, reuse: dict[Any, Any]) -> BufferSwap:
        """Map that redirects a block to the staging buffer."""
        if self.whole:
            return BufferSwap({self.buffer: self.staged}, reuse)
        return _ShiftedSwap(self, reuse)


def _points(indices: Sequence[Any]) -> tuple[Range, ...]:
    return tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices)


class _ShiftedSwap(BufferSwap):
    """Exchanges the buffer and makes indices relative to the start of the region that the new one holds."""

    def __init__(self, stage: Stage, reuse: dict[Any, Any]) -> None:
        super().__init__({stage.buffer: stage.staged}, reuse)
        self.stage = stage

    def _shift(self, index: PrimExpr, dim: Range) -> PrimExpr:
        return self.stage.analyzer.simplify(self.visit(index) - dim.min)

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        if node.buffer is not self.stage.buffer:
            return self.default_visit(node)
        return BufferLoad(
            self.stage.staged, [self._shift(i, r) for i, r in zip(node.indices, self.stage.region, strict=True)]
        )

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer is not self.stage.buffer:
            return self.default_visit(node)
        indices = [self._shift(i, r) for i, r in zip(node.indices, self.stage.region, strict=True)]
        return BufferStore(self.stage.staged, self.visit(node.value), indices)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        if node.buffer is not self.stage.buffer:
            return self.default_visit(node)
        dims = [
            Range.from_min_extent(self._shift(have.min, r), have.extent)
            for have, r in zip(node.region, self.stage.region, strict=True)
        ]
        return BufferRegion(self.stage.staged, tuple(dims))


# -- where a copy goes -------------------------------------------------------------------------------------


def check_reads_follow(
    state: ScheduleState,
    scope: StmtSRef,
    writer: StmtSRef,
    buffer: Buffer,
    at: StmtSRef | None = None,
    redirected: Collection[Block] = (),
) -> None:
    """Demand that no block reads what its writer leaves for the next turn of a loop: a copy would come too late.

    A copy made ``at`` some place comes too late for those blocks only that share a statement there with the writer.
    """
    if not state.enable_check:
        return
    parts = [{r.block for r in block_realizes_below(part)} for part in _parts(at.stmt.body)] if at is not None else []
    near = next((p for p in parts if writer.stmt in p), None)
    for child in state.child_blocks(scope):
        if child is writer:
            return
        if child.stmt in redirected or (near is not None and child.stmt not in near):
            continue
        if any(r.buffer is buffer for r in child.stmt.reads):
            raise PrimitiveError(
                f"The block {{0}} reads {buffer.name} before block {{1}} writes it; a copy made after the write would "
                "come too late.",
                [child, writer],
            )


def _parts(body: Stmt) -> Sequence[Any]:
    """The statements of a body."""
    body = unwrap(body)[1]
    return stmt_list(body)


def stage_location(writer: StmtSRef, scope: StmtSRef, related: Sequence[StmtSRef]) -> tuple[StmtSRef, int]:
    """(loop or scope block, position in its body) before the first of ``related`` at the lowest level that the
    writer shares with one of them; the end of the scope if there is none."""
    if not related:
        return scope, len(_parts(scope.stmt.body))
    best = next(a for a in writer.ancestors() if any(checks.in_scope_of(r, a) for r in related))
    parts = _parts(best.stmt.body)
    wanted = {r.stmt for r in related}
    seen = False
    for position, part in enumerate(parts):
        blocks = [r.block for r in block_realizes_below(part)]
        if seen and any(b in wanted for b in blocks):
            return best, position
        seen = seen or any(b is writer.stmt for b in blocks)
    return best, len(parts)


def readers_of(state: ScheduleState, scope: StmtSRef, writer: StmtSRef) -> list[StmtSRef]:
    """The blocks of the scope that read what ``writer`` wrote."""
    deps = state.get_block_scope(scope).get_deps_by_src(writer)
    return [d.dst for d in deps if d.kind == DepKind.RAW]


def insert_at(body: Stmt, position: int, stage: Stmt) -> Stmt:
    """A body with one more statement at ``position``."""
    wrappers, _ = unwrap(body)
    parts = list(_parts(body))
    parts.insert(position, stage)
    made = seq_or_single(parts)
    for wrapper in reversed(wrappers):
        made = wrapper.with_fields(body=made)
    return made


class _Insert(ScopeRewriter):
    """Inserts the copy and redirects the chosen blocks to the staging buffer."""

    def __init__(
        self, scope: Block, at: Block | For, position: int, nest: For, stage: Stage, redirect: Callable[..., Any]
    ) -> None:
        super().__init__()
        self.scope, self.at, self.position, self.nest = scope, at, position, nest
        self.stage, self.redirect = stage, redirect

    def visit_For(self, node: For) -> Stmt:
        made = self.within(node)
        if node is self.at:
            return made.with_fields(body=insert_at(made.body, self.position, self.nest))
        return made

    def rewrite_block(self, node: Block) -> Block:
        if node is self.scope:
            body = self.visit(node.body)
            if node is self.at:
                body = insert_at(body, self.position, self.nest)
            return node.with_fields(body=body, alloc_buffers=(*node.alloc_buffers, self.stage.staged))
        if self.redirect(node):
            swap = self.stage.swap(self.reuse)
            made = swap.visit_Block(node)
            swap.reuse.pop(node, None)
            return made
        return node


def _apply(
    state: ScheduleState, scope: StmtSRef, at: StmtSRef, position: int, stage: Stage, redirect: Callable[..., Any]
) -> StmtSRef:
    nest, block = stage.nest()
    rewriter = _Insert(scope.stmt, at.stmt, position, nest, stage, redirect)
    made = rewriter.visit(scope.stmt)
    state.replace(scope, made, rewriter.reuse)
    sref = state.stmt2ref[block]
    state.mark_new_block(sref)
    return sref


def analyzer_at(place: StmtSRef) -> Analyzer:
    """An analyzer that knows the loops of a scope around ``place``."""
    analyzer = Analyzer()
    analyzer.bind_map(loop_ranges(place))
    return analyzer


def relaxed_region(region: BufferRegion, block: StmtSRef, stop: StmtSRef) -> list[Range]:
    """Region of a buffer that ``block`` touches while the loops below ``stop`` run."""
    analyzer = analyzer_at(stop)
    box = relax_region(region, block, stop, analyzer, extra_scope=region.buffer.scope())
    assert box is not None
    return box_to_ranges(box, analyzer)


def _box(region: Sequence[Range]) -> Box:
    return [(r.min, r.min + r.extent - 1) for r in region]


def _one_read_place(dim: Range, block: StmtSRef) -> bool:
    """Whether ``dim`` is the one place, found in data, that a block without guards reads: its copy reads no other."""
    if not checks.is_one(dim.extent) or not any(isinstance(n, BufferLoad) for n in all_nodes(dim.min)):
        return False
    realize = realize_of(block)
    guards = (
        n for n in all_nodes(realize.block.body) if isinstance(n, IfThenElse) or is_call_of(n, "tir.if_then_else")
    )
    return checks.is_one(realize.predicate) and next(guards, None) is None


def check_region(block: StmtSRef, buffer: Buffer, region: Sequence[Range], at: StmtSRef) -> None:
    """Refuse a region that is known to leave the buffer: the copy has no predicate to keep it inside."""
    analyzer = analyzer_at(at)
    for above in (at, *at.ancestors()):
        for iv in getattr(above.stmt, "iter_vars", ()):
            analyzer.bind(iv.var, iv.dom)
    bounds = analyzer.const_int_bound
    for dim, extent in zip(region, buffer.shape, strict=True):
        if not isinstance(extent, IntImm) or _one_read_place(dim, block):
            continue
        if bounds.bound(dim.min)[0] < 0 or bounds.bound(dim.min + dim.extent - 1)[1] >= extent.value:
            # A symbolic end may be tighter than its bounds, so the proof has the last word.
            if not analyzer.can_prove(tir_all(dim.min >= 0, dim.min + dim.extent <= extent)):
                raise PrimitiveError(
                    f"The part of {buffer.name} that block {{0}} uses here leaves the buffer.", [block]
                )


def _writes(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in block.writes)


def _mentions(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in (*block.reads, *block.writes))


def _with_children(state: ScheduleState, blocks: Sequence[StmtSRef]) -> list[StmtSRef]:
    return [x for b in blocks for x in (b, *state.child_blocks(b))]


def check_starts_afresh(state: ScheduleState, block_sref: StmtSRef, scope: StmtSRef, buffer: Buffer) -> None:
    """Demand that a block does not go on from a result that is begun elsewhere: a cache of it would start undefined."""
    block = block_sref.stmt
    if not state.enable_check:
        return
    goes_on = block.init is None and any(r.buffer is buffer for r in block.reads)
    begun_outside = goes_on and scope.stmt.init is not None and _writes(scope.stmt, buffer)
    if begun_outside or not begins(state, block_sref, buffer):
        raise PrimitiveError(
            f"The block {{0}} adds to {buffer.name}, which is initialised elsewhere; a cache of it would start "
            "undefined.",
            [block_sref],
            hint="make the cache before the reduction is taken apart",
        )


def begins(state: ScheduleState, block_sref: StmtSRef, buffer: Buffer) -> bool:
    """Whether a block reads only its own values of a buffer: the first block inside that uses the buffer writes it."""
    block = block_sref.stmt
    if block.init is not None:
        return checks.reduced_from_outside(block_sref) is None
    if all(r.buffer is not buffer for r in block.reads):
        return True
    names = [buffer, *(m.buffer for m in block.match_buffers if m.source.buffer is buffer)]
    for child in state.child_blocks(block_sref):
        for name in names:
            if _mentions(child.stmt, name):
                return begins(state, child, name)
    # A block of several statements may well set up its result itself.
    return not isinstance(block.body, BufferStore) and not _loads_first(block.body, names)


class _FirstUse(Visitor):
    """Whether the first thing that statements do with some buffers is to load from one; None where they do nothing."""

    def __init__(self, buffers: Collection[Any]) -> None:
        self.buffers = buffers
        self.loads: bool | None = None

    def _note(self, node: BufferLoad | BufferStore, loads: bool) -> None:
        if self.loads is None and any(node.buffer is b for b in self.buffers):
            self.loads = loads

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._note(node, True)
        self.visit(node.indices)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.visit(node.value)
        self.visit(node.indices)
        self._note(node, False)


def _loads_first(body: Stmt, buffers: Collection[Any]) -> bool:
    first = _FirstUse(buffers)
    first.visit(body)
    return bool(first.loads)


def _check_copies_own_only(state: ScheduleState, block_sref: StmtSRef, written: BufferRegion, at: StmtSRef) -> None:
    """Refuse to copy back more than the block wrote where the rest is somebody else's."""
    if not state.enable_check:
        return
    realize, loops = realize_of(block_sref), [s.stmt for s in checks.loops_above(block_sref)]
    in_full = checks.guarded_by_bounds_only(realize, loops) and not leaves_gaps(written, block_sref, at)
    if in_full and not may_be_left_out(realize, block_sref, at, analyzer_at(at)):
        return
    _, func, root = state.func_of(block_sref)
    mine = {a.stmt for a in block_sref.ancestors()}.union(blocks_in_order(block_sref.stmt))
    others = any(_writes(b, written.buffer) for b in blocks_in_order(root.stmt) if b not in mine)
    if others or written.buffer in func.buffer_map.values():
        raise PrimitiveError(
            f"The block {{0}} writes only parts of the region of {written.buffer.name} that would be copied back.",
            [block_sref],
        )


def check_readers_covered(state: ScheduleState, scope: StmtSRef, buffer: Buffer) -> None:
    """Demand that whatever reads ``buffer`` in the scope reads only what has been written."""
    if not state.enable_check:
        return
    for child in state.child_blocks(scope):
        if any(r.buffer is buffer for r in child.stmt.reads) and not state.flags(child).region_cover:
            raise PrimitiveError(
                f"The scope's region cover is not complete: block {{0}} reads parts of {buffer.name} that are not "
                "written.",
                [child],
            )


def cache_read(
    state: ScheduleState, block_sref: StmtSRef, index: int, storage_scope: str, consumers: Sequence[StmtSRef]
) -> StmtSRef:
    """Read the buffer through a copy; gives the copying block."""
    check_scope_name(storage_scope)
    checks.check_block(block_sref)
    buffer = checks.nth_buffer(block_sref, index, write=False)
    scope = checks.scope_root(state, block_sref)
    check_readers_covered(state, scope, buffer)
    writer = only_writer(state, scope, buffer)
    consumers = _with_children(state, consumers)
    if writer is not None:
        check_reads_follow(state, scope, writer, buffer)
        at, position = stage_location(writer, scope, consumers or readers_of(state, scope, writer))
        written = region_of(writer.stmt.writes, buffer)
        assert written is not None
        region = relaxed_region(written, writer, at)
    else:
        at, position = scope, 0
        known = region_of(scope.stmt.reads, buffer)
        region = list(known.region) if known is not None else full_region(buffer)
    chosen = {c.stmt for c in consumers}

    def redirect(node: Block) -> bool:
        return (not chosen or node in chosen) and not _writes(node, buffer) and _mentions(node, buffer)

    check_region(block_sref, buffer, region, at)
    stage = Stage(buffer, storage_scope, region, at.is_loop, reading=True)
    return _apply(state, scope, at, position, stage, redirect)


def cache_write(
    state: ScheduleState, block_sref: StmtSRef, index: int, storage_scope: str, consumers: Sequence[StmtSRef]
) -> StmtSRef:
    """Write the buffer through a copy; gives the block that copies back."""
    check_scope_name(storage_scope)
    checks.check_block(block_sref)
    buffer = checks.nth_buffer(block_sref, index, write=True)
    scope = checks.scope_root(state, block_sref)
    if only_writer(state, scope, buffer) is not block_sref:
        raise PrimitiveError("The block {0} is not the only writer of the buffer in its scope.", [block_sref])
    check_starts_afresh(state, block_sref, scope, buffer)
    own = block_sref.stmt
    consumers = _with_children(state, consumers)
    others = [r for r in readers_of(state, scope, block_sref) if r not in consumers]
    at, position = stage_location(block_sref, scope, others)
    written = region_of(block_sref.stmt.writes, buffer)
    assert written is not None
    region = relaxed_region(written, block_sref, at)
    check_region(block_sref, buffer, region, at)
    _check_copies_own_only(state, block_sref, written, at)
    chosen = {c.stmt for c in consumers}
    check_reads_follow(state, scope, block_sref, buffer, at, chosen)

    def redirect(node: Block) -> bool:
        return node is own or (node in chosen and _mentions(node, buffer))

    stage = Stage(buffer, storage_scope, region, at.is_loop, reading=False)
    return _apply(state, scope, at, position, stage, redirect)


def cache_inplace(state: ScheduleState, block: StmtSRef, index: int, storage_scope: str) -> list[StmtSRef]:
    """Copies before and after a block that updates a buffer in place; gives both copying blocks."""
    check_scope_name(storage_scope)
    buffer = checks.nth_buffer(block, index, write=False)
    scope = checks.scope_root(state, block)
    check_readers_covered(state, scope, buffer)
    if not _writes(block.stmt, buffer):
        raise PrimitiveError(f"The block {{0}} does not both read and write {buffer.name}.", [block])
    at, position = _around(block)
    read, written = region_of(block.stmt.reads, buffer), region_of(block.stmt.writes, buffer)
    assert read is not None and written is not None
    into, out = relaxed_region(read, block, at), relaxed_region(written, block, at)
    for region in (into, out):
        check_region(block, buffer, region, at)
    if not contains(_box(into), _box(out), buffer.shape, Analyzer()):
        raise PrimitiveError(f"The block {{0}} writes more of {buffer.name} than it reads.", [block])
    before = Stage(buffer, storage_scope, into, True, reading=True)
    after = Stage(buffer, storage_scope, out, True, reading=False)
    after.staged = before.staged
    own = block.stmt
    first = _apply(state, scope, at, position, before, lambda node: node is own)
    nest, second = after.nest()
    old = at.stmt
    made = old.with_fields(body=insert_at(old.body, position + 2, nest))
    state.replace(at, made, {old: made} if isinstance(old, Block) else {})
    state.mark_new_block(state.stmt2ref[second])
    return [first, state.stmt2ref[second]]


def _around(block: StmtSRef) -> tuple[StmtSRef, int]:
    """(loop or block right around a block, position of the block in its body)."""
    at = block.parent
    assert at is not None
    parts = _parts(at.stmt.body)
    return at, next(i for i, p in enumerate(parts) if any(r.block is block.stmt for r in block_realizes_below(p)))


_SCOPES = (
    "global", "shared", "shared.dyn", "local", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator", "texture",
    "texture.weight", "texture.nhwc", "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC", "amx.tmm",
    "metal.simdgroup",
)  # fmt: skip


def check_scope_name(storage_scope: str) -> None:
    """Demand a memory scope that exists (a suffix after the known name is a tag)."""
    known = [s for s in _SCOPES if storage_scope == s or storage_scope.startswith(s + ".")]
    if not known:
        raise PrimitiveError(
            f'The input storage scope "{storage_scope}" is invalid.', hint=f"known: {', '.join(_SCOPES)}"
        )


class _Staging(Step):
    """A staging copy of one buffer of a block, used by some of the buffer's consumers or by all of them."""

    optional = ("consumer_blocks",)
    primitive: ClassVar[Callable[..., Any]]

    block: BlockRV = operand()

    def _staged(self, sch: Schedule, index: int, scope: str, consumers: Sequence[BlockRV] | None) -> Sequence[Output]:
        users = [sch.sref(x) for x in consumers or ()]
        return [self.primitive(sch.state, sch.sref(self.block), index, scope, users)]


class CacheRead(_Staging):
    """A staging copy before the readers."""

    primitive = staticmethod(cache_read)

    read_buffer_index: int
    storage_scope: str
    consumer_blocks: Sequence[BlockRV] | None = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._staged(sch, self.read_buffer_index, self.storage_scope, self.consumer_blocks)


class CacheWrite(_Staging):
    """A staging copy after the writer."""

    primitive = staticmethod(cache_write)

    write_buffer_index: int
    storage_scope: str
    consumer_blocks: Sequence[BlockRV] | None = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return self._staged(sch, self.write_buffer_index, self.storage_scope, self.consumer_blocks)


class CacheInplace(Step):
    """Staging copies before and after a block that updates in place."""

    many_outputs = True

    block: BlockRV = operand()
    read_buffer_index: int
    storage_scope: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        return list(cache_inplace(sch.state, sch.sref(self.block), self.read_buffer_index, self.storage_scope))
