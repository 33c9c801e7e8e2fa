"""Turns the root block's limits for parallel, vector and unrolled loops into loops of these kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...arith.affine import Affine, affine
from ...tir import PrimFunc, Schedule
from ...tir.schedule import BlockRV, LoopRV
from ...tir.stmt import BufferRegion
from ...ir.prim import const_int
from ..analysis import blocks as ba
from .postproc import Postproc

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram

__all__ = ["RewriteParallelVectorizeUnroll"]

_KEYS = ("parallel", "vectorize", "unroll_explicit", "unroll_implicit")


@dataclass
class Limits:
    """The parsed annotations of a root block and, per block, how many loops they allow to fuse."""

    parallel: int = -1
    vectorize: int = -1
    unroll_explicit: int = -1
    unroll_implicit: int = -1
    num_parallel: int = -1
    num_vectorize: int = -1


def _strides(place: ba.Place, region: BufferRegion) -> list[int]:
    """Element stride of each loop in one access; 0 where the loop does not matter."""
    bindings = dict(zip((iv.var for iv in place.realize.block.iter_vars), place.realize.iter_values, strict=True))
    shape = [const_int(x) or 1 for x in region.buffer.shape]
    forms: list[Affine[int]] = [affine(dim.min, bindings) for dim in region.region]
    out = []
    for loop in place.loops:
        stride, buffer_stride = 0, 1
        for dim in range(len(forms) - 1, -1, -1):
            coef = forms[dim].step(loop.loop_var)
            if coef:
                stride = coef * buffer_stride
                break
            buffer_stride *= shape[dim]
        out.append(stride)
    return out


def _fusible(place: ba.Place, strides: list[int]) -> int:
    """How many innermost loops walk one access contiguously."""
    count, previous = 0, -1
    for i in range(len(strides) - 1, -1, -1):
        if strides[i] == 0:
            count += 1
            continue
        if previous == -1:
            if strides[i] != 1 and count != 0:
                break
        elif strides[i] != strides[previous] * (ba.int_extent(place.loops[previous]) or 0):
            break
        count += 1
        previous = i
    return count


def _num_parallel(place: ba.Place, free: list[bool], limit: int) -> int:
    count, product = 0, 1
    for loop, is_free in zip(place.loops, free, strict=True):
        extent = ba.int_extent(loop)
        if not is_free or ba.has_annotation_or_binding(loop) or extent is None:
            break
        count += 1
        product *= extent
        if product > limit or not ba.is_single_statement(loop.body):
            break
    return -1 if product == 1 else count


def _num_vectorize(place: ba.Place, free: list[bool], limit: int, max_fusible: int) -> int:
    count, product = 0, 1
    for loop, is_free in zip(reversed(place.loops), reversed(free), strict=True):
        extent = ba.int_extent(loop)
        if not is_free or count >= max_fusible or ba.has_annotation_or_binding(loop):
            break
        if not ba.is_single_statement(loop.body) or extent is None or product * extent > limit:
            break
        count += 1
        product *= extent
    return -1 if product == 1 else count


def adjust(place: ba.Place, limits: Limits) -> Limits:
    """Numbers of outer loops to run in parallel and of inner loops to vectorise, for one block."""
    limits = replace(limits)
    n = len(place.loops)
    if n == 0:
        return replace(limits, parallel=-1, vectorize=-1)
    free = [ba.is_parallel(place, loop) for loop in place.loops]
    block = place.realize.block
    max_fusible = min([_fusible(place, _strides(place, r)) for r in (*block.reads, *block.writes)], default=n)
    if limits.parallel != -1:
        limits.num_parallel = _num_parallel(place, free, limits.parallel)
    if limits.vectorize != -1 and not ba.has_inner_block(block):
        limits.num_vectorize = _num_vectorize(place, free, limits.vectorize, max_fusible)
    if limits.num_parallel != -1 and limits.num_vectorize != -1 and limits.num_parallel + limits.num_vectorize > n:
        whole = (
            all(free)
            and max_fusible == n
            and all(
                ba.is_single_statement(loop.body) and not ba.has_annotation_or_binding(loop) for loop in place.loops
            )
        )
        if whole:
            # Nothing but parallel iterations over contiguous data: one loop, cut at the vector length.
            limits.num_parallel = limits.num_vectorize = n
        else:
            limits.num_parallel = min(limits.num_parallel, n - limits.num_vectorize)
    return limits


class RewriteParallelVectorizeUnroll(Postproc):
    """Applies what the rule ParallelizeVectorizeUnroll annotated."""

    def on_columns(self, program: ColumnProgram) -> bool:
        program.mark_loops()
        return True

    def apply(self, sch: Schedule) -> bool:
        for gv, func in list(sch.mod.functions.items()):
            if not isinstance(func, PrimFunc):
                continue
            root = next((p.realize.block for p in ba.places(func) if p.scope is None), None)
            if root is None:
                continue
            found = {k: ba.annotation(root, f"meta_schedule.{k}") for k in _KEYS}
            present = {k: int(v) for k, v in found.items() if v is not None}
            if present:
                self._rewrite(sch, sch.get_block(root.name_hint, gv.name_hint), Limits(**present), list(present))
        return True

    def _rewrite(self, sch: Schedule, root: BlockRV, limits: Limits, present: list[str]) -> None:
        for key in present:
            sch.unannotate(root, f"meta_schedule.{key}")
        for block in sch.get_child_blocks(root):
            loops = sch.get_loops(block)
            if not loops:
                continue
            place = ba.enclosing(sch, sch.get(block))[1]
            mine = adjust(place, limits)
            loops = _fuse(sch, loops, mine)
            step = max(mine.unroll_explicit, mine.unroll_implicit)
            if step != -1 and not ba.is_spatial(place.realize.block):
                sch.annotate(loops[0], "pragma_auto_unroll_max_step", step)
                sch.annotate(loops[0], "pragma_unroll_explicit", int(mine.unroll_explicit != -1))


def _fuse(sch: Schedule, loops: list[LoopRV], limits: Limits) -> list[LoopRV]:
    n = len(loops)
    if limits.num_parallel == n and limits.num_vectorize == n:
        outer, inner = sch.split(sch.fuse(*loops), factors=[None, limits.vectorize])
        sch.parallel(outer)
        sch.vectorize(inner)
        return [outer, inner]
    if limits.num_parallel > 0:
        fused = sch.fuse(*loops[: limits.num_parallel])
        sch.parallel(fused)
        loops = [fused, *loops[limits.num_parallel :]]
    if limits.num_vectorize > 0:
        fused = sch.fuse(*loops[len(loops) - limits.num_vectorize :])
        sch.vectorize(fused)
        loops = [*loops[: len(loops) - limits.num_vectorize], fused]
    return loops
