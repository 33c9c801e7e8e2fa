"""Analytic device models and what they say about tiles: hints for default schedules and for a search's first rounds."""

from .gpu import GpuModel, KernelWork
from .machine import CpuModel
from .tiling import Access, Axis, TilingModel

__all__ = ["Access", "Axis", "CpuModel", "GpuModel", "KernelWork", "TilingModel"]
