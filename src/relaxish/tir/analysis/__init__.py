"""Questions about loop programs: what they access, whether they are well formed, how much they compute."""

from __future__ import annotations

from . import _ffi_api
from .block_access import get_block_access_region, get_block_read_write_region
from .bounds import OOBChecker
from .cost import calculate_allocated_bytes, estimate_tir_flops
from .gpu import verify_gpu_code
from .lca import detect_buffer_access_lca
from .memcpy import identify_memcpy
from .memory import get_vtcm_compaction_passes
from .structure import (
    assert_pure_function,
    expr_deep_equal,
    find_anchor_block,
    is_pure_function,
    undefined_vars,
)
from .verify import verify_memory, verify_ssa
from .well_formed import verify_well_formed

__all__ = [
    "OOBChecker",
    "_ffi_api",
    "assert_pure_function",
    "calculate_allocated_bytes",
    "detect_buffer_access_lca",
    "estimate_tir_flops",
    "expr_deep_equal",
    "find_anchor_block",
    "get_block_access_region",
    "get_block_read_write_region",
    "get_vtcm_compaction_passes",
    "identify_memcpy",
    "is_pure_function",
    "undefined_vars",
    "verify_gpu_code",
    "verify_memory",
    "verify_ssa",
    "verify_well_formed",
]
