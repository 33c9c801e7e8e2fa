"""Programs of whole tiles (``MultiLevelTilingHopper``) on columns: which of them the hardware takes, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...carver import HopperCosts, TileWork
from ...ir.dtype import nbytes
from ...tir import PrimFunc, Schedule
from ...tir.transform.hopper.kernel import AT_LAUNCH, BESIDE_RESULTS, MAX_SHARED, MOST_RESULTS
from ...tir.transform.hopper.tiles import CLUSTER, CLUSTER_COLUMNS, EPILOGUE, GEMM, PERSISTENT, SPLIT, STAGES
from ...tir.transform.hopper.lower import bulk_operands, has_tiles
from ..analysis import blocks as ba
from .device_sizes import DeviceEnvironment, Lookup
from .fitting import Unfit

if TYPE_CHECKING:
    from .device_variant import DeviceVariant

__all__ = ["TileFacts", "TileModel", "read_tiles"]

Array = np.ndarray[Any, Any]
_BARRIERS = 16
_MOST_BLOCKS = 8
_SAMPLED = (STAGES, GEMM, CLUSTER, CLUSTER_COLUMNS, SPLIT, PERSISTENT, EPILOGUE)
_INNER = ("rows", "rows", "columns", "columns", "depth", "depth")


@dataclass(frozen=True)
class TileFacts:
    """Loops over tiles and inside of one, by position; the sampled categories of annotations, by key; bytes of an element
    of operands and sums; which operands (A, B) bulk copies bring."""

    outer: tuple[int, ...]
    steps: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    sampled: tuple[tuple[str, int], ...]
    itemsize: int
    result_size: int
    bulk: tuple[bool, bool] = field(compare=False)


def read_tiles(sch: Schedule, places: list[ba.Place], number: dict[Any, int]) -> TileFacts | None:
    """The facts of a schedule's product of tiles; None where it has none. Raises Unfit for another form of it."""
    place = next((p for p in places if ba.annotation(p.realize.block, GEMM) is not None), None)
    if place is None:
        return None
    steps = next(i for i, loop in enumerate(place.loops) if ba.annotation(loop, STAGES) is not None)
    loops = [number[loop.loop_var] for loop in place.loops]
    inner = loops[steps + 1 :]
    if len(inner) != len(_INNER):
        raise Unfit("tiles of another form than the rule's")
    axes = {name: tuple(i for i, own in zip(inner, _INNER, strict=True) if own == name) for name in _INNER}
    block = place.realize.block
    return TileFacts(
        tuple(loops[:steps]), loops[steps], axes["rows"], axes["columns"], axes["depth"],
        tuple((key, _category(sch, key)) for key in _SAMPLED), nbytes(block.reads[-1].buffer.dtype),
        nbytes(block.writes[0].buffer.dtype), _bulk(sch),
    )  # fmt: skip


def _bulk(sch: Schedule) -> tuple[bool, bool]:
    """Which operands of the product bulk copies bring."""
    for func in sch.mod.functions.values():
        if isinstance(func, PrimFunc) and has_tiles(func.body):
            return bulk_operands(func)
    return False, False


def _category(sch: Schedule, key: str) -> int:
    trace: Any = sch.trace
    sampled = [i.outputs[0] for i in trace.insts if i.kind.name == "SampleCategorical"]
    values = [i.inputs[1] for i in trace.insts if i.kind.name == "Annotate" and i.attrs[0] == key]
    found = next((n for n, rv in enumerate(sampled) if values and rv is values[0]), None)
    if found is None:
        raise Unfit(f"{key} is not sampled")
    return found


class TileModel:
    """The formulas of one variant."""

    def __init__(self, variant: DeviceVariant, facts: TileFacts, costs: HopperCosts) -> None:
        self.variant = variant
        self.facts = facts
        self.costs = costs
        self.chosen = {}
        for key, category in facts.sampled:
            _, column, values, _ = variant.columns.categories[category]
            self.chosen[key] = Lookup(column=column, values=tuple(float(v) for v in values))

    def _size(self, env: DeviceEnvironment, loops: tuple[int, ...]) -> float | Array:
        total: Any = 1.0
        for loop in loops:
            total = total * self.variant.extent(env, loop)
        return total

    def _shape(self, env: DeviceEnvironment) -> tuple[Any, Any, Any]:
        f = self.facts
        return self._size(env, f.rows), self._size(env, f.columns), self._size(env, f.depth)

    def valid(self, env: DeviceEnvironment) -> Array:
        """Mask of the rows that the lowering accepts: whole instructions for each warpgroup, registers, shared memory,
        small clusters, steps to share."""
        rows, columns, depth = self._shape(env)
        groups, stages, splits = (self.chosen[key](env) for key in (GEMM, STAGES, SPLIT))
        one = columns / 2 * self.facts.result_size / 4
        most, launched = (
            sum(np.where(groups == n, value, 0) for n, value in known.items()) for known in (MOST_RESULTS, AT_LAUNCH)
        )
        keep = (np.mod(rows, 64 * groups) == 0) & (columns <= 256) & (rows <= 256)
        keep &= (rows / groups / 64 * one <= most) & (one + BESIDE_RESULTS <= launched)
        ring = stages * (rows + columns) * depth * self.facts.itemsize
        keep &= ring + stages * _BARRIERS <= MAX_SHARED
        # Shared sums have 32 bits, and take the place of the ring of tiles.
        sums = (rows * columns * 4 <= ring) & (self.facts.result_size == 4)
        shared = (splits <= self.variant.extent(env, self.facts.steps)) & sums
        team = self.chosen[CLUSTER](env) * self.chosen[CLUSTER_COLUMNS](env)
        made = keep & np.where(splits == 1, team <= _MOST_BLOCKS, shared)
        return np.asarray(np.broadcast_to(made, (env.size,)))

    def seconds(self, env: DeviceEnvironment) -> Array:
        """Expected time of candidates in seconds."""
        f, (rows, columns, depth) = self.facts, self._shape(env)
        splits = self.chosen[SPLIT](env)
        sharing = []
        # Blocks share operands where clusters are whole, and where they do not share the depth.
        for key, loop, bulk in ((CLUSTER, f.outer[-2], f.bulk[1]), (CLUSTER_COLUMNS, f.outer[-1], f.bulk[0])):
            wanted = self.chosen[key](env)
            whole = (np.mod(self.variant.extent(env, loop), wanted) == 0) & (splits == 1)
            sharing.append(np.where(whole & bulk, wanted, 1.0))
        work = TileWork(
            rows, columns, depth * f.itemsize, self._size(env, f.outer), self.variant.extent(env, f.steps), f.itemsize,
            self.chosen[STAGES](env), sharing[0], sharing[1], splits, self.chosen[PERSISTENT](env), max(f.itemsize, 2),
            self.chosen[EPILOGUE](env) > 0,
        )  # fmt: skip
        return np.asarray(np.broadcast_to(self.costs.seconds(work), (env.size,)))
