"""Multi-level tiling: the sketch of loops a block with data reuse gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...target.limits import attrs_with_limits
from ...tir import For, IterVar, Schedule, SeqStmt
from ...tir.function import TensorIntrin
from ...tir.schedule import BlockRV, LoopRV
from ...tir.schedule.description import computes_the_same
from ...tir.schedule.transform import tile_with_tensor_intrin
from ..analysis import blocks as ba
from .schedule_rule import ScheduleRule
from ...ir.plain import plain_int

if TYPE_CHECKING:
    from ...target import Target
    from ..task import Task

__all__ = ["MultiLevelTiling", "MultiLevelTilingWithIntrin", "ReuseType", "TilingState"]


# Buffers in turn of pipelines whose copies run in the background.
_PIPELINE_DEPTHS = (4, 5)


def _copies_in_the_background(target: Target | None) -> bool:
    """Whether a device copies to shared memory without its threads waiting: NVIDIA's from sm_80 on."""
    found = re.match(r"sm_(\d+)", str(target.attrs.get("arch", ""))) if target is not None else None
    return found is not None and int(found[1]) >= 80


class ReuseType(NamedTuple):
    """Caching of a buffer: ``req`` is ``no``, ``may`` or ``must``; ``levels`` the tiles to place it under."""

    req: str
    levels: Sequence[int]
    scope: str

    def as_dict(self) -> dict[str, Any]:
        """The fields as a dictionary of plain values."""
        return {"req": self.req, "levels": list(self.levels), "scope": self.scope}


def _reuse(value: ReuseType | Mapping[str, Any] | None) -> ReuseType:
    if value is None:
        return ReuseType("no", (), "")
    if isinstance(value, ReuseType):
        return value
    reuse = ReuseType(value["req"], tuple(value["levels"]), value["scope"])
    if reuse.req not in ("no", "may", "must"):
        raise ValueError(f"reuse requirement {reuse.req!r} is not one of no, may, must")
    return reuse


@dataclass
class TilingState:
    """One schedule that the sub-rules refine step by step, with its tiles and caches."""

    sch: Schedule
    block: BlockRV
    tiles: list[list[LoopRV]] = field(default_factory=list)
    tile_factors: list[list[Any]] = field(default_factory=list)
    write_reuse: dict[int, BlockRV] = field(default_factory=dict)
    read_reuse: dict[int, BlockRV] = field(default_factory=dict)

    def copy(self) -> TilingState:
        """An independent copy: changes of one do not affect the other."""
        sch = self.sch.copy()
        sch.seed(self.sch.fork_seed())
        return replace(
            self, sch=sch, tiles=[list(t) for t in self.tiles], tile_factors=[list(t) for t in self.tile_factors],
            write_reuse=dict(self.write_reuse), read_reuse=dict(self.read_reuse),
        )  # fmt: skip


class MultiLevelTiling(ScheduleRule):
    """Tiles data-parallel loops into the S levels and reduction loops into the R levels of ``structure``.

    ``tile_binds`` names the threads to which the first levels are bound; ``reuse_read`` and ``reuse_write`` add caches
    under given levels; ``filter_fn(sch, block_sref)`` accepts further blocks to tile. All factors are sampled
    (``sample_perfect_tile``); those of the innermost level are at most ``max_innermost_factor``.

    Before and after (structure "SSRSRS", an axis for each letter of a product)::

        for i, j, k in T.grid(512, 512, 512):      for i0, j0, i1, j1, k0, i2, j2, k1, i3, j3 in T.grid(...):
            C[i, j] += A[i, k] * B[k, j]               C[i, j] += A[i, k] * B[k, j]  # i is made of i0 .. i3, and so on
    """

    def __init__(
        self,
        structure: str,
        tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
        filter_fn: Callable[..., bool] | None = None,
    ) -> None:
        if not structure or set(structure) - set("SR"):
            raise ValueError(f"tiling structure {structure!r} must be made of the letters S and R")
        self.structure = structure
        self.tile_binds = list(tile_binds or [])
        self.max_innermost_factor = max_innermost_factor
        self.vector_load_lens = list(vector_load_lens or [])
        self.reuse_read = _reuse(reuse_read)
        self.reuse_write = _reuse(reuse_write)
        self.filter_fn = filter_fn
        self._slots = {
            int(IterVar.DataPar): [i for i, c in enumerate(structure) if c == "S"],
            int(IterVar.CommReduce): [i for i, c in enumerate(structure) if c == "R"],
        }
        self._warp_size = -1
        self._max_threads = -1
        self._pipeline_depths: tuple[int, ...] = ()

    def _initialize_with_tune_context(self, context: Task) -> None:
        attrs = attrs_with_limits(context.target)
        if "max_threads_per_block" in attrs:
            self._max_threads = int(attrs["max_threads_per_block"])
            if "thread_warp_size" in attrs:
                self._warp_size = int(attrs["thread_warp_size"])
        self._pipeline_depths = _PIPELINE_DEPTHS if _copies_in_the_background(context.target) else ()

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        node = sch.get(block)
        place = ba.enclosing(sch, node)[1]
        chosen = self.filter_fn is not None and self.filter_fn(sch, sch.get_sref(block))
        if place.scope is None or not (chosen or ba.needs_multi_level_tiling(place)):
            return [sch]
        sch.annotate(block, ba.TILING_KEY, self.structure)
        return [state.sch for state in self.apply_sub_rules([TilingState(sch, block)])]

    def apply_sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        """The steps of the rule, each turning a list of variants into another."""
        for step in (self.tile_loop_nest, self.add_write_reuse, self.add_read_reuse, self.add_async_pipeline):
            states = [made for state in states for made in step(state)]
        return states

    def split_loop(self, state: TilingState, loop: LoopRV, n: int, position: int) -> tuple[list[Any], list[LoopRV]]:
        """Cut the loop at ``position`` of the nest into ``n`` tiles of sampled sizes: the sizes and the tiles."""
        limit = -1 if self.max_innermost_factor is None else self.max_innermost_factor
        factors = state.sch.sample_perfect_tile(loop, n=n, max_innermost_factor=limit)
        loops: list[LoopRV] = state.sch.split(loop, factors=list(factors))
        return list(factors), loops

    def tile_loop_nest(self, state: TilingState, tiled_spatial: int | None = None) -> list[TilingState]:
        """Split, reorder and bind the loops of the block; spatial loops before the last ``tiled_spatial`` stay whole."""
        sch = state.sch
        loops = sch.get_loops(state.block)
        kinds = ba.iter_types(sch.get(state.block))
        # A blockized tensorised block has its own axes; the outer ones come first and pair with the loops.
        state.tiles, state.tile_factors = [[] for _ in self.structure], [[] for _ in self.structure]
        spatial = sum(kind == IterVar.DataPar for kind in kinds)
        whole = 0 if tiled_spatial is None else spatial - tiled_spatial
        kept: list[LoopRV] = []
        space = 1
        for position, (loop, kind) in enumerate(zip(loops[-len(kinds) :] if kinds else [], kinds, strict=True)):
            slots = self._slots.get(kind)
            if slots is None:
                continue
            if kind == IterVar.DataPar:
                if len(kept) < whole:
                    kept.append(loop)
                    continue
                extent = ba.int_extent(sch.get(loop))
                space = -1 if extent is None or space == -1 else space * extent
            if len(slots) == 1:
                state.tiles[slots[0]].append(loop)
                continue
            factors, parts = self.split_loop(state, loop, len(slots), position)
            for slot, factor, part in zip(slots, factors, parts, strict=True):
                state.tiles[slot].append(part)
                state.tile_factors[slot].append(factor)
        sch.reorder(*[loop for tile in state.tiles for loop in tile])
        self._bind_tiles(state, kept)
        if self._warp_size != -1:
            low = self._warp_size if space > 2 * self._warp_size else 1
            sch.annotate(state.block, "meta_schedule.thread_extent_low_inclusive", low)
            sch.annotate(state.block, "meta_schedule.thread_extent_high_inclusive", self._max_threads)
        return [state]

    def _bind_tiles(self, state: TilingState, kept: list[LoopRV]) -> None:
        """One loop for each thread axis; loops that were not tiled go with the outermost."""
        if kept and self.tile_binds:
            state.tiles[0] = [*kept, *state.tiles[0]]
        for index, thread in enumerate(self.tile_binds[: len(state.tiles)]):
            fused = state.sch.fuse(*state.tiles[index])
            state.sch.bind(fused, thread)
            state.tiles[index] = [fused]

    def add_write_reuse(self, state: TilingState) -> list[TilingState]:
        """One variant for each allowed level: the result is kept in a cache and written back under that tile."""
        config, levels = self.reuse_write, list(self.reuse_write.levels)
        if config.req == "no":
            return [state]
        required = config.req
        asked = ba.annotation(state.sch.get(state.block), "meta_schedule.write_cache_level")
        if asked is not None:
            required, levels = "must", [plain_int(x) for x in asked]
        results: list[TilingState] = []

        def placed(base: TilingState, cache: BlockRV) -> list[TilingState]:
            made = []
            for level in levels:
                variant = base.copy()
                variant.sch.reverse_compute_at(cache, variant.tiles[level - 1][-1], preserve_unit_loops=True)
                made.append(variant)
            return made

        if required == "may":
            consumers = state.sch.get_consumers(state.block)
            if len(consumers) == 1 and ba.is_write_cache(state.sch.get(consumers[0])):
                # The consumer already walks over the result once; it serves as the cache's write-back.
                results = placed(state, consumers[0])
                state.write_reuse[0] = consumers[0]
                return [*results, state]
            results.append(state.copy())
        cache = state.sch.cache_write(state.block, 0, config.scope)
        state.write_reuse[0] = cache
        return results + placed(state, cache)

    def add_read_reuse(self, state: TilingState) -> list[TilingState]:
        """One variant for each allowed level: every input is copied to a cache under that tile."""
        config = self.reuse_read
        if config.req == "no":
            return [state]
        if config.req == "may":
            raise ValueError("optional read caches are not supported; use 'must' or 'no'")
        results = []
        for level in config.levels:
            variant = state.copy()
            sch, loop = variant.sch, variant.tiles[level - 1][-1]
            block = sch.get(variant.block)
            written = {id(w.buffer) for w in block.writes}
            ranks = [-1 if id(r.buffer) in written else len(r.buffer.shape) for r in block.reads]
            for index, rank in enumerate(ranks):
                if rank == -1:
                    continue
                cache = sch.cache_read(variant.block, index, config.scope, [variant.block])
                sch.compute_at(cache, loop, preserve_unit_loops=True)
                sch.fuse(*sch.get_loops(cache)[-rank:])
                self.annotate_fetch(sch, cache)
                variant.read_reuse[index] = cache
            results.append(variant)
        return results

    def add_async_pipeline(self, state: TilingState) -> list[TilingState]:
        """The state, and where two copies and the product make up a step, variants that copy several steps ahead."""
        reductions = self._slots[int(IterVar.CommReduce)]
        if not reductions or not self._pipeline_depths:
            return [state]
        steps = state.sch.get(state.tiles[reductions[0]][-1]).body
        if not (isinstance(steps, SeqStmt) and len(steps.seq) == 3 and all(isinstance(s, For) for s in steps.seq)):
            return [state]
        made = [state]
        for depth in self._pipeline_depths:
            variant = state.copy()
            loop = variant.sch.fuse(*variant.tiles[reductions[0]])
            variant.sch.annotate(loop, "software_pipeline_stage", [0, 0, depth - 2])
            variant.sch.annotate(loop, "software_pipeline_order", [0, 1, 2])
            variant.sch.annotate(loop, "software_pipeline_async_stages", [0])
            made.append(variant)
        return made

    def annotate_fetch(self, sch: Schedule, block: BlockRV) -> None:
        """Annotate a copy for cooperative fetching: all threads share it, in vectors of a sampled length."""
        dtype = sch.get(block).writes[0].buffer.dtype
        widest = {"float32": 4, "float16": 8, "int8": 16}.get(dtype)
        lengths = [
            n
            for n in self.vector_load_lens
            if (widest is None or n <= widest) and (dtype != "float16" or n == 1 or n % 2 == 0)
        ]
        if lengths:
            choice = sch.sample_categorical(candidates=lengths, probs=[1.0 / len(lengths)] * len(lengths))
            sch.annotate(block, "meta_schedule.cooperative_fetch", choice)


class MultiLevelTilingWithIntrin(MultiLevelTiling):
    """Multi-level tiling around a tensor intrinsic: the innermost tile becomes one call of it."""

    def __init__(
        self,
        intrin_name: str,
        structure: str,
        tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(structure, tile_binds, max_innermost_factor, vector_load_lens, reuse_read, reuse_write)
        TensorIntrin.get(intrin_name)
        self.intrin_name = intrin_name

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        place = ba.enclosing(sch, sch.get(block))[1]
        if place.scope is None or not ba.needs_multi_level_tiling(place):
            return [sch]
        if not self._fits(sch, block):
            return [sch]
        return super().apply(sch.copy(), block) or [sch]

    def _fits(self, sch: Schedule, block: BlockRV) -> bool:
        intrin = TensorIntrin.get(self.intrin_name)
        if intrin is None or not computes_the_same(sch.get(block), intrin.desc):
            return False
        return tile_with_tensor_intrin(sch.copy(), block, self.intrin_name) is not None

    def apply_sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        for state in states:
            loop = tile_with_tensor_intrin(state.sch, state.block, self.intrin_name)
            assert loop is not None
            state.block = state.sch.blockize(loop)
            state.sch.annotate(state.block, "meta_schedule.auto_tensorize", self.intrin_name)
        return super().apply_sub_rules(states)
