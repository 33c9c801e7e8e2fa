"""Hints and small helpers of tile programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import tir
from ...ir.expr import as_expr, PrimExpr
from ...ir.prim import And, Or
from ...ir.primops import cast, max_, min_
from ...script.ir_builder import tir as B
from ...tir.op import call_builtin
from ...tir.transform.tiles.names import L2, SHARED
from ...tir.transform.tiles.shared import Order
from ..layout import Layout, index_map_of, sizes_of
from .blocks import inside_kernel
from .regions import TileError, known_extents, region_of, takes_regions

__all__ = [
    "Layout", "all_of", "annotate_l2_hit_ratio", "annotate_layout", "annotate_safe_value", "any_of", "clamp", "device_assert",
    "sync_threads", "sync_warp",
]  # fmt: skip


def annotate_layout(layouts: Mapping[tir.Buffer, Any]) -> None:
    """Set layouts of tiles in shared memory: layouts of :mod:`relaxish.tile.layout`, index maps, or functions of the
    indices.

    Addresses are worked out by them. ``wgmma`` takes the layouts that its unit knows, other tiles are then multiplied by
    ``mma.sync``; ``wmma`` cannot read swizzled tiles. On a CPU tiles are packed for the product, whatever is asked for.
    """
    frame = inside_kernel("T.annotate_layout")
    for buffer, wish in layouts.items():
        if buffer.scope() not in SHARED:
            raise TileError(
                f"T.annotate_layout: {buffer.name} has scope {buffer.scope()!r}; layouts are of shared memory, who holds what of a "
                "fragment is the compiler's to choose"
            )
        try:
            frame.layouts[buffer] = index_map_of(wish, len(buffer.shape))
            Order(frame.layouts[buffer], sizes_of(buffer.shape))
        except (TypeError, ValueError) as error:
            raise TileError(f"T.annotate_layout: the layout of {buffer.name} is none: {error}") from None


def annotate_safe_value(values: dict[Any, Any]) -> None:
    """Set the value of loads outside of a buffer, in place of 0."""
    frame = inside_kernel("T.annotate_safe_value")
    for buffer, value in values.items():
        frame.safe_values[buffer] = value


def annotate_l2_hit_ratio(ratios: dict[Any, float]) -> None:
    """The share (0..1) of what is loaded from arguments that the second-level cache keeps before other data.

    Loads say so from sm_80 on; for GPUs before it is an error when the kernel is compiled. Products on sm_90a are then
    ``mma.sync``. CPUs have no such choice.
    """
    frame = inside_kernel("T.annotate_l2_hit_ratio")
    for buffer, ratio in ratios.items():
        if not 0.0 <= float(ratio) <= 1.0:
            raise TileError(f"T.annotate_l2_hit_ratio: {buffer.name} gets {ratio}, which is no share between 0 and 1")
        if buffer.scope() != "global":
            raise TileError(
                f"T.annotate_l2_hit_ratio: {buffer.name} lies in {buffer.scope()} memory, which has no such cache"
            )
        frame.hints.setdefault(L2, []).append([buffer.name, float(ratio)])


def clamp(x: Any, lo: Any, hi: Any) -> PrimExpr:
    """``x`` held between two bounds."""
    x = as_expr(x)
    return min_(max_(x, cast(x.dtype, as_expr(lo))), cast(x.dtype, as_expr(hi)))


def _joined(x: Any, what: str, join: Any) -> PrimExpr:
    region = region_of(x, what)
    places: list[list[Any]] = [[]]
    for base, extent in zip(region.bases, known_extents(region, what), strict=True):
        if not isinstance(extent, tir.IntImm) or extent.value * len(places) > 1024:
            raise TileError(f"{what}: {region.text()} is too large; reduce it first")
        places = [[*p, base + k] for p in places for k in range(extent.value)]
    made: Any = None
    for place in places:
        load = B.BufferLoad(region.buffer, place)
        term = load if load.dtype == "bool" else load != 0
        made = term if made is None else join(made, term)
    return made


@takes_regions
def any_of(buffer: Any) -> PrimExpr:
    """Whether some element of a small region is not zero."""
    return _joined(buffer, "T.any_of", Or)


@takes_regions
def all_of(buffer: Any) -> PrimExpr:
    """Whether no element of a small region is zero."""
    return _joined(buffer, "T.all_of", And)


def device_assert(condition: Any, message: str = "assertion failed") -> Any:
    """Stop the kernel where the condition does not hold."""
    return B.Assert(condition, message)


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """Wait for all threads of the block. Between statements the compiler does so itself; kernels written for one thread
    (``T.get_thread_binding``) say it."""
    del barrier_id, arrive_count
    if inside_kernel("T.sync_threads").thread_vars:
        B.evaluate(call_builtin("int32", "tvm_storage_sync", "shared"))


def sync_warp() -> None:
    """Wait for the threads of a warp, in kernels written for one thread."""
    if inside_kernel("T.sync_warp").thread_vars:
        B.evaluate(call_builtin("int32", "tvm_storage_sync", "warp"))
