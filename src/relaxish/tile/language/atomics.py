"""Updates of memory that other blocks update at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ... import tir
from ...ir.expr import ExprLike, PrimExpr, as_expr
from ...ir.primops import cast, max_, min_
from ...script.ir_builder import tir as B
from ...tir.transform.tiles.names import ATOMIC, VAR
from .blocks import at, inside_kernel, tile_block
from .regions import Region, Tile, TileError, pair_regions, region_of, takes_regions

__all__ = [
    "atomic_add", "atomic_addx2", "atomic_addx4", "atomic_and", "atomic_load", "atomic_max", "atomic_min", "atomic_or",
    "atomic_store", "atomic_xor",
]  # fmt: skip

Operand: TypeAlias = tir.Buffer | tir.BufferRegion | ExprLike
"""A tile, or one value."""
_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "max": max_, "min": min_, "and": tir.bitwise_and, "or": tir.bitwise_or,
    "xor": tir.bitwise_xor, "exch": lambda _, b: b,
}  # fmt: skip
_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def _kind(how: str, what: str, order: str | None) -> str:
    """The annotation of an update: what it does, and what it orders beside. Raises TileError for other words."""
    if order is not None and order not in _ORDERS:
        raise TileError(f"{what}(memory_order={order!r}): orders are {', '.join(_ORDERS)}")
    return how if order in (None, "relaxed") else f"{how}:{order}"


def _update(
    how: str, what: str, dst: Tile, value: Operand, return_prev: bool, order: str | None = None
) -> PrimExpr | None:
    inside_kernel(what)
    kind = _kind(how, what, order)
    target = region_of(dst, what)
    if target.buffer.scope() in ("local", "local.fragment", VAR):
        raise TileError(f"{what}: {target.buffer.name} is in registers, which nobody else sees; store to it")
    if isinstance(value, (tir.Buffer, tir.BufferRegion)):
        if return_prev:
            raise TileError(f"{what}(return_prev=True) is for one element")
        _update_tile(how, kind, what, target, region_of(value, what))
        return None
    if target.extents is not None:
        raise TileError(
            f"{what}: {target.text()} takes a tile, not one value; name an element {target.buffer.name}[i, j]"
        )
    before = None
    if return_prev:
        before = B.alloc_buffer([1], target.dtype, scope=VAR)
        before.name = before.data.name = f"{target.buffer.name}_before"
    with B.block(f"atomic_{how}"):
        B.block_attr({ATOMIC: kind})
        old = B.BufferLoad(target.buffer, list(target.bases))
        if before is not None:
            B.buffer_store(before, old, [0])
        B.buffer_store(
            target.buffer,
            cast(target.dtype, _UPDATES[how](old, cast(target.dtype, as_expr(value)))),
            list(target.bases),
        )
    return None if before is None else B.BufferLoad(before, [as_expr(0)])


def _update_tile(how: str, kind: str, what: str, target: Region, source: Region) -> None:
    extents, dims_a, dims_b = pair_regions(source, target, what)

    def body(v: list[Any]) -> None:
        place = at(target, dims_b, v)
        value = B.BufferLoad(source.buffer, at(source, dims_a, v))
        old = B.BufferLoad(target.buffer, place)
        B.buffer_store(target.buffer, _UPDATES[how](old, cast(target.dtype, value)), place)

    tile_block("atomic", extents, "S" * len(extents), body, {ATOMIC: kind}, name=f"atomic_{how}")


@takes_regions
def atomic_add(
    dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False, use_tma: bool = False
) -> PrimExpr | None:
    """Add a value to an element, or a tile to a region, whatever other blocks do; ``return_prev`` gives what was there."""
    del use_tma
    return _update("add", "T.atomic_add", dst, value, return_prev, memory_order)


@takes_regions
def atomic_max(
    dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False
) -> PrimExpr | None:
    """The larger of an element and a value, put there."""
    return _update("max", "T.atomic_max", dst, value, return_prev, memory_order)


@takes_regions
def atomic_min(
    dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False
) -> PrimExpr | None:
    """The smaller of an element and a value, put there."""
    return _update("min", "T.atomic_min", dst, value, return_prev, memory_order)


@takes_regions
def atomic_or(dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False) -> PrimExpr | None:
    """The bits of an element or a value, put there."""
    return _update("or", "T.atomic_or", dst, value, return_prev, memory_order)


@takes_regions
def atomic_and(
    dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False
) -> PrimExpr | None:
    """The bits of both an element and a value, put there."""
    return _update("and", "T.atomic_and", dst, value, return_prev, memory_order)


@takes_regions
def atomic_xor(
    dst: Tile, value: Operand, memory_order: str | None = None, return_prev: bool = False
) -> PrimExpr | None:
    """The bits that an element and a value differ in, put there."""
    return _update("xor", "T.atomic_xor", dst, value, return_prev, memory_order)


@takes_regions
def atomic_store(dst: Tile, value: Operand, memory_order: str | None = None) -> None:
    """Store an element at once."""
    _update("exch", "T.atomic_store", dst, value, False, memory_order)


@takes_regions
def atomic_load(src: Tile, memory_order: str | None = None) -> PrimExpr:
    """Read an element that other blocks write."""
    inside_kernel("T.atomic_load")
    kind = _kind("load", "T.atomic_load", memory_order)
    region = region_of(src, "T.atomic_load")
    if region.extents is not None:
        raise TileError(f"T.atomic_load: {region.text()} is a tile; name an element {region.buffer.name}[i, j]")
    before = B.alloc_buffer([1], region.dtype, scope=VAR)
    before.name = before.data.name = f"{region.buffer.name}_now"
    with B.block("atomic_load"):
        B.block_attr({ATOMIC: kind})
        B.buffer_store(before, B.BufferLoad(region.buffer, list(region.bases)), [0])
    return B.BufferLoad(before, [as_expr(0)])


def _wide(dst: Tile, value: Operand, lanes: int) -> None:
    what = f"T.atomic_addx{lanes}"
    target = region_of(dst, what)
    source = value if isinstance(value, (tir.BufferLoad, tir.Buffer, tir.BufferRegion)) else None
    if source is None:
        raise TileError(f"{what} adds {lanes} elements from where the second argument begins: give B[i, j]")
    a = region_of(source, what)
    for k in range(lanes):
        load = B.BufferLoad(a.buffer, [*a.bases[:-1], a.bases[-1] + k])
        _update("add", what, B.BufferLoad(target.buffer, [*target.bases[:-1], target.bases[-1] + k]), load, False)


@takes_regions
def atomic_addx2(dst: Tile, value: Operand, return_prev: bool = False) -> None:
    """Add two neighbouring elements."""
    if return_prev:
        raise TileError("T.atomic_addx2(return_prev=True) is for one element: use T.atomic_add")
    _wide(dst, value, 2)


@takes_regions
def atomic_addx4(dst: Tile, value: Operand, return_prev: bool = False) -> None:
    """Add four neighbouring elements."""
    if return_prev:
        raise TileError("T.atomic_addx4(return_prev=True) is for one element: use T.atomic_add")
    _wide(dst, value, 4)
