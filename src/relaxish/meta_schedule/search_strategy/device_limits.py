"""Verdict of ``VerifyGPUCode`` without lowering, as masks over rows of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arith.affine import remainder
from ...carver import costs_of
from ...target.limits import attrs_with_limits
from ...target.shared_memory import static_limit
from ...target.target import Target
from ..postproc.verify_gpu import MAX_VTHREAD
from .device_reading import DeviceReading, Fetch, SharedBuffer
from .device_sizes import DeviceEnvironment
from .device_tiles import TileModel
from .fitting import Unfit

if TYPE_CHECKING:
    from .device_variant import DeviceVariant

__all__ = ["DeviceLimits"]

Array = np.ndarray[Any, Any]
_VECTOR_BYTES = 16
_SHARE_OF_POOL = 16


class DeviceLimits:
    """Threads, virtual threads, shared memory and vector lengths of a variant's programs."""

    def __init__(self, variant: DeviceVariant, reading: DeviceReading, target: Target) -> None:
        self.variant = variant
        attrs = attrs_with_limits(target)
        self.max_threads = int(attrs.get("max_threads_per_block", 1 << 30))
        known = "max_shared_memory_per_block" in attrs
        self.max_shared = int(attrs["max_shared_memory_per_block"]) if known else 1 << 30
        self.max_static = static_limit(target) if known else 1 << 30
        self.blocks = reading.blocks
        self.shared = reading.shared
        every = {i for block in reading.blocks for i in block.loops}
        self.virtual = [i for i in sorted(every) if variant.tags[i].startswith("vthread")]
        self.heads = sorted({block.loops[0] for block in reading.blocks})
        self.stores = [store.loops for store in reading.stores if store.loops]
        self.fetches = list(variant.fetches.values())
        # How many versions of a tile a software pipeline keeps.
        self.versions: dict[str, int] = {}
        self.tiles = None if reading.tiles is None else TileModel(variant, reading.tiles, costs_of(target))

    def __call__(self, env: DeviceEnvironment) -> Array:
        """A flag for each row."""
        if self.tiles is not None:
            return self.tiles.valid(env)
        keep = np.ones(env.size, dtype=bool)
        for i in self.virtual:
            keep &= self.variant.extent(env, i) <= MAX_VTHREAD
        for head in self.heads:
            keep &= self._threads_fit(env, head)
        # Most rows fail by their threads; the rest is asked of the others only.
        left = np.flatnonzero(keep)
        if 2 * len(left) > env.size:
            return keep & self._memory_fits(env)
        keep[left] = self._memory_fits(env.rows(left))
        return keep

    def _memory_fits(self, env: DeviceEnvironment) -> Array:
        """Whether shared memory, and how it is filled, is within limits."""
        keep = np.ones(env.size, dtype=bool)
        for head in self.heads:
            keep &= self.shared_bytes(env, head) <= self.max_shared
            keep &= self._static_bytes(env, head) <= self.max_static
        for buffer in self.shared:
            if buffer.permuted:
                keep &= self._swizzles(env, buffer)
        for fetch in self.fetches:
            keep &= self._vector_bytes(env, fetch) <= _VECTOR_BYTES
        return keep

    def _vector_bytes(self, env: DeviceEnvironment, fetch: Fetch) -> float | Array:
        """Bytes of the widest vector of a copy.

        What is the same for a row of the tile stays scalar where a vector is certainly within one row. Lowering sees
        that where the rows are whole vectors, and at most one of loops and threads steps by parts of a row.
        """
        shares = self.variant.shares(env, fetch, 0)
        row = self.variant.parts[fetch.loop][-1](env)
        *outer, _ = zip(shares.split.strides, shares.split.extents, strict=True)
        partial = sum(((extent > 1) & (remainder(stride, row) != 0)).astype(int) for stride, extent in outer)
        within = (remainder(row, shares.lanes) == 0) & (partial <= 1)
        varying, widest = fetch.element_bytes
        return np.where(shares.lanes > 1, shares.lanes * np.where(within, varying, widest), 1)

    def columns(self, rows: Array) -> set[int]:
        """The columns that decide."""
        env = DeviceEnvironment(rows)
        if self.tiles is not None:
            self.tiles.valid(env)
        else:
            for i in self.virtual:
                self.variant.extent(env, i)
            for head in self.heads:
                self._threads_fit(env, head)
            self._memory_fits(env)
        return env.used

    def _nest(self, buffer: SharedBuffer) -> int:
        """The outermost loop around the copy of a tile."""
        return next(store[0] for store in self.stores if store[-1] == buffer.loops[-1])

    def _extents(self, env: DeviceEnvironment, loops: Sequence[int]) -> dict[str, list[Any]]:
        """Extents of the loops bound to each thread axis."""
        found: dict[str, list[Any]] = {}
        for i in loops:
            tag = self.variant.tags[i]
            if tag.startswith("threadIdx"):
                found.setdefault(tag, []).append(self.variant.extent(env, i))
        return found

    def _threads_fit(self, env: DeviceEnvironment, head: int) -> Array:
        """Whether the threads of a kernel are as many as target and annotations allow."""
        keep = np.ones(env.size, dtype=bool)
        mine = [block for block in self.blocks if block.loops[0] == head]
        every: dict[str, list[Any]] = {}
        warp = any(block.warp for block in mine)
        for i in sorted({i for block in mine for i in block.loops}):
            for tag, extents in self._extents(env, [i]).items():
                every.setdefault(tag, []).extend(extents)
        for block in mine:
            if block.low is None or block.high is None:
                continue
            threads: Any = float(self.variant.warp) if block.warp else 1.0
            for tag, values in self._extents(env, block.loops).items():
                if not (block.warp and tag == "threadIdx.x"):
                    threads = threads * values[-1]
            keep &= (threads >= block.low) & (threads <= block.high)
        for values in every.values():
            for value in values[1:]:
                keep &= values[0] == value
        return keep & (self._count(every, warp) <= self.max_threads)

    def _count(self, every: dict[str, list[Any]], warp: bool) -> np.ndarray[Any, Any]:
        total: Any = float(self.variant.warp) if warp else 1.0
        for tag, values in every.items():
            if not (warp and tag == "threadIdx.x"):
                total = total * values[0]
        return total

    def threads(self, env: DeviceEnvironment, head: int) -> float | Array:
        """The threads of a block of one kernel."""
        mine = [block for block in self.blocks if block.loops[0] == head]
        loops = sorted({i for block in mine for i in block.loops})
        return self._count(self._extents(env, loops), any(block.warp for block in mine))

    def _swizzles(self, env: DeviceEnvironment, buffer: SharedBuffer) -> Array:
        """Whether the rows of a tile fit the pattern of ``InjectPermutedLayout``."""
        *_, rows, width = (size(env) for loop in buffer.loops for size in self.variant.parts[loop])
        return (np.mod(width, 32) == 0) & ((np.mod(width, 64) == 0) | (np.mod(rows, 2) == 0))

    def _bytes(self, env: DeviceEnvironment, buffer: SharedBuffer) -> float | Array:
        """Bytes of a tile."""
        sizes = tuple(size for loop in buffer.loops for size in self.variant.parts[loop])
        total = env.product(sizes)
        if buffer.pitch is not None and len(sizes) > 1:
            factor, offset = buffer.pitch
            row = sizes[-1](env)
            row = row + np.mod(factor + offset - np.mod(row, factor), factor)
            total = env.product(sizes[:-1]) * row
        return total * (buffer.itemsize * self.versions.get(buffer.name, 1))

    def learn_versions(self, rows: Array, allocated: list[dict[str, int]]) -> None:
        """``allocated[k]`` holds the elements each buffer has in the lowered program of row ``k``."""
        env = DeviceEnvironment(rows)
        for buffer in self.shared:
            one = np.broadcast_to(self._bytes(env, buffer), (len(rows),)) / buffer.itemsize
            times = {sizes[buffer.name] / one[k] for k, sizes in enumerate(allocated) if buffer.name in sizes}
            if len(times) != 1 or min(times) != round(min(times)):
                raise Unfit(f"versions of {buffer.name} that depend on the decisions")
            self.versions[buffer.name] = int(times.pop())

    def shared_bytes(self, env: DeviceEnvironment, head: int) -> float | Array:
        """Bytes of shared memory of one kernel."""
        mine = [b for b in self.shared if self._nest(b) == head]
        loads = [self._bytes(env, b) for b in mine if b.dynamic and not b.reader]
        stores = [self._bytes(env, b) for b in mine if b.dynamic and b.reader]
        return self._static_bytes(env, head) + pooled(loads, stores)

    def _static_bytes(self, env: DeviceEnvironment, head: int) -> float:
        """Bytes of shared memory of one kernel whose size is fixed when it is compiled."""
        total: Any = 0.0
        for buffer in self.shared:
            if not buffer.dynamic and self._nest(buffer) == head:
                total = total + self._bytes(env, buffer)
        return total


def pooled(loads: list[Any], stores: list[Any]) -> float | Array:
    """Bytes of the pool dynamic shared memory is merged into: tiles of operands, later the tile of the result."""
    total: Any = 0.0
    for size in loads:
        total = total + size
    if not stores:
        return total
    (result,) = stores
    if not loads:
        return result
    ascending = np.sort(np.broadcast_arrays(*loads), axis=0)
    # A free piece that is large enough, but not far too large, is used again.
    reused = np.zeros(np.shape(ascending[0]), dtype=bool)
    joined: Any = np.zeros(np.shape(ascending[0]))
    for size in ascending:
        reused |= (result <= size) & (size <= result * _SHARE_OF_POOL)
        joined = joined + np.where(size < result, size, 0)
    # Otherwise smaller pieces side by side, the largest first.
    return np.where(reused, total, total - joined + np.maximum(joined, result))
