"""Matrix products on tensor cores: WMMA fragments fed from shared memory, software-pipelined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...carver import recommend
from ...carver.products import Product
from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ...tir.tensor_intrin.cuda import get_wmma_intrin_group
from ..analysis import extent_of, get_root_block
from ..base import ILLEGAL, int_of
from .common import GPUScheduleRule, compute_capability
from .matmul_analysis import (
    auto_inline_consumer_chain, auto_inline_producers, get_in_out_dtypes, get_index_map, get_single_reduction,
    normalize_matmul,
)  # fmt: skip

_FRAGMENT = 16
_WARP = 32
_VECTOR = 4
_FIRST_WITH_WMMA = 70
# As many tiles keep most processors of a large device busy.
_ENOUGH = 64
# Of sides up to this at least half of a large tile would be padding.
_NARROW = 64
_ALL = 1 << 12


@dataclass(frozen=True)
class _Config:
    """How fragments are divided in rows and columns (blocks, virtual threads, warps, fragments of a warp) and in k.

    Rows of tiles in shared memory are padded by ``row_factor`` and ``row_offset`` (``storage_align``) against bank
    conflicts. None stands for the factor that the size of the product determines.
    """

    i_factors: tuple[int | None, ...]
    j_factors: tuple[int | None, ...]
    k_factors: tuple[int | None, int]
    row_factor: int
    row_offset: int

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return (self.i_factors[2] or 1) * (self.j_factors[2] or 1)

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of a warp."""
        return _FRAGMENT * (self.i_factors[3] or 1), _FRAGMENT * (self.j_factors[3] or 1)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        rows, columns = self.warp_tile
        return rows * (self.i_factors[2] or 1), columns * (self.j_factors[2] or 1)

    @property
    def padding(self) -> list[int]:
        """The multiples to which batch, rows, columns and k are padded."""
        return [1, *self.tile, _FRAGMENT * self.k_factors[1]]


class _WMMA(GPUScheduleRule):
    """The common part of the rules for tensor cores; ``accepts`` lists pairs of operand and result dtypes."""

    config: _Config
    accepts: frozenset[tuple[str, str]]

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target) or (func.attrs is not None and "dlight.do_not_tensorize" in func.attrs):
            return None
        sch = Schedule(func)
        main = get_single_reduction(sch, get_root_block(sch))
        if main is None or get_index_map(sch.get(main)) is None:
            return None
        dtypes = get_in_out_dtypes(sch.get(main))
        if dtypes not in self.accepts or not normalize_matmul(sch, main):
            return None
        config = self.config_for([int_of(extent_of(v)) for v in sch.get(main).iter_vars], target)
        if config is None:
            return None
        sch.pad_einsum(main, config.padding)
        try:
            _Tensorize(sch, main, config, dtypes).run()
        except ILLEGAL:
            return None
        return sch

    def config_for(self, sides: list[int | None], target: Target) -> _Config | None:
        """The tiling for (batch, rows, columns, k); None where another rule does better."""
        return self.config


class MatmulTensorization(_WMMA):
    """float16 products with float16 or float32 sums, 16 x 16 x 16 fragments.

    Before and after::

        C[i, j] += A[i, k] * B[j, k]      ->      16 warps of 2 x 2 fragments; k in steps of 64 through shared memory,
                                                  the next step's copies overlap this step's products
    """

    config = _Config((None, 1, 4, 2), (1, None, 4, 2), (None, 4), 16, 8)
    accepts = frozenset({("float16", "float16"), ("float16", "float32")})


class MatmulSmallTiles(_WMMA):
    """float16 products that large tiles would leave to a few of the device's processors.

    A layer of 128 x 768 results is 6 tiles of 128 x 128, and 96 of 32 x 32. Small tiles read more of their operands
    from the second-level cache, large ones leave most of the device without work.
    """

    accepts = MatmulTensorization.accepts
    configs = (
        _Config((None, 1, 2, 2), (1, None, 2, 2), (None, 4), 16, 8),
        _Config((None, 1, 2, 1), (1, None, 2, 2), (None, 4), 16, 8),
        _Config((None, 1, 2, 1), (1, None, 2, 1), (None, 4), 16, 8),
    )

    def config_for(self, sides: list[int | None], target: Target) -> _Config | None:
        """The tiling that carver expects most of; None where large tiles are enough for the device."""
        known = [n for n in sides if n is not None]
        if target.kind.name != "cuda" or compute_capability(target) < _FIRST_WITH_WMMA:
            return None
        if len(known) < len(sides) or min(known[1:]) <= _FRAGMENT:
            return None
        if min(known[1:3]) > _NARROW and _tiles(known, MatmulTensorization.config) >= _ENOUGH:
            return None
        mine = {(c.tile, c.warp_tile): c for c in self.configs}
        batch, rows, columns, depth = known
        for hint in recommend(Product(batch, rows, columns, depth), target, _ALL):
            found = mine.get((tuple(hint.block), tuple(hint.warp)))
            if found is not None and hint.rstep == [_FRAGMENT * found.k_factors[1]]:
                return found
        return self.configs[-1]


def _tiles(sides: list[int], config: _Config) -> int:
    _, rows, columns, _ = config.padding
    return sides[0] * -(-sides[1] // rows) * -(-sides[2] // columns)


class MatmulInt8Tensorization(_WMMA):
    """int8 products with int32 sums, 16 x 16 x 16 fragments."""

    config = _Config((None, 1, 4, 2), (1, None, 4, 2), (None, 1), 32, 16)
    accepts = frozenset({("int8", "int32")})


class _Tensorize:
    """The steps for one canonical product."""

    def __init__(self, sch: Schedule, main: BlockRV, config: _Config, dtypes: tuple[str, str]) -> None:
        self.sch = sch
        self.main = main
        self.c = config
        in_dtype, out_dtype = dtypes
        self.intrin = get_wmma_intrin_group("shared.dyn", "shared.dyn", in_dtype, out_dtype, trans_b=True)

    def run(self) -> None:
        """Tile, stage, tensorise."""
        sch = self.sch
        outer, k0, k1, warp = self._tile()
        for index in (0, 1):
            auto_inline_producers(sch, self._to_shared(outer, index, k0))
        a, b = (sch.cache_read(outer, i, f"wmma.matrix_{'ab'[i]}") for i in (0, 1))
        sch.compute_at(a, k1)
        sch.compute_at(b, k1)
        shared, store = self._results(outer, warp)
        init = sch.decompose_reduction(outer, k0)
        init_inner = sch.get_child_blocks(init)[0]
        self._load(a, self.intrin["load_a"])
        self._load(b, self.intrin["load_b"])
        sch.tensorize(sch.get_loops(init_inner)[-2], self.intrin["init"])
        sch.tensorize(sch.get_loops(store)[-2], self.intrin["store"])
        sch.tensorize(sch.get_loops(self.main)[-3], self.intrin["compute"])
        auto_inline_consumer_chain(sch, shared)
        fused = sch.fuse(*sch.get_loops(shared)[-2:])
        _, tx, vec = sch.split(fused, factors=[None, _WARP, _VECTOR])
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(vec)

    def _tile(self) -> tuple[Any, Any, Any, Any]:
        sch, c = self.sch, self.c
        batch, i, j, k = sch.get_loops(self.main)
        i, i_inner = sch.split(i, factors=[None, _FRAGMENT])
        j, j_inner = sch.split(j, factors=[None, _FRAGMENT])
        k, k_inner = sch.split(k, factors=[None, _FRAGMENT])
        sch.reorder(i, j, k, i_inner, j_inner, k_inner)
        outer = sch.blockize(i_inner)
        i0, i1, i2, i3 = sch.split(i, factors=list(c.i_factors))
        j0, j1, j2, j3 = sch.split(j, factors=list(c.j_factors))
        k0, k1 = sch.split(k, factors=list(c.k_factors))
        sch.annotate(k0, "software_pipeline_order", [0, 3, 1, 4, 5, 2, 6])
        sch.annotate(k0, "software_pipeline_stage", [0, 0, 0, 0, 0, 1, 1])
        sch.annotate(k1, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k1, "software_pipeline_stage", [0, 0, 1])
        sch.reorder(i0, j0, i1, j1, j2, i2, k0, k1, i3, j3)
        bx, by, warp = sch.fuse(i0, j0), sch.fuse(i1, j1), sch.fuse(j2, i2)
        for loop, thread in ((batch, "blockIdx.z"), (bx, "blockIdx.x"), (by, "blockIdx.y"), (warp, "threadIdx.y")):
            sch.bind(loop, thread)
        return outer, k0, k1, warp

    def _to_shared(self, outer: BlockRV, index: int, k0: LoopRV) -> BlockRV:
        """All threads bring one operand's tile to shared memory, rows apart by an odd number of banks."""
        sch, c = self.sch, self.c
        read = sch.cache_read(outer, index, "shared.dyn")
        sch.compute_at(read, k0)
        fused = sch.fuse(*sch.get_loops(read)[-2:])
        _, ty, tx, vec = sch.split(fused, factors=[None, c.warps, _WARP, _VECTOR])
        sch.bind(tx, "threadIdx.x")
        sch.bind(ty, "threadIdx.y")
        sch.vectorize(vec)
        sch.storage_align(read, 0, axis=-2, factor=c.row_factor, offset=c.row_offset)
        sch.annotate(read, "tir.manifest_shared_memory_local_stage", 1)
        sch.annotate(read, "double_buffer_scope", 0)
        return read

    def _results(self, outer: BlockRV, warp: LoopRV) -> tuple[Any, Any]:
        """From fragments through shared memory to the result."""
        sch = self.sch
        shared = sch.cache_write(outer, 0, "shared.dyn")
        sch.storage_align(shared, 0, -2, 16, 4)
        store = sch.cache_write(outer, 0, "wmma.accumulator")
        sch.reverse_compute_at(store, warp)
        sch.reverse_compute_at(shared, warp)
        self._fragments(store)
        return shared, store

    def _fragments(self, rv: BlockRV) -> tuple[Any, Any, Any, Any]:
        sch = self.sch
        i, j = sch.get_loops(rv)[-2:]
        i0, i1 = sch.split(i, factors=[None, _FRAGMENT])
        j0, j1 = sch.split(j, factors=[None, _FRAGMENT])
        sch.reorder(i0, j0, i1, j1)
        return i0, j0, i1, j1

    def _load(self, rv: BlockRV, intrin: str) -> None:
        i0, j0, i1, _ = self._fragments(rv)
        self.sch.unroll(i0)
        self.sch.unroll(j0)
        self.sch.tensorize(i1, intrin)
