"""Tensor intrinsics of NVIDIA GPUs, by their public names."""

from __future__ import annotations

from . import mma, mma_m16n8k8, wgmma, wmma
from .cuda_names import constants
from .mma import get_mma_intrin_group
from .mma_layouts import (
    ldmatrix_32x8_to_shared_16x16_layout,
    ldmatrix_32x16_to_shared_16x32_layout_a,
    ldmatrix_32x16_to_shared_16x32_layout_b,
    ldmatrix_trans_32x8_to_shared_16x16_layout,
    mma_32x8_to_shared_16x16_layout,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
    shared_32x16_to_ldmatrix_32x16_layout,
)
from .wgmma import get_wgmma_intrin_group
from .wmma import get_wmma_intrin_group

__all__ = [
    "define", "get_mma_intrin_group", "get_wgmma_intrin_group", "get_wmma_intrin_group", "ldmatrix_32x8_to_shared_16x16_layout",
    "ldmatrix_32x16_to_shared_16x32_layout_a", "ldmatrix_32x16_to_shared_16x32_layout_b",
    "ldmatrix_trans_32x8_to_shared_16x16_layout", "mma_32x8_to_shared_16x16_layout",
    "shared_16x16_to_ldmatrix_32x8_layout", "shared_16x32_to_ldmatrix_32x16_layout",
    "shared_32x16_to_ldmatrix_32x16_layout",
]  # fmt: skip


def define() -> None:
    """Register all of them."""
    for family in (wmma, mma, mma_m16n8k8, wgmma):
        family.define()


def __getattr__(name: str) -> str:
    """The names of the intrinsics are constants here: ``cuda.MMA_f16f16f32_INTRIN``."""
    if name in constants():
        return constants()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
