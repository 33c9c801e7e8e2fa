"""Default schedules for CPUs."""

from __future__ import annotations

from .attention import FuseAttention
from .contraction import Contraction
from .dot_words import DotWords
from .elementwise import Elementwise, Fallback
from .gemv import GEMV
from .matrix_unit import MatrixUnit
from .matrix_vector import MatrixVector
from .packing import MarkConstants, PackWeights
from .reduction import RowReduction
from .variants import contraction_variants, schedule_with_hint
from .winograd import WinogradConv2D

__all__ = [
    "GEMV",
    "Contraction",
    "DotWords",
    "Elementwise",
    "Fallback",
    "FuseAttention",
    "MarkConstants",
    "MatrixUnit",
    "MatrixVector",
    "PackWeights",
    "RowReduction",
    "WinogradConv2D",
    "contraction_variants",
    "schedule_with_hint",
]
