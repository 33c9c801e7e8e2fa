"""Default schedules for GPUs, dynamic shapes included."""

from .fallback import Fallback
from .gemv import GEMV
from .general_reduction import GeneralReduction
from .matmul import Matmul
from .reduction import Reduction
from .rmsnorm import RMSNorm
from .transpose import Transpose

__all__ = ["GEMV", "Fallback", "GeneralReduction", "Matmul", "Reduction", "RMSNorm", "Transpose"]
