"""The decisions of one record as a grid whose neighbours are small changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...ir.plain import plain_int, plain_ints
from ...target import Target
from ...tir import Schedule
from ...tir.schedule import Instruction, Trace
from ..database import TuningRecord
from ..search_strategy.replay import apply_trace
from ..tune_context import TuneContext

__all__ = ["Space"]


@dataclass(frozen=True)
class _Tile:
    """The inner sizes of a sampled tile: one axis each, whose choices are the divisors of the extent."""

    inst: Instruction
    extent: int
    limit: int
    first: int
    parts: int


@dataclass(frozen=True)
class _Option:
    """A sampled value."""

    inst: Instruction
    axis: int
    count: int


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


class Space:
    """A grid around a record: ``dims`` choices on each axis, ``start`` the record itself."""

    def __init__(self, record: TuningRecord, target: Target) -> None:
        self.target = target
        self.workload = record.workload
        self.trace = record.trace.simplified(remove_postproc=True)
        self.context = TuneContext(
            record.workload.mod, target=target, space_generator="post-order-apply", rand_state=1, num_threads=1
        )
        self.tiles: list[_Tile] = []
        self.options: list[_Option] = []
        self.choices: list[list[int]] = []
        start: list[int] = []
        for inst in self.trace.insts:
            decision = self.trace.get_decision(inst)
            if inst.kind.name == "SamplePerfectTile" and decision is not None:
                sizes = plain_ints(decision)
                extent = prod(sizes)
                self.tiles.append(_Tile(inst, extent, plain_int(inst.attrs[1]), len(start), len(sizes)))
                divisors = _divisors(extent)
                self.choices += [divisors] * (len(sizes) - 1)
                start += [divisors.index(s) for s in sizes[1:]]
            elif inst.kind.name == "SampleCategorical" and decision is not None:
                count = len(inst.attrs[0])
                self.options.append(_Option(inst, len(start), count))
                self.choices.append(list(range(count)))
                start.append(plain_int(decision))
        self.start = tuple(start)

    @property
    def dims(self) -> list[int]:
        """Number of choices of each axis."""
        return [len(c) for c in self.choices]

    def valid(self, point: Sequence[int]) -> bool:
        """Whether the sizes of every tile divide its loop, and the innermost are not too large."""
        for tile in self.tiles:
            sizes = [self.choices[a][point[a]] for a in range(tile.first, tile.first + tile.parts - 1)]
            if tile.extent % prod(sizes) or (sizes and sizes[-1] > tile.limit):
                return False
        return True

    def schedule(self, point: Sequence[int]) -> Schedule:
        """The schedule of a point. Raises RuntimeError if a primitive or a limit refuses it."""
        decisions = dict(self.trace.decisions)
        for tile in self.tiles:
            sizes = [self.choices[a][point[a]] for a in range(tile.first, tile.first + tile.parts - 1)]
            decisions[tile.inst] = [tile.extent // prod(sizes), *sizes]
        for option in self.options:
            decisions[option.inst] = int(point[option.axis])
        sch = apply_trace(self.context, Trace(self.trace.insts, decisions), 1)
        if sch is None:
            raise RuntimeError("the schedule is refused")
        return sch
