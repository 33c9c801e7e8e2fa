"""Tilings that carver recommends for a task, as rows of decisions of its sketches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...carver import Hint, recommend
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ..space_generator.hints import TiledBlock
from ...support.sequences import of_kind

if TYPE_CHECKING:
    from .decisions import DecisionTable, Tile
    from ..task import Task

__all__ = ["recommended_hints", "rows_of_hint"]

Factors = tuple[int, ...]
# Sizes of a matrix instruction: loops around a tensorised block count those, hints count results.
_POINT = 16
# Rows of one hint: where factors that it does not speak of stand.
_MOST_ROWS = 64


def recommended_hints(context: Task, count: int) -> list[Hint]:
    """The ``count`` best tilings of a task's function by carver; none for functions that it cannot read."""
    functions = list(of_kind(context.mod.functions.values(), PrimFunc)) if context.mod else []
    if len(functions) != 1 or context.target is None:
        return []
    try:
        # Sketches copy no operands into strips: their layout is the schedule's, or stays as it is.
        return list(recommend(functions[0], context.target, count, may_pack=False))
    except (RelaxishError, ValueError, NotImplementedError) as error:
        context.logger.debug("carver recommends nothing: %s", error)
        return []


def rows_of_hint(
    hint: Hint, blocks: Sequence[TiledBlock], table: DecisionTable, start: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Rows of a sketch that are tiled as a hint says; the rest of them is that of ``start``. None where it does not fit.

    What a hint leaves open (which loops outside of a register tile the rest of a tile goes to) gives several rows.
    """
    tiles = {tile.inst: tile for tile in table.tiles}
    made = []
    for block in blocks:
        for factors in itertools.islice(_tilings(hint, block, tiles), _MOST_ROWS):
            row = start.copy()
            for at, values in factors:
                row[at : at + len(values)] = values
            made.append(row)
    return np.stack(made) if made else np.empty((0, table.width), dtype=np.int64)


def _tilings(hint: Hint, block: TiledBlock, tiles: dict[Any, Tile]) -> Iterator[list[tuple[int, Factors]]]:
    """Factors of every sampled axis of a block: (first column, factors)."""
    model = block.model
    spatial = [a for a in model.axes if not a.reduction]
    tensorized = model.point_lanes > 1
    inner = hint.warp if tensorized else hint.thread
    depth = len(model.axes) - len(spatial)
    if bool(hint.use_tc) != tensorized or len(inner) != len(hint.block) or len(hint.rstep) != depth:
        return
    if not inner or len(hint.block) > len(spatial):
        return
    # A batch before the sides of a product: one of each is computed at a time.
    missing = len(spatial) - len(hint.block)
    sizes = iter(zip([1] * missing + list(hint.block), [1] * missing + list(inner), strict=True))
    steps = iter(hint.rstep)
    point = _POINT if tensorized else 1
    choices: list[list[tuple[int, Factors]]] = []
    for axis, inst in zip(model.axes, block.samples, strict=True):
        wanted = (int(next(steps)),) if axis.reduction else next(sizes)
        tile = tiles.get(inst)
        if tile is None:
            continue
        # Loops around a matrix instruction count those.
        results, part = -(-int(wanted[0]) // point), -(-int(wanted[-1]) // point)
        if axis.reduction:
            found = _of_reduction(axis.extent, results, tile)
        else:
            found = _of_axis(axis.extent, results, part, tile, model.structure.startswith("SSS"))
        if not found:
            return
        choices.append([(tile.at, f) for f in found])
    yield from (list(each) for each in itertools.product(*choices))


def _of_axis(extent: int, results: int, part: int, tile: Tile, threads: bool) -> list[Factors]:
    """Factorisations of an axis: tasks of ``results``, register tiles of ``part``; on GPUs so many threads instead."""
    count = tile.count
    if extent % results or results % part or count < (4 if threads else 3):
        return []
    first, rest = extent // results, results // part
    known = {0: first, 2: part} if threads else {0: first, count - 1: part}
    places = [i for i in range(1, count) if i not in known]
    found = [_placed(count, known, i, rest) for i in (places if rest > 1 else places[:1])]
    return [f for f in found if _holds(tile, f[-1])]


def _of_reduction(extent: int, step: int, tile: Tile) -> list[Factors]:
    """Factorisations of a reduction: ``step`` of it at a time, or as many as a sketch lets the innermost loop have."""
    if extent % step:
        return []
    if tile.count == 1:
        return [(extent,)]
    inner = max(d for d in range(1, step + 1) if step % d == 0 and _holds(tile, d))
    return [_placed(tile.count, {0: extent // inner}, i, inner) for i in range(1, tile.count)]


def _holds(tile: Tile, inner: int) -> bool:
    return tile.limit <= 0 or inner <= tile.limit


def _placed(count: int, known: dict[int, int], at: int, value: int) -> Factors:
    return tuple(value if i == at else known.get(i, 1) for i in range(count))
