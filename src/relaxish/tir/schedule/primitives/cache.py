"""cache_read, cache_write and their relatives: staging copies of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import Range
from ....ir.prim import const
from ...expr import BufferLoad, IterVar, Var
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt
from .. import checks
from ..buffers import with_scope
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..region import box_to_ranges, relax_region
from ..rewrite import BufferSwap, ScopeRewriter
from ..sref import DepKind, StmtSRef
from ..walk import block_realizes_below, seq_or_single

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def region_of(regions: Sequence[BufferRegion], buffer: Any) -> BufferRegion | None:
    """The region of ``buffer`` among ``regions``."""
    return next((r for r in regions if r.buffer is buffer), None)


def only_writer(state: ScheduleState, scope: StmtSRef, buffer: Any) -> StmtSRef | None:
    """The one block of the scope that writes ``buffer``, None for an input of the scope."""
    writers = state.get_block_scope(scope).buffer_writers.get(buffer, [])
    if len(writers) > 1:
        raise PrimitiveError(f"The buffer {buffer.name} is written by more than one block of {{0}}.", [scope])
    return writers[0] if writers else None


def full_region(buffer: Any) -> list[Range]:
    """All of a buffer."""
    return [Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape]


def copy_nest(region: Sequence[Range], source: Any, target: Any, name: str) -> tuple[Any, Block]:
    """Loops that copy ``region`` from one buffer to another of the same shape."""
    loops, values, iter_vars = [], [], []
    for index, (dim, extent) in enumerate(zip(region, source.shape, strict=True)):
        loop_var = Var(f"ax{index}", dim.extent.dtype)
        loops.append((loop_var, dim.extent))
        values.append(dim.min + loop_var)
        dom = Range.from_min_extent(const(0, extent.dtype), extent)
        iter_vars.append(IterVar(dom, Var(f"v{index}", extent.dtype), IterVar.DataPar))
    indices = tuple(iv.var for iv in iter_vars)
    points = tuple(Range.from_min_extent(v, const(1, v.dtype)) for v in indices)
    block = Block(
        tuple(iter_vars),
        (BufferRegion(source, points),),
        (BufferRegion(target, points),),
        name,
        BufferStore(target, BufferLoad(source, indices), indices),
    )
    body: Any = BlockRealize(tuple(values), const(True, "bool"), block)
    for loop_var, extent in reversed(loops):
        body = For(loop_var, const(0, loop_var.dtype), extent, ForKind.SERIAL, body)
    return body, block


# -- where a copy goes -------------------------------------------------------------------------------------


def stage_location(
    state: ScheduleState, writer: StmtSRef, scope: StmtSRef, related: Sequence[StmtSRef]
) -> tuple[StmtSRef, int]:
    """(loop or scope block, position in its body) right after the writer at the level it shares with a reader."""
    if not related:
        body = scope.stmt.body
        return scope, len(body.seq) if isinstance(body, SeqStmt) else 1
    above = {a: None for a in writer.ancestors()}
    best: StmtSRef | None = None
    for ancestor in above:
        # The lowest level that holds the writer and at least one reader.
        if any(ancestor in set(r.ancestors()) for r in related):
            best = ancestor
            break
    assert best is not None
    body = best.stmt.body
    if not isinstance(body, SeqStmt):
        return best, 1
    for position, part in enumerate(body.seq):
        if any(r.block is writer.stmt for r in block_realizes_below(part)):
            return best, position + 1
    return best, len(body.seq)


def readers_of(state: ScheduleState, scope: StmtSRef, writer: StmtSRef, chosen: Sequence[StmtSRef]) -> list[StmtSRef]:
    """The blocks that read what ``writer`` wrote, limited to ``chosen`` if given."""
    deps = state.get_block_scope(scope).get_deps_by_src(writer)
    found = [d.dst for d in deps if d.kind == DepKind.RAW]
    return [f for f in found if f in chosen] if chosen else found


def insert_at(body: Any, position: int, stage: Any) -> Any:
    """A body with one more statement at ``position``."""
    parts = list(body.seq) if isinstance(body, SeqStmt) else [body]
    parts.insert(position, stage)
    return seq_or_single(parts)


class _Stage(ScopeRewriter):
    """Inserts the copy and redirects the chosen blocks to the new buffer."""

    def __init__(self, scope: Block, at: Any, position: int, stage: Any, old: Any, new: Any, redirect: Any) -> None:
        super().__init__()
        self.scope, self.at, self.position, self.stage = scope, at, position, stage
        self.old, self.new, self.redirect = old, new, redirect

    def visit_For(self, node: For) -> Any:
        made = super().visit_For(node)
        if node is self.at:
            return made.with_fields(body=insert_at(made.body, self.position, self.stage))
        return made

    def rewrite_block(self, node: Block) -> Block:
        if node is self.scope:
            body = self.visit(node.body)
            if node is self.at:
                body = insert_at(body, self.position, self.stage)
            return node.with_fields(body=body, alloc_buffers=(*node.alloc_buffers, self.new))
        if self.redirect(node):
            swap = BufferSwap({self.old: self.new}, self.reuse)
            return swap.default_visit(node) if not node.match_buffers else _swap_with_views(swap, node)
        return node


def _swap_with_views(swap: BufferSwap, node: Block) -> Block:
    made = swap.visit_Block(node)
    swap.reuse.pop(node, None)
    return made  # type: ignore[no-any-return]


def _apply(
    state: ScheduleState, scope: StmtSRef, at: StmtSRef, position: int, stage: Any, old: Any, new: Any, redirect: Any
) -> dict[Any, Any]:
    rewriter = _Stage(scope.stmt, at.stmt, position, stage, old, new, redirect)
    made = rewriter.visit(scope.stmt)
    state.replace(scope, made, rewriter.reuse)
    return rewriter.reuse


def _finish(state: ScheduleState, block: Block) -> StmtSRef:
    sref = state.stmt2ref[block]
    state.mark_new_block(sref)
    return sref


def _relaxed(state: ScheduleState, region: BufferRegion, block: StmtSRef, stop: StmtSRef) -> list[Range]:
    from ..block_info import loop_ranges

    analyzer = Analyzer()
    for var, dom in loop_ranges(stop).items():
        analyzer.bind(var, dom)
    box = relax_region(region, block, stop, analyzer)
    assert box is not None
    return box_to_ranges(box, analyzer)


def _writes(block: Block, buffer: Any) -> bool:
    return any(r.buffer is buffer for r in block.writes)


def cache_read(
    state: ScheduleState, block_sref: StmtSRef, index: int, storage_scope: str, consumers: Sequence[StmtSRef]
) -> StmtSRef:
    """Read the buffer through a copy; gives the copying block."""
    check_scope_name(storage_scope)
    scope = checks.scope_root(state, block_sref)
    buffer = checks.nth_buffer(block_sref, index, write=False)
    new = with_scope(buffer, storage_scope)
    writer = only_writer(state, scope, buffer)
    if writer is not None:
        related = list(consumers) or readers_of(state, scope, writer, ())
        at, position = stage_location(state, writer, scope, related)
        written = region_of(writer.stmt.writes, buffer)
        assert written is not None
        region = _relaxed(state, written, writer, at)
    else:
        at, position = scope, 0
        known = region_of(scope.stmt.reads, buffer)
        region = list(known.region) if known is not None else full_region(buffer)
    stage, made = copy_nest(region, buffer, new, f"{buffer.name}_{storage_scope}")
    chosen = {c.stmt for c in consumers}

    def redirect(node: Block) -> bool:
        return (not chosen or node in chosen) and not _writes(node, buffer) and _mentions(node, buffer)

    _apply(state, scope, at, position, stage, buffer, new, redirect)
    return _finish(state, made)


def _mentions(block: Block, buffer: Any) -> bool:
    return any(r.buffer is buffer for r in (*block.reads, *block.writes))


def cache_write(
    state: ScheduleState, block_sref: StmtSRef, index: int, storage_scope: str, consumers: Sequence[StmtSRef]
) -> StmtSRef:
    """Write the buffer through a copy; gives the block that copies back."""
    check_scope_name(storage_scope)
    scope = checks.scope_root(state, block_sref)
    buffer = checks.nth_buffer(block_sref, index, write=True)
    writer = only_writer(state, scope, buffer)
    if writer is not block_sref:
        raise PrimitiveError("The block {0} is not the only writer of the buffer in its scope.", [block_sref])
    new = with_scope(buffer, storage_scope)
    at, position = stage_location(state, block_sref, scope, readers_of(state, scope, block_sref, consumers))
    written = region_of(block_sref.stmt.writes, buffer)
    assert written is not None
    region = _relaxed(state, written, block_sref, at)
    stage, made = copy_nest(region, new, buffer, f"{new.name}")
    made_name = f"{buffer.name}_{storage_scope}"
    assert made.name_hint == made_name
    own, chosen = block_sref.stmt, {c.stmt for c in consumers}

    def redirect(node: Block) -> bool:
        return node is own or (node in chosen and _mentions(node, buffer))

    _apply(state, scope, at, position, stage, buffer, new, redirect)
    return _finish(state, made)


_SCOPES = (
    "global", "shared", "shared.dyn", "local", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator", "texture",
    "texture.weight", "texture.nhwc", "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC", "amx.tmm",
    "metal.simdgroup",
)  # fmt: skip


def check_scope_name(storage_scope: str) -> None:
    """Demand a memory scope that exists (a suffix after the known name is a tag)."""
    known = [s for s in _SCOPES if storage_scope == s or storage_scope.startswith(s + ".")]
    if not known:
        raise PrimitiveError(f'The storage scope "{storage_scope}" is invalid.', hint=f"known: {', '.join(_SCOPES)}")


@register_kind
class CacheRead(InstructionKind):
    """A staging copy before the readers."""

    name, method = "CacheRead", "cache_read"
    inputs, attrs = ("block", "consumer_blocks"), ("read_buffer_index", "storage_scope")
    text_order = ("block", "read_buffer_index", "storage_scope", "consumer_blocks")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        consumers = [sch.sref(x) for x in inputs[1] or ()]
        return [cache_read(sch.state, sch.sref(inputs[0]), int(plain(attrs[0])), attrs[1], consumers)], None


@register_kind
class CacheWrite(InstructionKind):
    """A staging copy after the writer."""

    name, method = "CacheWrite", "cache_write"
    inputs, attrs = ("block", "consumer_blocks"), ("write_buffer_index", "storage_scope")
    text_order = ("block", "write_buffer_index", "storage_scope", "consumer_blocks")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        consumers = [sch.sref(x) for x in inputs[1] or ()]
        return [cache_write(sch.state, sch.sref(inputs[0]), int(plain(attrs[0])), attrs[1], consumers)], None


@register_kind
class CacheInplace(InstructionKind):
    """Staging copies before and after a block that updates in place."""

    name, method, many_outputs = "CacheInplace", "cache_inplace", True
    inputs, attrs = ("block",), ("read_buffer_index", "storage_scope")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        block, index, storage = sch.sref(inputs[0]), int(plain(attrs[0])), attrs[1]
        check_scope_name(storage)
        state = sch.state
        scope = checks.scope_root(state, block)
        buffer = checks.nth_buffer(block, index, write=False)
        if not _writes(block.stmt, buffer):
            raise PrimitiveError("The block {0} does not update the buffer in place.", [block])
        new = with_scope(buffer, storage)
        region = full_region(buffer)
        before, first = copy_nest(region, buffer, new, f"{buffer.name}_{storage}")
        after, second = copy_nest(region, new, buffer, f"{buffer.name}_{storage}")
        own = block.stmt
        body = scope.stmt.body
        parts = body.seq if isinstance(body, SeqStmt) else (body,)
        position = next(i for i, p in enumerate(parts) if any(r.block is own for r in block_realizes_below(p)))
        rewriter = _Stage(scope.stmt, scope.stmt, position, before, buffer, new, lambda node: node is own)
        made = rewriter.visit(scope.stmt)
        made = made.with_fields(body=insert_at(made.body, position + 2, after))
        rewriter.reuse[scope.stmt] = made
        state.replace(scope, made, rewriter.reuse)
        return [_finish(state, first), _finish(state, second)], None
