"""Common functions by their sizes, and the hints for them."""

from .base import BaseTemplate
from .conv import ConvTemplate
from .flashattention import FlashAttentionTemplate
from .matmul import GEMVTemplate, MatmulTemplate
from .simple import ElementwiseTemplate, GeneralReductionTemplate

__all__ = [
    "BaseTemplate", "ConvTemplate", "ElementwiseTemplate", "FlashAttentionTemplate", "GEMVTemplate",
    "GeneralReductionTemplate", "MatmulTemplate",
]  # fmt: skip
