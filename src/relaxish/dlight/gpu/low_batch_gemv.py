"""Products with a few rows of unknown number, as in batched decoding: matrix-vector schedules for a padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...arith import normalize_to_iter_sum
from ...ir.expr import PrimExpr, Range
from ...target import Target
from ...tir import Block, Buffer, IterVar, PrimFunc
from ...tir.analysis import undefined_vars
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import (
    BlockInfo, collect_block_iter_vars_used_in_access_region, extent_of, is_broadcast_epilogue, normalize_prim_func,
    summand,
)  # fmt: skip
from ..base import ILLEGAL, get_extent, get_max_factor, int_of, try_inline_contiguous_spatial
from .common import GPUScheduleRule
from .gemv import InnerReduction
from .gemv_config import GEMVConfig, is_adreno, within_threads
from .low_batch_outer import schedule_outer_reduction

__all__ = ["LowBatchGEMV"]


class LowBatchGEMV(GPUScheduleRule):
    """``Y[m, s] += A[s, r] * X[m, r]`` with ``m`` unknown but small: the batch is padded to ``bucket`` rows.

    Each thread block takes ``bucket`` rows of the batch, so that the matrix is read once for all of them. Decoding of
    the matrix (a block with "dequantize" in its name) happens in registers just before its use.

    Before and after (cuda, bucket 4)::

        for m, s, r in T.grid(batch, 4096, 4096):      blockIdx.y: 4 rows of the batch; blockIdx.x: rows of A
            Y[m, s] += A[s, r] * X[m, r]                   threads 16 x 32; partial sums, then a sum across threads
    """

    def __init__(self, bucket: int = 4) -> None:
        self.bucket = bucket

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        infos = normalize_prim_func(sch)
        reductions = [i for i in infos or [] if i.is_reduction()]
        if len(reductions) != 1 or _vectors(sch, reductions[0]) is None:
            return None
        sizes = [i.dom if isinstance(i.dom, int) else self.bucket for i in reductions[0].iters]
        try:
            sch.pad_einsum(reductions[0].block_rv, sizes)
        except ILLEGAL:
            return None
        infos = normalize_prim_func(sch) or []
        dequantize = next((i.block_rv for i in infos if "dequantize" in i.name), None)
        padded = next(
            (i.block_rv for i in infos if "dequantize" not in i.name and "pad" in i.name
             and not sch.get_producers(i.block_rv)), None
        )  # fmt: skip
        infos = [i for i in infos if "pad" not in i.name and "dequantize" not in i.name]
        rest = try_inline_contiguous_spatial(sch, infos) or []
        if not 1 <= len(rest) <= 2 or (len(rest) == 2 and not rest[1].is_injective()):
            return None
        info = rest[0]
        vectors = _vectors(sch, info) if len(info.iters) in (2, 3) else None
        inner = None if vectors is None else _normalize(sch, info)
        if vectors is None or inner is None:
            return None
        if not inner:
            return schedule_outer_reduction(sch, target, info.block_rv, dequantize, padded, self.bucket)
        config = _config(sch, target, info.block_rv)
        _BatchedInnerReduction(sch, target, info.block_rv, vectors, config, self.bucket).schedule(dequantize, padded)
        return sch


def _fixed_axes(block: Block) -> set[Any]:
    return {v.var for v in block.iter_vars if int_of(extent_of(v)) is not None}


def _vectors(sch: Schedule, info: BlockInfo) -> list[Buffer] | None:
    """The operands that are vectors but for the batch; None for what is no product with one unknown spatial axis."""
    block = sch.get(info.block_rv)
    if not info.is_reduction() or len(block.reads) < 2 or len(block.writes) != 1 or summand(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    fixed = _fixed_axes(block)
    unknown = [v for v in block.iter_vars if v.var not in fixed]
    if len(unknown) != 1 or unknown[0].iter_type != IterVar.DataPar:
        return None
    used = [len(collect_block_iter_vars_used_in_access_region(block, r.region) & fixed) for r in block.reads]
    vectors = [r.buffer for r, n in zip(block.reads, used, strict=True) if 0 < n < len(fixed)]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def _normalize(sch: Schedule, info: BlockInfo) -> bool | None:
    """Order and fuse the loops as batch, rows, reduction; whether the matrix is read along the reduction."""
    block = sch.get(info.block_rv)
    fixed = _fixed_axes(block)
    axes: dict[Any, Any] = {i.var: i for i in info.iters}

    def reach(region: Sequence[Range]) -> int:
        return len(collect_block_iter_vars_used_in_access_region(block, region) & fixed)

    matrix = max(block.reads, key=lambda read: reach(read.region))
    (offset,) = matrix.buffer.offset_of([r.min for r in matrix.region])
    try:
        access = normalize_to_iter_sum(offset, {v.var: v.dom for v in block.iter_vars})
    except ValueError:  # the read does not go through memory by steps
        return None
    if set(undefined_vars(access.base)) & set(axes) or not access.args:
        return None
    terms = [axes[term.source.source] for term in access.args]
    everywhere = [
        set(collect_block_iter_vars_used_in_access_region(block, r.region)) for r in (*block.writes, *block.reads)
    ]
    reductions = [i.loop_rv for i in terms if i.kind == "R"]
    rows = [i.loop_rv for i in terms if i.kind != "R" and not all(i.var in used for used in everywhere)]
    if not rows or not reductions:
        return None
    batch = [axes[v.var].loop_rv for v in block.iter_vars if v.var not in fixed]
    sch.reorder(*batch, *rows, *reductions)
    sch.fuse(*rows)
    sch.fuse(*reductions)
    return bool(terms[-1].kind == "R")


def _config(sch: Schedule, target: Target, block: BlockRV) -> GEMVConfig:
    """The sizes for one product whose loops are batch, rows, reduction."""
    _, s, r = (get_extent(sch, loop) for loop in sch.get_loops(block))
    config = _for_target(target, s, r)
    ts, tr = within_threads(config.ts, config.tr, target)
    tile_r = max(get_max_factor(r, [tr, tr * 2, tr * 4, tr * 8]) // tr, 1)
    vec_c = min(get_max_factor(tile_r, [1, 2, 4, 8]), config.vec_c)
    # What sums across threads take of shared memory is left out of the account.
    return replace(config, ts=ts, tr=tr, tile_s=2, tile_r=tile_r, vec_c=vec_c, warp_shuffle=True)


def _for_target(target: Target, rows: PrimExpr | int, columns: PrimExpr | int) -> GEMVConfig:
    kind, tall = target.kind.name, rows > columns
    if kind == "metal":
        tags = ("threadIdx.y", "threadIdx.x") if tall else ("threadIdx.x", "threadIdx.y")
        return GEMVConfig(*tags, ts=8, tr=32, vec_c=4, unroll=8)
    if kind == "opencl" and is_adreno(target):
        return GEMVConfig("threadIdx.x", "threadIdx.y", ts=2, tr=32, vec_c=8, unroll=8)
    if kind == "opencl" and "mali" in str(target.attrs):
        return GEMVConfig(vec_c=8)
    shapes = {
        "cuda": ((4, 64), (16, 32), 8), "rocm": ((1, 128), (8, 64), 8), "vulkan": ((4, 32), (16, 32), 4),
    }  # fmt: skip
    if kind not in shapes:
        return GEMVConfig()
    if_tall, if_not, width = shapes[kind]
    ts, tr = if_tall if tall else if_not
    return GEMVConfig(ts=ts, tr=tr, vec_c=4, load_v_shared=True, load_v_vec=width, unroll=256)


class _BatchedInnerReduction(InnerReduction):
    """As for one vector, with loops over the rows of the batch in blocks of ``bucket``."""

    batch_loops = 1

    def __init__(
        self, sch: Schedule, target: Target, block: BlockRV, vectors: list[Buffer], config: GEMVConfig, bucket: int
    ) -> None:
        super().__init__(sch, target, block, vectors, config)
        self.bucket = bucket

    def schedule(self, dequantize: BlockRV | None, padded: BlockRV | None) -> None:
        """Schedule the product, what decodes and pads its operands, and what follows it."""
        sch = self.sch
        partial, rows = self._factor()
        bx, thread, step = self._bind_partial(partial)
        if dequantize is not None:
            self._decode(dequantize, step)
        vector = self._load_vector(partial, thread) if self._vectors_fit() else None
        if padded is not None:
            sch.compute_inline(padded)
        self._finish_vectors(rows, bx)
        self._finish_rows(bx)
        self._keep_in_registers(partial, rows)
        if vector is not None:
            self._unroll_load(vector)
        after = sch.get_consumers(self.gemv)
        if after:
            self._epilogue(after[0], bx)

    def _product_loops(self) -> tuple[Any, Any]:
        _, s, r = self.sch.get_loops(self.gemv)
        return s, r

    def _bind_partial(self, partial: BlockRV) -> tuple[Any, Any, Any]:
        sch = self.sch
        rows = sch.get_loops(partial)[0]
        super()._bind_partial(partial)
        by, batch = sch.split(rows, factors=[None, self.bucket])
        sch.bind(by, "blockIdx.y")
        bx, ts, tr, r = sch.get_loops(partial)[2:6]
        sch.reorder(bx, ts, tr, r, batch)
        return bx, tr, r

    def _decode(self, dequantize: BlockRV, step: LoopRV) -> None:
        sch = self.sch
        sch.compute_at(dequantize, step, preserve_unit_loops=True)
        sch.set_scope(dequantize, 0, "local")
        s, r = sch.get_loops(dequantize)[-2:]
        s, lane = sch.split(s, factors=[None, self.c.vec_load], preserve_unit_iters=True)
        sch.reorder(s, r, lane)
        sch.vectorize(lane)

    def _vectors_fit(self) -> bool:
        return len(self.vectors) == 1 and super()._vectors_fit()

    def _epilogue(self, epilogue: BlockRV, bx: LoopRV) -> None:
        sch, c = self.sch, self.c
        if is_broadcast_epilogue(sch, self.gemv, epilogue):
            sch.reverse_compute_at(epilogue, bx)
            sch.set_scope(self.gemv, 0, "shared")
            *_, last = sch.get_loops(epilogue)
            _, tx = sch.split(last, factors=[None, c.ts])
            sch.bind(tx, c.tag_s)
            return
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        sch.fuse(*sch.get_loops(epilogue)[3:])
        outer, ts, _ = self._tiles([sch.get_loops(epilogue)[-1]])
        sch.bind(sch.fuse(outer, ts), c.tag_s)
        sch.set_scope(self.gemv, 0, "local")
