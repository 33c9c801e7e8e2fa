"""Programs of whole tiles (``MultiLevelTilingHopper``) on columns: which of them the hardware takes, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.dtype import nbytes
from ...tir import Schedule
from ...tir.transform.hopper_kernel import MAX_SHARED
from ...tir.transform.hopper_tiles import CLUSTER, GEMM, SPLIT, STAGES
from .. import block_analysis as ba
from .device_sizes import DeviceEnvironment, Lookup
from .fitting import Unfit

if TYPE_CHECKING:
    from .device_variant import DeviceVariant

__all__ = ["TileFacts", "TileModel", "read_tiles"]

Array = np.ndarray[Any, Any]
_PROCESSORS = 132
_BARRIERS = 16
_RESULT_REGISTERS = 200
# Bytes a cycle that one processor gets from the second-level cache, and reads from its shared memory.
_FILL, _SHARED = 32.0, 128.0
# Multiplications with addition in a cycle of one processor, of 16-bit operands.
_PRODUCTS = 2048.0
_CYCLE = 1 / 1.7e9
_LAUNCH = 4e-6
# Cycles of waiting and issuing in each step.
_STEP = 60.0
# Cycles that the blocks of a cluster need to meet, twice.
_MEETING = 1000.0
_INNER = ("rows", "rows", "columns", "columns", "depth", "depth")


@dataclass(frozen=True)
class TileFacts:
    """Loops over tiles and inside of one, by position; the sampled categories of stages, warpgroups, clusters, splits."""

    outer: tuple[int, ...]
    steps: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    stages: int
    warpgroups: int
    clusters: int
    splits: int
    itemsize: int
    result_size: int


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
    stages, warpgroups, clusters, splits = (_category(sch, key) for key in (STAGES, GEMM, CLUSTER, SPLIT))
    return TileFacts(
        tuple(loops[:steps]), loops[steps], axes["rows"], axes["columns"], axes["depth"], stages, warpgroups,
        clusters, splits, nbytes(block.reads[-1].buffer.dtype), nbytes(block.writes[0].buffer.dtype),
    )  # fmt: skip


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

    def __init__(self, variant: DeviceVariant, facts: TileFacts) -> None:
        self.variant = variant
        self.facts = facts
        chosen = (facts.stages, facts.warpgroups, facts.clusters, facts.splits)
        self.stages, self.warpgroups, self.clusters, self.splits = (
            Lookup(column, tuple(float(v) for v in values))
            for _, column, values, _ in (variant.table.categories[i] for i in chosen)
        )

    def _size(self, env: DeviceEnvironment, loops: tuple[int, ...]) -> Any:
        total: Any = 1.0
        for loop in loops:
            total = total * self.variant.extent(env, loop)
        return total

    def _shape(self, env: DeviceEnvironment) -> tuple[Any, Any, Any]:
        f = self.facts
        return self._size(env, f.rows), self._size(env, f.columns), self._size(env, f.depth)

    def valid(self, env: DeviceEnvironment) -> Array:
        """Which rows the lowering accepts: whole instructions for each warpgroup, registers, shared memory, steps to share."""
        rows, columns, depth = self._shape(env)
        groups = self.warpgroups(env)
        registers = rows / groups / 64 * columns / 2 * self.facts.result_size / 4
        shared = self.stages(env) * ((rows + columns) * depth * self.facts.itemsize + _BARRIERS)
        keep = (np.mod(rows, 64 * groups) == 0) & (columns <= 256) & (rows <= 256)
        splits = self.splits(env)
        # Shared sums have 32 bits, and take the place of the ring of tiles.
        sums = (rows * columns * 4 <= shared - self.stages(env) * _BARRIERS) & (self.facts.result_size == 4)
        keep &= (splits == 1) | (splits <= self.variant.extent(env, self.facts.steps)) & sums
        made = keep & (registers <= _RESULT_REGISTERS) & (shared <= MAX_SHARED)
        return np.asarray(np.broadcast_to(made, (env.size,)))

    def seconds(self, env: DeviceEnvironment) -> Array:
        """What a candidate is expected to take: rounds of tiles, each bound by products, or by filling the ring."""
        rows, columns, depth = self._shape(env)
        item = self.facts.itemsize
        width = depth * item
        products = rows * columns * depth / (_PRODUCTS * 2 / item)
        reads = rows / 64 * (64 + columns) * width / _SHARED
        splits = self.splits(env)
        tiles = self._size(env, self.facts.outer) * splits
        # The second-level cache gives so much to all processors at work; one takes in twice its share.
        at_work = np.minimum(tiles, _PROCESSORS)
        shared = np.where(splits > 1, 1.0, self.clusters(env))
        fills = np.maximum(
            (rows + columns) * width / (2 * _FILL), (rows + columns / shared) * width * at_work / (_FILL * _PROCESSORS)
        )
        # A longer ring hides more of the memory's latency.
        step = np.maximum(np.maximum(products, reads), fills) * (1 + 0.3 / self.stages(env)) + _STEP
        results = rows * columns * self.facts.result_size
        once = 1500.0 + results / _FILL / splits + np.where(splits > 1, _MEETING + 2 * results / _FILL, 0.0)
        rounds = np.ceil(tiles / _PROCESSORS)
        steps = np.ceil(self.variant.extent(env, self.facts.steps) / splits)
        made = rounds * (steps * step + once) * _CYCLE + _LAUNCH
        return np.asarray(np.broadcast_to(made, (env.size,)))
