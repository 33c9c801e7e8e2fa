"""Stores weights in the order the tiled program reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.expr import PrimExpr
from ...ir.functor import pre_order_visit
from ...tir import BufferLoad, PrimFunc, Schedule
from ...tir.buffer import Buffer
from ...tir.schedule import ScheduleError
from ...tir.schedule.analysis import suggest_index_map
from ...tir.functor import substitute
from ...tir.stmt import Stmt
from ..analysis import blocks as ba
from .postproc import Postproc
from ...ir.plain import plain_int

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram

__all__ = ["RewriteLayout"]


class RewriteLayout(Postproc):
    """For each buffer of the attribute ``layout_free_buffers``: a cached copy in the order of its reader's loops.

    The copying block is marked ``meta_schedule.layout_rewrite_preproc``; builds of candidates drop it, and the
    compiler later moves it out of the function, to where weights are prepared once.

    Before: ``for j, k0, i, k1: C[i, j] += A[i, k0 * 4 + k1] * B[k0 * 4 + k1, j]``.
    After: ``for j, k0, i, k1: C[i, j] += A[i, k0 * 4 + k1] * B_global[j, k0, k1]`` and a block that fills ``B_global``.
    """

    # Weights are stored in the order of the tiles for every tiling.
    changes_features = False

    def on_columns(self, program: ColumnProgram) -> bool:
        """Nothing that tells candidates apart."""
        return True

    def apply(self, sch: Schedule) -> bool:
        for gv, func in list(sch.mod.functions.items()):
            if not isinstance(func, PrimFunc) or func.attrs is None:
                continue
            for index in func.attrs.get("layout_free_buffers") or ():
                position = plain_int(index)
                if not self._rewrite(sch, gv.name_hint, func.buffer_map[func.params[position]]):
                    return False
        return True

    @staticmethod
    def _rewrite(sch: Schedule, func_name: str, buffer: Buffer) -> bool:
        found = [
            (place, load)
            for place in ba.places(sch.mod[func_name])
            if place.scope is not None
            for load in _loads(place, buffer)
        ]
        if len({id(place.realize) for place, _ in found}) != 1:
            # Several readers may want several orders, and no reader none.
            return True
        place, load = found[-1]
        block = place.realize.block
        bindings = dict(zip((iv.var for iv in block.iter_vars), place.realize.iter_values, strict=True))
        index_map = suggest_index_map(
            buffer, [substitute(i, bindings) for i in load.indices], place.loops, place.realize.predicate
        )
        if index_map is None:
            return True
        index = next(i for i, region in enumerate(block.reads) if region.buffer is buffer)
        rv = sch.get_block(block.name_hint, func_name)
        try:
            copy = sch.cache_read(rv, index, "global")
            sch.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
            sch.transform_layout(rv, ("read", index), index_map)
        except ScheduleError:
            return False
        return True


def _loads(place: ba.Place, buffer: Buffer) -> list[BufferLoad]:
    """Loads of ``buffer`` in the block itself, blocks inside it left out."""
    found: list[BufferLoad] = []

    def look(node: PrimExpr | Buffer | Stmt) -> bool:
        if isinstance(node, BufferLoad) and node.buffer is buffer:
            found.append(node)
        return type(node).__name__ != "BlockRealize"

    pre_order_visit(place.realize.block.body, look)
    return found
