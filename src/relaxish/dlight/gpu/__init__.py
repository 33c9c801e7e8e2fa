"""Default schedules for GPUs, dynamic shapes included."""

from .fallback import Fallback
from .gemv import GEMV
from .general_reduction import GeneralReduction
from .low_batch_gemv import LowBatchGEMV
from .matmul import Matmul
from .matmul_hopper import MatmulHopper
from .matmul_metal import MetalMatmul
from .matmul_tensorize import MatmulInt8Tensorization, MatmulSmallTiles, MatmulTensorization
from .normalization import Normalization
from .reduction import Reduction
from .rmsnorm import RMSNorm
from .transpose import Transpose
from .wide_rows import WideRows

__all__ = [
    "GEMV", "Fallback", "GeneralReduction", "LowBatchGEMV", "Matmul", "MatmulHopper", "MatmulInt8Tensorization", "MatmulSmallTiles",
    "MatmulTensorization", "MetalMatmul", "Normalization", "RMSNorm", "Reduction", "Transpose",
    "WideRows",
]  # fmt: skip
