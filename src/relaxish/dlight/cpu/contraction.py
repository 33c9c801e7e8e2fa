"""Contractions with a contiguous output axis: matmul, convolution, depthwise convolution, pooling.

The tile is ``rows`` x ``vectors`` accumulators held in registers over all reduction loops::

    for n, v_outer, other..., row_outer:            # parallel, weights outermost
        for reductions:                             # accumulators stay in registers
            for row, vector (unrolled): C += A * B  # one broadcast load and fused multiply-adds
        epilogue on the finished tile               # bias, activation, residual

"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from .facts import BlockInfo, IterInfo, access_stride, combiner_of, flat_stride
from ..base import ScheduleRule
from .common import attempt, open_reduction, parallel_outer, refresh, schedule_elementwise, work_of
from .packing import PACK_ATTR


# Every x86 and most Arm cores have first-level caches of at least eight ways of one page.
_WAYS = 8
_WAY_BYTES = 4096
# A good half of the second-level cache of most cores.
_STRIP_BYTES = 640 * 1024
# Turning an operand around costs about as much as using it once.
_ROWS_TO_TURN = 8


@dataclass(frozen=True)
class Variant:
    """Another way to tile than :func:`choose_tile`'s: the register tile, and which of its loops runs outermost.

    ``order``: "mixed" (columns outside all but the outermost other loop), "columns-inside" (columns just outside the
    rows) or "rows-outside" (columns innermost).
    """

    rows: int
    vectors: int
    order: str = "mixed"


@dataclass
class Tile:
    """Sizes of the register tile."""

    lanes: int
    vectors: int
    rows: int


def _divisors(n: int, limit: int) -> list[int]:
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]


def choose_tile(
    width: int, height: int | None, lanes: int, registers: int, max_rows: int = 16, max_vectors: int = 6
) -> Tile:
    """The tile with the fewest loads for each multiply-add that fits the register file.

    ``width`` is the extent of the vector axis, ``height`` that of the row axis (None: dynamic or absent).

    >>> choose_tile(768, 128, 16, 32)
    Tile(lanes=16, vectors=6, rows=4)
    """
    fit = max(_divisors(width, lanes))
    power = max(d for d in (1 << i for i in range(lanes.bit_length())) if width % d == 0)
    if 2 * power > fit or 2 * power >= lanes:
        # Vectors of 10 or 12 numbers are taken apart again; eight fill a register or half of one.
        fit = power
    best = Tile(fit, 1, 1)
    best_cost = float("inf")
    for vectors in _divisors(width // fit, max_vectors):
        rows_options = _divisors(height, max_rows) if height else [1]
        for rows in rows_options:
            if rows * vectors + vectors + 1 > registers:
                continue
            # Loads a step, and the latency that too few independent accumulators leave open.
            cost = (rows + vectors) / (rows * vectors) + max(0.0, 8 / (rows * vectors) - 1.0)
            if cost < best_cost - 1e-9:
                best_cost, best = cost, Tile(fit, vectors, rows)
    return best


class Contraction(ScheduleRule):
    """One reduction block whose output moves by one element along some spatial axis that no input strides over."""

    def __init__(self, variant: Variant | None = None) -> None:
        self.variant = variant

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the module."""
        opened = open_reduction(func, target)
        if opened is None:
            return None
        sch, infos, anchor = opened
        vector = vector_axis(anchor)
        copies = turn_operands(sch, anchor) if vector is None else []
        if copies:
            infos = refresh(sch)
            anchor = next(info for info in infos if info.is_reduction)
            vector = vector_axis(anchor)
        if vector is None or vector.dom is None or vector.dom < 4:
            return None
        names = [info.name for info in infos]
        at = names.index(anchor.name)
        before, after = infos[:at], infos[at + 1 :]
        if len(after) > 1 or any(not info.is_injective for info in after):
            return None
        outer, is_strip = tile_block(sch, anchor, vector, after[0] if after else None, target, self.variant)
        for info in before:
            # Turned operands are copied strip by strip, the padded rows of a stencil row by row: just before use.
            turned = is_strip and any(sch.get(copy) is sch.get(info.rv) for copy in copies)
            local = turned or streams(anchor, vector)
            if not (local and attempt(sch.compute_at, info.rv, outer, True)):
                schedule_elementwise(sch, info, target)
        return sch


def streams(info: BlockInfo, vector: IterInfo) -> bool:
    """Whether every operand moves along the vectors, as in depthwise convolution and pooling: nothing is broadcast."""
    return all(access_stride(load.indices, vector.var) != "none" for load in info.loads())


def vector_axis(info: BlockInfo) -> IterInfo | None:
    """The spatial iterator to put in vector lanes: contiguous in the output, contiguous or absent in every input."""
    store = info.store
    if store is None or combiner_of(info.block) == "other" or any(it.kind == "O" for it in info.iters):
        return None
    for it in reversed(info.spatial):
        if access_stride(store.indices, it.var) != "unit":
            continue
        kinds = [access_stride(load.indices, it.var) for load in info.loads()]
        if "other" not in kinds and ("unit" in kinds or "strided" in kinds):
            return it
    return None


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
    rows = max((it.dom if it.dom is not None else _ROWS_TO_TURN for it in sharing), default=1)
    if not turned or rows < _ROWS_TO_TURN:
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


def _to_the_end(place: int) -> Any:
    """The index map that moves one axis behind all others."""
    return lambda *at: [*at[:place], *at[place + 1 :], at[place]]


def row_axis(info: BlockInfo, vector: IterInfo) -> IterInfo | None:
    """The axis whose values share the vector loads: the innermost that some vector input does not move along."""
    candidates = [it for it in info.spatial if it is not vector and (it.dom is None or it.dom > 1)]
    loads = info.loads()

    def shares(it: IterInfo) -> bool:
        return any(
            access_stride(load.indices, vector.var) in ("unit", "strided") and not _moves(load, it) for load in loads
        )

    for it in reversed(candidates):
        if it.dom is not None and shares(it) and max(_divisors(it.dom, 16)) >= 4:
            return it
    sharing = [it for it in candidates if shares(it)]
    if sharing:
        return sharing[-1]
    return candidates[-1] if candidates else None


def _moves(load: Any, it: IterInfo) -> bool:
    from ...arith.functor import uses_var

    return any(uses_var(index, it.var) for index in load.indices)


def tile_block(
    sch: Schedule,
    anchor: BlockInfo,
    vector: IterInfo,
    epilogue: BlockInfo | None,
    target: Target,
    variant: Variant | None = None,
) -> tuple[Any, bool]:
    """Give a reduction block its register tile, with ``epilogue`` computed on each finished tile.

    Returns the outer loop, and whether one iteration of it is a whole strip of columns.
    """
    bits = target.vector_bits
    registers = 32 if bits == 512 or target.features.has_asimd else 16
    store = anchor.store
    assert store is not None
    lanes = max(1, bits // _bits_of(store.value.dtype))
    rows_iter = row_axis(anchor, vector)
    height = rows_iter.dom if rows_iter is not None else None
    assert vector.dom is not None
    max_rows = _rows_side_by_side(anchor, vector, rows_iter)
    max_vectors = 2 if streams(anchor, vector) else _vectors_in_cache(anchor, bits)
    tile = choose_tile(vector.dom, height, lanes, registers, max_rows, max_vectors)
    partial = False
    if rows_iter is not None and (height is None or (height > 16 and tile.rows < 4)):
        # The size is not known, or no divisor fits (a prime, say): tiles of six, the last one partial.
        tile = choose_tile(vector.dom, 6, lanes, registers, max_vectors=max_vectors)
        partial = True
    if variant is not None:
        tile = Tile(tile.lanes, variant.vectors, variant.rows)
        partial = height is not None and height % variant.rows != 0
    column = [iter_var.var for iter_var in anchor.block.iter_vars].index(vector.var)
    sch.annotate(anchor.rv, PACK_ATTR, [column, tile.vectors * tile.lanes])
    v_outer, v_mid, v_lane = sch.split(vector.loop, [None, tile.vectors, tile.lanes])
    others = [it.loop for it in anchor.spatial if it is not vector and it is not rows_iter]
    reductions = [it.loop for it in anchor.reductions]
    if rows_iter is not None:
        r_outer, r_inner = sch.split(rows_iter.loop, [None, tile.rows])
        order = [*others[:1], v_outer, *others[1:], r_outer] if len(others) > 1 else [*others, v_outer, r_outer]
        if variant is not None and variant.order == "columns-inside":
            order = [*others, v_outer, r_outer]
        elif variant is not None and variant.order == "rows-outside":
            order = [*others, r_outer, v_outer]
        inner = [r_inner, v_mid, v_lane]
    else:
        order = [*others[:1], v_outer, *others[1:]]
        inner = [v_mid, v_lane]
    sch.reorder(*order, *reductions, *inner)
    for loop in inner[:-1]:
        sch.unroll(loop)
    if tile.lanes > 1:
        sch.vectorize(v_lane)
    place = order[-1]
    if epilogue is not None:
        _attach_epilogue(sch, epilogue, order[-2] if partial and len(order) > 1 else place, tile)
    outer = order[:-1] if len(order) > 1 and rows_iter is not None else order
    # Before the reduction is decomposed: a guarded start block would no longer count as covering its output.
    fused = parallel_outer(sch, outer, work_of(anchor), target.num_cores)
    sch.decompose_reduction(anchor.rv, reductions[0])
    return fused, outer[-1] is v_outer


def _attach_epilogue(sch: Schedule, epilogue: BlockInfo, place: Any, tile: Tile) -> None:
    if not attempt(sch.reverse_compute_at, epilogue.rv, place, True):
        return
    loops = sch.get_loops(epilogue.rv)
    depth = _depth_below(sch, loops, place)
    inner = loops[depth:]
    if not inner:
        return
    extents = [int(getattr(sch.get(loop).extent, "value", 0)) for loop in inner]
    if 0 in extents:
        return
    last = extents[-1]
    total = 1
    for e in extents:
        total *= e
    if tile.lanes > 1 and last % tile.lanes == 0 and total <= tile.lanes * 64:
        if last > tile.lanes:
            middle, lane = sch.split(inner[-1], [None, tile.lanes])
            sch.unroll(middle)
            sch.vectorize(lane)
        else:
            sch.vectorize(inner[-1])
        for loop, extent in zip(inner[:-1], extents[:-1], strict=True):
            if extent > 1:
                sch.unroll(loop)


def _depth_below(sch: Schedule, loops: list[Any], place: Any) -> int:
    wanted = sch.get(place).loop_var
    for i, loop in enumerate(loops):
        if sch.get(loop).loop_var is wanted:
            return i + 1
    return len(loops)


def _rows_side_by_side(anchor: BlockInfo, vector: IterInfo, rows: IterInfo | None) -> int:
    """How many rows of the broadcast operand the first cache holds at once: a stride of 4096 puts all in one set."""
    limit = 16
    for load in anchor.loads():
        if rows is None or access_stride(load.indices, vector.var) != "none":
            continue
        stride = flat_stride(load, rows.var)
        if stride:
            nbytes = abs(stride) * _bits_of(load.dtype) // 8
            limit = min(limit, _WAYS * (_WAY_BYTES // gcd(nbytes, _WAY_BYTES)))
    return limit


def _vectors_in_cache(anchor: BlockInfo, bits: int) -> int:
    """How many vectors a strip of the packed operand may be wide so that the second cache holds it for all rows."""
    depth = 1
    for it in anchor.reductions:
        depth *= it.dom or 1
    return max(2, min(6, _STRIP_BYTES // max(1, depth * bits // 8)))


def _bits_of(dtype: str) -> int:
    from ...ir import dtype as dt

    return max(8, dt.bits(dtype))
