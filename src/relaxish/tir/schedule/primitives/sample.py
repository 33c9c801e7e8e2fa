"""Sampling instructions: the random choices of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...expr import IntImm
from .. import checks
from ..instruction import InstructionKind, plain, register_kind
from ..sampling import LinearCongruentialEngine, sample_factors
from ..sref import StmtSRef

if TYPE_CHECKING:
    from ..schedule import Schedule

__all__: list[str] = []


@register_kind
class SampleCategorical(InstructionKind):
    """One of several integers, by probability."""

    name, method, is_pure = "SampleCategorical", "sample_categorical", True
    attrs = ("candidates", "probs")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        candidates, probs = plain(attrs[0]), plain(attrs[1])
        if len(candidates) != len(probs):
            raise ValueError(f"{len(candidates)} candidates but {len(probs)} probabilities")
        if decision is None:
            index = sch.rng.categorical(probs)
        else:
            index = int(plain(decision))
            if not 0 <= index < len(candidates):
                raise ValueError(f"the decision {index} is out of range for {len(candidates)} candidates")
        return [int(candidates[index])], index


@register_kind
class SamplePerfectTile(InstructionKind):
    """Factors whose product is the extent of a loop."""

    name, method, is_pure, many_outputs = "SamplePerfectTile", "sample_perfect_tile", True, True
    inputs, attrs = ("loop",), ("n", "max_innermost_factor")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        n, limit = int(plain(attrs[0])), int(plain(attrs[1]))
        factors = perfect_tile(sch.rng, checks.check_loop(sch.sref(inputs[0])).extent, n, limit, decision)
        return list(factors), factors


def perfect_tile(rng: LinearCongruentialEngine, extent: Any, n: int, limit: int, decision: Any) -> list[int]:
    """Sampled or recorded factors; a recorded decision is adapted to an extent it does not fit."""
    if n <= 0:
        raise ValueError(f"n must be positive, got {n}")
    size = int(extent.value) if isinstance(extent, IntImm) else None
    if size is None:
        # A loop of unknown length stays whole outside.
        return [-1] + [1] * (n - 1) if decision is None else [int(x) for x in plain(decision)]
    if decision is None:
        return sample_factors(rng, size, n, limit)
    wanted = [int(x) for x in plain(decision)]
    if len(wanted) != n:
        raise ValueError(f"the decision {wanted} has {len(wanted)} factors where {n} are asked for")
    product = 1
    for x in wanted:
        product *= x
    if product == size:
        return wanted
    rest, out = size, []
    for x in reversed(wanted[1:]):
        if x <= 0 or rest % x:
            x = rest
        rest //= x
        out.append(x)
    return [rest, *reversed(out)]


@register_kind
class SamplePartitionedTile(InstructionKind):
    """Factors of a loop whose inner part has a product divisible by a given number."""

    name, method, is_pure, many_outputs = "SamplePartitionedTile", "sample_partitioned_tile", True, True
    inputs, attrs = ("loop",), ("n", "partition_pos", "innerpart_factor")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        n, position, inner = (int(plain(x)) for x in attrs)
        extent = checks.check_loop(sch.sref(inputs[0])).extent
        factors = _partitioned(sch.rng, extent, n, position, inner, decision)
        return list(factors), factors


def _partitioned(
    rng: LinearCongruentialEngine, extent: Any, n: int, position: int, inner: int, decision: Any
) -> list[int]:
    if not isinstance(extent, IntImm):
        return [-1] + [1] * (n - 1)
    size = int(extent.value)
    if position == 0 and inner == 1 or not 0 < position < n or size % inner:
        # Nothing to partition: all factors are free.
        return perfect_tile(rng, extent, n, 0 if decision is None else -1, decision)
    if decision is not None:
        wanted = [int(x) for x in plain(decision)]
        product, inside = 1, 1
        for index, x in enumerate(wanted):
            product *= x
            inside *= x if index >= position else 1
        if len(wanted) == n and product == size and inside % inner == 0:
            return wanted
    outer_and_inner = sample_factors(rng, size // inner, 2, 0)
    outer = sample_factors(rng, outer_and_inner[0], position, 0)
    rest = sample_factors(rng, outer_and_inner[1] * inner, n - position, 0)
    return outer + rest


@register_kind
class SampleComputeLocation(InstructionKind):
    """A loop under which a block may be computed; -2 means inline, -1 means stay at the root."""

    name, method, is_pure = "SampleComputeLocation", "sample_compute_location", True
    inputs = ("block",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        from .compute_at import compute_locations, nearest_location

        block = sch.sref(inputs[0])
        place: StmtSRef
        if decision is not None:
            place, index = nearest_location(sch.state, block, int(plain(decision)))
            return [place], index
        places, indices = compute_locations(sch.state, block)
        at = sch.rng.rand_int(0, len(places))
        place = places[at]
        return [place], indices[at]
