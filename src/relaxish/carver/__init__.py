"""Analytic device models and what they say about tiles: hints for default schedules and for a search's first rounds."""

from .gpu import GpuModel, KernelWork
from .hopper import HopperCosts, TileWork, costs_of, device_key
from .machine import CpuModel
from .tiling import Access, Axis, TilingModel

__all__ = [
    "Access", "Axis", "CpuModel", "GpuModel", "HopperCosts", "KernelWork", "TileWork", "TilingModel", "costs_of",
    "device_key",
]  # fmt: skip
