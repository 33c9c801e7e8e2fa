"""Attention of token trees: new tokens see what came before the tree, their ancestors and themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .... import tir
from ....target import Target
from ._attention_kernels import Sizes
from ._paged_kernels import prefill, prefill_ragged

__all__ = ["tree_attn", "tree_attn_cpu", "tree_attn_with_paged_kv_cache", "tree_attn_with_paged_kv_cache_cpu"]

_PAGE_SIZE = 16


def tree_attn_cpu(h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any]) -> tir.PrimFunc:
    """Tree attention among the new tokens, for CPUs."""
    return prefill_ragged(Sizes(h_kv, h_q, d, d, dtype, rope_scaling), tree=True)


def tree_attn(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], target: Target | None
) -> tir.PrimFunc:
    """Tree attention among the new tokens, for GPUs."""
    return prefill_ragged(Sizes(h_kv, h_q, d, d, dtype, rope_scaling, threads=True), tree=True)


def tree_attn_with_paged_kv_cache_cpu(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], page_size: int = _PAGE_SIZE
) -> tir.PrimFunc:
    """Tree attention over a paged cache that holds the new tokens already, for CPUs."""
    return prefill(Sizes(h_kv, h_q, d, d, dtype, rope_scaling), page_size, False, tree=True)


def tree_attn_with_paged_kv_cache(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    target: Target | None,
    page_size: int = _PAGE_SIZE,
) -> tir.PrimFunc:
    """Tree attention over a paged cache that holds the new tokens already, for GPUs."""
    return prefill(Sizes(h_kv, h_q, d, d, dtype, rope_scaling, threads=True), page_size, False, tree=True)
