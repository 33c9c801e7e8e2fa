"""CPUs as tile policies see them."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ..machine import CpuModel
from .device import TileDevice

__all__ = ["CPU", "is_cpu_arch"]


class CPU(TileDevice):
    """A CPU: the fields of GPUs stay empty; what hints for CPUs need is in ``model``.

    >>> CPU("llvm -mcpu=skylake-avx512 -num-cores=4").model.cores
    4
    """

    def __init__(self, target: Target | str | dict[str, Any] = "llvm") -> None:
        super().__init__(target)
        self._require("llvm", "c", "hexagon")
        self.platform = "CPU"
        self.model = CpuModel.of_target(self.target)


def is_cpu_arch(arch: TileDevice) -> bool:
    """Whether the device is a CPU."""
    return isinstance(arch, CPU)
