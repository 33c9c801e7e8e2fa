"""Matrix times vector, decoded matrices included: a group of threads shares the dot product of a row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...arith import normalize_to_iter_sum
from ...target import Target
from ...tir import Block, Buffer, PrimFunc
from ...tir.schedule import Schedule
from ..block_info import (
    BlockInfo,
    IterInfo,
    collect_block_iter_vars_used_in_access_region,
    detect_dominant_read,
    is_broadcast_epilogue,
    normalize_prim_func,
    try_inline_contiguous_spatial,
)
from .common import GPUScheduleRule, get_bytes, get_extent, get_max_factor, int_of, unroll_explicitly
from .reduction import summand


def is_gemv(sch: Schedule, block_info: BlockInfo) -> list[Buffer] | None:
    """The vector operands of a matrix-vector product; None for any other block."""
    block = sch.get(block_info.block_rv)
    if not block_info.is_reduction() or len(block.reads) < 2 or len(block.writes) != 1 or summand(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    used = [len(collect_block_iter_vars_used_in_access_region(block, read.region)) for read in block.reads]
    vectors = [r.buffer for r, n in zip(block.reads, used, strict=True) if 0 < n < len(block.iter_vars)]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def normalize(sch: Schedule, block_info: BlockInfo) -> bool | None:
    """Order and fuse the loops as batch, rows, reduction, packed; whether the matrix is read along the reduction.

    None when the access of the matrix is beyond the rule.
    """
    block = sch.get(block_info.block_rv)
    domains = {v.var: v.dom for v in block.iter_vars}
    access = normalize_to_iter_sum(detect_dominant_read(block), domains)
    if int_of(access.base) != 0 or not access.args:
        return None
    axes: dict[Any, IterInfo] = {i.var: i for i in block_info.iters}
    uses = [_used(block, r.region) for r in (*block.writes, *block.reads)]
    loops: dict[str, list[Any]] = {"batch": [], "S": [], "R": [], "packed": []}
    for term in access.args:
        axis = axes[term.source.source]
        loop, factor = axis.loop_rv, int_of(term.lower_factor)
        if factor is None or factor > 1:
            # Only a reduction may be packed, and only one.
            if factor is None or loops["packed"] or axis.kind != "R":
                return None
            loop, packed = sch.split(loop, factors=[None, factor])
            loops["packed"].append(packed)
        kind = "R" if axis.kind == "R" else "batch" if all(axis.var in used for used in uses) else "S"
        loops[kind].append(loop)
    if not loops["S"] or not loops["R"]:
        return None
    for kind in ("packed", "batch"):
        if not loops[kind]:
            loops[kind].append(sch.add_unit_loop(block_info.block_rv))
    sch.reorder(*loops["batch"], *loops["S"], *loops["R"], *loops["packed"])
    for kind in ("batch", "S", "R"):
        sch.fuse(*loops[kind])
    return axes[access.args[-1].source.source].kind == "R"  # type: ignore[index]


def _used(block: Block, region: Any) -> set[Any]:
    return set(collect_block_iter_vars_used_in_access_region(block, region))


@dataclass(frozen=True)
class Config:
    """Sizes of the inner-reduction schedule: ``TS`` rows by ``TR`` threads, tiles and vector widths of a thread."""

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


def _shape(target: Target, rows: Any, columns: Any) -> Config:
    kind = target.kind.name
    known = isinstance(rows, int) and isinstance(columns, int)
    tall = known and rows > columns
    if kind == "cuda":
        base = Config(vec_c=4, vec_load=4, load_v_shared=True, load_v_vec=8, unroll=256)
        return replace(base, ts=4 if tall else 16, tr=64 if tall else 32) if known else base
    if kind == "metal":
        base = Config(vec_c=4, unroll=256)
        return replace(base, ts=4 if tall else 2, tr=16 if tall else 64) if known else base
    if kind == "rocm":
        base = Config(vec_c=4, unroll=256)
        return replace(base, ts=1 if tall else 8, tr=128 if tall else 64) if known else base
    if kind == "vulkan":
        base = Config(vec_c=4, load_v_shared=True, load_v_vec=4, unroll=256)
        return replace(base, ts=4 if tall else 16, tr=32) if known else base
    if kind == "opencl" and "android" in str(target.host):
        return Config(tag_s="threadIdx.x", tag_r="threadIdx.y", vec_c=8, unroll=8, ts=2, tr=32)
    if kind == "opencl" and "mali" in target.keys:
        return Config(vec_c=8, unroll=64)
    return Config()


def _config(sch: Schedule, target: Target, block: Any) -> Config:
    """The sizes for this product on this target."""
    batch, s, r, c = (get_extent(sch, loop) for loop in sch.get_loops(block))
    config = _shape(target, batch * s, r * c)
    ts, tr = config.ts, config.tr
    while ts * tr > int(target.attrs.get("max_num_threads", 1024)):
        ts, tr = (ts // 2, tr) if ts > 1 else (ts, tr // 2)
    if isinstance(c, int) and c > 1:
        tile_r = c
    else:
        tile_r = max(get_max_factor(r, [tr, tr * 2, tr * 4, tr * 8]) // tr, 1) if isinstance(r, int) else 1
    vec_c = min(get_max_factor(tile_r, [1, 2, 4, 8]), config.vec_c)
    return replace(config, ts=ts, tr=tr, tile_r=tile_r, vec_c=vec_c)


class GEMV(GPUScheduleRule):
    """``Y[s] += A[s, r] * X[r]`` with the matrix read along ``r``: threads share rows, partial sums in registers.

    Before and after (cuda, 4096 x 4096)::

        for i, k in T.grid(4096, 4096):            blockIdx.x: 16 rows; threads 16 x 32
            Y[i] += A[i, k] * X[k]                     X in shared memory, A in vectors of 4, two levels of partial sums,
                                                       then one sum across the 32 threads of a row
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos or len(infos) > 2:
            return None
        epilogue = infos[1] if len(infos) == 2 else None
        if epilogue is not None and not epilogue.is_injective():
            return None
        info = infos[0]
        # [S, R] * [R], or the same for each of a batch.
        if len(info.iters) not in (2, 3):
            return None
        vectors = is_gemv(sch, info)
        if vectors is None or not normalize(sch, info):
            return None
        _InnerReduction(sch, target, info.block_rv, vectors, _config(sch, target, info.block_rv)).run(epilogue)
        return sch


class _InnerReduction:
    """The schedule of one product; a step a method, in order."""

    def __init__(self, sch: Schedule, target: Target, block: Any, vectors: list[Buffer], config: Config) -> None:
        self.sch = sch
        self.target = target
        self.gemv = block
        self.vectors = vectors
        self.c = config

    def run(self, epilogue: BlockInfo | None) -> None:
        """Schedule the product and what follows it."""
        sch, c = self.sch, self.c
        partial, rows = self._factor()
        bx, thread, step = self._bind_partial(partial)
        self._load_matrix(partial, step)
        vector = self._load_vector(partial, thread) if self._vector_fits() else None
        self._finish_vectors(rows, bx)
        self._finish_rows(bx)
        sch.decompose_reduction(partial, sch.get_loops(partial)[3])
        sch.decompose_reduction(rows, sch.get_loops(rows)[-1])
        sch.set_scope(partial, 0, "local")
        sch.set_scope(rows, 0, "local")
        for rv in (partial, rows):
            unroll_explicitly(sch, sch.get_loops(rv)[3], c.unroll)
        if vector is not None:
            loop = sch.get_loops(vector)[-4]
            sch.annotate(loop, ann_key="pragma_unroll_explicit", ann_val=c.unroll)
            sch.annotate(loop, ann_key="pragma_vectorize", ann_val=1)
        if epilogue is not None:
            self._epilogue(epilogue.block_rv, bx)

    def _factor(self) -> tuple[Any, Any]:
        """Two levels of partial sums: one for each thread and vector lane, one for each thread."""
        sch, c = self.sch, self.c
        batch, s, r, packed = sch.get_loops(self.gemv)
        s = sch.fuse(batch, s)
        r = sch.fuse(r, packed)
        sch.split(s, factors=[None, c.ts, c.tile_s], preserve_unit_iters=True)
        r, tr, tile, lane = sch.split(r, factors=[None, c.tr, c.tile_r // c.vec_c, c.vec_c], preserve_unit_iters=True)
        sch.reorder(r, tile, tr, lane)
        partial = sch.rfactor(sch.fuse(tr, lane), 0)
        *_, fused = sch.get_loops(self.gemv)
        tr, _ = sch.split(fused, factors=[c.tr, None], preserve_unit_iters=True)
        return partial, sch.rfactor(tr, 0)

    def _bind_partial(self, partial: Any) -> tuple[Any, Any, Any]:
        sch, c = self.sch, self.c
        bx, ts, tile_s, r, tile_r, fused = sch.get_loops(partial)
        tr, lane = sch.split(fused, factors=[c.tr, None], preserve_unit_iters=True)
        sch.reorder(bx, ts, tr, r, tile_s, tile_r, lane)
        sch.bind(bx, "blockIdx.x")
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)
        sch.vectorize(lane)
        return bx, tr, r

    def _load_matrix(self, partial: Any, step: Any) -> None:
        sch = self.sch
        local = sch.cache_read(partial, read_buffer_index=1, storage_scope="local")
        sch.compute_at(local, step, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(local)[-2:])
        width = max(1, self.c.vec_load // get_bytes(sch.get(local).reads[0].buffer.dtype))
        _, lane = sch.split(fused, factors=[None, width], preserve_unit_iters=True)
        sch.vectorize(lane)

    def _vector_fits(self) -> bool:
        """Whether the vectors go into shared memory; ones of unknown length do not."""
        sizes = [int_of(d) for b in self.vectors for d in b.shape]
        if not self.c.load_v_shared or len(self.vectors) != 1 or any(n is None for n in sizes):
            return False
        used = math.prod(n for n in sizes if n is not None) * get_bytes(self.vectors[0].dtype)
        return used <= int(self.target.attrs.get("max_shared_memory_per_block", 0))

    def _load_vector(self, partial: Any, thread: Any) -> Any:
        sch, c = self.sch, self.c
        shared = sch.cache_read(partial, read_buffer_index=0, storage_scope="shared")
        sch.compute_at(shared, thread, preserve_unit_loops=True)
        loop = sch.get_loops(shared)[-1]
        extent, threads = get_extent(sch, loop), c.ts * c.tr
        width = c.load_v_vec
        if isinstance(extent, int):
            # A width that divides needs no predicate.
            width = max(min(get_max_factor(extent, [threads * w for w in (1, 2, 4, 8)]) // threads, width), 1)
        outer, inner = (c.ts, c.tr) if c.tag_r == "threadIdx.x" else (c.tr, c.ts)
        _, ty, tx, lane = sch.split(loop, factors=[None, outer, inner, width], preserve_unit_iters=True)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(lane)
        return shared

    def _finish_vectors(self, rows: Any, bx: Any) -> None:
        """Sum over the vector lanes of each thread."""
        sch, c = self.sch, self.c
        sch.reverse_compute_at(rows, bx, preserve_unit_loops=True)
        tr, lane, *outputs = sch.get_loops(rows)[1:]
        outer, ts, tile = sch.split(sch.fuse(*outputs), factors=[None, c.ts, c.tile_s], preserve_unit_iters=True)
        width = get_max_factor(c.tile_s, [1, 2, 4, 8])
        tile, vec = sch.split(tile, factors=[None, width], preserve_unit_iters=True)
        ts = sch.fuse(outer, ts)
        sch.reorder(ts, tr, tile, vec, lane)
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)
        sch.vectorize(vec)

    def _finish_rows(self, bx: Any) -> None:
        """Sum across the threads of each row."""
        sch, c = self.sch, self.c
        sch.reverse_compute_at(self.gemv, bx, preserve_unit_loops=True)
        tr, *outputs = sch.get_loops(self.gemv)[1:]
        outer, ts, tile = sch.split(sch.fuse(*outputs), factors=[None, c.ts, c.tile_s], preserve_unit_iters=True)
        ts = sch.fuse(outer, ts)
        sch.reorder(tile, ts, tr)
        sch.bind(ts, c.tag_s)
        sch.bind(tr, c.tag_r)

    def _epilogue(self, epilogue: Any, bx: Any) -> None:
        sch, c = self.sch, self.c
        if is_broadcast_epilogue(sch, self.gemv, epilogue):
            sch.reverse_compute_at(epilogue, bx)
            sch.set_scope(self.gemv, 0, "shared")
            loops = sch.get_loops(epilogue)[1:]
            _, tx = sch.split(sch.fuse(*loops), factors=[None, c.ts])
            sch.bind(tx, c.tag_s)
            return
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(epilogue)[1:])
        ts, _ = sch.split(fused, factors=[c.ts, None], preserve_unit_iters=True)
        sch.bind(ts, c.tag_s)
        sch.set_scope(self.gemv, 0, "local")
