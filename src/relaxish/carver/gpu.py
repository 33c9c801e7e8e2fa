"""Estimate of a kernel's time on a GPU, from its blocks' computations and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..target.target import Target
from .arch.chips import chip_of

__all__ = ["GpuModel", "KernelWork"]

Array = npt.NDArray[np.float64]
_LAUNCH_SECONDS = 2e-6
_SHARED_BYTES = 128  # of a multiprocessor in a cycle
_REGISTERS = 65536
_LATENCY_THREADS = 512  # threads of a multiprocessor that hide the latency of arithmetic and shared memory
_BARRIER_CYCLES = 40.0


@dataclass(frozen=True)
class GpuModel:
    """Model of a device for the estimate."""

    multiprocessors: int
    clock: float
    multiply_adds: int
    tensor_multiply_adds: int
    bandwidth: float
    shared_memory: int
    threads: int

    @staticmethod
    def of_target(target: Target) -> GpuModel:
        """The model of a target's device: by its tag, else by its architecture.

        >>> from relaxish import Target
        >>> GpuModel.of_target(Target("nvidia/nvidia-a100")).multiprocessors
        108
        """
        chip = chip_of(target)
        return GpuModel(
            chip.cores, chip.clock, chip.multiply_adds, chip.matrix_multiply_adds, chip.bandwidth, chip.shared_memory,
            chip.threads,
        )  # fmt: skip

    def seconds(self, work: KernelWork) -> Array:
        """Estimated seconds of one kernel, a value for each row of the columns in ``work``."""
        threads = np.maximum(np.asarray(work.threads, dtype=float), 1.0)
        blocks = np.maximum(np.asarray(work.blocks, dtype=float), 1.0)
        warps = np.ceil(threads / 32) * 32
        resident = np.minimum(self.threads // warps, self.shared_memory // np.maximum(work.shared, 1.0))
        resident = np.minimum(resident, _REGISTERS // (warps * np.clip(work.registers, 16.0, 255.0)))
        resident = np.clip(resident, 1.0, 32.0)
        # Registers that do not fit are kept in memory.
        spilled = np.maximum(np.asarray(work.registers, dtype=float) - 255.0, 0.0) * warps * 8.0
        used = np.minimum(resident, np.ceil(blocks / self.multiprocessors))
        hidden = np.minimum(1.0, used * warps / _LATENCY_THREADS) ** 0.5
        cycle = 1e-9 / self.clock
        arithmetic = work.multiply_adds / self.multiply_adds + work.tensor_multiply_adds / self.tensor_multiply_adds
        arithmetic = arithmetic * (warps / threads)
        moved = (work.shared_traffic + spilled) / _SHARED_BYTES
        inside = np.maximum(arithmetic, moved) / hidden + np.asarray(work.steps) * _BARRIER_CYCLES / used
        waves = np.ceil(blocks / (self.multiprocessors * used)) * used
        compute = waves * inside * cycle
        running = np.minimum(1.0, blocks * warps / (self.multiprocessors * _LATENCY_THREADS)) ** 0.5
        memory = blocks * work.global_bytes / (self.bandwidth * 1e9 * np.maximum(running, 0.05))
        total: Array = _LAUNCH_SECONDS + np.maximum(compute, memory) + 0.2 * np.minimum(compute, memory)
        return total


@dataclass
class KernelWork:
    """One kernel; numbers or columns. Work is that of one block; ``global_bytes`` counts a wasteful access as what it
    brings."""

    blocks: Any
    threads: Any
    shared: Any = 0.0
    multiply_adds: Any = 0.0
    tensor_multiply_adds: Any = 0.0
    global_bytes: Any = 0.0
    shared_traffic: Any = 0.0
    registers: Any = 32.0
    steps: Any = 0.0
