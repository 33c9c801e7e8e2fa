"""Staging copies of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...buffer import Buffer
from ...index_map import IndexMap
from ..rv import BlockRV, LoopRV
from .arguments import Arguments, BlockArg, BufferArg, as_int, as_loop, as_str
from ..primitives.cache import CacheInplace, CacheRead, CacheWrite
from ..primitives.reindex import ReIndex, ReindexCacheRead, ReindexCacheWrite
from ..primitives.cache_index import CacheIndex
from ..primitives.at_loop import ReadAt, WriteAt

__all__ = ["CacheMethods"]


class CacheMethods(Arguments):
    """Staging copies of buffers."""

    def cache_read(
        self,
        block: BlockArg,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockArg] | None = None,
    ) -> BlockRV:
        """Read a buffer through a copy in ``storage_scope``; gives the copying block.

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch, "B"))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        >>> block = sch.cache_read("B", 0, "shared", consumer_blocks=["B"])
        >>> print(outline(sch))
        A_shared = T.alloc_buffer((8,), scope="shared")
        for ax0 in range(8):
            with T.block("A_shared"):
                v0 = T.axis.spatial(8, ax0)
                A_shared[v0] = A[v0]
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A_shared[v] * T.float32(2.0)
        for j in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, j)
                C[v] = A[v] + T.float32(1.0)
        """
        block = self._block(block)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        index = (
            self._buffer(block, read_buffer_index, "read")[1]
            if not isinstance(read_buffer_index, int)
            else read_buffer_index
        )
        return self._do(CacheRead(block, index, as_str(storage_scope, "storage_scope"), consumers))[0]

    def cache_write(
        self,
        block: BlockArg,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockArg] | None = None,
    ) -> BlockRV:
        """Write a buffer through a copy in ``storage_scope``; gives the block that copies back.

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch, "B"))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        >>> block = sch.cache_write("B", 0, "local")
        >>> print(outline(sch))
        B_local = T.alloc_buffer((8,), scope="local")
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B_local[v] = A[v] * T.float32(2.0)
        for j in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, j)
                C[v] = A[v] + T.float32(1.0)
        for ax0 in range(8):
            with T.block("B_local"):
                v0 = T.axis.spatial(8, ax0)
                B[v0] = B_local[v0]
        """
        block = self._block(block)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        index = (
            write_buffer_index
            if isinstance(write_buffer_index, int)
            else self._buffer(block, write_buffer_index, "write")[1]
        )
        return self._do(CacheWrite(block, index, as_str(storage_scope, "storage_scope"), consumers))[0]

    def reindex_cache_read(
        self, block: BlockArg, read_buffer_index: int, storage_scope: str, index_map: IndexMap | Callable[..., Any]
    ) -> BlockRV:
        """As :meth:`cache_read`, the copy laid out by ``index_map`` of the block's variables.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch, "C"))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> block = sch.reindex_cache_read("C", 1, "shared", lambda i, j, k: (j, k))
        >>> print(outline(sch))
        B_shared = T.alloc_buffer((16, 16), scope="shared")
        for j, k in T.grid(16, 16):
            with T.block("B_shared"):
                vj, vk = T.axis.remap("SS", [j, k])
                B_shared[vj, vk] = B[vk, vj]
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B_shared[vj, vk]
        """
        block = self._block(block)
        made = self._iter_map(block, index_map)
        index, scope = as_int(read_buffer_index, "read_buffer_index"), as_str(storage_scope, "storage_scope")
        return self._do(ReindexCacheRead(block, index, scope, made))[0]

    def reindex_cache_write(
        self, block: BlockArg, write_buffer_index: int, storage_scope: str, index_map: IndexMap | Callable[..., Any]
    ) -> BlockRV:
        """As :meth:`cache_write`, the copy laid out by ``index_map`` of the block's variables.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch, "C"))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> block = sch.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i))
        >>> print(outline(sch))
        C_local = T.alloc_buffer((16, 16), scope="local")
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_local[vj, vi] = T.float32(0.0)
                C_local[vj, vi] = C_local[vj, vi] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(16, 16):
            with T.block("C_local"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C_local[vj, vi]
        """
        block = self._block(block)
        made = self._iter_map(block, index_map)
        index, scope = as_int(write_buffer_index, "write_buffer_index"), as_str(storage_scope, "storage_scope")
        return self._do(ReindexCacheWrite(block, index, scope, made))[0]

    def cache_inplace(
        self, block: BlockArg, read_buffer_index: int | str | Buffer, storage_scope: str
    ) -> list[BlockRV]:
        """Copies before and after a block that updates a buffer in place.

        >>> from relaxish.testing.examples import Schedule, inplace, outline
        >>> sch = Schedule(inplace)
        >>> print(outline(sch))
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = A[v] * T.float32(2.0)
        >>> before, after = sch.cache_inplace("A", 0, "local")
        >>> print(outline(sch))
        A_local = T.alloc_buffer((8,), scope="local")
        for i in range(8):
            for ax0 in range(1):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, i + ax0)
                    A_local[v0] = A[v0]
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A_local[v] = A_local[v] * T.float32(2.0)
            for ax0 in range(1):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, i + ax0)
                    A[v0] = A_local[v0]
        """
        block = self._block(block)
        index = (
            read_buffer_index
            if isinstance(read_buffer_index, int)
            else self._buffer(block, read_buffer_index, "read")[1]
        )
        return self._do(CacheInplace(block, index, as_str(storage_scope, "storage_scope")))

    def cache_index(self, block: BlockArg, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute repeated index expressions of ``block`` once, into buffers.

        >>> from relaxish.testing.examples import Schedule, outline, window
        >>> sch = Schedule(window)
        >>> print(outline(sch, "C"))
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = T.float32(0.0)
                C[v] = C[v] + B[v + r]
        >>> blocks = sch.cache_index("C", "global")
        >>> print(outline(sch))
        B = T.alloc_buffer((10,))
        index_var_0 = T.alloc_buffer((8, 3), "int32", strides=(1,))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = A[v] * T.float32(2.0)
        for ax0, ax1 in T.grid(8, 3):
            with T.block("index_0"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                index_var_0[v0, v1] = v0 + v1
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = T.float32(0.0)
                C[v] = C[v] + B[index_var_0[v, r]]
        """
        scope, threshold = as_str(storage_scope, "storage_scope"), as_int(cse_thresh, "cse_thresh")
        return self._do(CacheIndex(self._block(block), scope, threshold))

    def reindex(self, block: BlockArg, buffer: BufferArg) -> BlockRV:
        """A copy of a buffer laid out by the variables of ``block``, and the block using it.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch, "C"))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> block = sch.reindex("C", ("read", 1))
        >>> print(outline(sch))
        B_reindex = T.alloc_buffer((16, 16))
        for ax0, ax1 in T.grid(16, 16):
            with T.block("B_reindex_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_reindex[v0, v1] = B[v1, v0]
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B_reindex[vj, vk]
        """
        block = self._block(block)
        kind, index, _ = self._buffer(block, buffer)
        return self._do(ReIndex(block, index, 0 if kind == "read" else 1))[0]

    def read_at(self, loop: LoopRV, block: BlockArg, read_buffer_index: int, storage_scope: str) -> BlockRV:
        """An automatic copy in, placed at ``loop``.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> block = sch.read_at(sch.get_loops("B")[0], "B", 0, "shared")
        >>> print(outline(sch, "B"))
        for i in range(16):
            with T.block("A_shared"):
                v0 = T.axis.spatial(16, i)
                T.block_attr({"auto_copy": 1})
                for ax0, ax1 in T.grid(1, 8):
                    A_shared[v0 + ax0, ax1] = A[v0 + ax0, ax1]
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A_shared[vi, vj] * T.float32(2.0)
        """
        index, scope = as_int(read_buffer_index, "read_buffer_index"), as_str(storage_scope, "storage_scope")
        return self._do(ReadAt(as_loop(loop), self._block(block), index, scope))[0]

    def write_at(self, loop: LoopRV, block: BlockArg, write_buffer_index: int, storage_scope: str) -> BlockRV:
        """An automatic copy out, placed at ``loop``.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> block = sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
        >>> print(outline(sch, "B"))
        for i in range(16):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B_local[vi, vj] = A[vi, vj] * T.float32(2.0)
            with T.block("B_local"):
                v0 = T.axis.spatial(16, i)
                T.block_attr({"auto_copy": 1})
                for ax0, ax1 in T.grid(1, 8):
                    B[v0 + ax0, ax1] = B_local[v0 + ax0, ax1]
        """
        index, scope = as_int(write_buffer_index, "write_buffer_index"), as_str(storage_scope, "storage_scope")
        return self._do(WriteAt(as_loop(loop), self._block(block), index, scope))[0]
