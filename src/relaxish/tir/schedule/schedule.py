"""The schedule: every primitive as a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..buffer import Buffer
from ..expr import IntImm
from ..index_map import IndexMap
from .core import ScheduleCore
from .rv import BlockRV, ExprRV, LoopRV

__all__ = ["Schedule"]

BlockArg = BlockRV | str
BufferArg = tuple[str, int] | int | str | Buffer


def _loop(value: Any) -> LoopRV:
    if not isinstance(value, LoopRV):
        raise TypeError(f"expected a LoopRV, got {type(value).__name__}")
    return value


def _int(value: Any, name: str) -> int:
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an integer, got {type(value).__name__}")
    return value


def _str(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, got {type(value).__name__}")
    return value


class Schedule(ScheduleCore):
    """Transforms a module step by step and keeps a trace of the steps.

    >>> sch = Schedule(mod)                       # doctest: +SKIP
    >>> i, j, k = sch.get_loops("matmul")         # doctest: +SKIP
    >>> i0, i1 = sch.split(i, [None, 32])         # doctest: +SKIP
    """

    # -- arguments -----------------------------------------------------------------------------------------

    def _block(self, value: Any) -> BlockRV:
        if isinstance(value, str):
            return self.get_block(value)
        if not isinstance(value, BlockRV):
            raise TypeError(f"expected a BlockRV or the name of a block, got {type(value).__name__}")
        return value

    def _block_or_loop(self, value: Any) -> Any:
        return value if isinstance(value, LoopRV) else self._block(value)

    def _buffer(self, block: BlockRV, buffer: Any, required: str | None = None) -> tuple[str, int, Buffer]:
        """("read" or "write", index, buffer) for any way of naming a buffer of a block."""
        node = self.get(block)
        regions = [("read", i, r.buffer) for i, r in enumerate(node.reads)]
        regions += [("write", i, r.buffer) for i, r in enumerate(node.writes)]
        if isinstance(buffer, int):
            if required is None:
                raise TypeError("an index alone does not say whether the buffer is read or written")
            buffer = (required, buffer)
        if isinstance(buffer, (tuple, list)):
            kind, index = buffer
            assert kind in ("read", "write"), f'the buffer is given as ("read" or "write", index), got {kind!r}'
            same = [r for r in regions if r[0] == kind]
            assert 0 <= index < len(same), (
                f"Invalid buffer_index {index}. Block {node.name_hint} has only {len(same)} {kind} buffers."
            )
            found = same[index]
        elif isinstance(buffer, str):
            named = [r for r in regions if r[2].name == buffer]
            assert named, f"Could not find buffer '{buffer}' in block '{node.name_hint}'"
            assert all(r[2] is named[0][2] for r in named), (
                f"Multiple buffers named '{buffer}' in block '{node.name_hint}'"
            )
            found = named[-1] if required is None else next((r for r in named if r[0] == required), named[-1])
        elif isinstance(buffer, Buffer):
            named = [r for r in regions if r[2] is buffer]
            assert named, f"Could not find buffer '{buffer.name}' in block '{node.name_hint}'"
            found = named[0] if required is None else next((r for r in named if r[0] == required), named[0])
        else:
            raise TypeError(f"Invalid type for argument 'buffer': {type(buffer)}")
        assert required is None or found[0] == required, (
            f"Expected buffer to be {required} buffer, but {found[2].name} was a {found[0]} buffer in the specified block"
        )
        return found

    def _index_dtype(self, block: BlockRV) -> str:
        node = self.get(block)
        for iv in node.iter_vars:
            return str(iv.var.dtype)
        for region in (*node.reads, *node.writes):
            for dim in region.region:
                return str(dim.min.dtype)
        return "int32"

    # -- sampling ------------------------------------------------------------------------------------------

    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of ``candidates`` by probability."""
        return self._run("SampleCategorical", [], [list(candidates), [float(p) for p in probs]], decision)[0]

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """``n`` factors whose product is the extent of ``loop``."""
        return self._run("SamplePerfectTile", [_loop(loop)], [_int(n, "n"), max_innermost_factor], decision)

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """A perfect tile in which the product of the factors from ``partition_pos`` on is a multiple of a number."""
        return self._run("SamplePartitionedTile", [_loop(loop)], [n, partition_pos, innerpart_factor], decision)

    def sample_compute_location(self, block: BlockArg, decision: int | None = None) -> LoopRV:
        """A loop to compute ``block`` at; the decision -2 means inline, -1 the root."""
        return self._run("SampleComputeLocation", [self._block(block)], [], decision)[0]

    # -- blocks and loops ----------------------------------------------------------------------------------

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block called ``name``."""
        if func_name is None:
            func_name = self.func_working_on.name_hint if self.func_working_on is not None else None
        return self._run("GetBlock", [], [_str(name, "name"), func_name])[0]

    def get_loops(self, block: BlockArg) -> list[LoopRV]:
        """The loops around ``block``, outermost first."""
        return self._run("GetLoops", [self._block(block)], [])

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """The nearest blocks below."""
        return self._run("GetChildBlocks", [self._block_or_loop(block_or_loop)], [])

    def get_producers(self, block: BlockArg) -> list[BlockRV]:
        """The blocks ``block`` depends on."""
        return self._run("GetProducers", [self._block(block)], [])

    def get_consumers(self, block: BlockArg) -> list[BlockRV]:
        """The blocks that depend on ``block``."""
        return self._run("GetConsumers", [self._block(block)], [])

    def get_output_blocks(self, scope_block: BlockArg) -> list[BlockRV]:
        """The blocks within ``scope_block`` that write to its outside."""
        return self._run("GetOutputBlocks", [self._block(scope_block)], [])

    # -- loop transformations ------------------------------------------------------------------------------

    def merge(self, *loops: LoopRV) -> LoopRV:
        """One loop nest out of sibling nests: ``for i: A; for j: B`` becomes ``for i: A; B``."""
        return self._run("Merge", [_loop(x) for x in loops], [])[0]

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """``for i in 4: for j in 8`` becomes ``for i_j_fused in 32``."""
        if len(loops) == 1 and isinstance(loops[0], (list, tuple)):
            loops = tuple(loops[0])
        return self._run("Fuse", [_loop(x) for x in loops], [preserve_unit_iters])[0]

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Any],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """``for i in 32`` with factors [None, 8] becomes ``for i_0 in 4: for i_1 in 8``; None is inferred."""
        if isinstance(factors, (int, IntImm)) or not hasattr(factors, "__iter__"):
            raise TypeError("factors is a list of integers, expressions and at most one None")
        for factor in factors:
            if isinstance(factor, float) or isinstance(factor, str):
                raise TypeError(f"a split factor is an integer or expression, got {type(factor).__name__}")
        return self._run("Split", [_loop(loop), *factors], [preserve_unit_iters, disable_predication])

    def loop_partition(self, loop: LoopRV, factors: Sequence[Any], preserve_unit_iters: bool = True) -> list[LoopRV]:
        """``for i in 10`` with factors [4, None] becomes ``for i in 4`` followed by ``for i in (4, 10)``."""
        return self._run("LoopPartition", [_loop(loop), *factors], [preserve_unit_iters])

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one nest into this order."""
        if len(ordered_loops) == 1 and isinstance(ordered_loops[0], (list, tuple)):
            ordered_loops = tuple(ordered_loops[0])
        self._run("Reorder", [_loop(x) for x in ordered_loops], [])

    def reorder_block_iter_var(self, block: BlockArg, new_order: Sequence[int]) -> None:
        """Put the variables of ``block`` into another order."""
        self._run("ReorderBlockIterVar", [self._block(block), list(new_order)], [])

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """A loop of one iteration around a block or loop."""
        return self._run("AddUnitLoop", [self._block_or_loop(block_or_loop)], [])[0]

    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations on many threads."""
        self._run("Parallel", [_loop(loop)], [])

    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations as vector lanes."""
        self._run("Vectorize", [_loop(loop)], [])

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Give the iterations to the threads of ``thread_axis`` ("blockIdx.x", "threadIdx.y", "vthread.x", ...)."""
        self._run("Bind", [_loop(loop)], [_str(thread_axis, "thread_axis")])

    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out."""
        self._run("Unroll", [_loop(loop)], [])

    # -- caches --------------------------------------------------------------------------------------------

    def cache_read(
        self,
        block: BlockArg,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockArg] | None = None,
    ) -> BlockRV:
        """Read a buffer through a copy in ``storage_scope``; gives the copying block."""
        block = self._block(block)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        index = (
            self._buffer(block, read_buffer_index, "read")[1]
            if not isinstance(read_buffer_index, int)
            else read_buffer_index
        )
        return self._run("CacheRead", [block, consumers], [index, _str(storage_scope, "storage_scope")])[0]

    def cache_write(
        self,
        block: BlockArg,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockArg] | None = None,
    ) -> BlockRV:
        """Write a buffer through a copy in ``storage_scope``; gives the block that copies back."""
        block = self._block(block)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        index = (
            write_buffer_index
            if isinstance(write_buffer_index, int)
            else self._buffer(block, write_buffer_index, "write")[1]
        )
        return self._run("CacheWrite", [block, consumers], [index, _str(storage_scope, "storage_scope")])[0]

    def reindex_cache_read(
        self, block: BlockArg, read_buffer_index: int, storage_scope: str, index_map: IndexMap | Callable[..., Any]
    ) -> BlockRV:
        """As :meth:`cache_read`, the copy laid out by ``index_map`` of the block's variables."""
        block = self._block(block)
        made = self._iter_map(block, index_map)
        return self._run("ReindexCacheRead", [block, made], [read_buffer_index, storage_scope])[0]

    def reindex_cache_write(
        self, block: BlockArg, write_buffer_index: int, storage_scope: str, index_map: IndexMap | Callable[..., Any]
    ) -> BlockRV:
        """As :meth:`cache_write`, the copy laid out by ``index_map`` of the block's variables."""
        block = self._block(block)
        made = self._iter_map(block, index_map)
        return self._run("ReindexCacheWrite", [block, made], [write_buffer_index, storage_scope])[0]

    def _iter_map(self, block: BlockRV, index_map: Any) -> IndexMap:
        if isinstance(index_map, IndexMap):
            return index_map
        return IndexMap.from_func(index_map, ndim=len(self.get(block).iter_vars), index_dtype=self._index_dtype(block))

    def cache_inplace(
        self, block: BlockArg, read_buffer_index: int | str | Buffer, storage_scope: str
    ) -> list[BlockRV]:
        """Copies before and after a block that updates a buffer in place."""
        block = self._block(block)
        index = (
            read_buffer_index
            if isinstance(read_buffer_index, int)
            else self._buffer(block, read_buffer_index, "read")[1]
        )
        return self._run("CacheInplace", [block], [index, storage_scope])

    def cache_index(self, block: BlockArg, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute repeated index expressions of ``block`` once, into buffers."""
        return self._run("CacheIndex", [self._block(block)], [storage_scope, cse_thresh])

    def reindex(self, block: BlockArg, buffer: BufferArg) -> BlockRV:
        """A copy of a buffer laid out by the variables of ``block``, and the block using it."""
        block = self._block(block)
        kind, index, _ = self._buffer(block, buffer)
        return self._run("ReIndex", [block], [index, 0 if kind == "read" else 1])[0]

    def read_at(self, loop: LoopRV, block: BlockArg, read_buffer_index: int, storage_scope: str) -> BlockRV:
        """An automatic copy in, placed at ``loop``."""
        return self._run("ReadAt", [_loop(loop), self._block(block)], [read_buffer_index, storage_scope])[0]

    def write_at(self, loop: LoopRV, block: BlockArg, write_buffer_index: int, storage_scope: str) -> BlockRV:
        """An automatic copy out, placed at ``loop``."""
        return self._run("WriteAt", [_loop(loop), self._block(block)], [write_buffer_index, storage_scope])[0]

    # -- moving and inlining -------------------------------------------------------------------------------

    def compute_at(self, block: BlockArg, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Move a producer under ``loop``, computing there just what the consumers need."""
        self._run("ComputeAt", [self._block(block), _loop(loop)], [preserve_unit_loops, index])

    def reverse_compute_at(
        self, block: BlockArg, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under ``loop``, consuming there just what the producers made."""
        self._run("ReverseComputeAt", [self._block(block), _loop(loop)], [preserve_unit_loops, index])

    def compute_inline(self, block: BlockArg) -> None:
        """Put a producer's expression into its consumers."""
        self._run("ComputeInline", [self._block(block)], [])

    def reverse_compute_inline(self, block: BlockArg) -> None:
        """Put a consumer's expression into its only producer."""
        self._run("ReverseComputeInline", [self._block(block)], [])

    # -- reduction -----------------------------------------------------------------------------------------

    def decompose_reduction(self, block: BlockArg, loop: LoopRV) -> BlockRV:
        """Split a reduction into its initialisation, before ``loop``, and its update; gives the former."""
        return self._run("DecomposeReduction", [self._block(block), _loop(loop)], [])[0]

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Keep one partial result per iteration of ``loop``; gives the block that computes them."""
        return self._run("RFactor", [_loop(loop)], [_int(factor_axis, "factor_axis")])[0]

    # -- buffers -------------------------------------------------------------------------------------------

    def storage_align(self, block: BlockArg, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Make the stride of ``axis`` congruent to ``offset`` modulo ``factor``."""
        self._run("StorageAlign", [self._block(block)], [buffer_index, axis, factor, offset])

    def set_scope(self, block: BlockArg, buffer_index: int | str | Buffer, storage_scope: str) -> None:
        """Put a written buffer into another memory scope."""
        block = self._block(block)
        index = buffer_index if isinstance(buffer_index, int) else self._buffer(block, buffer_index, "write")[1]
        self._run("SetScope", [block], [index, _str(storage_scope, "storage_scope")])

    def unsafe_set_dtype(self, block: BlockArg, buffer_index: int, dtype: str) -> None:
        """Store a written buffer in another type, with casts at every access."""
        self._run("UnsafeSetDType", [self._block(block)], [buffer_index, dtype])

    def transform_layout(
        self,
        block: BlockArg,
        buffer: BufferArg,
        index_map: IndexMap | Callable[..., Any],
        pad_value: Any = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Lay a buffer out by ``index_map``: ``B[i, j]`` becomes ``B[index_map(i, j)]`` everywhere."""
        block = self._block(block)
        kind, index, node = self._buffer(block, buffer)
        separators: list[int] = []
        if callable(index_map) and not isinstance(index_map, IndexMap):
            index_map, separators = IndexMap.from_func_with_separators(
                index_map, ndim=len(node.shape), index_dtype=self._index_dtype(block)
            )
        if pad_value is not None and not isinstance(pad_value, IndexMap):
            pad_value = self._pad_map(pad_value, index_map, node.dtype)
        write = 0 if kind == "read" else 1
        self._run("TransformLayout", [block, index_map], [index, write, pad_value, assume_injective_transform])
        if separators:
            self._run("SetAxisSeparator", [block], [index, write, separators])

    @staticmethod
    def _pad_map(pad_value: Any, index_map: IndexMap, dtype: str) -> IndexMap:
        from ...ir.prim import const
        from ..expr import FloatImm

        if callable(pad_value):
            made = IndexMap.from_func(
                pad_value, ndim=len(index_map.final_indices), index_dtype=index_map.initial_indices[0].dtype
            )
            return made
        value = pad_value
        if isinstance(value, (int, float)):
            value = FloatImm(dtype, float(value)) if "float" in dtype else const(int(value), dtype)
        return IndexMap.from_func(
            lambda *indices: [value],
            ndim=len(index_map.final_indices),
            index_dtype=index_map.initial_indices[0].dtype,
        )

    def transform_block_layout(self, block: BlockArg, index_map: IndexMap | Callable[..., Any]) -> None:
        """Give a block the variables ``index_map`` makes of its own."""
        block = self._block(block)
        self._run("TransformBlockLayout", [block, self._iter_map(block, index_map)], [])

    def set_axis_separator(self, block: BlockArg, buffer: BufferArg, axis_separators: Sequence[int] | None) -> None:
        """Group the dimensions of a buffer for multi-dimensional memory."""
        block = self._block(block)
        kind, index, _ = self._buffer(block, buffer)
        self._run("SetAxisSeparator", [block], [index, 0 if kind == "read" else 1, list(axis_separators or ())])

    # -- blocks --------------------------------------------------------------------------------------------

    def blockize(self, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """Make a block of the subtree at a loop, or of neighbouring blocks."""
        value: Any = [self._block(b) for b in target] if isinstance(target, (list, tuple)) else _loop(target)
        return self._run("Blockize", [value], [preserve_unit_iters])[0]

    def tensorize(self, block_or_loop: BlockRV | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replace a block, or the subtree at a loop, by a tensor intrinsic that computes the same."""
        target = self._block_or_loop(block_or_loop)
        self._run("Tensorize", [target], [_str(tensor_intrin, "tensor_intrin"), preserve_unit_iters])

    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Attach a value under a key."""
        self._run("Annotate", [self._block_or_loop(block_or_loop), ann_val], [_str(ann_key, "ann_key")])

    def apply_rule(self, rule: str, options: dict[str, Any]) -> None:
        """Let a registered whole-function rule schedule the function; the first step of a trace, if used at all."""
        self._run("ApplyRule", [], [_str(rule, "rule"), dict(options)])

    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Remove an annotation."""
        self._run("Unannotate", [self._block_or_loop(block_or_loop)], [_str(ann_key, "ann_key")])

    def decompose_padding(self, block: BlockArg, loop: LoopRV) -> BlockRV:
        """Split a padding block into filling, before ``loop``, and copying; gives the former."""
        return self._run("DecomposePadding", [self._block(block), _loop(loop)], [])[0]

    def can_decompose_padding(self, block: BlockArg, loop: LoopRV) -> bool:
        """Whether :meth:`decompose_padding` would succeed."""
        from .primitives.padding import can_decompose_padding

        return can_decompose_padding(self.state, self.sref(self._block(block)), self.sref(_loop(loop)))

    def pad_einsum(self, block: BlockArg, padding: Sequence[int]) -> None:
        """Round the axes of an einsum-like block up to multiples."""
        self._run("PadEinsum", [self._block(block)], [list(padding)])

    def rolling_buffer(self, block: BlockArg, write_buffer_index: int) -> None:
        """Keep what overlapping tiles share in a circular buffer."""
        self._run("RollingBuffer", [self._block(block)], [write_buffer_index])

    def enter_postproc(self) -> None:
        """Mark in the trace where post-processing begins."""
        self._run("EnterPostproc", [], [])

    def unsafe_hide_buffer_access(self, block: BlockArg, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Take regions out of a block's signature."""
        self._run("UnsafeHideBufferAccess", [self._block(block), buf_type, list(buf_index_array)], [])

    def annotate_buffer_access(
        self, block: BlockArg, buffer_index: int, buf_type: str, gen_new_ranges: Callable[..., Any]
    ) -> None:
        """State a block's region of a buffer by hand: ``lambda *iters: [(begin, end) or point, ...]``."""
        block = self._block(block)
        made = gen_new_ranges
        if not isinstance(made, IndexMap):
            from .primitives.access import range_map

            made = range_map(self.get(block), gen_new_ranges)
        self._run("AnnotateBufferAccess", [block, buffer_index, 0 if buf_type == "read" else 1, made], [])
