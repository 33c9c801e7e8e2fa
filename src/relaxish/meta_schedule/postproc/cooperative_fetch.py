"""Lets the threads of a block fetch together what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.expr import PrimExpr
from ...tir import Schedule
from ...tir.stmt import Block
from ..analysis import blocks as ba
from .postproc import Postproc
from ...ir.plain import plain_int

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram
    from ..task import Task

__all__ = ["RewriteCooperativeFetch"]

_KEY = "meta_schedule.cooperative_fetch"


class RewriteCooperativeFetch(Postproc):
    """Splits the copy loops annotated ``meta_schedule.cooperative_fetch`` among the threads bound before them.

    Before: ``for ax in range(1024)`` with the annotation 4, under ``threadIdx.x`` of extent 32.
    After: ``for ax_0, ax_1 (threadIdx.x, 32), ax_2 (vectorized, 4)``.
    """

    def __init__(self) -> None:
        self._warp_size = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        attrs: Any = context.target.attrs if context.target is not None else {}
        if "thread_warp_size" in attrs:
            self._warp_size = int(attrs["thread_warp_size"])

    def on_columns(self, program: ColumnProgram) -> bool:
        program.share_copies()
        return True

    def apply(self, sch: Schedule) -> bool:
        assert sch.trace is not None
        threads = {"threadIdx.x": -1, "threadIdx.y": -1}
        fetches: list[tuple[Any, int, dict[str, int]]] = []
        for inst in list(sch.trace.insts):
            kind = inst.kind.name
            if kind == "Bind" and inst.attrs[0] in threads:
                extent = ba.int_extent(sch.get(inst.inputs[0]))
                threads[inst.attrs[0]] = -1 if extent is None else extent
            elif kind == "Annotate" and inst.attrs[0] == "warp_execution":
                threads["threadIdx.x"] = self._warp_size
            elif kind == "Annotate" and inst.attrs[0] == _KEY:
                if threads["threadIdx.x"] == -1:
                    raise ValueError("a cooperative fetch needs threads bound before it")
                fetches.append((inst.inputs[0], self._lanes(sch, inst.inputs[1]), dict(threads)))
        for block, lanes, extents in fetches:
            self._share(sch, block, lanes, extents)
        return True

    @staticmethod
    def _lanes(sch: Schedule, value: int | PrimExpr) -> int:
        plain = value if isinstance(value, int) else sch.get(value)
        return plain_int(plain)

    @staticmethod
    def _share(sch: Schedule, block: Block, lanes: int, extents: dict[str, int]) -> None:
        sch.unannotate(block, _KEY)
        fused = sch.get_loops(block)[-1]
        total = ba.int_extent(sch.get(fused))
        if total is None:
            return
        names = [name for name in ("threadIdx.y", "threadIdx.x") if extents[name] != -1]
        wide = lanes > 1 and total % lanes == 0
        parts = sch.split(fused, factors=[None, *(extents[n] for n in names), *([lanes] if wide else [])])
        if wide:
            sch.vectorize(parts[-1])
        for part, name in reversed(list(zip(parts[1:], names, strict=False))):
            sch.bind(part, name)
