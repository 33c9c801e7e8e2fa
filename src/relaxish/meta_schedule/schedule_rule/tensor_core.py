"""Multi-level tiling whose innermost tiles are products on tensor cores."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer
from ...support.errors import InternalError
from ...support.log import get_logger
from ...tir import IndexMap, IntImm, Schedule, TensorIntrin, Var
from ...tir.buffer import Buffer
from ...tir.functor import substitute
from ...tir.schedule import BlockRV, LoopRV, ScheduleError
from ...tir.schedule.analysis import AutoTensorizeMappingInfo, get_auto_tensorize_mapping_info
from ...tir.schedule.transform import tile_with_tensor_intrin
from ...tir.stmt import Block
from ..analysis import blocks as ba
from .multi_level_tiling import MultiLevelTiling, ReuseType, TilingState

__all__ = ["MultiLevelTilingTensorCore", "TensorCoreIntrinGroup"]

_log = get_logger("meta_schedule")
_KEYS = ("init", "load_a", "load_b", "compute", "store")
_AUTO_TENSORIZE = "meta_schedule.auto_tensorize"
# Bytes between rows of a tile in shared memory, so that neighbouring rows start in other banks.
_ROW_PITCH = {"float16": (32, 8), "int8": (32, 16)}


@dataclass(frozen=True)
class TensorCoreIntrinGroup:
    """Names of the intrinsics of one product: fill, loads of both operands, product, store."""

    init: str
    load_a: str
    load_b: str
    compute: str
    store: str

    @staticmethod
    def from_config(config: Mapping[str, str]) -> TensorCoreIntrinGroup:
        """A group from a mapping. Raises ValueError for a missing key or an intrinsic that is not registered."""
        missing = [key for key in _KEYS if key not in config]
        if missing:
            raise ValueError(f"{missing[0]} is not set in the intrinsic group; a group has {', '.join(_KEYS)}")
        for key in _KEYS:
            TensorIntrin.get(config[key])
        return TensorCoreIntrinGroup(*(config[key] for key in _KEYS))

    @property
    def is_mma(self) -> bool:
        """Whether the group works on registers (``mma.sync``), not on opaque fragments."""
        return self.compute.startswith("mma_sync")


@dataclass
class _State(TilingState):
    """One variant: what it is tensorised with, and the copies that give operands and result the product's layout."""

    group: Any = None
    mapping: Any = None
    reindex_store: Any = None
    reindexed: list[BlockRV] = field(default_factory=list)


class MultiLevelTilingTensorCore(MultiLevelTiling):
    """Tiles a product for tensor cores: fragments of the result in each warp, operands through shared memory.

    ``intrin_groups`` are mappings with the keys ``init``, ``load_a``, ``load_b``, ``compute`` and ``store``; a sketch
    comes from each group whose product the block computes, with axes fused and padded as needed.
    ``use_software_pipeline`` overlaps the copies of the next step with this step's products.
    """

    def __init__(
        self,
        intrin_groups: Sequence[Mapping[str, str]],
        structure: str,
        tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
        use_software_pipeline: bool = False,
    ) -> None:
        super().__init__(structure, tile_binds, max_innermost_factor, vector_load_lens, reuse_read, reuse_write)
        if "threadIdx.x" in self.tile_binds:
            raise InternalError("Cannot bind to threadIdx.x when using tensor core.")
        self.intrin_groups = [TensorCoreIntrinGroup.from_config(config) for config in intrin_groups]
        shared = self.reuse_write.req == "must" and self.reuse_write.scope.startswith("shared")
        if any(group.compute.startswith("wmma") for group in self.intrin_groups) and not shared:
            raise ValueError("Shared memory write reuse must be enabled for MultiLevelTilingTensorCore.")
        self.use_software_pipeline = use_software_pipeline
        self._reductions = [i for i, letter in enumerate(structure) if letter == "R"]
        self._spatials = [i for i, letter in enumerate(structure) if letter == "S"]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        place = ba.enclosing(sch, sch.get(block))[1]
        if place.scope is None or not ba.needs_multi_level_tiling(place):
            return [sch]
        results: list[Schedule] = []
        # Groups named later come first; the generator, which takes schedules from the end, turns them round again.
        for group in reversed(self.intrin_groups):
            intrin = TensorIntrin.get(group.compute)
            assert intrin is not None
            mapping = get_auto_tensorize_mapping_info(sch, block, intrin.desc)
            if mapping is None:
                continue
            made = _State(sch, block, group=group, mapping=mapping).copy()
            made.sch.annotate(block, ba.TILING_KEY, self.structure)
            try:
                results += [state.sch for state in self.apply_sub_rules([made])]
            except ScheduleError as err:
                # The other rules take the block then; one product that does not fit must not end the tuning.
                _log.info("no tensor-core sketch with %s: %s", group.compute, err)
        return results or [sch]

    def apply_sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        """The steps of the rule, each turning a list of variants into another."""
        steps = (
            self._tensorize, self._tile, self._pack_output, self.add_write_reuse, self._write_fragments,
            self._read_tiles, self._read_fragments, self._pipeline,
        )  # fmt: skip
        for step in steps:
            states = [made for state in states for made in step(state)]  # type: ignore[arg-type]
        return states

    # -- the product -----------------------------------------------------------------------------------------

    def _tensorize(self, state: _State) -> list[TilingState]:
        """Give the block the form of the intrinsic and make its innermost tile one call."""
        sch = state.sch
        node = sch.get(state.block)
        if len(node.reads) != 2 or len(node.writes) != 1:
            return []
        state.reindex_store = sch.reindex(state.block, ("write", 0))
        state.reindexed = [sch.reindex(state.block, ("read", index)) for index in (0, 1)]
        maps = [self._fit_layout(state, node, kind, index) for kind, index in (("read", 0), ("read", 1), ("write", 0))]
        sch.transform_block_layout(state.reindex_store, maps[2])
        for copy, index_map in zip(state.reindexed, maps, strict=False):
            sch.transform_block_layout(copy, index_map)
        sch.transform_block_layout(state.block, state.mapping.mappings[0])
        loop = tile_with_tensor_intrin(sch, state.block, state.group.compute, allow_padding=True)
        if loop is None:
            return []
        state.block = sch.blockize(loop)
        sch.annotate(state.block, _AUTO_TENSORIZE, state.group.compute)
        sch.annotate(state.block, "meta_schedule.auto_tensorize_init", state.group.init)
        sch.annotate(state.block, "warp_execution", 1)
        return [state]

    def _fit_layout(self, state: _State, before: Block, kind: str, index: int) -> IndexMap:
        """Lay one reindexed operand out as the intrinsic has it; the map that does it."""
        mapping: AutoTensorizeMappingInfo = state.mapping
        whole = mapping.mappings[0]
        source = {iv.var: var for iv, var in zip(mapping.lhs_iters, whole.initial_indices, strict=True)}
        extra = len(whole.final_indices) - len(mapping.rhs_iters)
        unmapped = {e for e in whole.final_indices[:extra] if isinstance(e, Var)}
        target = {iv.var: e for iv, e in zip(mapping.rhs_iters, whole.final_indices[extra:], strict=True)}
        regions = before.reads if kind == "read" else before.writes
        wanted = mapping.lhs_buffer_map[regions[index].buffer]
        node = state.sch.get(state.block)
        access = (node.reads if kind == "read" else node.writes)[index]
        inputs = [source[dim.min] for dim in access.region]
        outputs: list[Any] = [var for var in inputs if var in unmapped]
        # Axes of extent 1 (the window of a 1x1 convolution) may be no dimension of the reindexed operand.
        absent = {var: IntImm(var.dtype, 0) for var in source.values() if not any(var is mine for mine in inputs)}
        for axis in _intrinsic_axes(state.group.compute, wanted):
            place = target[axis]
            outputs.append(Analyzer().simplify(substitute(place, absent)) if absent else place)
        index_map = IndexMap(inputs, outputs)
        state.sch.transform_layout(state.block, (kind, index), index_map, assume_injective_transform=True)
        return index_map

    def _tile(self, state: _State) -> list[TilingState]:
        if not state.group.is_mma:
            return self.tile_loop_nest(state, 2)
        # Registers are laid out for two data parallel axes and one reduction.
        return self.tile_loop_nest(state) if len(ba.enclosing_loops(state.sch, state.block)) == 3 else []

    def split_loop(self, state: TilingState, loop: LoopRV, n: int, position: int) -> tuple[list[Any], list[LoopRV]]:
        """As the base; loads of ``mma`` operands take 32 rows or columns at once, so that tiles of a warp do, too."""
        assert isinstance(state, _State)
        if not state.group.is_mma or ba.iter_types(state.sch.get(state.block))[position] != 0:
            return super().split_loop(state, loop, n, position)
        instructions = 2 if position == 0 else 4
        factors = state.sch.sample_partitioned_tile(loop, n, partition_pos=3, innerpart_factor=instructions)
        loops: list[LoopRV] = state.sch.split(loop, factors=list(factors))
        return list(factors), loops

    # -- the result ------------------------------------------------------------------------------------------

    def _pack_output(self, state: _State) -> list[TilingState]:
        """Lay the result out as [..., warp_m, warp_n, fragment_m, fragment_n, m, n], for the copies of one warp."""
        if state.group.is_mma:
            return [state]
        intrin = TensorIntrin.get(state.group.init)
        assert intrin is not None
        rows: Any = intrin.desc.body.block.body  # type: ignore[attr-defined]
        frag_m, frag_n = rows.extent, rows.body.extent
        warp = self.tile_binds.index("threadIdx.y")
        inner = [state.tile_factors[slot] for slot in self._spatials[warp + 1 :]]
        warp_m, warp_n = (functools.reduce(operator.mul, [factors[i] for factors in inner]) for i in (-2, -1))
        sch = state.sch
        indices = [Var(f"i{i}", "int32") for i in range(len(sch.get(state.block).writes[0].buffer.shape))]
        *outer, m, n = indices
        tile_m, tile_n = m // frag_m, n // frag_n
        index_map = IndexMap(indices, [
            *outer, tile_m // warp_m, tile_n // warp_n, tile_m % warp_m, tile_n % warp_n, m % frag_m, n % frag_n,
        ])  # fmt: skip
        sch.transform_layout(state.block, ("write", 0), index_map, assume_injective_transform=True)
        return [state]

    def _write_fragments(self, state: _State) -> list[TilingState]:
        """From fragments to shared memory a row of fragments at a time, from there to the result by all threads."""
        sch = state.sch
        if state.group.is_mma:
            sch.write_at(state.tiles[2][-1], state.block, 0, "m16n8k8.matrixC")
            sch.reverse_compute_inline(state.reindex_store)
            return [state]
        fragments = sch.cache_write(state.block, 0, "wmma.accumulator")
        i0, j0, i1, j1 = sch.get_loops(state.write_reuse[0])[-6:-2]
        sch.reorder(i1, i0, j0, j1)
        sch.compute_at(fragments, i1, preserve_unit_loops=True)
        i0, j0 = sch.get_loops(fragments)[-6:-4]
        sch.bind(sch.fuse(i0, j0), "threadIdx.y")
        sch.reverse_compute_inline(state.reindex_store)
        stored = sch.blockize(sch.get_loops(fragments)[-2])
        sch.annotate(stored, _AUTO_TENSORIZE, state.group.store)
        sch.fuse(*sch.get_loops(state.write_reuse[0])[-5:])
        self.annotate_fetch(sch, state.write_reuse[0])
        return [state]

    # -- the operands ----------------------------------------------------------------------------------------

    def _read_tiles(self, state: _State) -> list[TilingState]:
        if not state.group.is_mma:
            return self.add_read_reuse(state)
        made = []
        for level in self.reuse_read.levels if self.reuse_read.req != "no" else ():
            variant = state.copy()
            for index in (0, 1):
                tile = variant.sch.read_at(variant.tiles[level - 1][-1], variant.block, index, self.reuse_read.scope)
                variant.sch.annotate(tile, "permuted_layout", f"g2s_{'AB'[index]}")
                variant.read_reuse[index] = tile
            made.append(variant)
        return made or [state]

    def _read_fragments(self, state: _State) -> list[TilingState]:
        """From shared memory to fragments, and rows of shared tiles apart by an odd number of banks."""
        sch, loop = state.sch, state.tiles[self._reductions[1]][-1]
        mma = state.group.is_mma
        for index, (operand, intrin) in enumerate((("a", state.group.load_a), ("b", state.group.load_b))):
            scope = f"m16n8k8.matrix{operand.upper()}" if mma else f"wmma.matrix_{operand}"
            fragments = sch.cache_read(state.block, index, scope)
            sch.compute_at(fragments, loop, preserve_unit_loops=True)
            tile = tile_with_tensor_intrin(sch, fragments, intrin)
            assert tile is not None, f"{intrin} does not fit the tile it was chosen for"
            loaded = sch.blockize(tile)
            sch.annotate(loaded, _AUTO_TENSORIZE, intrin)
            if mma:
                sch.annotate(loaded, "permuted_layout", f"s2l_{operand.upper()}")
        for index in (0, 1):
            tile_rv = state.read_reuse[index]
            sch.compute_inline(sch.get_producers(tile_rv)[0])
            pitch = _ROW_PITCH.get(sch.get(tile_rv).writes[0].buffer.dtype)
            if pitch is not None:
                sch.storage_align(tile_rv, 0, -2, *pitch)
        return [state]

    # -- overlap ---------------------------------------------------------------------------------------------

    def _pipeline(self, state: _State) -> list[TilingState]:
        """Annotations that overlap the copies of the next step, and of the next fragment, with products."""
        if not self.use_software_pipeline or len(self._reductions) < 2:
            return [state]
        sch, mma = state.sch, state.group.is_mma
        if len(state.tiles[self._reductions[1]]) > 1:
            return [state]  # loops of axes that are no part of the product stand between the two pipelines
        steps = [sch.get(loop).extent for slot in self._reductions for loop in state.tiles[slot]]
        if functools.reduce(operator.mul, [int(e.value) for e in steps if isinstance(e, IntImm)], 1) <= 1:
            return [state]
        for index in (0, 1):
            if mma:
                sch.annotate(state.read_reuse[index], "vector_bytes", 16)
            else:
                sch.annotate(state.read_reuse[index], "tir.manifest_shared_memory_local_stage", 1)
                sch.annotate(state.read_reuse[index], "double_buffer_scope", 0)
        outer, inner = (state.tiles[slot][-1] for slot in self._reductions[:2])
        sch.annotate(inner, "software_pipeline_stage", [0, 0, 1])
        sch.annotate(inner, "software_pipeline_order", [0, 1, 2])
        if mma:
            sch.annotate(outer, "software_pipeline_async_stages", [0])
            sch.annotate(outer, "software_pipeline_stage", [0, 0, 1, 2, 2])
            sch.annotate(outer, "software_pipeline_order", [0, 1, 3, 2, 4])
        else:
            sch.annotate(outer, "software_pipeline_stage", [0, 0, 0, 0, 0, 1, 1])
            sch.annotate(outer, "software_pipeline_order", [0, 3, 1, 4, 5, 2, 6])
        return [state]


def _intrinsic_axes(name: str, buffer: Buffer) -> list[Var]:
    """The variables with which an intrinsic's description indexes one of its buffers."""
    intrin = TensorIntrin.get(name)
    assert intrin is not None
    node: Any = intrin.desc.body.block.body  # type: ignore[attr-defined]
    while not hasattr(node, "block"):
        node = node.body
    region = next(r.region for r in (*node.block.reads, *node.block.writes) if r.buffer is buffer)
    return [dim.min for dim in region]
