"""Attention as kernels of its own: one walk over the keys with tensor cores, and the pass that calls them."""

from .decompose import DecomposeAttention
from .dispatch import DispatchAttention

__all__ = ["DecomposeAttention", "DispatchAttention"]
