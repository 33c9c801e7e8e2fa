"""Contractions with a contiguous output axis: matmul, convolution, depthwise convolution, pooling.

The tile is ``rows`` x ``vectors`` accumulators held in registers over all reduction loops::

    for n, v_outer, other..., row_outer:            # parallel, weights outermost
        for reductions:                             # accumulators stay in registers
            for row, vector (unrolled): C += A * B  # one broadcast load and fused multiply-adds
        epilogue on the finished tile               # bias, activation, residual

"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...carver import CpuModel, Hint, recommend
from ...carver.block_facts import operand_names
from ...carver.cpu_hints import ROWS_TO_TURN, CpuTile, hint_of_tile, line_axis
from ...ir.functor import all_nodes
from ...ir.prim import FloorDiv, const_int
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc
from ...tir.expr import BufferLoad
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from .facts import BlockInfo, IterInfo, access_stride, combiner_of, row_axis, streams, vector_axis
from ..base import ScheduleRule
from .common import attempt, open_reduction, parallel_outer, refresh, schedule_elementwise, work_of
from .normalize import simplify_blocks
from .packing import CONSTANT_ATTR, PACK_ATTR
from .wide_rows import widen_rows
from ...ir.plain import plain_int


# Members of a group that make rows of a tile.
_LEAST_GROUP = 4


class Contraction(ScheduleRule):
    """One reduction block whose output moves by one element along some spatial axis that no input strides over."""

    def __init__(self, hint: Hint | Mapping[str, Any] | None = None, groups: bool = True) -> None:
        """With ``hint``, or the numbers of one, its tile; else the best that carver recommends. Without ``groups`` those of a
        grouped convolution are no axis of their own, as in hints for the function as it is written."""
        self.hint, self.groups = hint, groups

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the module."""
        opened = open_contraction(func, target) if self.groups else open_reduction(func, target)
        if opened is None:
            return None
        sch, infos, anchor = opened
        vector = vector_axis(anchor)
        copies = turn_operands(sch, anchor) if vector is None else []
        if copies:
            infos = refresh(sch)
            anchor = next(info for info in infos if info.is_reduction)
            vector = vector_axis(anchor)
        if vector is None or vector.multiple < 4:
            return None
        widened = widen_rows(sch, anchor, vector) if combiner_of(anchor.block) == "sum" else None
        wide = ""
        if widened is not None:
            turned = [sch.get(copy).name_hint for copy in copies]
            sch, wide = widened
            copies = [sch.get_block(name) for name in turned]
            column = [it.var for it in anchor.spatial].index(vector.var)
            infos = refresh(sch)
            anchor = next(info for info in infos if info.is_reduction)
            vector = anchor.spatial[column]
        names = [info.name for info in infos]
        at = names.index(anchor.name)
        before, after = infos[:at], infos[at + 1 :]
        if len(after) > 1 or any(not info.is_injective for info in after):
            return None
        if isinstance(self.hint, Mapping):
            hint = hint_of_tile(anchor, CpuModel.of_target(target), **self.hint)
        else:
            hint = self.hint or best_hint(sch, anchor, target, copies, constant_names(func))
        packing = pack_operands(sch, anchor, vector, hint)
        if packing:
            anchor = next(info for info in refresh(sch) if info.is_reduction)
            vector = next(it for it in anchor.spatial if it.var is vector.var)
        of_several = sum((it.dom or 2) > 1 for it in anchor.spatial) > 2
        tiled = tile_block(sch, anchor, vector, after[0] if after else None, target, hint)
        for info in [*before, *(info for info in refresh(sch) if any(_same(sch, copy, info.rv) for copy in packing))]:
            # Copied operands are copied strip by strip, the padded rows of a stencil row by row: just before use.
            copied = any(_same(sch, copy, info.rv) for copy in (*copies, *packing))
            by_task = streams(anchor, vector) or (info.name == wide and of_several)
            place = tiled.strip if copied else tiled.outer if by_task else None
            if not (place is not None and attempt(sch.compute_at, info.rv, place, True)):
                schedule_elementwise(sch, info, target)
        return sch


def open_contraction(func: PrimFunc, target: Target) -> tuple[Schedule, list[BlockInfo], BlockInfo] | None:
    """Result of :func:`open_reduction`, with the groups of a grouped convolution as an axis of their own.

    An operand that is read at ``f // 16`` is shared by sixteen neighbours: as an axis these can be the rows of a tile.
    """
    opened = open_reduction(func, target)
    if opened is None:
        return None
    sch, _, anchor = opened
    found = group_axis(anchor)
    if found is None or not attempt(sch.transform_block_layout, anchor.rv, _split_axis(*found)):
        return opened
    made = Schedule(simplify_blocks(sch.mod["main"]))
    infos = refresh(made)
    return made, infos, next(info for info in infos if info.is_reduction)


def group_axis(anchor: BlockInfo) -> tuple[int, int] | None:
    """The place of the iterator that an operand is read at a quotient of, and the divisor."""
    places = {iter_var.var: i for i, iter_var in enumerate(anchor.block.iter_vars)}
    extents = {it.var: it.dom or 0 for it in anchor.spatial}
    for load in anchor.loads():
        for item in (node for index in load.indices for node in of_kind(all_nodes(index), FloorDiv)):
            size = const_int(item.b, 0)
            extent = extents.get(item.a, 0)
            if _LEAST_GROUP <= size < extent and extent % size == 0:
                return places[item.a], size
    return None


def _split_axis(place: int, size: int) -> Callable[..., Any]:
    """The index map that makes two axes of one."""
    return lambda *at: [*at[:place], at[place] // size, at[place] % size, *at[place + 1 :]]


def _same(sch: Schedule, one: BlockRV, other: BlockRV) -> bool:
    return sch.get(one) is sch.get(other)


def best_hint(
    sch: Schedule,
    anchor: BlockInfo,
    target: Target,
    copies: Sequence[Any] = (),
    constant: Collection[str] = (),
    may_pack: bool = True,
) -> Hint:
    """The tile that carver recommends for a reduction; ``copies`` and ``constant`` operands are in strips anyway."""
    prepacked = {sch.get(copy).writes[0].buffer.name for copy in copies} | set(constant)
    hints: list[Hint] = recommend(anchor, target, 1, prepacked=prepacked, may_pack=may_pack)
    return hints[0]


def constant_names(func: PrimFunc) -> set[str]:
    """Parameters for which all callers pass constants, which are packed when the model is compiled."""
    places = (func.attrs or {}).get(CONSTANT_ATTR) or ()
    return {func.buffer_map[func.params[plain_int(i)]].name for i in places}


def turn_operands(sch: Schedule, info: BlockInfo) -> list[Any]:
    """Read operands stored with the reduction innermost, as in ``A @ B.T``, through copies with it outermost.

    Returns the copying blocks: none where there is no such operand, or too few rows share the copy to pay for it.
    """
    store = info.store
    if store is None or combiner_of(info.block) == "other" or any(it.kind == "O" for it in info.iters):
        return []
    column = next((it for it in reversed(info.spatial) if access_stride(store.indices, it.var) == "unit"), None)
    if column is None or column.dom is None or column.dom < 8:
        return []
    reductions = {it.var for it in info.reductions}
    turned = [load for load in info.loads() if access_stride(load.indices, column.var) == "other"]
    sharing = [it for it in info.spatial if it is not column and not any(_moves(load, it) for load in turned)]
    rows = max((it.dom if it.dom is not None else ROWS_TO_TURN for it in sharing), default=1)
    if not turned or rows < ROWS_TO_TURN:
        return []
    if len({load.buffer for load in turned}) < len(turned):
        # One copy could not serve two places of the same operand.
        return []
    for load in turned:
        if load.indices[-1] not in reductions or list(load.indices).count(column.var) != 1:
            return []
    copies = []
    for load in turned:
        reads = [region.buffer for region in sch.get(info.rv).reads]
        place = list(load.indices).index(column.var)
        index = reads.index(load.buffer)
        copies.append(sch.cache_read(info.rv, index, "global"))
        sch.transform_layout(info.rv, ("read", index), _to_the_end(place))
    return copies


def _to_the_end(place: int) -> Callable[..., Any]:
    """The index map that moves one axis behind all others."""
    return lambda *at: [*at[:place], *at[place + 1 :], at[place]]


def _moves(load: BufferLoad, it: IterInfo) -> bool:
    from ...arith.functor import uses_var

    return any(uses_var(index, it.var) for index in load.indices)


@dataclass(frozen=True)
class Tiled:
    """Loops of a tiled block: the parallel one, and the one below which one strip of columns is used (None: an
    iteration of the parallel loop is no strip)."""

    outer: Any
    strip: Any


def tile_block(
    sch: Schedule,
    anchor: BlockInfo,
    vector: IterInfo,
    epilogue: BlockInfo | None,
    target: Target,
    hint: Hint,
) -> Tiled:
    """Give a reduction block the register tile of a hint, with ``epilogue`` computed on each finished tile."""
    rows_iter = row_axis(anchor, vector)
    tile = CpuTile.of(hint, anchor)
    if tile.row_task and len({sch.get(it.loop).loop_var.dtype for it in anchor.spatial}) > 1:
        # Tasks of rows and columns are numbered together, which takes numbers of one type.
        tile = replace(tile, row_task=0)
    height = rows_iter.dom if rows_iter is not None else 0
    partial = height is None or height % tile.rows != 0
    column = [iter_var.var for iter_var in anchor.block.iter_vars].index(vector.var)
    if not tile.packed:
        sch.annotate(anchor.rv, PACK_ATTR, [column, tile.vectors * tile.lanes])
    v_outer, v_mid, v_lane = sch.split(vector.loop, [None, tile.vectors, tile.lanes])
    others = [it.loop for it in anchor.spatial if it is not vector and it is not rows_iter]
    lines, l_inner = line_axis(anchor, vector, rows_iter), []
    if tile.lines > 1 and lines is not None:
        l_outer, *l_inner = sch.split(lines.loop, [None, tile.lines])
        others = [l_outer if loop is lines.loop else loop for loop in others]
    reductions = [it.loop for it in anchor.reductions]
    start = reductions[0]
    if rows_iter is not None:
        task = None
        if rows_iter.dom is None and tile.row_task:
            # At once: of two splits each would check its own limit.
            task, r_outer, r_inner = sch.split(rows_iter.loop, [None, tile.row_task // tile.rows, tile.rows])
        else:
            r_outer, r_inner = sch.split(rows_iter.loop, [None, tile.rows])
        order = [*others[:1], v_outer, *others[1:], r_outer] if len(others) > 1 else [*others, v_outer, r_outer]
        if tile.row_task and task is None:
            task, r_outer = sch.split(r_outer, [None, tile.row_task // tile.rows])
        if task is not None:
            order = [*order[:-1], task, r_outer]
        if tile.order == "columns-inside":
            order = [*others, v_outer, r_outer]
        elif tile.order == "rows-outside":
            order = [*others, r_outer, v_outer]
        inner = [*l_inner, r_inner, v_mid, v_lane]
    else:
        order = [*others[:1], v_outer, *others[1:]]
        inner = [*l_inner, v_mid, v_lane]
    outer = order[:-1] if len(order) > 1 and rows_iter is not None else order
    if tile.depth:
        start, k_inner = sch.split(reductions[0], [None, tile.depth])
        sch.reorder(*outer, start, order[-1], k_inner, *inner)
    else:
        sch.reorder(*order, *reductions, *inner)
    for loop in inner[:-1]:
        sch.unroll(loop)
    if tile.lanes > 1:
        sch.vectorize(v_lane)
    if epilogue is not None:
        finished = tile.depth or (partial and len(order) > 1)
        _attach_epilogue(sch, epilogue, order[-2] if finished else order[-1], tile)
    of_strips = outer[-1] is v_outer or (tile.row_task != 0 and len(others) < 2)
    # Before the reduction is decomposed: a guarded start block would no longer count as covering its output.
    fused = parallel_outer(sch, outer, work_of(anchor), target.num_cores)
    sch.decompose_reduction(anchor.rv, start)
    return Tiled(fused, (start if tile.depth else fused) if of_strips else None)


def pack_operands(sch: Schedule, anchor: BlockInfo, vector: IterInfo, hint: Hint) -> list[Any]:
    """Read the hint's ``packed`` operands through copies in strips of columns; the copying blocks."""
    width = hint.thread[anchor.spatial.index(vector)]
    copies = []
    operands = {name: buffer for buffer, name in operand_names(sch.get(anchor.rv)).items()}
    for name in hint.packed:
        index = [region.buffer for region in sch.get(anchor.rv).reads].index(operands[name])
        copies.append(sch.cache_read(anchor.rv, index, "global"))
        sch.transform_layout(anchor.rv, ("read", index), _in_strips(width))
    return copies


def _in_strips(width: int) -> Callable[..., Any]:
    """The index map that stores strips of so many columns one after the other."""
    return lambda *at: [at[-1] // width, *at[:-1], at[-1] % width]


def _attach_epilogue(sch: Schedule, epilogue: BlockInfo, place: LoopRV, tile: CpuTile) -> None:
    if not attempt(sch.reverse_compute_at, epilogue.rv, place, True):
        return
    loops = sch.get_loops(epilogue.rv)
    depth = _depth_below(sch, loops, place)
    inner = loops[depth:]
    if not inner:
        return
    extents = [const_int(sch.get(loop).extent, 0) for loop in inner]
    if 0 in extents:
        return
    last = extents[-1]
    total = 1
    for e in extents:
        total *= e
    # A last vector that is not whole is stored under a mask; of few rows, not of loops with bounds of their own.
    if tile.lanes > 1 and (last % tile.lanes == 0 or (2 * last >= tile.lanes and total <= tile.lanes * 64)):
        if last != tile.lanes:
            middle, lane = sch.split(inner[-1], [None, tile.lanes])
            sch.unroll(middle)
            sch.vectorize(lane)
        else:
            sch.vectorize(inner[-1])
        for loop, extent in zip(inner[:-1], extents[:-1], strict=True):
            if extent > 1 and total <= tile.lanes * 64:
                sch.unroll(loop)


def _depth_below(sch: Schedule, loops: list[Any], place: LoopRV) -> int:
    wanted = sch.get(place).loop_var
    for i, loop in enumerate(loops):
        if sch.get(loop).loop_var is wanted:
            return i + 1
    return len(loops)
