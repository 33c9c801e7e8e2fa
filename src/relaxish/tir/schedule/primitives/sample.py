"""Sampling instructions: the random choices of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ....arith.build import as_int
from ....ir.plain import plain_int, plain_ints
from ....support.errors import InternalError
from .. import checks
from ..instruction import Decision, plain, Output, Step, decided, operand
from ..sampling import sample_partitioned_factors, sample_perfect_factors
from ..sref import StmtSRef
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..rv import LoopRV
    from ..protocol import Schedule

__all__: list[str] = []


class SampleCategorical(Step):
    """One of several integers, by probability."""

    is_pure = True

    candidates: Sequence[int]
    probs: Sequence[float]
    decision: Decision = decided()

    def sample(self, sch: Schedule) -> tuple[Sequence[Output], Decision]:
        candidates, probs = plain(self.candidates), plain(self.probs)
        if len(candidates) != len(probs):
            raise ValueError("number of candidates does not match number of probabilities.")
        if self.decision is None:
            index = sch.rng.categorical(probs)
        else:
            index = plain_int(self.decision)
            if not 0 <= index < len(candidates):
                raise ValueError(f"Wrong decision value, where n = {len(candidates)}, but decision is: {index}")
        return [int(candidates[index])], index


class SamplePerfectTile(Step):
    """Factors whose product is the extent of a loop."""

    is_pure = many_outputs = True

    loop: LoopRV = operand()
    n: int
    max_innermost_factor: int
    decision: Decision = decided()

    def sample(self, sch: Schedule) -> tuple[Sequence[Output], Decision]:
        n, limit = self.n, self.max_innermost_factor
        size = _size(sch, self.loop)
        if size is None:
            factors = _whole_outside(n)
        elif self.decision is not None:
            factors = _made_perfect(size, _wanted(self.decision))
        else:
            factors = sample_perfect_factors(sch.rng, size, n, limit)
        # The factor of a loop of unknown length is left to ``split``.
        return [None if x == -1 else x for x in factors], factors


def _size(sch: Schedule, loop: LoopRV) -> int | None:
    """The length of a loop, None if it is not known."""
    extent = checks.check_loop(sch.sref(loop)).extent
    return as_int(extent)


def _whole_outside(n: int) -> list[int]:
    """The factors of a loop that cannot be cut."""
    return [-1] + [1] * (n - 1)


def _wanted(decision: Decision) -> list[int]:
    factors = list(plain_ints(decision))
    if len(factors) < 2:
        raise InternalError(f"a recorded decision has at least two factors, not {factors}")
    return factors


def _made_perfect(size: int, factors: list[int]) -> list[int]:
    """Recorded factors adapted to the loop's length: from the inside on, one that does not divide takes the rest."""
    rest, out = size, []
    for factor in reversed(factors[1:]):
        factor = rest if factor <= 0 or rest % factor else factor
        rest //= factor
        out.append(factor)
    return [rest, *reversed(out)]


class SamplePartitionedTile(Step):
    """Factors of a loop whose inner part has a product divisible by a given number."""

    is_pure = many_outputs = True

    loop: LoopRV = operand()
    n: int
    partition_pos: int
    innerpart_factor: int
    decision: Decision = decided()

    def sample(self, sch: Schedule) -> tuple[Sequence[Output], Decision]:
        n, position, inner = self.n, self.partition_pos, self.innerpart_factor
        size = _size(sch, self.loop)
        if size is None or size % inner:
            factors = _whole_outside(n)
        elif self.decision is None:
            factors = sample_partitioned_factors(sch.rng, size, n, position, inner)
        elif prod((wanted := _wanted(self.decision))[position:]) % inner:
            factors = [1] * n
            factors[0] = size // inner
            factors[position] = inner
        else:
            factors = _made_perfect(size, wanted)
        return list(factors), factors


class SampleComputeLocation(Step):
    """A loop under which a block may be computed; -2 means inline, -1 means stay at the root."""

    is_pure = True

    block: BlockRV = operand()
    decision: Decision = decided()

    def sample(self, sch: Schedule) -> tuple[Sequence[Output], Decision]:
        from .compute_at import compute_locations, nearest_location

        block = sch.sref(self.block)
        place: StmtSRef
        if self.decision is not None:
            place, index = nearest_location(sch.state, block, plain_int(self.decision))
            return [place], index
        places, indices = compute_locations(sch.state, block)
        at = sch.rng.rand_int(0, len(places))
        place = places[at]
        return [place], indices[at]
