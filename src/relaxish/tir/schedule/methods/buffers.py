"""Schedule methods for buffer layouts, memory scopes and declared regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.expr import ExprLike
from ...buffer import Buffer
from ...index_map import IndexMap
from .arguments import Arguments, BlockArg, BufferArg, as_int, as_str
from ..primitives.access import AnnotateBufferAccess, UnsafeHideBufferAccess
from ..primitives.layout import SetAxisSeparator, TransformBlockLayout, TransformLayout
from ..primitives.buffer_attrs import SetScope, StorageAlign, UnsafeSetDType

__all__ = ["BufferMethods"]


class BufferMethods(Arguments):
    """Schedule methods for buffer layouts, memory scopes and declared regions."""

    def storage_align(self, block: BlockArg, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Make the stride of ``axis`` congruent to ``offset`` modulo ``factor``.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.storage_align("B", 0, axis=-2, factor=16, offset=1)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"buffer_dim_align": [[0, 0, 16, 1]]})
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        numbers = {"buffer_index": buffer_index, "axis": axis, "factor": factor, "offset": offset}
        self._do(StorageAlign(self._block(block), *[as_int(value, name) for name, value in numbers.items()]))

    def set_scope(self, block: BlockArg, buffer_index: int | str | Buffer, storage_scope: str) -> None:
        """Put a written buffer into another memory scope.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> sch.set_scope("B", 0, "shared")
        >>> print(outline(sch))
        B_shared = T.alloc_buffer((16, 8), scope="shared")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_shared[vi, vj] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B_shared[vi, vj] + T.float32(1.0)
        """
        block = self._block(block)
        index = buffer_index if isinstance(buffer_index, int) else self._buffer(block, buffer_index, "write")[1]
        self._do(SetScope(block, index, as_str(storage_scope, "storage_scope")))

    def unsafe_set_dtype(self, block: BlockArg, buffer_index: int, dtype: str) -> None:
        """Store a written buffer in another type, with casts at every access.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> sch.unsafe_set_dtype("B", 0, "float16")
        >>> print(outline(sch))
        B = T.alloc_buffer((16, 8), "float16")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.Cast("float16", A[vi, vj] * T.float32(2.0))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.Cast("float32", B[vi, vj]) + T.float32(1.0)
        """
        index, dtype = as_int(buffer_index, "buffer_index"), as_str(dtype, "dtype")
        self._do(UnsafeSetDType(self._block(block), index, dtype))

    def transform_layout(
        self,
        block: BlockArg,
        buffer: BufferArg,
        index_map: IndexMap | Callable[..., Any],
        pad_value: IndexMap | Callable[..., Any] | ExprLike | None = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Lay a buffer out by ``index_map``: ``B[i, j]`` becomes ``B[index_map(i, j)]`` everywhere.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch))
        B = T.alloc_buffer((16, 8))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
        >>> sch.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4))
        >>> print(outline(sch))
        B = T.alloc_buffer((4, 8, 4))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 4, vj, vi % 4] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi // 4, vj, vi % 4] + T.float32(1.0)
        """
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
        self._do(TransformLayout(block, index_map, index, write, pad_value, assume_injective_transform))
        if separators:
            self._do(SetAxisSeparator(block, index, write, separators))

    @staticmethod
    def _pad_map(pad_value: Callable[..., Any] | ExprLike, index_map: IndexMap, dtype: str) -> IndexMap:
        from ....ir.prim import const
        from ...expr import FloatImm

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
        """Give a block the variables ``index_map`` makes of its own.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.transform_block_layout("B", lambda i, j: (i * 8 + j,))
        >>> print(outline(sch, "B"))
        for ax0 in range(128):
            with T.block("B"):
                v0 = T.axis.spatial(128, ax0)
                B[v0 // 8, v0 % 8] = A[v0 // 8, v0 % 8] * T.float32(2.0)
        """
        block = self._block(block)
        self._do(TransformBlockLayout(block, self._iter_map(block, index_map)))

    def set_axis_separator(self, block: BlockArg, buffer: BufferArg, axis_separators: Sequence[int] | None) -> None:
        """Group the dimensions of a buffer for multi-dimensional memory.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> sch.set_axis_separator("B", ("write", 0), [1])
        >>> sch.get(sch.get_block("B")).writes[0].buffer.axis_separators
        (1,)
        """
        block = self._block(block)
        kind, index, _ = self._buffer(block, buffer)
        self._do(SetAxisSeparator(block, index, 0 if kind == "read" else 1, list(axis_separators or ())))

    def unsafe_hide_buffer_access(self, block: BlockArg, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Take regions out of a block's signature.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "C", regions=True))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
        >>> sch.unsafe_hide_buffer_access("C", "read", [0])
        >>> print(outline(sch, "C", regions=True))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
        """
        self._do(UnsafeHideBufferAccess(self._block(block), buf_type, list(buf_index_array)))

    def annotate_buffer_access(
        self, block: BlockArg, buffer_index: int, buf_type: str, gen_new_ranges: Callable[..., Any]
    ) -> None:
        """State a block's region of a buffer by hand: ``lambda *iters: [(begin, end) or point, ...]``.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "C", regions=True))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
        >>> sch.annotate_buffer_access("C", 0, "read", lambda vi, vj: [vi, (0, 8)])
        >>> print(outline(sch, "C", regions=True))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, 0:8])
                T.writes(C[vi, vj])
                T.block_attr({"explicit_read_region": [0]})
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
        """
        block = self._block(block)
        made: Any = gen_new_ranges
        if not isinstance(made, IndexMap):
            from ..primitives.access import range_map

            made = range_map(self.get(block), gen_new_ranges)
        if buf_type not in ("read", "write"):
            raise ValueError(f"Invalid buf_type: {buf_type}. Expected 'read' or 'write'.")
        self._do(AnnotateBufferAccess(block, buffer_index, 0 if buf_type == "read" else 1, made))
