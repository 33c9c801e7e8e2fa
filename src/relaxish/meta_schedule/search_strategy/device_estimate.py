"""Expected times of a GPU sketch's candidates, before anything has been measured.

Work and traffic of every kernel are read off the variant's formulas and handed to :class:`~relaxish.carver.GpuModel`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...carver import GpuModel, KernelWork
from ...target.target import Target
from ..feature_extractor.program import StoreInfo
from .device_reading import DeviceReading
from .device_sizes import DeviceEnvironment, Size
from .fitting import Unfit

if TYPE_CHECKING:
    from .device_variant import DeviceVariant, FittedStore

__all__ = ["DeviceEstimate"]

Array = np.ndarray[Any, Any]
_SECTOR = 32.0
# The loops of a thread's own tile, whose values a compiler keeps in registers.
_INNER_LOOPS = 5
_FLOAT_OPS = 7
# One access of a warp occupies shared memory for a cycle of 128 bytes, whichever bytes they are.
_BYTES_PER_THREAD = 4.0


class DeviceEstimate:
    """Estimated seconds of the candidates of one variant."""

    def __init__(self, variant: DeviceVariant, readings: list[DeviceReading], target: Target) -> None:
        self.variant = variant
        self.machine = GpuModel.of_target(target)
        first = readings[0]
        self.heads = variant.limits.heads
        self.products: dict[int, float] = {}
        self.loads: dict[int, list[Size | None]] = {head: [] for head in self.heads}
        for store in first.program.stores:
            if store.tensorized and _accumulates(store):
                self.products[store.loops[0]] = _iterations(first, store)
        for index, store in enumerate(first.program.stores):
            total = self.products.get(store.loops[0]) if store.loops else None
            if (
                store.tensorized
                and total is not None
                and store.buffer.scope() not in ("", "global")
                and any(a.kind == 1 and a.buffer.scope().startswith("shared") for a in store.accesses)
            ):
                ratios = [total / _iterations(r, r.program.stores[index]) for r in readings]
                self.loads[store.loops[0]].append(self._fit(ratios))

    def _fit(self, values: list[float]) -> Size | None:
        try:
            return self.variant.fitter.size(values)
        except Unfit:
            return None

    def __call__(self, matrix: Array) -> Array:
        """Seconds for each row."""
        env = DeviceEnvironment(matrix)
        if self.variant.limits.tiles is not None:
            return self.variant.limits.tiles.seconds(env)
        total = np.zeros(env.size)
        for head in self.heads:
            total += np.broadcast_to(self.machine.seconds(self._work(env, head)), (env.size,))
        return total

    def _work(self, env: DeviceEnvironment, head: int) -> KernelWork:
        variant = self.variant
        mine = [store for store in variant.stores if store.info.loops and store.info.loops[0] == head]
        grid: dict[str, Any] = {}
        for store in mine:
            for i in store.info.loops:
                if variant.tags[i].startswith("blockIdx"):
                    grid[variant.tags[i]] = variant.extent(env, i)
        blocks: Any = math.prod(grid.values()) if grid else 1.0
        work = KernelWork(blocks, variant.limits.threads(env, head), variant.limits.shared_bytes(env, head))
        outputs: Any = 0.0
        for store in mine:
            inside: float | Array = 1.0
            for i in store.info.loops:
                if not variant.tags[i].startswith("blockIdx"):
                    inside = inside * variant.extent(env, i)
            if store.fetch is not None:
                self._copy(env, store, work)
            else:
                self._compute(env, store, inside, work)
            if not store.info.buffer.scope().startswith("shared"):
                outputs = np.maximum(outputs, inside if store.fetch is None and not _accumulates(store.info) else 0.0)
        if head in self.products:
            work.tensor_multiply_adds = self.products[head] / blocks
            for ratio in self.loads[head]:
                if ratio is not None:
                    work.shared_traffic = work.shared_traffic + self.products[head] / blocks / ratio(env) * 2.0
        work.registers = 24.0 + 1.3 * outputs / np.maximum(work.threads, 1.0)
        return work

    def _copy(self, env: DeviceEnvironment, store: FittedStore, work: KernelWork) -> None:
        """A tile copied by all threads: once for every turn of the serial loops around it."""
        variant, info = self.variant, store.info
        turns: Any = 1.0
        for i in info.loops[:-1]:
            if variant.tags[i] == "serial":
                turns = turns * variant.extent(env, i)
        itemsize = max(a.itemsize for a in store.accesses_info)
        elements = variant.extent(env, info.loops[-1])
        row = variant.parts[info.loops[-1]][-1](env) * itemsize
        waste = _SECTOR / np.minimum(row, _SECTOR)
        shares = variant.shares(env, store.fetch, 0)  # type: ignore[arg-type]
        work.global_bytes = work.global_bytes + turns * elements * itemsize * waste
        work.shared_traffic = work.shared_traffic + turns * elements * itemsize * (1 + 2.0 / shares.lanes)
        work.steps = work.steps + turns

    def _compute(self, env: DeviceEnvironment, store: FittedStore, inside: float | Array, work: KernelWork) -> None:
        info, variant = store.info, self.variant
        sizes = [variant.extent(env, i) for i in info.loops]
        known: dict[int, Any] = {}
        forms = [index.form(env, sizes, -1, None, known) for index in store.distinct]
        if any(info.ops[:_FLOAT_OPS]):
            work.multiply_adds = work.multiply_adds + inside * max(1.0, sum(info.ops[:_FLOAT_OPS]) / 2)
        thread = next((k for k, i in enumerate(info.loops) if variant.tags[i] == "threadIdx.x"), None)
        for access, places, _ in store.accesses:
            scope = access.buffer.scope()
            if scope.startswith(("local", "warp")):
                continue
            times = inside
            for k in range(max(0, len(sizes) - _INNER_LOOPS), len(sizes)):
                if variant.tags[info.loops[k]] == "serial":
                    moved: Any = False
                    for place in (p for dims in places for p in dims):
                        moved = moved | np.asarray(forms[place].moved_by(k))
                    times = times / np.where(moved, 1.0, sizes[k])
            if scope.startswith("shared"):
                work.shared_traffic = work.shared_traffic + times * _BYTES_PER_THREAD
                continue
            step: Any = 1.0
            if thread is not None and places[0]:  # a scalar has no dimension to step along
                step = np.maximum(1.0, forms[places[0][-1]].step(thread))
            waste = np.minimum(step, _SECTOR / access.itemsize) ** 0.5
            work.global_bytes = work.global_bytes + times * access.itemsize * waste


def _accumulates(store: StoreInfo) -> bool:
    return any(a.kind == 3 for a in store.accesses)


def _iterations(reading: DeviceReading, store: StoreInfo) -> float:
    return float(math.prod(reading.loops[i].extent for i in store.loops))
