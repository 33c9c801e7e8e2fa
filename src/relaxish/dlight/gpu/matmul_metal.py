"""Matrix products on Apple GPUs: 8 x 8 SIMD-group matrices fed from threadgroup memory."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ...tir.tensor_intrin.metal import get_simdgroup_intrin_group
from ..analysis import get_root_block
from .common import GPUScheduleRule
from .matmul_analysis import auto_inline_consumer_chain, auto_inline_producers, get_single_reduction, normalize_matmul

_FRAGMENT = 8
_WARP = 32
_VECTOR = 4
_ROWS, _COLUMNS, _DEPTH = 16, 16, 32
_GROUPS_Y, _GROUPS_Z = 1, 4


class MetalMatmul(GPUScheduleRule):
    """float16 products by four SIMD groups a threadgroup, each 16 x 16 results, ``k`` in steps of 32.

    Before and after::

        C[i, j] += A[i, k] * B[k, j]      ->      A and B tiles to threadgroup memory, from there to 8 x 8 fragments;
                                                  results back through threadgroup memory
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        main = get_single_reduction(sch, get_root_block(sch))
        if main is None or not normalize_matmul(sch, main):
            return None
        sch.pad_einsum(main, [1, _GROUPS_Y * _ROWS, _GROUPS_Z * _COLUMNS, _DEPTH])
        _Tensorize(sch, main).run()
        return sch


class _Tensorize:
    """The steps for one canonical product."""

    def __init__(self, sch: Schedule, main: BlockRV) -> None:
        self.sch = sch
        self.main = main
        self.intrin = get_simdgroup_intrin_group("shared", "shared", "float16", trans_a=False, trans_b=True)

    def run(self) -> None:
        """Tile, stage, tensorise."""
        sch = self.sch
        by, tz, k0, k1 = self._tile()
        staged = [self._to_shared(index, k0) for index in (0, 1)]
        for rv in staged:
            auto_inline_producers(sch, rv)
        a, b = (sch.cache_read(self.main, index, "metal.simdgroup") for index in (0, 1))
        sch.compute_at(a, k1)
        sch.compute_at(b, k1)
        store = sch.cache_write(self.main, 0, "metal.simdgroup")
        shared = sch.cache_write(store, 0, "shared")
        sch.reverse_compute_at(store, tz, preserve_unit_loops=True)
        sch.reverse_compute_at(shared, by, preserve_unit_loops=True)
        sch.transform_layout(b, ("write", 0), lambda s, i, j: (s, j, i))
        init = sch.decompose_reduction(self.main, k0)
        for rv, name in ((a, "load_a"), (b, "load_b"), (store, "store"), (init, "init")):
            self._fragment(rv, self.intrin[name])
        sch.tensorize(sch.get_loops(self.main)[-3], self.intrin["compute"])
        auto_inline_consumer_chain(sch, shared)
        self._spread(shared)

    def _tile(self) -> tuple[Any, Any, Any, Any]:
        sch = self.sch
        batch, i, j, k = sch.get_loops(self.main)
        bx, ty, i0, i1 = sch.split(i, [None, _GROUPS_Y, _ROWS // _FRAGMENT, _FRAGMENT])
        by, tz, j0, j1 = sch.split(j, [None, _GROUPS_Z, _COLUMNS // _FRAGMENT, _FRAGMENT])
        k0, k1, k2 = sch.split(k, [None, _DEPTH // _FRAGMENT, _FRAGMENT])
        sch.reorder(bx, by, ty, tz, k0, k1, i0, j0, i1, j1, k2)
        bound = (
            (bx, "blockIdx.x"),
            (by, "blockIdx.y"),
            (batch, "blockIdx.z"),
            (ty, "threadIdx.y"),
            (tz, "threadIdx.z"),
        )
        for loop, thread in bound:
            sch.bind(loop, thread)
        return by, tz, k0, k1

    def _to_shared(self, index: int, k0: LoopRV) -> BlockRV:
        rv = self.sch.cache_read(self.main, index, "shared")
        self.sch.compute_at(rv, k0, preserve_unit_loops=True)
        self._spread(rv)
        return rv

    def _spread(self, rv: BlockRV) -> None:
        """Share a copy of a tile among all threads, in vectors."""
        sch = self.sch
        fused = sch.fuse(*sch.get_loops(rv)[-2:])
        _, tz, ty, tx, lane = sch.split(fused, [None, _GROUPS_Z, _GROUPS_Y, _WARP, _VECTOR])
        for loop, thread in ((tz, "threadIdx.z"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
            sch.bind(loop, thread)
        sch.vectorize(lane)

    def _fragment(self, rv: BlockRV, intrin: str) -> None:
        sch = self.sch
        *_, i, j = sch.get_loops(rv)
        i0, i1 = sch.split(i, [None, _FRAGMENT])
        j0, j1 = sch.split(j, [None, _FRAGMENT])
        sch.reorder(i0, j0, i1, j1)
        sch.tensorize(i1, intrin)
