"""Moving, inlining and dividing computations."""

from __future__ import annotations

from collections.abc import Sequence

from ..rv import BlockRV, LoopRV
from .arguments import Arguments, BlockArg, as_int, as_loop
from ..primitives.compute_at import ComputeAt, ReverseComputeAt
from ..primitives.inline import ComputeInline, ReverseComputeInline
from ..primitives.decompose import DecomposePadding
from ..primitives.reduction import DecomposeReduction
from ..primitives.padding import PadEinsum
from ..primitives.rfactor import RFactor
from ..primitives.rolling import RollingBuffer

__all__ = ["MovingMethods"]


class MovingMethods(Arguments):
    """Moving, inlining and dividing computations."""

    def compute_at(self, block: BlockArg, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Move a producer under ``loop``, computing there just what the consumers need.

        >>> from relaxish.testing.examples import Schedule, outline, window
        >>> sch = Schedule(window)
        >>> print(outline(sch))
        B = T.alloc_buffer((10,))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = A[v] * T.float32(2.0)
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = T.float32(0.0)
                C[v] = C[v] + B[v + r]
        >>> sch.compute_at("B", sch.get_loops("C")[0])
        >>> print(outline(sch))
        B = T.alloc_buffer((10,))
        for i in range(8):
            for ax0 in range(3):
                with T.block("B"):
                    v = T.axis.spatial(10, i + ax0)
                    B[v] = A[v] * T.float32(2.0)
            for k in range(3):
                with T.block("C"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[v] = T.float32(0.0)
                    C[v] = C[v] + B[v + r]
        """
        self._do(ComputeAt(self._block(block), as_loop(loop), bool(preserve_unit_loops), as_int(index, "index")))

    def reverse_compute_at(
        self, block: BlockArg, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under ``loop``, consuming there just what the producers made.

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
        >>> sch.reverse_compute_at("C", sch.get_loops("B")[0])
        >>> print(outline(sch))
        B = T.alloc_buffer((16, 8))
        for i in range(16):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for ax0 in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
        """
        keep, index = bool(preserve_unit_loops), as_int(index, "index")
        self._do(ReverseComputeAt(self._block(block), as_loop(loop), keep, index))

    def compute_inline(self, block: BlockArg) -> None:
        """Put a producer's expression into its consumers.

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
        >>> sch.compute_inline("B")
        >>> print(outline(sch))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
        """
        self._do(ComputeInline(self._block(block)))

    def reverse_compute_inline(self, block: BlockArg) -> None:
        """Put a consumer's expression into its only producer.

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
        >>> sch.reverse_compute_inline("C")
        >>> print(outline(sch))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
        """
        self._do(ReverseComputeInline(self._block(block)))

    def decompose_reduction(self, block: BlockArg, loop: LoopRV) -> BlockRV:
        """Split a reduction into its initialisation, before ``loop``, and its update; gives the former.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> i, j, k = sch.get_loops("C")
        >>> init = sch.decompose_reduction("C", k)
        >>> print(outline(sch))
        for i, j in T.grid(16, 16):
            with T.block("C_init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0.0)
            for k in range(16):
                with T.block("C_update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """
        return self._do(DecomposeReduction(self._block(block), as_loop(loop)))[0]

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Keep one partial result per iteration of ``loop``; gives the block that computes them.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch, "C"))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> i, j, k = sch.get_loops("C")
        >>> k0, k1 = sch.split(k, [4, 4])
        >>> block = sch.rfactor(k0, 0)
        >>> print(outline(sch))
        C_rf = T.alloc_buffer((4, 16, 16))
        for i, j, k_0, k_1 in T.grid(16, 16, 4, 4):
            with T.block("C_rf"):
                vk_0, vi, vj, vk_1 = T.axis.remap("SSSR", [k_0, i, j, k_1])
                with T.init():
                    C_rf[vk_0, vi, vj] = T.float32(0.0)
                C_rf[vk_0, vi, vj] = C_rf[vk_0, vi, vj] + A[vi, vk_0 * 4 + vk_1] * B[vk_0 * 4 + vk_1, vj]
        for i, j, k_0 in T.grid(16, 16, 4):
            with T.block("C"):
                vk_0, vi, vj = T.axis.remap("RSS", [k_0, i, j])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + C_rf[vk_0, vi, vj]
        """
        return self._do(RFactor(as_loop(loop), as_int(factor_axis, "factor_axis")))[0]

    def decompose_padding(self, block: BlockArg, loop: LoopRV) -> BlockRV:
        """Split a padding block into filling, before ``loop``, and copying; gives the former.

        >>> from relaxish.testing.examples import Schedule, outline, padded
        >>> sch = Schedule(padded)
        >>> print(outline(sch))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = T.if_then_else(1 <= v and v < 9, A[v - 1], T.float32(0.0))
        >>> fill = sch.decompose_padding("B", sch.get_loops("B")[0])
        >>> print(outline(sch))
        for i in range(10):
            with T.block("B_pad_const"):
                v = T.axis.spatial(10, i)
                B[v] = T.float32(0.0)
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v + 1] = A[v]
        """
        return self._do(DecomposePadding(self._block(block), as_loop(loop)))[0]

    def can_decompose_padding(self, block: BlockArg, loop: LoopRV) -> bool:
        """Whether :meth:`decompose_padding` would succeed.

        >>> from relaxish.testing.examples import Schedule, padded
        >>> sch = Schedule(padded)
        >>> sch.can_decompose_padding("B", sch.get_loops("B")[0])
        True
        """
        from ..primitives.decompose import can_decompose_padding

        return can_decompose_padding(self.state, self.sref(self._block(block)), self.sref(as_loop(loop)))

    def pad_einsum(self, block: BlockArg, padding: Sequence[int]) -> None:
        """Round the axes of an einsum-like block up to multiples.

        >>> from relaxish.testing.examples import Schedule, matmul, outline
        >>> sch = Schedule(matmul)
        >>> print(outline(sch, "C"))
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        >>> sch.pad_einsum("C", [1, 12, 1])
        >>> print(outline(sch))
        B_pad = T.alloc_buffer((16, 24))
        C_pad = T.alloc_buffer((16, 24))
        for i0, i1 in T.grid(16, 24):
            with T.block("B_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                B_pad[v0, v1] = T.if_then_else(v1 < 16, B[v0, v1], T.float32(0.0))
        for i, j, k in T.grid(16, 24, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_pad[vi, vj] = T.float32(0.0)
                C_pad[vi, vj] = C_pad[vi, vj] + A[vi, vk] * B_pad[vk, vj]
        for i0, i1 in T.grid(16, 16):
            with T.block("C_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                C[v0, v1] = C_pad[v0, v1]
        """
        self._do(PadEinsum(self._block(block), [as_int(x, "padding") for x in padding]))

    def rolling_buffer(self, block: BlockArg, write_buffer_index: int) -> None:
        """Keep what overlapping tiles share in a circular buffer.

        >>> from relaxish.testing.examples import Schedule, outline, window
        >>> sch = Schedule(window)
        >>> print(outline(sch))
        B = T.alloc_buffer((10,))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = A[v] * T.float32(2.0)
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = T.float32(0.0)
                C[v] = C[v] + B[v + r]
        >>> i, k = sch.get_loops("C")
        >>> i0, i1 = sch.split(i, [None, 4])
        >>> sch.compute_at("B", i0)
        >>> sch.rolling_buffer("B", 0)
        >>> print(outline(sch))
        B = T.alloc_buffer((6,))
        for i_0 in range(2):
            for ax0 in range(6):
                with T.block("B"):
                    v = T.axis.opaque(10, i_0 * 4 + ax0)
                    T.where(i_0 < 1 or 2 <= ax0)
                    B[v % 6] = A[v] * T.float32(2.0)
            for i_1, k in T.grid(4, 3):
                with T.block("C"):
                    v = T.axis.opaque(8, i_0 * 4 + i_1)
                    r = T.axis.reduce(3, k)
                    with T.init():
                        C[v] = T.float32(0.0)
                    C[v] = C[v] + B[(v + r) % 6]
        """
        self._do(RollingBuffer(self._block(block), as_int(write_buffer_index, "write_buffer_index")))
