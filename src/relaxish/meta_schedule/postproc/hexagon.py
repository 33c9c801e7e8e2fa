"""Limits of Hexagon: its tightly coupled memory, and what its copy engine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import IRModule
from ...ir.functor import pre_order_visit
from ...tir import BufferLoad, BufferStore, For, PrimFunc, Schedule
from .postproc import Postproc
from .verify_gpu import lowered_for_checks

if TYPE_CHECKING:
    from ..tune_context import TuneContext

__all__ = ["DisallowAsyncStridedMemCopy", "VerifyVTCMLimit"]

_TO_FLAT = ("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque",
            "CompactBufferAllocation", "LowerMatchBuffer", "InjectSoftwarePipeline", "LowerOpaqueBlock",
            "FlattenBuffer", "Simplify", "VectorizeLoop", "StorageRewrite")


class VerifyVTCMLimit(Postproc):
    """Rejects candidates that allocate more ``global.vtcm`` than the target's ``vtcm-capacity``."""

    def __init__(self) -> None:
        self._target: Any = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._target = context.target

    def apply(self, sch: Schedule) -> bool:
        from ...tir.transform import VerifyVTCMLimit as Verify

        for func in sch.mod.functions.values():
            if isinstance(func, PrimFunc):
                lowered = lowered_for_checks(func, self._target, _TO_FLAT)
                if lowered is None:
                    return False
                try:
                    Verify(self._target)(IRModule({"main": lowered}))
                except RuntimeError:
                    return False
        return True


class DisallowAsyncStridedMemCopy(Postproc):
    """Rejects candidates with an asynchronous copy whose addresses do not advance by one element."""

    def __init__(self) -> None:
        self._target: Any = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._target = context.target

    def apply(self, sch: Schedule) -> bool:
        for func in sch.mod.functions.values():
            if isinstance(func, PrimFunc):
                lowered = lowered_for_checks(func, self._target, _TO_FLAT)
                if lowered is None or _has_strided_async_copy(lowered.body):
                    return False
        return True


def _has_strided_async_copy(body: Any) -> bool:
    strided = False

    def look(node: Any) -> bool:
        nonlocal strided
        if type(node).__name__ == "AttrStmt" and node.attr_key == "async_scope":
            strided = strided or _is_strided(node.body)
        return not strided

    pre_order_visit(body, look)
    return strided


def _is_strided(copy: Any) -> bool:
    """Whether the innermost loop of a copy moves source or destination by anything but one element."""
    from ...arith import Analyzer
    from ...tir.functor import substitute

    loop = None
    while isinstance(copy, For):
        loop, copy = copy, copy.body
    if loop is None or not isinstance(copy, BufferStore) or not isinstance(copy.value, BufferLoad):
        return False
    analyzer, var = Analyzer(), loop.loop_var
    for index in (copy.indices[-1], copy.value.indices[-1]):
        step = analyzer.simplify(substitute(index, {var: var + 1}) - index)
        if getattr(step, "value", None) not in (0, 1):
            return True
    return False
