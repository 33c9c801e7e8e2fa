"""Tiles of matrix products on matrix units, by the estimated cycles of the device that computes them.

All blocks of a wave take equally long, so a product takes the number of waves times the cycles of one: those in which the
matrix units multiply, shared memory delivers operands to them, or the second-level cache fills shared memory, whichever
are most. What registers cannot hold is spilled; memory must deliver every operand at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..target.shared_memory import opt_in_shared_memory
from .arch import CUDA, TileDevice
from .arch.chips import chip_of
from .hopper import costs_of
from .roller import Hint, IntrinInfo, Rasterization2DColumn
from .warpgroups import UNKNOWN_SIDE, HopperConfig, ranked

__all__ = ["Product", "hopper_config", "hopper_hints", "product_hints"]


@dataclass(frozen=True)
class Product:
    """A normalised product ``C[b, i, j] += A[b, i, k] * B[b, j, k]``; None for a size that is not known."""

    batch: int | None
    rows: int | None
    columns: int | None
    depth: int | None
    in_dtype: str = "float16"
    out_dtype: str = "float32"
    #: Which operands bulk copies bring, the rows or the columns: blocks of a cluster can share these (Hopper).
    bulk: tuple[bool, bool] = (True, True)

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """Batch, rows, columns and depth; unknown ones count as 1 and 2048."""
        rows, columns, depth = (UNKNOWN_SIDE if n is None else n for n in (self.rows, self.columns, self.depth))
        return self.batch or 1, rows, columns, depth

    @property
    def item(self) -> int:
        """Bytes of an operand's element."""
        return max(8, dt.bits(self.in_dtype)) // 8


# ---- any architecture

_FRAGMENT = 16
_SIDES = (16, 32, 64, 128, 256)
_MOST_WARPS = 8
_SHARED_RATE = 128.0  # bytes a cycle of a processor's shared memory
_FILL_RATE = 56.0  # bytes a cycle from the second-level cache into a processor
_L2_RATE = 30.0  # the same when all processors ask at once
_OUT_RATE = 24.0
_SHOWS = 0.1
_LATENCY = 800.0
_BARRIER = 30.0
_START = 1500.0
_REGISTERS = 65536
_MOST_REGISTERS = 255
_BESIDES = 40  # registers of a thread for addresses and loops
_RESERVED = 1024  # bytes of shared memory that the system keeps of each block
_SPILL_COST = 4.0


def product_hints(what: Product, arch: TileDevice, topk: int) -> list[Hint]:
    """Hints for a product on matrix units, the fastest by estimate first."""
    tiles = _tiles(what, arch)
    if not len(tiles["rows"]):
        return []
    cycles = _tile_cycles(what, arch, tiles)
    clock = chip_of(arch.target).clock * 1e9
    found: list[Hint] = []
    seen: set[tuple[int, ...]] = set()
    for place in np.argsort(cycles, kind="stable"):
        tile = {k: int(v[place]) for k, v in tiles.items()}
        # The other numbers of stages of a tiling are no other tiling.
        key = tuple(v for k, v in tile.items() if k != "stages")
        if key in seen:
            continue
        seen.add(key)
        found.append(_hint(what, arch, tile, float(cycles[place]) / clock))
        if len(found) == topk:
            break
    return found


def _tiles(what: Product, arch: TileDevice) -> dict[str, Any]:
    """Columns: sides and depth of a tile, warps along its sides, tiles in flight; those that the device can run."""
    _, rows, columns, depth = what.sides
    cuda = isinstance(arch, CUDA)
    steps = [n // what.item for n in (32, 64, 128, 256)]
    stages = (2, 3, 4) if cuda and getattr(arch, "sm_version", 0) >= 80 else (1, 2)
    grid = [
        (m, n, k, wm, wn, s)
        for m, n, k, wm, wn, s in product(_SIDES, _SIDES, steps, (1, 2, 4, 8), (1, 2, 4, 8), stages)
        if wm * wn <= _MOST_WARPS and m // wm >= _FRAGMENT and n // wn >= _FRAGMENT and k <= max(steps[0], depth)
        and m <= max(_FRAGMENT, 2 * rows - 1) and n <= max(_FRAGMENT, 2 * columns - 1)
    ]  # fmt: skip
    table = np.array(grid, dtype=np.int64).reshape(len(grid), 6)
    tiles = dict(zip(("rows", "columns", "step", "row_warps", "column_warps", "stages"), table.T, strict=True))
    limit = max(arch.smem_cap, opt_in_shared_memory(str(arch.target.attrs.get("arch", "")))) if cuda else arch.smem_cap
    threads = tiles["row_warps"] * tiles["column_warps"] * arch.warp_size
    fits = (_shared(what, tiles) <= limit) & (threads <= int(arch.target.attrs.get("max_num_threads") or 1024))
    return {k: v[fits] for k, v in tiles.items()}


def _shared(what: Product, tiles: dict[str, Any]) -> np.ndarray[Any, Any]:
    return (tiles["rows"] + tiles["columns"]) * tiles["step"] * what.item * tiles["stages"]


def _tile_cycles(what: Product, arch: TileDevice, t: dict[str, Any]) -> np.ndarray[Any, Any]:
    chip = chip_of(arch.target)
    batch, rows, columns, depth = what.sides
    out = max(8, dt.bits(what.out_dtype)) // 8
    warps = t["row_warps"] * t["column_warps"]
    warp_rows, warp_columns = t["rows"] // t["row_warps"], t["columns"] // t["column_warps"]
    blocks = batch * -(-rows // t["rows"]) * -(-columns // t["columns"])
    steps = -(-depth // t["step"])
    # Accumulators, and operands of two depths of a fragment.
    registers = (
        _BESIDES + (warp_rows * warp_columns + (warp_rows + warp_columns) * _FRAGMENT * what.item // 2) / arch.warp_size
    )
    threads = warps * arch.warp_size
    resident = np.minimum(chip.threads // threads, chip.shared_memory // (_shared(what, t) + _RESERVED))
    resident = np.minimum(resident, _REGISTERS // (threads * np.minimum(registers, _MOST_REGISTERS)))
    resident = np.clip(resident, 1, 16)
    used = np.minimum(resident, np.ceil(blocks / chip.cores))
    multiply = t["rows"] * t["columns"] * t["step"] * what.item / 2 / chip.matrix_multiply_adds
    operands = (warps * (warp_rows + warp_columns) + t["rows"] + t["columns"]) * t["step"] * what.item
    # A processor's parts work only when they have warps.
    parts = np.minimum(1.0, used * warps / arch.sm_partition)
    inside = np.maximum(multiply / parts, operands / _SHARED_RATE)
    inside = inside + np.maximum(registers - _MOST_REGISTERS, 0.0) * threads * 8 / _SHARED_RATE * _SPILL_COST
    fill = (t["rows"] + t["columns"]) * t["step"] * what.item / _FILL_RATE
    waiting = np.where(t["stages"] == 1, _LATENCY + fill + inside, (_LATENCY + inside) / np.maximum(1, t["stages"] - 1))
    step = np.maximum(np.maximum(used * inside, used * fill), waiting) + _BARRIER
    # What overlaps still gets in each other's way.
    step = step + _SHOWS * used * (inside + fill)
    waves = np.ceil(blocks / (chip.cores * used))
    written = used * t["rows"] * t["columns"] * out / _OUT_RATE
    total = waves * (steps * step + _LATENCY + written)
    moved = blocks * (t["rows"] + t["columns"]) * steps * t["step"] * what.item
    least = batch * ((rows + columns) * depth * what.item + rows * columns * out)
    total = np.maximum(total, moved / (_L2_RATE * chip.cores)) + _SHOWS * moved / (_L2_RATE * chip.cores)
    return np.maximum(total, least / (chip.bandwidth / chip.clock)) + _START


def _hint(what: Product, arch: TileDevice, tile: dict[str, int], seconds: float) -> Hint:
    hint = Hint()
    hint.arch, hint.use_tc, hint.cost = arch, True, seconds
    hint.block = [tile["rows"], tile["columns"]]
    hint.warp = [tile["rows"] // tile["row_warps"], tile["columns"] // tile["column_warps"]]
    hint.rstep = [tile["step"]]
    hint.pipeline_stage = tile["stages"]
    hint.use_async = isinstance(arch, CUDA) and arch.sm_version >= 80
    hint.shared_scope = "shared.dyn"
    lanes = 16 // what.item
    hint.vectorize = {"A_reindex": lanes, "B_reindex": lanes}
    hint.cached_tensors = ["A_reindex", "B_reindex"]
    hint.intrin_info = IntrinInfo(what.in_dtype, what.out_dtype, True)
    batch, rows, columns, depth = what.sides
    if batch * (rows + columns) * depth * what.item >= arch.l2_cache_size_bytes > 0:
        hint.rasterization_plan = Rasterization2DColumn(max(1, int(arch.compute_max_core**0.5)))
    return hint.complete_config()


# ---- Hopper: warpgroups that multiply what another one fetches


def hopper_hints(what: Product, arch: TileDevice, topk: int) -> list[Hint]:
    """Hints for a product by warpgroups on sm_90a, the fastest by estimate first.

    ``block`` of the result by ``warpgroups`` that multiply, ``pipeline_stage`` steps in flight, ``cluster`` blocks that
    fetch the columns they share by multicast, ``cluster_columns`` the rows, ``split_k_factor`` blocks that share the
    reduction of a tile, ``persistent`` blocks that process all tiles.
    """
    sides = (what.batch, what.rows, what.columns, what.depth)
    hints = []
    for config, seconds in ranked(sides, what.item, costs_of(arch.target), what.bulk)[:topk]:
        tile = {
            "rows": config.rows, "columns": config.columns, "step": config.depth_bytes // what.item,
            "row_warps": config.warpgroups, "column_warps": 1, "stages": config.stages,
        }  # fmt: skip
        hint = _hint(what, arch, tile, seconds)
        # Four warps of 16 rows each make a warpgroup.
        hint.warp = [config.rows // config.warpgroups // 4, config.columns]
        hint.warpgroups, hint.split_k_factor, hint.persistent = config.warpgroups, config.split, config.persistent
        hint.cluster, hint.cluster_columns = config.cluster, config.cluster_columns
        hints.append(hint)
    return hints


def hopper_config(hint: Hint) -> HopperConfig:
    """The tiling of a hint of :func:`hopper_hints`."""
    item = max(8, dt.bits(hint.intrin_info.in_dtype)) // 8
    rows, columns = hint.block
    return HopperConfig(
        rows, columns, depth_bytes=hint.rstep[0] * item, stages=hint.pipeline_stage, warpgroups=hint.warpgroups,
        persistent=hint.persistent, cluster=hint.cluster, cluster_columns=hint.cluster_columns, split=hint.split_k_factor,
    )  # fmt: skip
