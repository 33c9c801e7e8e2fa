"""Tensor intrinsics of NVIDIA GPUs, by their public names."""

from __future__ import annotations

from . import wmma
from .wmma import get_wmma_intrin_group

__all__ = ["define", "get_wmma_intrin_group"]


def define() -> None:
    """Register all of them."""
    wmma.define()
