"""Sizes of matrix-vector schedules for each kind of GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.expr import PrimExpr
from ...target import Target
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..base import get_extent, get_max_factor

__all__ = ["GEMVConfig", "is_adreno", "within_threads"]


@dataclass(frozen=True)
class GEMVConfig:
    """Sizes of the inner-reduction schedule.

    A thread block has ``ts`` threads along rows (bound to ``tag_s``) and ``tr`` along the reduction (``tag_r``). A thread
    takes ``tile_s`` rows and ``tile_r`` elements of the reduction at a time, in vectors of ``vec_c``.
    """

    tag_s: str = "threadIdx.y"
    tag_r: str = "threadIdx.x"
    ts: int = 1
    tr: int = 64
    tile_s: int = 1
    tile_r: int = 1
    vec_load: int = 1
    vec_c: int = 1
    load_v_shared: bool = False
    load_v_vec: int = -1
    unroll: int = 64
    warp_shuffle: bool = False


def is_adreno(target: Target) -> bool:
    """Whether the target is an Adreno GPU: OpenCL on an Android host, or said to be one."""
    return target.kind.name == "opencl" and ("android" in str(target.host) or "adreno" in str(target.attrs))


def within_threads(ts: int, tr: int, target: Target) -> tuple[int, int]:
    """Halve ``ts``, then ``tr``, until a thread block of the target can have ``ts * tr`` threads."""
    while ts * tr > int(target.attrs["max_num_threads"]):
        ts, tr = (ts // 2, tr) if ts > 1 else (ts, tr // 2)
    return ts, tr


def for_product(sch: Schedule, target: Target, block: BlockRV) -> GEMVConfig:
    """The sizes for one product whose loops are batch, rows, reduction, packed."""
    batch, s, r, c = (get_extent(sch, loop) for loop in sch.get_loops(block))
    config = _for_target(target, batch * s, r * c)
    ts, tr = within_threads(config.ts, config.tr, target)
    if isinstance(c, int) and c > 1:
        tile_r = c
    else:
        tile_r = max(get_max_factor(r, [tr, tr * 2, tr * 4, tr * 8]) // tr, 1) if isinstance(r, int) else 1
    vec_c = min(get_max_factor(tile_r, [1, 2, 4, 8]), config.vec_c)
    return replace(config, ts=ts, tr=tr, tile_r=tile_r, vec_c=vec_c)


def _for_target(target: Target, rows: PrimExpr | int, columns: PrimExpr | int) -> GEMVConfig:
    kind = target.kind.name
    known = isinstance(rows, int)
    tall = known and isinstance(columns, int) and rows > columns

    def shaped(config: GEMVConfig, if_tall: tuple[int, int], if_not: tuple[int, int]) -> GEMVConfig:
        ts, tr = if_tall if tall else if_not if known else (1, 64)
        return replace(config, ts=ts, tr=tr)

    if kind == "cuda":
        base = GEMVConfig(vec_c=4, vec_load=4, load_v_shared=True, load_v_vec=8, unroll=256, warp_shuffle=True)
        return shaped(base, (16, 32), (16, 32))
    if kind == "metal":
        base = GEMVConfig("threadIdx.x", "threadIdx.y", unroll=256, warp_shuffle=True)
        return shaped(base, (4, 16), (2, 64))
    if kind == "rocm":
        return shaped(GEMVConfig(vec_c=4, load_v_vec=8, unroll=256), (1, 128), (8, 64))
    if kind == "vulkan":
        return shaped(GEMVConfig(vec_c=4, load_v_shared=True, load_v_vec=4, unroll=256), (4, 32), (16, 32))
    if is_adreno(target):
        return GEMVConfig("threadIdx.x", "threadIdx.y", ts=2, tr=32, vec_c=8, unroll=8)
    if kind == "opencl" and "mali" in str(target.attrs):
        return GEMVConfig(vec_c=8)
    return GEMVConfig()
