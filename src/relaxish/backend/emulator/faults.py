"""From the words in which the runtime reports a fault to an error that a person can use."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

from . import errors, layout
from .program import Site, ThreadProgram

__all__ = ["Geometry", "fault_error"]

Dim = tuple[int, int, int]
_SHARING = (
    layout.FAULT_EXITED, layout.FAULT_LOADING, layout.FAULT_UNPUBLISHED, layout.FAULT_UNSEEN_BARRIER,
    layout.FAULT_UNFENCED_BARRIER,
)  # fmt: skip
_WITH_THREAD = (
    layout.FAULT_RACE, layout.FAULT_PENDING, layout.FAULT_DIVERGENCE, layout.FAULT_READING, layout.FAULT_PROXY,
    layout.FAULT_GLOBAL_PROXY, *_SHARING,
)  # fmt: skip
_WITH_OTHER = (
    *_WITH_THREAD, layout.FAULT_OTHER_BLOCK, layout.FAULT_REGISTER, layout.FAULT_NO_FENCE, layout.FAULT_PART,
    layout.FAULT_PARTIAL_PRODUCT,
)  # fmt: skip
_ASYNC = (
    layout.FAULT_READING, layout.FAULT_PROXY, layout.FAULT_REGISTER, layout.FAULT_NO_FENCE, layout.FAULT_UNFINISHED,
    layout.FAULT_GLOBAL_PROXY,
)  # fmt: skip
_REGISTER_COUNTS = (layout.FAULT_POOL, layout.FAULT_NO_BOUNDS, layout.FAULT_PART, layout.FAULT_BAD_COUNT)


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

    def rank(self, number: int) -> int:
        """The rank in its cluster of a thread's block."""
        threads, blocks = math.prod(self.block), math.prod(self.cluster)
        return number // threads % blocks

    def number(self, thread: Dim) -> int:
        """A thread's number in its block."""
        x, y, _ = self.block
        return thread[0] + x * (thread[1] + y * thread[2])


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
    number, how = _word(grid + layout.ERROR_OTHER), _word(grid + layout.ERROR_HOW)
    if kind in _WITH_OTHER:
        other = program.sites[_word(grid + layout.ERROR_OTHER_SITE)]
        facts["other_statement"] = other.text()
        if kind in _WITH_THREAD:
            facts["other_thread"] = geometry.thread(number)
    if kind in _SHARING:
        return _sharing(kind, site, geometry.rank(number), how, facts)
    if kind in _ASYNC:
        return _async_hazard(kind, site, how, facts)
    if kind in _REGISTER_COUNTS:
        facts["index"] = None
        return _register_count(kind, geometry, fiber, index, number, how, facts)
    return _make(kind, site, index, how == layout.HOW_LOAD, facts)


def _async_hazard(kind: int, site: Site, how: int, facts: dict[str, Any]) -> errors.EmulationError:
    """What is wrong around asynchronous work: see ``runtime_code/groups.py`` for the rules."""
    place = f"{site.buffer}[{facts['index']}]" + (f" ({site.dtype})" if site.dtype else "")
    if kind == layout.FAULT_READING:
        reader = "a product" if how & 7 == layout.PRODUCTS else "a bulk store"
        why = (
            "no wait for its group lies between"
            if how & layout.HOW_CLOSED
            else "its group has not been closed (commit)"
        )
        return errors.AsyncHazardError(f"{place} is written while {reader} may still read it: {why}", **facts)
    if kind == layout.FAULT_PROXY:
        return errors.AsyncHazardError(
            f"{place} is read asynchronously, which does not see ordinary stores before a fence.proxy.async", **facts
        )
    if kind == layout.FAULT_GLOBAL_PROXY:
        return errors.AsyncHazardError(
            f"{place} is loaded by a bulk copy, which does not see what ordinary stores of the same launch wrote to global"
            " memory before a fence.proxy.async.global; there is no intrinsic for that", **facts
        )  # fmt: skip
    if kind == layout.FAULT_REGISTER:
        why = "its group has not been waited for" if how else "its group has not been closed (commit)"
        return errors.AsyncHazardError(f"{place} is accessed while a product uses it: {why}", **facts)
    if kind == layout.FAULT_NO_FENCE:
        facts["index"] = None
        why = "the register has been used otherwise since the last one" if how else "there has been none"
        return errors.AsyncHazardError(f"a product needs a wgmma.fence before it for {site.buffer}: {why}", **facts)
    work = "a product" if facts["index"] == layout.PRODUCTS else "a bulk store"
    facts["index"] = None
    why = "nobody has waited for its group" if how else "its group has not been closed (commit)"
    return errors.AsyncHazardError(f"the thread ends while {work} may still read shared memory: {why}", **facts)


def _sharing(kind: int, site: Site, rank: int, how: int, facts: dict[str, Any]) -> errors.EmulationError:
    """What is wrong between the blocks of a cluster: see ``runtime_code/clusters.py`` for the rules."""
    place = f"{site.buffer}[{facts['index']}]" + (f" ({site.dtype})" if site.dtype else "")
    if kind == layout.FAULT_UNPUBLISHED:
        return errors.DataRaceError(
            f"{place} was written by the block of rank {rank} in its cluster and is read here with nothing between that"
            " publishes it: arrivals at a barrier in another block do not", **facts
        )  # fmt: skip
    facts["index"] = None
    if kind == layout.FAULT_EXITED:
        when = "may still be about to come when the block ends" if how else "comes after the block has ended"
        return errors.BlockExitError(
            f"the use of the block's shared memory by the block of rank {rank} in its cluster {when}: let the blocks meet"
            " at the cluster's barrier (not a relaxed one) before they end", **facts
        )  # fmt: skip
    if kind == layout.FAULT_LOADING:
        return errors.BlockExitError(
            "the block ends while a bulk copy may still be writing its shared memory: nobody has waited for it", **facts
        )
    if kind == layout.FAULT_UNSEEN_BARRIER:
        return errors.BarrierMisuseError(
            "a memory barrier is used by a thread that does not know yet that it has been initialised: a barrier of the"
            " block lies between, or fence_mbarrier_init and one of the cluster", **facts
        )  # fmt: skip
    return errors.BarrierMisuseError(
        "a bulk copy completes on a memory barrier that is not published to copies: after it has been initialised comes"
        " fence_mbarrier_init or fence_proxy_async", **facts
    )  # fmt: skip


def _register_count(
    kind: int, geometry: Geometry, fiber: int, count: int, other: int, how: int, facts: dict[str, Any]
) -> errors.EmulationError:
    """What is wrong with changes of registers: see ``runtime_code/registers.py`` for the rules."""
    group = f"warpgroup {geometry.number(facts['thread']) // 128}"
    if kind == layout.FAULT_POOL:
        return errors.DeadlockError(
            f"{group} waits for registers: it has {count} a thread, and the block's pool has {other}"
            " which others have given back; nobody can give back more", **facts
        )  # fmt: skip
    if kind == layout.FAULT_NO_BOUNDS:
        return errors.RegisterCountError(
            "registers can change only where the launch bounds say how many blocks share a processor", **facts
        )
    if kind == layout.FAULT_PART:
        return errors.RegisterCountError(f"not all warps of {group} make the same change of their registers", **facts)
    return errors.RegisterCountError(
        f"{group} has {other} registers a thread and cannot {'increase' if how else 'decrease'} them to {count}"
        " (24 to 256, in steps of 8)", **facts
    )  # fmt: skip


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
    if kind == layout.FAULT_METADATA:
        facts["index"] = None
        return errors.EmulationError(
            f"a sparse operand's metadata has the bits {index:04b} for a chunk, which name no two elements of it",
            **facts,
        )
    if kind == layout.FAULT_TURNS:
        facts["index"] = None
        wrong = "arrives a second time" if index else "waits without having arrived"
        return errors.BarrierMisuseError(f"a thread {wrong} at the cluster's barrier", **facts)
    if kind == layout.FAULT_PATTERN:
        return errors.MisalignedAccessError(
            f"an operand of a product begins at byte {index} of {site.buffer}, which its descriptor cannot say: operands begin"
            " at multiples of 16 bytes, within the first 128 bytes of a swizzle pattern, and have distances in steps of 16",
            **facts,
        )
    if kind == layout.FAULT_BAR_NUMBER:
        facts["index"] = None
        return errors.BarrierMisuseError(
            f"barrier {index} of a block: there are 0 to 15, for multiples of 32 threads", **facts
        )
    if kind == layout.FAULT_PARTIAL_PRODUCT:
        facts["index"] = None
        return errors.BarrierDivergenceError(
            "not all four warps of a warpgroup take part in the same products", **facts
        )
    if kind == layout.FAULT_STACK:
        return errors.EmulationError("a thread's stack is too small for it", **facts)
    return errors.BarrierMisuseError(
        "a memory barrier is not initialised, has more arrivals than expected, or counts beyond 2**20 - 1", **facts
    )
