"""Running a kernel's thread function for every thread of a grid."""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import dtype as dt
from . import layout
from ...support.errors import RelaxishError
from .errors import DeadlockError, EmulationError, SharedMemoryLimitError
from .faults import Geometry, fault_error
from .program import Memory, ThreadProgram
from .runtime import runtime_addresses
from .switch_text import INITIAL_WORDS, processor

__all__ = ["Dim", "TensorMap", "launch_program"]

Dim = tuple[int, int, int]
_LOCK = threading.RLock()
_STACK_BASE = 64 * 1024
_BARRIERS = 256
_REGISTERS = 65536
"""Of a multiprocessor."""
_MOST_REGISTERS = 256
_MOST_CLOCKS = 1 << 31
_THREADS_OF_BLOCK, _BLOCKS_OF_CLUSTER = 1024, 8
"""More blocks in a cluster need a permission that launches do not ask for."""
_THREADS_EACH, _BLOCKS_EACH, _SHARED_EACH = 2048, 32, 233472
"""What a multiprocessor has room for; each block takes a kilobyte more of shared memory than it asks for."""


class _Stacks:
    """Memory for the stacks of fibers, kept from launch to launch."""

    def __init__(self) -> None:
        self.memory: mmap.mmap | None = None
        self.size = 0
        self.address = 0

    def reserve(self, size: int) -> int:
        """The address of at least so many bytes."""
        if size > self.size:
            self.memory = mmap.mmap(-1, size)
            self.size = size
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        return self.address


_STACKS = _Stacks()


class _Arena:
    """Zeroed memory that lives as long as a launch."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def take(self, nbytes: int, align: int = 64) -> int:
        made = np.zeros(nbytes + align, np.uint8)
        self.kept.append(made)
        address = made.ctypes.data
        return int(address + -address % align)


def _write(address: int, values: dict[int, int]) -> None:
    for offset, value in values.items():
        ctypes.c_int64.from_address(address + offset).value = value


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that one copy moves; innermost dimension first, strides in bytes."""

    address: int
    element: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def nbytes(self) -> int:
        """From the first byte to the end of the last element."""
        if not all(self.sizes):
            return 0
        return self.element + sum((n - 1) * stride for n, stride in zip(self.sizes, self.strides, strict=True))

    def words(self) -> np.ndarray[Any, Any]:
        """The map as the runtime reads it."""
        made = np.zeros(layout.MAP_BYTES // 8, np.int64)
        made[:4] = self.address, self.element, len(self.sizes), self.swizzle
        for start, values in (
            (layout.MAP_SIZES, self.sizes),
            (layout.MAP_STRIDES, self.strides),
            (layout.MAP_BOX, self.box),
        ):
            made[start // 8 : start // 8 + len(values)] = values
        return made


def _argument_word(kind: str, value: Any, kept: list[Any]) -> int:
    """An argument as the 64-bit word that thread functions read; ``kept`` is what must live until the launch ends."""
    if kind == "tensor_map":
        words = value.words()
        kept.append(words)
        return int(words.ctypes.data)
    if kind == "pointer":
        return int(value)
    if dt.is_float(kind) or kind.startswith("bfloat"):
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    return ctypes.c_int64(int(value)).value


class _Launch:
    """The structures of one launch."""

    def __init__(self, program: ThreadProgram, grid: Dim, block: Dim, shared: int, cluster: Dim, checked: bool) -> None:
        self.program = program
        self.geometry = Geometry(grid, block, cluster)
        self.shared = shared
        self.checked = checked
        self.arena = _Arena()
        self.threads = math.prod(block)
        self.ranks = math.prod(cluster)
        self.resident = math.prod(grid) if program.together else self.ranks
        self.count = self.threads * self.resident
        self.barriers = _BARRIERS * (self.resident // self.ranks)
        self.static_start = (shared + 127) // 128 * 128
        self.vector_words = self.count * (2 if program.proxies else 1)

    def build(self, words: Sequence[int], extents: Sequence[int | None], steps: int, entry: int, triple: str) -> int:
        """Lay everything out; returns the grid's address."""
        arena, addresses = self.arena, runtime_addresses()
        self.grid = arena.take(layout.GRID_BYTES)
        fibers = arena.take(self.count * layout.FIBER_BYTES)
        stack = (_STACK_BASE + 2 * self.program.local_bytes + 4095) // 4096 * 4096
        arguments = arena.take(8 * len(words) + 8)
        _write(arguments, {8 * i: word for i, word in enumerate(words)})
        frame = INITIAL_WORDS[processor(triple)]
        geometry = self.geometry
        values = {
            layout.BUDGET: steps, layout.FUNCTION: entry, layout.ARGUMENTS: arguments, layout.FIBERS: fibers,
            layout.FIBER_COUNT: self.count, layout.BLOCKS_PER_CLUSTER: self.ranks, layout.THREADS: self.threads,
            layout.STACKS: _STACKS.reserve(self.count * stack), layout.STACK_BYTES: stack,
            layout.FRAME_WORDS: frame[0], layout.FRAME_FIBER: frame[1], layout.FRAME_FUNCTION: frame[2],
            layout.FRAME_ENTRY: frame[3], layout.ENTRY: addresses["rx_fiber_entry"],
            layout.FIBER_MAIN: addresses["rx_fiber_main"], layout.CHECKED: int(self.checked),
            layout.SITES: self._sites(), layout.STATIC_START: self.static_start,
            layout.BARRIERS_MAX: self.barriers, layout.BARRIER_POOL: arena.take(self.barriers * layout.MBAR_BYTES),
            layout.VECTOR_WORDS: self.vector_words, layout.LAUNCH_REGISTERS: self._launch_registers(),
            layout.REGISTER_CELLS: self.program.register_cells, layout.RESIDENT: self.resident,
        }  # fmt: skip
        for base, dims in (
            (layout.BLOCK_DIM, geometry.block),
            (layout.GRID_DIM, geometry.grid),
            (layout.CLUSTER_DIM, geometry.cluster),
        ):
            values |= {base + 8 * i: size for i, size in enumerate(dims)}
        values[layout.BLOCKS] = self._blocks(fibers, extents)
        _write(self.grid, values)
        if self.checked and self.program.clocks:
            self._clocks(fibers, values[layout.BARRIER_POOL])
        if self.checked and self.program.register_cells:
            size = self.program.register_cells * layout.REG_BYTES
            shadow = arena.take(self.count * size)
            for i in range(self.count):
                _write(fibers + i * layout.FIBER_BYTES, {layout.FIBER_REGISTERS: shadow + i * size})
        return self.grid

    def _launch_registers(self) -> int:
        """Registers of a thread at launch: an equal share of a processor's, in steps of 8; 0 where bounds do not say."""
        blocks = self.program.blocks_each
        if blocks is None:
            return 0
        return min(_MOST_REGISTERS, _REGISTERS // (self.threads * blocks) // 8 * 8)

    def _sites(self) -> int:
        table = np.array([site.words() for site in self.program.sites], np.int64)
        self.arena.kept.append(table)
        return int(table.ctypes.data)

    def _blocks(self, fibers: int, extents: Sequence[int | None]) -> int:
        arena = self.arena
        blocks = arena.take(self.resident * layout.BLOCK_BYTES)
        warps = (self.threads + 31) // 32
        shared_bytes = self.static_start + self.program.static_bytes
        shadows = self._outside(extents)
        for rank in range(self.resident):
            # 1024: what swizzled tiles are aligned to.
            shared = arena.take(shared_bytes + 64, 1024)
            first_warp = arena.take(warps * layout.WARP_BYTES)
            for warp in range(warps):
                _write(
                    first_warp + warp * layout.WARP_BYTES, {layout.WARP_SCRATCH: arena.take(2 * layout.SCRATCH_BYTES)}
                )
            _write(blocks + rank * layout.BLOCK_BYTES, {
                layout.BLOCK_WARPS: first_warp, layout.BLOCK_SHARED: shared, layout.BLOCK_SHARED_BYTES: shared_bytes,
                layout.BLOCK_BARRIERS: arena.take(layout.BARS * layout.BAR_BYTES), layout.BLOCK_RANK: rank % self.ranks,
                layout.BLOCK_FIRST: fibers + rank * self.threads * layout.FIBER_BYTES,
                layout.BLOCK_MEMORIES: self._memories(shared, extents, shadows),
            })  # fmt: skip
        return blocks

    def _memories(self, shared: int, extents: Sequence[int | None], shadows: list[tuple[int, int]]) -> int:
        """The table of memories of one block. Memory outside of blocks has one shadow for all of them."""
        table = self.arena.take((len(self.program.memories) + 1) * layout.MEM_BYTES)
        outside = iter(shadows)
        for memory in self.program.memories:
            size, base = extents[memory.number], 0
            if memory.shared:
                size = self.shared if memory is self.program.dynamic else memory.size
                base = shared if memory is self.program.dynamic else shared + self.static_start + memory.start
                shadow, shift = self._shadow(memory, size)
            else:
                shadow, shift = next(outside)
                base = self.bases[memory.number]
            _write(table + memory.number * layout.MEM_BYTES, {
                layout.MEM_BASE: base, layout.MEM_SIZE: 1 << 62 if size is None else size, layout.MEM_SHADOW: shadow,
                layout.MEM_SHIFT: shift, layout.MEM_SHARED: int(memory.shared), layout.MEM_FINE: int(memory.fine),
            })  # fmt: skip
        return table

    bases: dict[int, int]

    def note_maps(self, elements: Sequence[int]) -> None:
        """Element sizes in bytes of the tensor maps among the parameters (0 for other parameters)."""
        for memory, element in zip(self.program.memories, elements, strict=False):
            if element:
                memory.note(element, False)

    def _outside(self, extents: Sequence[int | None]) -> list[tuple[int, int]]:
        """Shadows of parameters. A tensor map's is that of the parameter whose memory it describes, if there is one."""
        memories = [m for m in self.program.memories if not m.shared]
        homes = {m.number: self._home(m, extents) for m in memories}
        for m in memories:
            home = memories[homes[m.number]]
            if home is not m and m.unit:
                home.note(m.unit, m.written)
                home.fine = m.fine = home.fine or m.fine
        shadows = {m.number: self._shadow(m, extents[m.number]) for m in memories if homes[m.number] == m.number}
        found = []
        for m in memories:
            start, shift = shadows[homes[m.number]]
            away = self.bases[m.number] - self.bases[homes[m.number]]
            found.append((start + (away << m.fine >> shift) * layout.CELL_BYTES if start else 0, shift))
        return found

    def _home(self, memory: Memory, extents: Sequence[int | None]) -> int:
        """The number of the parameter that a tensor map's memory is a part of; else its own."""
        begin, size = self.bases[memory.number], extents[memory.number]
        if not memory.mapped or size is None:
            return memory.number
        others = [m for m in self.program.memories if not m.shared and (not m.mapped or m.number < memory.number)]
        for other in others:
            whole, at = extents[other.number], self.bases[other.number]
            if whole is not None and at <= begin and begin + size <= at + whole:
                return other.number if not other.mapped else self._home(other, extents)
        return memory.number

    def _shadow(self, memory: Memory, size: int | None) -> tuple[int, int]:
        """Shadow cells of a memory and the logarithm of the bytes of one; none where nothing can race."""
        if not self.checked or not memory.written or size is None:
            return 0, 0
        shift = max(0, memory.unit.bit_length() - 1)
        return self.arena.take(((size << memory.fine >> shift) + 1) * layout.CELL_BYTES), shift

    def _clocks(self, fibers: int, pool: int) -> None:
        """Vector clocks of fibers, and of all that synchronises them."""
        blocks = ctypes.c_int64.from_address(self.grid + layout.BLOCKS).value
        places = [fibers + i * layout.FIBER_BYTES + layout.FIBER_VECTOR for i in range(self.count)]
        for rank in range(self.resident):
            block = blocks + rank * layout.BLOCK_BYTES
            bars = ctypes.c_int64.from_address(block + layout.BLOCK_BARRIERS).value
            places += [bars + i * layout.BAR_BYTES + layout.BAR_VECTOR for i in range(layout.BARS)]
            warps = ctypes.c_int64.from_address(block + layout.BLOCK_WARPS).value
            places += [warps + i * layout.WARP_BYTES + layout.WARP_VECTOR for i in range((self.threads + 31) // 32)]
            if self.ranks > 1:
                shared = (layout.BLOCK_REMOTE, layout.BLOCK_REMOTE_SITES, layout.BLOCK_KNOWN, layout.BLOCK_SHOWN)
                places += [block + offset for offset in shared]
        for offset in (layout.MBAR_VECTOR, layout.MBAR_DONE):
            places += [pool + i * layout.MBAR_BYTES + offset for i in range(self.barriers)]
        places.append(self.grid + layout.GRID_VECTOR)
        if self.program.waits_by_atomics:
            for offset in (layout.FIBER_SEEN, layout.FIBER_FENCED):
                places += [fibers + i * layout.FIBER_BYTES + offset for i in range(self.count)]
            table = self.arena.take(layout.PLACE_COUNT * layout.PLACE_BYTES)
            _write(self.grid, {layout.ATOMIC_PLACES: table})
            places += [table + i * layout.PLACE_BYTES + layout.PLACE_VECTOR for i in range(layout.PLACE_COUNT)]
        size = 4 * self.vector_words
        if len(places) * size > _MOST_CLOCKS:
            raise RelaxishError(
                f"kernel {self.program.name}: {self.count} threads at once are too many to keep track of; use check=False"
            )
        vectors = self.arena.take(len(places) * size)
        for i, place in enumerate(places):
            ctypes.c_int64.from_address(place).value = vectors + i * size


def _check_resident(program: ThreadProgram, blocks: int, threads: int, shared: int, processors: int) -> None:
    """A barrier of the whole grid needs all blocks to run together."""
    warps = (threads + 31) // 32 * 32
    each = min(_THREADS_EACH // warps, _BLOCKS_EACH, _SHARED_EACH // (shared + 1024))
    if blocks > each * processors:
        raise DeadlockError(
            f"a barrier of the whole grid: it has {blocks} blocks, and {each * processors} can run together",
            kernel=program.name,
        )


def _check_geometry(program: ThreadProgram, grid: Dim, block: Dim, cluster: Dim) -> None:
    """What the driver refuses to launch."""
    blocks = math.prod(cluster)
    wrong = ""
    if not 0 < math.prod(block) <= _THREADS_OF_BLOCK:
        wrong = f"a block has {math.prod(block)} threads, and may have 1 to {_THREADS_OF_BLOCK}"
    elif not 0 < blocks <= _BLOCKS_OF_CLUSTER:
        wrong = f"a cluster has {blocks} blocks, and may have 1 to {_BLOCKS_OF_CLUSTER}"
    elif any(size % each for size, each in zip(grid, cluster, strict=True)):
        wrong = f"a grid of {grid} blocks is not made of whole clusters of {cluster}"
    if wrong:
        raise EmulationError(f"this cannot be launched: {wrong}", kernel=program.name)


def launch_program(
    program: ThreadProgram,
    entry: int,
    grid: Dim,
    block: Dim,
    shared: int,
    args: Sequence[tuple[str, Any]],
    *,
    triple: str,
    cluster: Dim = (1, 1, 1),
    extent: Callable[[int], int | None] = lambda address: None,
    checked: bool = True,
    max_steps: int = 20_000_000_000,
    shared_limit: int = 232448,
    processors: int = 132,
) -> None:
    """Run a kernel. ``extent`` gives the bytes that follow an address, where known; the device has so many ``processors``.

    Raises EmulationError: its subclasses say what is wrong with the kernel.
    """
    _check_geometry(program, grid, block, cluster)
    total = (shared + 127) // 128 * 128 + program.static_bytes if program.static_bytes else shared
    if total > shared_limit:
        raise SharedMemoryLimitError(
            f"{total} bytes of shared memory, and a block may have {shared_limit}", kernel=program.name
        )
    if program.grid_barrier:
        _check_resident(program, math.prod(grid), math.prod(block), total, processors)
    kept: list[Any] = []
    words = [_argument_word(kind, value, kept) for kind, value in args]
    with _LOCK:
        launch = _Launch(program, grid, block, shared, cluster, checked)
        outside = [(kind, value) for kind, value in args if kind in ("pointer", "tensor_map")]
        launch.bases = {
            i: value.address if kind == "tensor_map" else int(value) for i, (kind, value) in enumerate(outside)
        }
        launch.note_maps([value.element if kind == "tensor_map" else 0 for kind, value in outside])
        extents: list[int | None] = [v.nbytes if kind == "tensor_map" else extent(int(v)) for kind, v in outside]
        extents += [None] * (len(program.memories) - len(extents))
        address = launch.build(words, extents, max_steps, entry, triple)
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(runtime_addresses()["rx_run_grid"])
        if run(address):
            raise fault_error(program, launch.geometry, address)
