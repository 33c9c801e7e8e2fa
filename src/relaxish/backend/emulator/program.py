"""Description of a compiled thread function for its launches: parameters, memories, and places in the program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ...tir import PrimFunc
from . import layout

__all__ = ["Memory", "Site", "ThreadProgram"]

_DECLARATION = re.compile(r"\w+ = T\.(handle|Buffer|[a-z]+[0-9]*\(\))")


@dataclass
class Memory:
    """Memory that threads share: a parameter, or shared memory."""

    number: int
    name: str
    shared: bool
    size: int | None = None
    """Bytes, where known before the launch."""
    start: int = 0
    """Of static shared memory: where it begins."""
    written: bool = False
    unit: int = 0
    """All accesses begin at and take multiples of so many bytes."""
    fine: bool = False
    """Whether elements of 4 bits are accessed, the halves of a byte by themselves."""
    mapped: bool = False
    """Whether a tensor map describes it."""

    def note(self, nbytes: int, writes: bool) -> None:
        """Record an access of elements of ``nbytes`` bytes: the unit of the memory's shadow must divide all of them."""
        power = nbytes & -nbytes
        self.unit = min(self.unit, power) if self.unit else power
        self.written = self.written or writes


@dataclass
class Site:
    """A place in the program where a thread accesses memory or waits."""

    statement: Any
    buffer: str = ""
    memory: int = -1
    unit: int = 1
    align: int = 0
    kind: int = layout.SITE_LOAD
    size: int = 0
    dtype: str = ""

    def words(self) -> tuple[int, ...]:
        """The site as the runtime reads it."""
        return self.memory, self.unit, self.align, self.kind, self.size

    def text(self) -> str:
        """The statement as printed, its first lines, without the declarations of what it uses."""
        if self.statement is None:
            return ""
        lines = [line for line in self.statement.script().splitlines() if line and not line.startswith("#")]
        first = next((i for i, line in enumerate(lines) if not _DECLARATION.match(line)), 0)
        shown = lines[first : first + 3]
        return "\n".join(shown) + ("\n..." if len(lines) > first + 3 else "")


@dataclass
class ThreadProgram:
    """The thread function of a kernel and what its launches must know."""

    name: str
    func: PrimFunc
    kinds: tuple[str, ...]
    """For each parameter "pointer", "tensor_map" or its dtype."""
    memories: list[Memory]
    sites: list[Site]
    static_bytes: int
    local_bytes: int
    """What local arrays take of a thread's stack."""
    dynamic: Memory | None
    clocks: bool
    """Whether parts of a block synchronise, so that vector clocks are needed."""
    helpers: dict[str, Any] = field(default_factory=dict)
    """PrimFuncs that the thread function calls, by symbol."""
    proxies: bool = False
    """Whether shared memory is also read asynchronously, by products or bulk stores."""
    blocks_each: int | None = None
    """Blocks that share a processor, where the launch bounds say it."""
    register_cells: int = 0
    """Registers of a thread that products use."""
    grid_barrier: bool = False
    """Whether there is a barrier of the whole grid."""
    waits_by_atomics: bool = False
    """Whether threads wait in loops for what others update atomically."""

    @property
    def together(self) -> bool:
        """Whether all blocks of a grid must run together, because they may wait for each other."""
        return self.grid_barrier or self.waits_by_atomics
