"""Limits of Hexagon: its tightly coupled memory, and what its copy engine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...arith import detect_iter_map
from ...ir import IRModule, Range
from ...ir.functor import Visitor
from ...tir import AttrStmt, BufferLoad, BufferStore, For, PrimFunc, Schedule, SeqStmt
from ...tir.stmt import Stmt
from .postproc import Postproc
from .verify_gpu import lowered_for_checks

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["DisallowAsyncStridedMemCopy", "VerifyVTCMLimit"]

_TO_FLAT = (
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "CompactBufferAllocation",
    "LowerMatchBuffer",
    "InjectSoftwarePipeline",
    "LowerOpaqueBlock",
    "FlattenBuffer",
    "Simplify",
    "VectorizeLoop",
    "StorageRewrite",
)
_TO_ASYNC_COPIES = (
    *_TO_FLAT[:-3],
    "BF16ComputeLegalize",
    "NarrowDataType",
    "Simplify",
    "InjectVirtualThread",
    "InjectDoubleBuffer",
    "VectorizeLoop",
    "StorageRewrite",
)


class _LoweredCheck(Postproc):
    """Rejects candidates of which a function, lowered by ``passes``, is not accepted."""

    passes: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._target: Any = None

    def _initialize_with_tune_context(self, context: Task) -> None:
        self._target = context.target

    def accepts(self, lowered: PrimFunc) -> bool:
        """Whether a lowered function is fine."""
        raise NotImplementedError

    def apply(self, sch: Schedule) -> bool:
        for func in sch.mod.functions.values():
            if isinstance(func, PrimFunc):
                lowered = lowered_for_checks(func, self._target, self.passes)
                if lowered is None or not self.accepts(lowered):
                    return False
        return True


class VerifyVTCMLimit(_LoweredCheck):
    """Rejects candidates that allocate more ``global.vtcm`` than the target's ``vtcm-capacity``."""

    passes = _TO_FLAT

    def accepts(self, lowered: PrimFunc) -> bool:
        from ...tir.transform import VerifyVTCMLimit as Verify

        try:
            Verify(self._target)(IRModule({"main": lowered}))
        except RuntimeError:
            return False
        return True


class DisallowAsyncStridedMemCopy(_LoweredCheck):
    """Rejects candidates with an asynchronous copy that leaves gaps in what it reads or writes.

    With ``merge_async_commit_queue_scope`` the copies of a pipeline's stage are committed together and looked at only
    where a commit has one copy; without it each copy is committed, and looked at, by itself.
    """

    passes = _TO_ASYNC_COPIES

    def __init__(self, merge_async_commit_queue_scope: bool = True) -> None:
        super().__init__()
        self.merge_async_commit_queue_scope = merge_async_commit_queue_scope

    def accepts(self, lowered: PrimFunc) -> bool:
        finder = _StridedCopies(self.merge_async_commit_queue_scope)
        finder.visit(lowered.body)
        return not finder.found


class _StridedCopies(Visitor):
    """Looks for a committed asynchronous loop of one store of one load whose flat indices are no range."""

    def __init__(self, merged: bool) -> None:
        self.merged = merged
        self.found = False
        self.loops: dict[Any, Range] = {}

    def visit_For(self, node: For) -> None:
        self.loops[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "async_commit_queue_scope":
            body = node.body
            copies = body.seq if isinstance(body, SeqStmt) and not self.merged else [body]
            self.found = self.found or any(self._strided(copy) for copy in copies)
        self.visit(node.body)

    def _strided(self, copy: Stmt) -> bool:
        if not isinstance(copy, AttrStmt) or not isinstance(copy.body, For):
            return False
        loop, store = copy.body, copy.body.body
        if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
            return False
        loops = {**self.loops, loop.loop_var: Range.from_min_extent(loop.min, loop.extent)}
        return any(
            bool(detect_iter_map(access.indices, loops, True, "surjective", False).errors)
            for access in (store, store.value)
        )
