"""Properties of written buffers: alignment, memory scope, element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir.expr import PrimExpr
from ...buffer import Buffer
from ...expr import BufferLoad, Cast
from ...stmt import Block, BufferStore, Stmt
from .. import checks
from ..buffers import derived_buffer, with_scope
from ..errors import PrimitiveError
from ..instruction import plain, Output, Step, operand
from ..rewrite import BufferSwap
from ..sref import StmtSRef
from .cache import check_scope_name
from .marks import set_annotations
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


class StorageAlign(Step):
    """Pad rows of a buffer to a stride with a given remainder."""

    block: BlockRV = operand()
    buffer_index: int
    axis: int
    factor: int
    offset: int

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        index, axis, factor, offset = self.buffer_index, self.axis, self.factor, self.offset
        buffer = checks.nth_buffer(sref, index, write=True)
        if axis < 0:
            axis += len(buffer.shape)
        if not 0 <= axis < len(buffer.shape):
            raise PrimitiveError(
                f"The axis {axis} is out of range for the {len(buffer.shape)}-d buffer of block {{0}}.", [sref]
            )
        if factor <= 0:
            raise PrimitiveError(f"The factor must be positive, got {factor}.", [sref])
        if alloc_site(sch.state, sref, buffer) is None:
            raise PrimitiveError("The buffer is not allocated inside the function, so it cannot be aligned.", [sref])
        old = dict(sref.stmt.annotations)
        entries = _alignments(sref)
        place = next((i for i, e in enumerate(entries) if e[:2] == [index, axis]), len(entries))
        entries[place : place + 1] = [[index, axis, factor, offset]]
        old["buffer_dim_align"] = entries
        set_annotations(sch.state, sref, old)
        return []


def _alignments(sref: StmtSRef) -> list[list[int]]:
    """The alignments that a block asks for so far, each (buffer index, axis, factor, offset)."""
    known = plain(sref.stmt.annotations.get("buffer_dim_align", ()))
    if not isinstance(known, (tuple, list)) or not all(_is_alignment(entry) for entry in known):
        raise PrimitiveError(
            "The block annotation for storage align is expected to be an array of 4-integer-tuples (buffer_index, "
            f"axis, factor, offset). However, the annotation buffer_dim_align of block {{0}} is {known}.",
            [sref],
        )
    return [[int(x) for x in entry] for entry in known]


def _is_alignment(entry: Sequence[int]) -> bool:
    return isinstance(entry, (tuple, list)) and len(entry) == 4 and all(type(x) is int for x in entry)


def alloc_site(state: ScheduleState, sref: StmtSRef, buffer: Buffer) -> StmtSRef | None:
    """The block around ``sref`` that allocates ``buffer``."""
    for ancestor in sref.ancestors():
        node = ancestor.stmt
        if isinstance(node, Block) and any(b is buffer for b in node.alloc_buffers):
            return ancestor
    return None


def swap_buffer(state: ScheduleState, site: StmtSRef, old: Buffer, new: Buffer) -> None:
    """Exchange an allocated buffer in everything below its allocation."""
    swap = BufferSwap({old: new})
    made = swap.visit(site.stmt)
    state.replace(site, made, swap.reuse)


def _site_of_own(state: ScheduleState, sref: StmtSRef, buffer: Buffer, what: str) -> StmtSRef:
    """The block that allocates a buffer. Raises PrimitiveError for a parameter, whose ``what`` cannot be changed."""
    site = alloc_site(state, sref, buffer)
    if site is None:
        raise PrimitiveError(f"The buffer is not allocated inside the function, so its {what} is fixed.", [sref])
    return site


class SetScope(Step):
    """Another memory scope for a written buffer."""

    block: BlockRV = operand()
    buffer_index: int
    storage_scope: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref, storage = sch.sref(self.block), self.storage_scope
        buffer = checks.nth_buffer(sref, self.buffer_index, write=True)
        check_scope_name(storage)
        site = _site_of_own(sch.state, sref, buffer, "scope")
        if buffer.scope() != storage:
            swap_buffer(sch.state, site, buffer, with_scope(buffer, storage))
        return []


class _Retype(BufferSwap):
    """Stores to and loads from a buffer (or a view of it) of another element type, cast both ways."""

    def __init__(self, old: Buffer, new: Buffer) -> None:
        super().__init__({old: new})
        self.before, self.after = old.dtype, new.dtype

    def view_of(self, view: Buffer, source: Buffer) -> Buffer:
        return derived_buffer(view, view.name, dtype=self.after)

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        made = self.default_visit(node)
        return made if made.buffer is node.buffer else Cast(self.before, made)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        buffer = self.buffers.get(node.buffer)
        value, indices = self.visit(node.value), self.visit(node.indices)
        if buffer is None:
            return node.with_fields(value=value, indices=indices)
        return BufferStore(buffer, Cast(self.after, value), indices)


class UnsafeSetDType(Step):
    """Another element type for a written buffer."""

    block: BlockRV = operand()
    buffer_index: int
    dtype: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref, dtype = sch.sref(self.block), self.dtype
        buffer = checks.nth_buffer(sref, self.buffer_index, write=True)
        site = _site_of_own(sch.state, sref, buffer, "type")
        if buffer.dtype != dtype:
            worker = _Retype(buffer, derived_buffer(buffer, buffer.name, dtype=dtype))
            made = worker.visit(site.stmt)
            sch.state.replace(site, made, worker.reuse)
        return []
