"""Analyses for rules: canonical blocks of a function, and matrix-vector products."""

from __future__ import annotations

from .blocks import (
    BlockInfo,
    IterInfo,
    collect_block_iter_vars_used_in_access_region,
    detect_dominant_read,
    extent_of,
    get_max_shared_memory_per_block,
    get_max_threads_per_block,
    get_reduction_blocks,
    get_root_block,
    is_broadcast_epilogue,
    normalize_nested,
    normalize_prim_func,
)
from .gemv import is_gemv, normalize, summand

__all__ = [
    "BlockInfo", "IterInfo", "collect_block_iter_vars_used_in_access_region", "detect_dominant_read", "extent_of",
    "get_max_shared_memory_per_block", "get_max_threads_per_block", "get_reduction_blocks", "get_root_block",
    "is_broadcast_epilogue", "is_gemv", "normalize", "normalize_nested", "normalize_prim_func", "summand",
]  # fmt: skip
