"""Properties of written buffers: alignment, memory scope, element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ir.functor import Mutator
from ...expr import BufferLoad, Cast
from ...stmt import Block, BufferRegion, BufferStore
from .. import checks
from ..buffers import derived_buffer, with_scope
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..rewrite import BufferSwap
from ..sref import StmtSRef
from .cache import check_scope_name
from .marks import set_annotations

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


@register_kind
class StorageAlign(InstructionKind):
    """Pad rows of a buffer to a stride with a given remainder."""

    name, method = "StorageAlign", "storage_align"
    inputs, attrs = ("block",), ("buffer_index", "axis", "factor", "offset")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        index, axis, factor, offset = (int(plain(x)) for x in attrs)
        buffer = checks.nth_buffer(sref, index, write=True)
        if axis < 0:
            axis += len(buffer.shape)
        if not 0 <= axis < len(buffer.shape):
            raise PrimitiveError(
                f"The axis {axis} is out of range for the {len(buffer.shape)}-d buffer of {{0}}.", [sref]
            )
        if factor <= 0:
            raise PrimitiveError(f"The factor must be positive, got {factor}.", [sref])
        if alloc_site(sch.state, sref, buffer) is None:
            raise PrimitiveError("The buffer is not allocated inside the function, so it cannot be aligned.", [sref])
        old = dict(sref.stmt.annotations)
        entries = [list(plain(e)) for e in old.get("buffer_dim_align", ())]
        entries = [e for e in entries if not (e[0] == index and e[1] == axis)]
        old["buffer_dim_align"] = [*entries, [index, axis, factor, offset]]
        set_annotations(sch.state, sref, old)
        return [], None


def alloc_site(state: ScheduleState, sref: StmtSRef, buffer: Any) -> StmtSRef | None:
    """The block around ``sref`` that allocates ``buffer``."""
    for ancestor in sref.ancestors():
        node = ancestor.stmt
        if isinstance(node, Block) and any(b is buffer for b in node.alloc_buffers):
            return ancestor
    return None


def swap_buffer(state: ScheduleState, site: StmtSRef, old: Any, new: Any) -> None:
    """Exchange an allocated buffer in everything below its allocation."""
    swap = BufferSwap({old: new})
    made = swap.visit(site.stmt)
    state.replace(site, made, swap.reuse)


@register_kind
class SetScope(InstructionKind):
    """Another memory scope for a written buffer."""

    name, method = "SetScope", "set_scope"
    inputs, attrs = ("block",), ("buffer_index", "storage_scope")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        sref, storage = sch.sref(inputs[0]), attrs[1]
        buffer = checks.nth_buffer(sref, int(plain(attrs[0])), write=True)
        check_scope_name(storage)
        site = alloc_site(sch.state, sref, buffer)
        if site is None:
            raise PrimitiveError("The buffer is not allocated inside the function, so its scope is fixed.", [sref])
        if buffer.scope() != storage:
            swap_buffer(sch.state, site, buffer, with_scope(buffer, storage))
        return [], None


class _Retype(Mutator):
    """Stores to and loads from a buffer of another element type, cast both ways."""

    def __init__(self, old: Any, new: Any) -> None:
        self.old, self.new = old, new
        self.reuse: dict[Any, Any] = {}

    def visit_Buffer(self, node: Any) -> Any:
        return self.new if node is self.old else node

    def visit_IterVar(self, node: Any) -> Any:
        return node

    def visit_Var(self, node: Any) -> Any:
        return self.new.data if node is self.old.data else node

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        indices = self.visit(node.indices)
        if node.buffer is not self.old:
            return node if indices is node.indices else node.with_fields(indices=indices)
        return Cast(self.old.dtype, BufferLoad(self.new, indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        value, indices = self.visit(node.value), self.visit(node.indices)
        if node.buffer is not self.old:
            return node.with_fields(value=value, indices=indices)
        return BufferStore(self.new, Cast(self.new.dtype, value), indices)

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        return BufferRegion(self.new, node.region) if node.buffer is self.old else node

    def visit_Block(self, node: Block) -> Any:
        made = self.default_visit(node)
        if made is not node:
            self.reuse[node] = made
        return made


@register_kind
class UnsafeSetDType(InstructionKind):
    """Another element type for a written buffer."""

    name, method = "UnsafeSetDType", "unsafe_set_dtype"
    inputs, attrs = ("block",), ("buffer_index", "dtype")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        sref, dtype = sch.sref(inputs[0]), attrs[1]
        buffer = checks.nth_buffer(sref, int(plain(attrs[0])), write=True)
        site = alloc_site(sch.state, sref, buffer)
        if site is None:
            raise PrimitiveError("The buffer is not allocated inside the function, so its type is fixed.", [sref])
        if buffer.dtype != dtype:
            worker = _Retype(buffer, derived_buffer(buffer, buffer.name, dtype=dtype))
            made = worker.visit(site.stmt)
            sch.state.replace(site, made, worker.reuse)
        return [], None
