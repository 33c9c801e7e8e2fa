"""Loops of tile programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import Range, as_expr
from ...ir.prim import Min, StringImm, Var, const
from ...script.ir_builder import tir as B
from ...script.ir_builder.tir.frame import ForFrame
from ...tir import For, IfThenElse, LetStmt
from ...tir.stmt import ForKind, Stmt
from ...tir.transform.tiles.names import GROUP, ORDER, PARALLEL, STAGE, STAGES, SYNC, WIDTH
from .blocks import inside_kernel
from .breaks import BREAK
from .regions import TileError, width_of
from ...ir.plain import plain

__all__ = [
    "Parallel", "Persistent", "Pipelined", "Serial", "Unroll", "Vectorized", "loop_break", "serial", "unroll",
    "vectorized",
]  # fmt: skip


def Parallel(
    *extents: Any, coalesced_width: int | None = None, loop_layout: Any = None, prefer_async: Any = None
) -> ForFrame:
    """Loops whose iterations are independent of each other; the compiler shares them among the threads."""
    inside_kernel("T.Parallel")
    del prefer_async
    if loop_layout is not None:
        raise TileError("T.Parallel(loop_layout=...): layouts are chosen by the compiler; leave it out")
    if not extents:
        raise TileError("T.Parallel takes at least one extent")
    exprs = [as_expr(e) for e in extents]
    annotations: dict[str, Any] = {PARALLEL: len(exprs)}
    if coalesced_width is not None:
        annotations[WIDTH] = width_of(coalesced_width)

    def make(variables: list[Any], doms: list[Range], body: Any) -> Stmt:
        for level in reversed(range(len(variables))):
            dom = doms[level]
            body = For(
                variables[level], dom.min, dom.extent, ForKind.PARALLEL, body, None, annotations if level == 0 else {}
            )
        return body

    return ForFrame(
        [Var("v", e.dtype) for e in exprs], [Range.from_min_extent(const(0, e.dtype), e) for e in exprs], make
    )


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Sequence[Sequence[int]] | None = None,
    group: Sequence[Sequence[int]] | None = None,
) -> ForFrame:
    """A loop whose copies run up to ``num_stages`` turns ahead, each into memory of its own; 0 and 1: no overlap.

    ``stage`` and ``order`` say of each statement of the body in which stage it is (one of stage ``s`` is ``s`` turns behind)
    and its place in a turn. Copies of the statements of a ``group`` are waited for together; of a pair in ``sync`` the second
    statement waits for the first in all threads. Results never depend on them: what would change one is an error when the
    kernel is compiled for a GPU. A CPU runs statements as they are written, one after the other.
    """
    inside_kernel("T.Pipelined")
    if num_stages < 0:
        raise TileError(f"T.Pipelined(num_stages={num_stages}) takes 0 or more")
    annotations: dict[str, Any] = {STAGES: int(num_stages)}
    for key, value in ((ORDER, order), (STAGE, stage)):
        if value is not None:
            annotations[key] = [int(v) for v in value]
    for key, parts in ((GROUP, group), (SYNC, sync)):
        if parts is not None:
            annotations[key] = [[int(v) for v in part] for part in parts]
    if any(len(pair) != 2 for pair in sync or ()):
        raise TileError(f"T.Pipelined(sync={sync}) takes pairs of statements")
    return B.serial(start, stop, annotations=annotations)


class _PersistentFrame(ForFrame):
    """Loops over the waves of a persistent kernel; its names are the coordinates of a tile."""

    def __init__(self, names: list[Var], doms: list[Range], make: Callable[..., Any]) -> None:
        super().__init__(names, doms, make)


def Persistent(domain: Sequence[Any], wave_size: Any, index: Any, group_size: int = 8) -> ForFrame:
    """The tiles of ``domain`` that block number ``index`` of ``wave_size`` computes, one after the other.

    Tiles of two dimensions are visited in groups of ``group_size`` rows, so that blocks that run at the same time share operands.
    """
    inside_kernel("T.Persistent")
    exprs = [as_expr(e) for e in domain]
    if not exprs:
        raise TileError("T.Persistent takes at least one extent")
    wave, index = as_expr(wave_size), as_expr(index)
    total: Any = exprs[0]
    for e in exprs[1:]:
        total = total * e
    turn = Var("wave", index.dtype)
    tile = Var("tile", index.dtype)
    names = [Var("v", e.dtype) for e in exprs]

    def make(variables: list[Any], doms: list[Range], body: Any) -> Stmt:
        places = _places(tile, exprs, int(group_size))
        for var, place in reversed(list(zip(variables, places, strict=True))):
            body = LetStmt(var, place, body)
        body = LetStmt(tile, turn * wave + index, IfThenElse(tile < total, body))
        waves = (total + wave - 1) // wave
        return For(turn, const(0, turn.dtype), waves, ForKind.SERIAL, body)

    return _PersistentFrame(names, [Range.from_min_extent(const(0, e.dtype), e) for e in exprs], make)


def _places(tile: Any, extents: list[Any], group: int) -> list[Any]:
    """The coordinates of a tile's number."""
    if len(extents) == 2 and group > 1:
        rows, columns = extents
        band = tile // (group * columns)
        inside = tile % (group * columns)
        height = Min(rows - band * group, const(group, tile.dtype))
        return [band * group + inside % height, inside // height]
    places = []
    for position, extent in enumerate(reversed(extents)):
        places.append(tile if position == len(extents) - 1 else tile % extent)
        tile = tile // extent
    return places[::-1]


def _plain_loop(maker: Callable[..., ForFrame], name: str) -> Callable[..., ForFrame]:
    def run(start: Any, stop: Any = None, step: Any = None, *, annotations: dict[str, Any] | None = None) -> ForFrame:
        if step is not None and plain(step) != 1:
            raise TileError(f"T.{name}: loops count by one; multiply the variable instead")
        return maker(start, stop, annotations=annotations)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = maker.__doc__
    return run


serial = Serial = _plain_loop(B.serial, "serial")
unroll = Unroll = _plain_loop(B.unroll, "unroll")
vectorized = Vectorized = _plain_loop(B.vectorized, "vectorized")


def loop_break() -> None:
    """End the innermost loop here. It is then run turn by turn, as long as no thread of the block has come here; what
    decides is to be the same for all of them."""
    inside_kernel("T.loop_break")
    B.evaluate(StringImm(BREAK))
