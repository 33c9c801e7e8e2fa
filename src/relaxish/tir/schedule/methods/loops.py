"""Transforming and marking loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import IntImm
from ..rv import BlockRV, LoopRV
from .arguments import Arguments, BlockArg, as_loop, as_str
from ..primitives.loops import AddUnitLoop, Fuse, Reorder, ReorderBlockIterVar, Split
from ..primitives.marks import Bind, Parallel, Unroll, Vectorize
from ..primitives.partition import LoopPartition, Merge

__all__ = ["LoopMethods"]


class LoopMethods(Arguments):
    """Transforming and marking loops."""

    def merge(self, *loops: LoopRV) -> LoopRV:
        """One loop nest out of sibling nests: ``for i: A; for j: B`` becomes ``for i: A; B``.

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        for j in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, j)
                C[v] = A[v] + T.float32(1.0)
        >>> loop = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
        >>> print(outline(sch))
        for i_m in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i_m)
                B[v] = A[v] * T.float32(2.0)
            with T.block("C"):
                v = T.axis.spatial(8, i_m)
                C[v] = A[v] + T.float32(1.0)
        """
        return self._do(Merge([as_loop(x) for x in loops]))[0]

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """``for i in 4: for j in 8`` becomes ``for i_j_fused in 32``.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> loop = sch.fuse(*sch.get_loops("B"))
        >>> print(outline(sch, "B"))
        for i_j_fused in range(128):
            with T.block("B"):
                vi = T.axis.spatial(16, i_j_fused // 8)
                vj = T.axis.spatial(8, i_j_fused % 8)
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        if len(loops) == 1 and isinstance(loops[0], (list, tuple)):
            loops = tuple(loops[0])
        return self._do(Fuse([as_loop(x) for x in loops], preserve_unit_iters))[0]

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Any],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """``for i in 32`` with factors [None, 8] becomes ``for i_0 in 4: for i_1 in 8``; None is inferred.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> i, j = sch.get_loops("B")
        >>> i0, i1 = sch.split(i, [None, 6])
        >>> print(outline(sch, "B"))
        for i_0, i_1, j in T.grid(3, 6, 8):
            with T.block("B"):
                vi = T.axis.spatial(16, i_0 * 6 + i_1)
                vj = T.axis.spatial(8, j)
                T.where(i_0 * 6 + i_1 < 16)
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        if isinstance(factors, (int, IntImm)) or not hasattr(factors, "__iter__"):
            raise TypeError("factors is a list of integers, expressions and at most one None")
        for factor in factors:
            if isinstance(factor, float) or isinstance(factor, str):
                raise TypeError(f"a split factor is an integer or expression, got {type(factor).__name__}")
        return self._do(Split(as_loop(loop), list(factors), preserve_unit_iters, disable_predication))

    def loop_partition(self, loop: LoopRV, factors: Sequence[Any], preserve_unit_iters: bool = True) -> list[LoopRV]:
        """``for i in 10`` with factors [4, None] becomes ``for i in 4`` followed by ``for i in (4, 10)``.

        The sizes add up to less than the extent; what is left is None's, or a piece of its own at the end.

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch, "B"))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        >>> first, second = sch.loop_partition(sch.get_loops("B")[0], [3, None])
        >>> print(outline(sch, "B_i0"))
        with T.block("B_i_common"):
            with T.block("B_i0_partition"):
                for i0 in range(3):
                    with T.block("B_i0"):
                        v = T.axis.spatial(3, i0)
                        B[v] = A[v] * T.float32(2.0)
            with T.block("B_i1_partition"):
                for i1 in range(3, 8):
                    with T.block("B_i1"):
                        v = T.axis.spatial((3, 8), i1)
                        B[v] = A[v] * T.float32(2.0)
        """
        return self._do(LoopPartition(as_loop(loop), list(factors), preserve_unit_iters))

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one nest into this order.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> i, j = sch.get_loops("B")
        >>> sch.reorder(j, i)
        >>> print(outline(sch, "B"))
        for j, i in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        if len(ordered_loops) == 1 and isinstance(ordered_loops[0], (list, tuple)):
            ordered_loops = tuple(ordered_loops[0])
        self._do(Reorder([as_loop(x) for x in ordered_loops]))

    def reorder_block_iter_var(self, block: BlockArg, new_order: Sequence[int]) -> None:
        """Put the variables of ``block`` into another order.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.reorder_block_iter_var("B", [1, 0])
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vj, vi = T.axis.remap("SS", [j, i])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(ReorderBlockIterVar(self._block(block), list(new_order)))

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """A loop of one iteration around a block or loop.

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch, "B"))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        >>> loop = sch.add_unit_loop("B")
        >>> print(outline(sch, "B"))
        for i, u in T.grid(8, 1):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        """
        return self._do(AddUnitLoop(self._block_or_loop(block_or_loop)))[0]

    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations on many threads.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.parallel(sch.get_loops("B")[0])
        >>> print(outline(sch, "B"))
        for i in T.parallel(16):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(Parallel(as_loop(loop)))

    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations as vector lanes.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.vectorize(sch.get_loops("B")[1])
        >>> print(outline(sch, "B"))
        for i in range(16):
            for j in T.vectorized(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(Vectorize(as_loop(loop)))

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Give the iterations to the threads of ``thread_axis`` ("blockIdx.x", "threadIdx.y", "vthread.x", ...).

        >>> from relaxish.testing.examples import Schedule, outline, siblings
        >>> sch = Schedule(siblings)
        >>> print(outline(sch, "B"))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        >>> sch.bind(sch.get_loops("B")[0], "threadIdx.x")
        >>> print(outline(sch, "B"))
        for i in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * T.float32(2.0)
        """
        self._do(Bind(as_loop(loop), as_str(thread_axis, "thread_axis")))

    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.unroll(sch.get_loops("B")[1])
        >>> print(outline(sch, "B"))
        for i in range(16):
            for j in T.unroll(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(Unroll(as_loop(loop)))
