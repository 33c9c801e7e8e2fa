"""Reductions and running sums over one dimension of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import EQ, const, same_int
from ...ir.primops import cast, max_, min_
from ...script.ir_builder import tir as B
from ...tir import abs as abs_
from ...tir import Buffer, bitwise_and, bitwise_or, bitwise_xor, if_then_else, max_value, min_value
from ...tir.transform.tiles.names import REDUCER
from .blocks import at, inside_kernel, tile_block
from .regions import Tile, TileError, is_one, known_extents, region_of, takes_regions

__all__ = [
    "cummax", "cumsum", "finalize_reducer", "reduce", "reduce_absmax", "reduce_abssum", "reduce_bitand", "reduce_bitor",
    "reduce_bitxor", "reduce_max", "reduce_min", "reduce_sum",
]  # fmt: skip


def _lowest(dtype: str) -> PrimExpr:
    return const(float("-inf"), dtype) if dt.is_float(dtype) and dt.bits(dtype) > 8 else min_value(dtype)


def _highest(dtype: str) -> PrimExpr:
    return const(float("inf"), dtype) if dt.is_float(dtype) and dt.bits(dtype) > 8 else max_value(dtype)


def _ones(dtype: str) -> PrimExpr:
    return const(-1, dtype) if dt.is_int(dtype) and not dt.is_uint(dtype) else max_value(dtype)


# Kind -> (what a reduction begins with, how two values become one, what is taken of an element).
_KINDS: dict[str, tuple[Callable[[str], Any], Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda d: const(0, d), lambda a, b: a + b, lambda x: x),
    "abssum": (lambda d: const(0, d), lambda a, b: a + b, abs_),
    "max": (_lowest, max_, lambda x: x),
    "min": (_highest, min_, lambda x: x),
    "absmax": (lambda d: const(0, d), max_, abs_),
    "bitand": (_ones, bitwise_and, lambda x: x),
    "bitor": (lambda d: const(0, d), bitwise_or, lambda x: x),
    "bitxor": (lambda d: const(0, d), bitwise_xor, lambda x: x),
}


@takes_regions
def reduce(buffer: Tile, out: Tile, reduce_type: str, dim: int = -1, clear: bool = True) -> None:
    """Reduce a dimension of ``buffer`` into ``out``, which lacks it or has it with size 1; ``clear=False`` takes what is in
    ``out`` into the result."""
    if reduce_type not in _KINDS:
        raise TileError(f"reductions are {', '.join(_KINDS)}; not {reduce_type!r}")
    what = f"T.reduce_{reduce_type}"
    source, target = region_of(buffer, what), region_of(out, what)
    extents = list(known_extents(source, what))
    rank = len(extents)
    if not -rank <= dim < rank:
        raise TileError(f"{what}(dim={dim}): {source.text()} has {rank} dimensions")
    dim %= rank
    kept = [d for d in range(rank) if d != dim]
    outer = list(known_extents(target, what))
    if len(outer) == rank:
        places = kept
        fits = is_one(outer[dim])
    else:
        places = list(range(len(outer)))
        fits = len(outer) == len(kept) or (rank == 1 and len(outer) == 1 and is_one(outer[0]))
    fits = fits and all(_same(extents[d], outer[p]) for d, p in zip(kept, places, strict=False))
    if not fits:
        raise TileError(f"{what}(dim={dim}): {target.text()} is not {source.text()} without that dimension")
    begin, combine, take = _KINDS[reduce_type]

    def body(v: list[Any]) -> None:
        place = at(target, places, [v[d] for d in kept])
        load = take(B.BufferLoad(source.buffer, at(source, range(rank), v)))
        if clear:
            with B.init():
                B.buffer_store(target.buffer, begin(target.dtype), place)
        B.buffer_store(target.buffer, combine(B.BufferLoad(target.buffer, place), cast(target.dtype, load)), place)

    kinds = "".join("R" if d == dim else "S" for d in range(rank))
    tile_block(
        "reduce", extents, kinds, body, {"tile.reduce": reduce_type, "tile.dim": dim}, name=f"reduce_{reduce_type}"
    )


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return same_int(a, b)


def _reduction(kind: str) -> Callable[..., None]:
    def run(buffer: Tile, out: Tile, dim: int = -1, clear: bool = True, batch: int = 1) -> None:
        del batch
        reduce(buffer, out, kind, dim, clear)

    run.__name__ = run.__qualname__ = f"reduce_{kind}"
    run.__doc__ = f"``T.reduce(buffer, out, {kind!r}, dim, clear)``"
    takes_regions(run)
    return run


reduce_sum = _reduction("sum")
reduce_max = _reduction("max")
reduce_min = _reduction("min")
reduce_absmax = _reduction("absmax")
reduce_bitand = _reduction("bitand")
reduce_bitor = _reduction("bitor")
reduce_bitxor = _reduction("bitxor")


@takes_regions
def reduce_abssum(buffer: Tile, out: Tile, dim: int = -1) -> None:
    """The sum of absolute values over a dimension."""
    reduce(buffer, out, "abssum", dim, True)


def _scan(what: str, src: Tile, dst: Tile | None, dim: int, reverse: bool, combine: Callable[[Any, Any], Any]) -> None:
    source = region_of(src, what)
    target = source if dst is None else region_of(dst, what)
    extents = list(known_extents(source, what))
    rank = len(extents)
    if not -rank <= dim < rank:
        raise TileError(f"{what}(dim={dim}): {source.text()} has {rank} dimensions")
    dim %= rank
    outer = known_extents(target, what)
    if len(outer) != rank or not all(_same(a, b) for a, b in zip(extents, outer, strict=True)):
        raise TileError(f"{what}: {source.text()} and {target.text()} differ in shape")
    order = [d for d in range(rank) if d != dim] + [dim]

    def body(v: list[Any]) -> None:
        place = dict(zip(order, v, strict=True))
        step = place[dim]
        here = [place[d] for d in range(rank)]
        before = list(here)
        if reverse:
            here[dim] = extents[dim] - 1 - step
            before[dim] = extents[dim] - step
        else:
            before[dim] = step - 1
        dims = range(rank)
        value = cast(target.dtype, B.BufferLoad(source.buffer, at(source, dims, here)))
        last = B.BufferLoad(target.buffer, at(target, dims, before))
        B.buffer_store(
            target.buffer,
            if_then_else(EQ(step, const(0, step.dtype)), value, combine(last, value)),
            at(target, dims, here),
        )

    tile_block(
        "scan", [extents[d] for d in order], "S" * (rank - 1) + "O", body,
        {"tile.scan": what.removeprefix("T.cum"), "tile.dim": dim, "tile.reverse": int(reverse)}, name=what.removeprefix("T."),
    )  # fmt: skip


@takes_regions
def cumsum(src: Tile, dst: Tile | None = None, dim: int = 0, reverse: bool = False) -> None:
    """Running sums along a dimension, in place without ``dst``."""
    _scan("T.cumsum", src, dst, dim, reverse, lambda a, b: a + b)


@takes_regions
def cummax(src: Tile, dst: Tile | None = None, dim: int = 0, reverse: bool = False) -> None:
    """Running maxima along a dimension, in place without ``dst``."""
    _scan("T.cummax", src, dst, dim, reverse, max_)


def finalize_reducer(reducer: Buffer) -> None:
    """The end of what is reduced into ``T.alloc_reducer``'s memory: from here it holds the results."""
    frame = inside_kernel("T.finalize_reducer")
    found = [op for buffer, op in frame.reducers if buffer is reducer]
    if not found:
        raise TileError(f"T.finalize_reducer: {getattr(reducer, 'name', reducer)} was not made by T.alloc_reducer")

    def body(v: list[Any]) -> None:
        B.buffer_store(reducer, B.BufferLoad(reducer, v), v)

    tile_block(
        "finalize", list(reducer.shape), "S" * len(reducer.shape), body, {REDUCER: found[0]}, name="finalize_reducer"
    )
