"""From the words in which the runtime reports a fault to an error that a person can use."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from . import errors, layout
from .program import Site, ThreadProgram

__all__ = ["Geometry", "fault_error"]

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """The sizes of a launch."""

    grid: Dim
    block: Dim
    cluster: Dim

    def thread(self, number: int) -> Dim:
        """The indices of a thread from its number in the cluster."""
        x, y, _ = self.block
        inside = number % (x * y * self.block[2])
        return inside % x, inside // x % y, inside // (x * y)


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _three(address: int) -> Dim:
    return _word(address), _word(address + 8), _word(address + 16)


def fault_error(program: ThreadProgram, geometry: Geometry, grid: int) -> errors.EmulationError:
    """The error for the fault that a grid's words describe."""
    kind = _word(grid + layout.ERROR)
    fiber = _word(grid + layout.ERROR_FIBER)
    site = program.sites[_word(grid + layout.ERROR_SITE)]
    index = _word(grid + layout.ERROR_INDEX)
    facts: dict[str, Any] = {
        "kernel": program.name, "buffer": site.buffer, "index": index, "statement": site.text(),
        "block": _three(fiber + layout.FIBER_BLOCK_IDX), "thread": _three(fiber + layout.FIBER_THREAD_IDX),
    }  # fmt: skip
    if kind in (layout.FAULT_RACE, layout.FAULT_PENDING, layout.FAULT_OTHER_BLOCK, layout.FAULT_DIVERGENCE):
        other = program.sites[_word(grid + layout.ERROR_OTHER_SITE)]
        facts["other_statement"] = other.text()
        if kind != layout.FAULT_OTHER_BLOCK:
            facts["other_thread"] = geometry.thread(_word(grid + layout.ERROR_OTHER))
    reads = _word(grid + layout.ERROR_HOW) == layout.HOW_LOAD
    return _make(kind, site, index, reads, facts)


def _make(kind: int, site: Site, index: int, reads: bool, facts: dict[str, Any]) -> errors.EmulationError:
    place = f"{site.buffer}[{index}] ({site.dtype})" if site.dtype else site.buffer
    loads = site.kind == layout.SITE_LOAD
    if kind == layout.FAULT_BOUNDS:
        return errors.OutOfBoundsError(f"{place} is outside of the buffer", **facts)
    if kind == layout.FAULT_ALIGNMENT:
        return errors.MisalignedAccessError(
            f"{place} is accessed {site.align + 1} bytes at a time, but not at a multiple of that", **facts
        )
    if kind == layout.FAULT_UNINITIALISED:
        return errors.UninitializedReadError(f"{place} is read, and no thread of the block has written it", **facts)
    if kind == layout.FAULT_RACE:
        how = "which another thread reads" if reads else "which another thread writes"
        return errors.DataRaceError(f"{place} is {'read' if loads else 'written'}, {how} with nothing between", **facts)
    if kind == layout.FAULT_PENDING:
        return errors.DataRaceError(
            f"{place} is {'read' if loads else 'written'} while an asynchronous copy may be writing it", **facts
        )
    if kind == layout.FAULT_OTHER_BLOCK:
        return errors.DataRaceError(f"{place} is {'read' if loads else 'written'}, which another block writes", **facts)
    if kind == layout.FAULT_DIVERGENCE:
        facts["index"] = None
        return errors.BarrierDivergenceError("threads that must be at one statement together are at two", **facts)
    if kind == layout.FAULT_DEADLOCK:
        facts["index"] = None
        return errors.DeadlockError("all threads wait, or have ended, and nothing can wake them", **facts)
    if kind == layout.FAULT_STEPS:
        facts["index"] = None
        return errors.StepLimitError("the launch takes more steps than it may", **facts)
    if kind == layout.FAULT_STACK:
        return errors.EmulationError("a thread's stack is too small for it", **facts)
    return errors.BarrierMisuseError("a memory barrier is not initialised, or has more arrivals than expected", **facts)
