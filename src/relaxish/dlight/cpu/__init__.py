"""Default schedules for CPUs."""

from __future__ import annotations

from .attention import FuseAttention
from .contraction import Contraction
from .elementwise import Elementwise, Fallback
from .gemv import GEMV
from .packing import PackWeights
from .reduction import RowReduction
from .variants import contraction_variants

__all__ = ["GEMV", "Contraction", "Elementwise", "Fallback", "FuseAttention", "PackWeights", "RowReduction", "contraction_variants"]
