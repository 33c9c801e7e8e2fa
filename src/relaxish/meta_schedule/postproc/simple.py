"""Postprocs for static shapes, reductions and tensor intrinsics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.log import get_logger
from ...tir import For, IterVar, PrimFunc, Schedule
from ...tir.schedule import BlockRV, ScheduleError
from ...tir.stmt import Block
from ..analysis import blocks as ba
from .postproc import Postproc

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram

__all__ = ["DisallowDynamicLoop", "RewriteReductionBlock", "RewriteTensorize"]

_log = get_logger("meta_schedule")


def _functions(sch: Schedule) -> list[tuple[str, PrimFunc]]:
    return [(gv.name_hint, f) for gv, f in sch.mod.functions.items() if isinstance(f, PrimFunc)]


class DisallowDynamicLoop(Postproc):
    """Rejects programs with a loop whose extent is not a literal."""

    def on_columns(self, program: ColumnProgram) -> bool:
        """The loops of formulas have literal extents for every row."""
        return True

    def apply(self, sch: Schedule) -> bool:
        from ...ir.functor import all_nodes

        return not any(
            isinstance(node, For) and ba.int_extent(node) is None
            for (_, func) in _functions(sch)
            for node in all_nodes(func.body)
        )


class RewriteReductionBlock(Postproc):
    """Moves the initialisation of each reduction to just before its outermost reduction loop."""

    def on_columns(self, program: ColumnProgram) -> bool:
        """Features and limits do not see initialisations."""
        return True

    def apply(self, sch: Schedule) -> bool:
        for name, _ in _functions(sch):
            done: set[str] = set()
            while self._rewrite_one(sch, name, done):
                pass
        return True

    def _rewrite_one(self, sch: Schedule, func_name: str, done: set[str]) -> bool:
        for place in ba.places(sch.mod[func_name]):
            block = place.realize.block
            if place.scope is None or block.name_hint in done or not ba.is_reduction(block) or ba.in_tiles(place):
                continue
            done.add(block.name_hint)
            point = self._decompose_point(place)
            if point == -1:
                continue
            rv = sch.get_block(block.name_hint, func_name)
            init = sch.decompose_reduction(rv, sch.get_loops(rv)[point])
            self._move_tensorize_marks(sch, block, rv, init)
            return True
        return False

    @staticmethod
    def _decompose_point(place: ba.Place) -> int:
        kinds = [ba.loop_type(place, loop) for loop in place.loops]
        for loop, kind in zip(place.loops, kinds, strict=True):
            if kind == IterVar.CommReduce and loop.thread_binding is not None:
                return -1
        return next((i for i, kind in enumerate(kinds) if kind != IterVar.DataPar), -1)

    @staticmethod
    def _move_tensorize_marks(sch: Schedule, block: Block, rv: BlockRV, init: BlockRV) -> None:
        if ba.annotation(block, "meta_schedule.auto_tensorize") is None:
            return
        sch.unannotate(init, "meta_schedule.auto_tensorize")
        for_init = ba.annotation(block, "meta_schedule.auto_tensorize_init")
        sch.annotate(init, "meta_schedule.auto_tensorize", for_init or "")
        if for_init is not None:
            sch.unannotate(rv, "meta_schedule.auto_tensorize_init")
            sch.unannotate(init, "meta_schedule.auto_tensorize_init")


class RewriteTensorize(Postproc):
    """Replaces blocks marked ``meta_schedule.auto_tensorize`` by calls of the named intrinsic."""

    def __init__(self, vectorize_init_loop: bool = False) -> None:
        self.vectorize_init_loop = vectorize_init_loop

    def on_columns(self, program: ColumnProgram) -> bool:
        """The intrinsic is what the marked block computes."""
        return True

    def apply(self, sch: Schedule) -> bool:
        jobs = []
        for func_name, func in _functions(sch):
            for place in ba.places(func):
                block = place.realize.block
                name = ba.annotation(block, "meta_schedule.auto_tensorize")
                if name or (name == "" and "init" in block.name_hint and self.vectorize_init_loop):
                    jobs.append((block.name_hint, func_name, name))
        for block_name, func_name, intrin in jobs:
            rv = self._block(sch, block_name, func_name, sum(job[:2] == (block_name, func_name) for job in jobs) > 1)
            sch.unannotate(rv, "meta_schedule.auto_tensorize")
            if intrin:
                try:
                    sch.tensorize(rv, intrin)
                except ScheduleError as err:
                    _log.warning("tensorize of %s with %s failed: %s", block_name, intrin, err)
                    return False
            else:
                self._vectorize_init(sch, rv)
        return True

    @staticmethod
    def _block(sch: Schedule, name: str, func_name: str, shared: bool) -> BlockRV:
        """A block by name; of several products whose copies share one, the first that still has its mark."""
        if shared:
            for child in sch.get_child_blocks(sch.get_block("root", func_name)):
                block = sch.get(child)
                if block.name_hint == name and ba.annotation(block, "meta_schedule.auto_tensorize"):
                    return child
        return sch.get_block(name, func_name)

    @staticmethod
    def _vectorize_init(sch: Schedule, block: BlockRV) -> None:
        children = sch.get_child_blocks(block)
        if len(children) == 1:
            loops = sch.get_loops(children[0])
            if loops:
                sch.vectorize(loops[-1])
