"""Stores weights in the order the tiled program reads them."""

from __future__ import annotations

from typing import Any

from ...tir import IndexMap, PrimFunc, Schedule
from ...tir.schedule import ScheduleError
from .. import block_analysis as ba
from ..index_form import parse_index
from .postproc import Postproc

__all__ = ["RewriteLayout", "suggest_index_map"]


def suggest_index_map(place: ba.Place, region: Any) -> IndexMap | None:
    """The map that puts the digits of each index into loop order; None where the access is not a plain tiling."""
    bindings = dict(zip((iv.var for iv in place.realize.block.iter_vars), place.realize.iter_values, strict=True))
    shape = [ba.const_int(x) for x in region.buffer.shape]
    if any(x is None for x in shape):
        return None
    order = {loop.loop_var: (depth, ba.int_extent(loop) or 0) for depth, loop in enumerate(place.loops)}
    digits: list[tuple[int, int, int, int]] = []
    for dim, access in enumerate(region.region):
        form = parse_index(access.min, bindings)
        if form.rests or form.const or any(t.var not in order or t.coef <= 0 for t in form.terms):
            return None
        size = 1
        for term in sorted(form.terms, key=lambda t: t.coef):
            depth, loop_extent = order[term.var]
            extent = term.extent or -(-loop_extent // term.div)
            if extent == 1:
                continue
            if term.coef != size:
                return None
            digits.append((depth * 1_000_000_000 - term.div, dim, size, extent))
            size *= extent
        if size != shape[dim]:
            return None
    digits.sort()
    if not digits:
        return None

    def mapped(*indices: Any) -> list[Any]:
        out = []
        for _, dim, stride, extent in digits:
            value = indices[dim] // stride if stride > 1 else indices[dim]
            out.append(value % extent if stride * extent != shape[dim] else value)
        return out

    in_order = [(dim, stride) for _, dim, stride, _ in digits]
    if in_order == sorted(in_order, key=lambda d: (d[0], -d[1])):
        return None  # the data is already in that order
    return IndexMap.from_func(mapped, ndim=len(shape))


class RewriteLayout(Postproc):
    """For each buffer of the attribute ``layout_free_buffers``: a cached copy in the order of its reader's loops.

    The copying block is marked ``meta_schedule.layout_rewrite_preproc``; builds of candidates drop it, and the
    compiler later moves it out of the function, to where weights are prepared once.
    """

    def apply(self, sch: Schedule) -> bool:
        for gv, func in list(sch.mod.functions.items()):
            if not isinstance(func, PrimFunc) or func.attrs is None:
                continue
            for index in func.attrs.get("layout_free_buffers") or ():
                position = int(getattr(index, "value", index))
                if not self._rewrite(sch, gv.name_hint, func.buffer_map[func.params[position]]):
                    return False
        return True

    @staticmethod
    def _rewrite(sch: Schedule, func_name: str, buffer: Any) -> bool:
        readers = [(p, i) for p in ba.places(sch.mod[func_name]) if p.scope is not None
                   for i, r in enumerate(p.realize.block.reads) if r.buffer is buffer]
        if len(readers) != 1:
            return True
        place, index = readers[0]
        index_map = suggest_index_map(place, place.realize.block.reads[index])
        if index_map is None:
            return True
        block = sch.get_block(place.realize.block.name_hint, func_name)
        try:
            copy = sch.cache_read(block, index, "global")
            sch.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
            sch.transform_layout(block, ("read", index), index_map)
        except ScheduleError:
            return False
        return True
