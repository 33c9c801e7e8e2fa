"""Random choices: integers, tile sizes, places to compute at."""

from __future__ import annotations

from collections.abc import Sequence

from ..rv import ExprRV, LoopRV
from .arguments import Arguments, BlockArg, as_int, as_loop
from ..primitives.sample import SampleCategorical, SampleComputeLocation, SamplePartitionedTile, SamplePerfectTile

__all__ = ["SamplingMethods"]


class SamplingMethods(Arguments):
    """Random choices: integers, tile sizes, places to compute at."""

    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of ``candidates`` by probability.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> sch.get(sch.sample_categorical([16, 64, 512], [0.5, 0.25, 0.25], decision=1))
        64
        """
        return self._do(SampleCategorical(list(candidates), [float(p) for p in probs], decision))[0]

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """``n`` factors whose product is the extent of ``loop``.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> i, j = sch.get_loops("B")
        >>> [sch.get(v) for v in sch.sample_perfect_tile(i, 2, decision=[4, 4])]
        [4, 4]
        >>> sch.trace.decisions[sch.trace.insts[-1]]
        [4, 4]
        """
        return self._do(SamplePerfectTile(as_loop(loop), as_int(n, "n"), max_innermost_factor, decision))

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """A perfect tile in which the product of the factors from ``partition_pos`` on is a multiple of a number.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> i, j = sch.get_loops("B")
        >>> sizes = [sch.get(v) for v in sch.sample_partitioned_tile(i, 3, partition_pos=1, innerpart_factor=4)]
        >>> sizes[1] * sizes[2] % 4
        0
        """
        return self._do(SamplePartitionedTile(as_loop(loop), n, partition_pos, innerpart_factor, decision))

    def sample_compute_location(self, block: BlockArg, decision: int | None = None) -> LoopRV:
        """A loop to compute ``block`` at; the decision -2 means inline, -1 the root.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> loop = sch.sample_compute_location("B", decision=0)
        >>> sch.compute_at("B", loop)
        >>> print(outline(sch))
        B = T.alloc_buffer((16, 8))
        for i in range(16):
            for ax0 in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
        """
        return self._do(SampleComputeLocation(self._block(block), decision))[0]
