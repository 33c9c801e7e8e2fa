"""Sampling instructions: the random choices of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ....arith.build import as_int
from ....ir.plain import plain_int, plain_ints
from ....support.errors import InternalError
from .. import checks
from ..instruction import Decision, InstructionKind, plain, register_kind
from ..sampling import sample_partitioned_factors, sample_perfect_factors
from ..sref import StmtSRef

if TYPE_CHECKING:
    from ..rv import LoopRV
    from ..protocol import Schedule

__all__: list[str] = []


@register_kind
class SampleCategorical(InstructionKind):
    """One of several integers, by probability."""

    name, method, is_pure = "SampleCategorical", "sample_categorical", True
    attrs = ("candidates", "probs")

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        candidates, probs = plain(attrs[0]), plain(attrs[1])
        if len(candidates) != len(probs):
            raise ValueError("number of candidates does not match number of probabilities.")
        if decision is None:
            index = sch.rng.categorical(probs)
        else:
            index = plain_int(decision)
            if not 0 <= index < len(candidates):
                raise ValueError(f"Wrong decision value, where n = {len(candidates)}, but decision is: {index}")
        return [int(candidates[index])], index


@register_kind
class SamplePerfectTile(InstructionKind):
    """Factors whose product is the extent of a loop."""

    name, method, is_pure, many_outputs = "SamplePerfectTile", "sample_perfect_tile", True, True
    inputs, attrs = ("loop",), ("n", "max_innermost_factor")

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        n, limit = int(plain(attrs[0])), int(plain(attrs[1]))
        size = _size(sch, inputs[0])
        if size is None:
            factors = _whole_outside(n)
        elif decision is not None:
            factors = _made_perfect(size, _wanted(decision))
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


@register_kind
class SamplePartitionedTile(InstructionKind):
    """Factors of a loop whose inner part has a product divisible by a given number."""

    name, method, is_pure, many_outputs = "SamplePartitionedTile", "sample_partitioned_tile", True, True
    inputs, attrs = ("loop",), ("n", "partition_pos", "innerpart_factor")

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        n, position, inner = (int(plain(x)) for x in attrs)
        size = _size(sch, inputs[0])
        if size is None or size % inner:
            factors = _whole_outside(n)
        elif decision is None:
            factors = sample_partitioned_factors(sch.rng, size, n, position, inner)
        elif prod((wanted := _wanted(decision))[position:]) % inner:
            factors = [1] * n
            factors[0] = size // inner
            factors[position] = inner
        else:
            factors = _made_perfect(size, wanted)
        return list(factors), factors


@register_kind
class SampleComputeLocation(InstructionKind):
    """A loop under which a block may be computed; -2 means inline, -1 means stay at the root."""

    name, method, is_pure = "SampleComputeLocation", "sample_compute_location", True
    inputs = ("block",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        from .compute_at import compute_locations, nearest_location

        block = sch.sref(inputs[0])
        place: StmtSRef
        if decision is not None:
            place, index = nearest_location(sch.state, block, plain_int(decision))
            return [place], index
        places, indices = compute_locations(sch.state, block)
        at = sch.rng.rand_int(0, len(places))
        place = places[at]
        return [place], indices[at]
