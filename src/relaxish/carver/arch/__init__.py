"""Descriptions of devices, each made from a target alone."""

from .cpu import CPU, is_cpu_arch
from .device import TensorInstruction, TileDevice
from .gpus import (
    CDNA,
    CUDA,
    METAL,
    RDNA,
    has_mma_support,
    is_ada_arch,
    is_ampere_arch,
    is_cdna_arch,
    is_cuda_arch,
    is_hopper_arch,
    is_metal_arch,
    is_rdna_arch,
    is_tensorcore_supported_precision,
    is_volta_arch,
)
from .infer import auto_infer_current_arch, get_arch

__all__ = [
    "CDNA", "CPU", "CUDA", "METAL", "RDNA", "TensorInstruction", "TileDevice", "auto_infer_current_arch", "get_arch",
    "has_mma_support", "is_ada_arch", "is_ampere_arch", "is_cdna_arch", "is_cpu_arch", "is_cuda_arch", "is_hopper_arch",
    "is_metal_arch", "is_rdna_arch", "is_tensorcore_supported_precision", "is_volta_arch",
]  # fmt: skip
