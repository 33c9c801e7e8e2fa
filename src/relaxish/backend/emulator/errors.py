"""Faults that the emulator finds in kernels."""

from __future__ import annotations

from typing import Any

from ...support.errors import RelaxishError

__all__ = [
    "AsyncHazardError", "BarrierDivergenceError", "BarrierMisuseError", "BlockExitError", "DataRaceError", "DeadlockError", "EmulationError",
    "MisalignedAccessError", "OutOfBoundsError", "RegisterCountError", "SharedMemoryLimitError", "StepLimitError",
    "UninitializedReadError",
]  # fmt: skip

Dim = tuple[int, int, int]


class EmulationError(RelaxishError):
    """A fault of a kernel; the attributes say where it was found, as far as that applies."""

    def __init__(
        self, message: str, *, kernel: str = "", buffer: str = "", index: int | None = None, block: Dim | None = None,
        thread: Dim | None = None, statement: str = "", other_thread: Dim | None = None, other_statement: str = "",
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.buffer = buffer
        self.index = index
        self.block = block
        self.thread = thread
        self.statement = statement
        self.other_thread = other_thread
        self.other_statement = other_statement
        super().__init__(self._text(message))

    def _text(self, message: str) -> str:
        where = f"kernel {self.kernel}: {message}" if self.kernel else message
        parts = [where]
        if self.thread is not None:
            parts.append(f"  block {self.block}, thread {self.thread}")
        if self.statement:
            parts.append("  at: " + self.statement.replace("\n", "\n      "))
        if self.other_thread is not None:
            parts.append(f"  and thread {self.other_thread}")
        if self.other_statement:
            parts.append("  at: " + self.other_statement.replace("\n", "\n      "))
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return RelaxishError, (str(self),)


class DataRaceError(EmulationError):
    """Two threads access the same place, one of them writes, and nothing orders them."""


class OutOfBoundsError(EmulationError):
    """An access outside of a buffer's memory."""


class MisalignedAccessError(EmulationError):
    """A vector access or copy at an address that is not a multiple of its size."""


class UninitializedReadError(EmulationError):
    """A read of shared memory that nobody in the block has written."""


class BarrierDivergenceError(EmulationError):
    """Threads that should be at the same barrier are at different ones."""


class DeadlockError(EmulationError):
    """All remaining threads wait for events that cannot happen any more."""


class StepLimitError(EmulationError):
    """The launch took more steps than it was allowed."""


class SharedMemoryLimitError(EmulationError):
    """More shared memory than a block may have."""


class BarrierMisuseError(EmulationError):
    """An ``mbarrier`` that is not initialised, or at which more threads arrive than it expects."""


class AsyncHazardError(DataRaceError):
    """Memory or registers that asynchronous work uses are touched before it is complete, or a fence before it is missing."""


class BlockExitError(EmulationError):
    """A block ends, and with it its shared memory, while another block or a bulk copy may still use that."""


class RegisterCountError(EmulationError):
    """``setmaxnreg`` with a number that does not exist, or executed by only a part of a warpgroup."""
