"""Scheduled GPU programs on the CPU: every thread a fiber, compiled through LLVM, faults reported.

The emulator runs the very functions that CUDA C++ is printed from. ``thread_function`` turns a kernel into the
function of one thread, ``table`` and its entries say what intrinsics become, ``runtime_code`` schedules fibers and
keeps shadow memory, ``launch`` lays out a grid, ``faults`` says what went wrong.
"""

from .errors import (
    AsyncHazardError, BarrierDivergenceError, BarrierMisuseError, BlockExitError, DataRaceError, DeadlockError,
    EmulationError, MisalignedAccessError, OutOfBoundsError, RegisterCountError, SharedMemoryLimitError, StepLimitError,
    UninitializedReadError,
)  # fmt: skip
from .kernels import EmulatedKernels
from .run import EmulatedModule, emulate

__all__ = [
    "AsyncHazardError", "BarrierDivergenceError", "BarrierMisuseError", "BlockExitError", "DataRaceError", "DeadlockError",
    "EmulatedKernels", "EmulatedModule", "EmulationError", "MisalignedAccessError", "OutOfBoundsError",
    "RegisterCountError", "SharedMemoryLimitError", "StepLimitError", "UninitializedReadError", "emulate",
]  # fmt: skip
