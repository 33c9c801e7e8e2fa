"""Matrix products by threads: tiles in shared memory, a small tile of the result in each thread's registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...target import Target
from ...tir import Block, IterVar, PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import extent_of, get_max_threads_per_block, get_root_block
from ..base import ILLEGAL, int_of
from .common import GPUScheduleRule, bind_plainly, compute_capability
from .gemv_config import is_adreno
from .matmul_analysis import (
    auto_inline_consumer_chain, auto_inline_producers, get_index_map, get_single_reduction, normalize_matmul,
)  # fmt: skip
from .matmul_metal import MetalMatmul
from .matmul_outer import schedule_outer_reduction
from .matmul_tensorize import MatmulInt8Tensorization, MatmulTensorization


@dataclass(frozen=True)
class MatmulConfig:
    """Sizes of the tiling: ``block_size`` threads, each with ``micro_size`` results, ``vthread`` times over."""

    block_size_x: int = 8
    block_size_y: int = 8
    vthread_x: int = 1
    vthread_y: int = 1
    micro_size_x: int = 4
    micro_size_y: int = 4
    micro_size_k: int = 8
    vector_size: int = 1
    unroll: int = 256
    use_shared: bool = True
    storage_align: bool = False
    inner_x: bool = False

    @property
    def tile_x(self) -> int:
        """Rows of a thread block."""
        return self.vthread_x * self.block_size_x * self.micro_size_x

    @property
    def tile_y(self) -> int:
        """Columns of a thread block."""
        return self.vthread_y * self.block_size_y * self.micro_size_y


_NVIDIA = MatmulConfig(
    block_size_x=8, block_size_y=16, micro_size_x=4, micro_size_y=4, micro_size_k=16, vector_size=2, storage_align=True
)  # fmt: skip
# Products with a side this short do not fill tensor cores.
_SHORTEST_SIDE = 64
_ADRENO = MatmulConfig(
    block_size_x=32, block_size_y=4, micro_size_x=8, micro_size_y=2, micro_size_k=16, vector_size=8, unroll=16,
    use_shared=False, inner_x=True,
)  # fmt: skip
_BY_KIND = {"cuda": _NVIDIA, "rocm": _NVIDIA}


class Matmul(GPUScheduleRule):
    """``C[S, I, J] += A[S, I, K] * B[S, J, K]`` in any layout, shapes padded to whole tiles.

    Before and after (cuda)::

        for i, j, k in T.grid(m, 4096, 4096):      blockIdx.y: 64 columns; blockIdx.x: 32 rows
            C[i, j] += A[i, k] * B[k, j]               threads 16 x 8, 4 x 4 results each, k in steps of 16:
                                                       A and B tiles through shared memory, two elements at a time
    """

    Config = MatmulConfig

    def get_configs(self, target: Target) -> MatmulConfig:
        """The tiling for a target."""
        return _ADRENO if is_adreno(target) else _BY_KIND.get(target.kind.name, MatmulConfig())

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        root = get_root_block(sch)
        main = get_single_reduction(sch, root)
        if main is None or get_index_map(sch.get(main)) is None:
            return None
        config = self.get_configs(target)
        if is_adreno(target) and not _reads_along_reduction(sch.get(main)):
            threads = (config.block_size_x, config.block_size_y)
            blocks = sch.get_child_blocks(root)
            made = schedule_outer_reduction(sch, main, blocks, threads, config.vector_size, config.unroll)
            if made is not None:
                return made
        normalize_matmul(sch, main)
        made = _on_matrix_units(sch, main, func, target, tunable)
        if made is not None:
            return made
        self._tile(sch, main, config)
        for rv in sch.get_child_blocks(root):
            bind_plainly(sch, rv, get_max_threads_per_block(target))
        return sch

    def _tile(self, sch: Schedule, main: BlockRV, config: MatmulConfig) -> None:
        tiles = [config.tile_x, config.tile_y]
        sch.pad_einsum(main, [1, *(reversed(tiles) if config.inner_x else tiles), config.micro_size_k])
        batch, x, y, k = sch.get_loops(main)
        if config.inner_x:
            x, y = y, x
        by, vy, ty, yi = sch.split(y, [None, config.vthread_y, config.block_size_y, config.micro_size_y])
        bx, vx, tx, xi = sch.split(x, [None, config.vthread_x, config.block_size_x, config.micro_size_x])
        ko, ki = sch.split(k, factors=[None, config.micro_size_k])
        inner = [yi, xi] if config.inner_x else [xi, yi]
        sch.reorder(by, bx, vy, vx, ty, tx, ko, ki, *inner)
        by = sch.fuse(batch, by)
        bound = ((bx, "blockIdx.x"), (by, "blockIdx.y"), (vy, "vthread.y"), (vx, "vthread.x"))
        for loop, thread in (*bound, (ty, "threadIdx.y"), (tx, "threadIdx.x")):
            sch.bind(loop, thread)
        if (config.micro_size_x if config.inner_x else config.micro_size_y) % config.vector_size == 0:
            _, v = sch.split(inner[-1], [None, config.vector_size])
            sch.vectorize(v)
        if config.unroll > 0:
            sch.annotate(tx, ann_key="pragma_auto_unroll_max_step", ann_val=config.unroll)
            sch.annotate(tx, ann_key="pragma_unroll_explicit", ann_val=1)
        result = sch.cache_write(main, 0, "local")
        sch.reverse_compute_at(result, tx, preserve_unit_loops=True)
        if config.micro_size_x % config.vector_size == 0:
            _, v = sch.split(sch.get_loops(result)[-1], [None, config.vector_size])
            sch.vectorize(v)
        if config.use_shared:
            staged = [self._fetch(sch, main, index, ko, config) for index in (0, 1)]
            for rv in staged:
                auto_inline_producers(sch, rv)
        else:
            auto_inline_producers(sch, main)
        auto_inline_consumer_chain(sch, result)
        sch.decompose_reduction(main, ko)

    def _fetch(self, sch: Schedule, main: BlockRV, index: int, ko: LoopRV, config: MatmulConfig) -> BlockRV:
        """All threads of a block bring the operand's tile of one step of ``ko`` to shared memory."""
        rv = sch.cache_read(main, index, "shared")
        depth = len(sch.get_loops(rv))
        sch.compute_at(rv, ko, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(rv)[-depth:])
        ty, tx, _, vec = sch.split(fused, factors=[config.block_size_y, config.block_size_x, None, config.vector_size])
        sch.vectorize(vec)
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        if config.storage_align:
            sch.storage_align(rv, 0, axis=1, factor=8, offset=config.vector_size)
        return rv


def _reads_along_reduction(block: Block) -> bool:
    """Whether the last operand's last index is a reduction axis."""
    last = block.reads[-1].region[-1].min
    return any(v.var.same_as(last) and v.iter_type == IterVar.CommReduce for v in block.iter_vars)


def _on_matrix_units(sch: Schedule, main: BlockRV, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
    """The schedule for tensor cores or SIMD-group matrices, where the target has them and the product suits them."""
    if target.kind.name == "metal":
        try:
            return MetalMatmul().apply(func, target, tunable)
        except ILLEGAL:
            return None
    if target.kind.name != "cuda" or compute_capability(target) < 70:
        return None
    sides = [int_of(extent_of(v)) for v in sch.get(main).iter_vars[1:]]
    if any(n is not None and n <= _SHORTEST_SIDE for n in sides):
        return None
    for rule in (MatmulInt8Tensorization(), MatmulTensorization()):
        made = rule.apply(func, target, tunable)
        if made is not None:
            return made
    return None
