"""The ``vm.builtin`` functions of the paged key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...support.errors import RelaxishError
from ..arrays.container import ShapeTuple
from ..kernels.kernel import ArgumentError
from .kv_state import builtin
from .kv_transfer import Mark, compressed, expanded, send_marked
from ..arrays.ndarray import NDArray
from .paged_kv_cache import AttnKind, Kernel, PagedKernels, PagedKVCache, PagedLayout

_CREATE_ARGS = 28
_RAGGED_TREE_ARITY = 14


def _optional(value: object) -> Kernel | None:
    return value if callable(value) else None


def _attention(value: object) -> Kernel | None:
    """A kernel given as ("tir", kernel), as the kernel itself, or not at all."""
    if isinstance(value, tuple | list):
        if not value:
            return None
        if str(value[0]) != "tir":
            raise RelaxishError(f"attention backend {value[0]!r} is not available here; use 'tir'")
        return _optional(value[1])
    return _optional(value)


def _tree_kernels(first: object, second: object) -> tuple[Kernel | None, Kernel | None]:
    """The tree kernels over pages and over rows; models give them in either order, their arities tell."""
    paged, ragged = _attention(first), _attention(second)
    if _arity(paged) == _RAGGED_TREE_ARITY:
        return ragged, paged
    return paged, ragged


def _arity(kernel: object) -> int | None:
    """Number of parameters of a compiled kernel, given as itself or by its bound ``call``."""
    spec = getattr(getattr(kernel, "__self__", kernel), "spec", None)
    return None if spec is None else len(spec.params)


@builtin("paged_attention_kv_cache_create")
def create(*args: Any) -> PagedKVCache:
    """A new cache.

    The arguments: (sequences, tokens, prefill chunk, page size, sliding window?), layer partition, query heads, key
    heads, key dimension, value dimension, kinds of the layers, transfer?, rope mode, scale, theta and factors, an array
    of the dtype, then the kernels: append, append for latent vectors, prefill (ragged), prefill, decode, both with
    sliding window, tree (paged), tree, prefill for latent vectors, merge (a list), split with rotary positions, copy of a
    page, debugging, compaction.
    """
    if len(args) != _CREATE_ARGS:
        raise ArgumentError(f"Invalid number of KV cache constructor args: {len(args)}, expected {_CREATE_ARGS}")
    sequences, tokens, chunk, page_size, sliding = (int(n) for n in args[0])
    partition = [int(n) for n in args[1]]
    layers = partition[1] - partition[0]
    kinds = tuple(AttnKind(int(k)) for k in args[6])
    init: NDArray = args[12]
    layout = PagedLayout(
        sequences, tokens, chunk, page_size, bool(sliding), kinds[:layers], partition[0],
        int(args[2]), int(args[3]), int(args[4]), int(args[5]), init.dtype,
    )  # fmt: skip
    merges = args[23] if isinstance(args[23], tuple | list) else (args[23],)
    tree_paged, tree = _tree_kernels(args[20], args[21])
    kernels = PagedKernels(
        append=_optional(args[13]),
        append_mla=_optional(args[14]),
        prefill_ragged=_attention(args[15]),
        prefill=_attention(args[16]),
        decode=_attention(args[17]),
        prefill_sliding=_attention(args[18]),
        decode_sliding=_attention(args[19]),
        tree_paged=tree_paged,
        tree=tree,
        mla_prefill=_attention(args[22]),
        merge=_optional(merges[0]) if merges else None,
        split_rotary=_optional(args[24]),
        copy_page=_optional(args[25]),
        debug_get=_optional(args[26]),
        compact=_optional(args[27]),
    )
    factors = args[11] if isinstance(args[11], NDArray) else None
    return PagedKVCache(layout, kernels, int(args[8]), float(args[9]), float(args[10]), factors, init.device)


@builtin("attention_kv_cache_attention_with_fused_qkv")
def attention_with_fused_qkv(
    cache: PagedKVCache, layer_id: int, sm_scale: float, qkv_data: NDArray, o_data: NDArray
) -> None:
    """Append keys and values of the new tokens and attend to all of their sequences."""
    cache.attention_with_fused_qkv(int(layer_id), qkv_data, o_data, float(sm_scale))


@builtin("attention_kv_cache_self_attention")
def self_attention(
    cache: PagedKVCache, layer_id: int, sm_scale: float, q: NDArray, k: NDArray, v: NDArray, o: NDArray, lse: NDArray
) -> None:
    """Attention of the new tokens among themselves."""
    cache.self_attention(int(layer_id), q, k, v, o, lse, float(sm_scale))


@builtin("attention_kv_cache_cross_attention")
def cross_attention(cache: PagedKVCache, layer_id: int, sm_scale: float, q: NDArray, o: NDArray, lse: NDArray) -> None:
    """Attention of the new tokens over the cache."""
    cache.cross_attention(int(layer_id), q, o, lse, float(sm_scale))


@builtin("attention_kv_cache_append_mla_kv")
def append_mla_kv(cache: PagedKVCache, layer_id: int, kv: NDArray) -> PagedKVCache:
    """Store latent vectors; gives the cache back."""
    cache.append_mla_kv(int(layer_id), kv)
    return cache


@builtin("attention_kv_cache_merge_attn_output_inplace")
def merge_attn_output_inplace(
    cache: PagedKVCache, o_self: NDArray, lse_self: NDArray, o_cross: NDArray, lse_cross: NDArray
) -> tuple[NDArray, NDArray]:
    """Merge two attention results into the first; gives it back."""
    cache.merge_inplace(o_self, lse_self, o_cross, lse_cross)
    return o_self, lse_self


@builtin("attention_kv_cache_enable_sliding_window_for_seq")
def enable_sliding_window_for_seq(
    cache: PagedKVCache, seq_id: int, sliding_window_size: int, attn_sink_size: int
) -> None:
    """Keep only a window of a sequence."""
    cache.enable_sliding_window(int(seq_id), int(sliding_window_size), int(attn_sink_size))


@builtin("attention_kv_cache_commit_accepted_token_tree_nodes")
def commit_accepted_token_tree_nodes(cache: PagedKVCache, seq_ids: Sequence[int], leaf_indices: Sequence[int]) -> None:
    """Keep the accepted path of each token tree."""
    cache.commit([int(s) for s in seq_ids], [int(n) for n in leaf_indices])


@builtin("attention_kv_cache_empty")
def is_empty(cache: PagedKVCache) -> bool:
    """Whether the cache holds no sequence."""
    return cache.table.is_empty


@builtin("attention_kv_cache_get_num_available_pages")
def get_num_available_pages(cache: PagedKVCache) -> int:
    """Pages that are free."""
    return len(cache.table.free)


@builtin("attention_kv_cache_get_total_sequence_length")
def get_total_sequence_length(cache: PagedKVCache) -> int:
    """Tokens of all sequences."""
    return cache.total_sequence_length()


@builtin("attention_kv_cache_get_query_positions")
def get_query_positions(cache: PagedKVCache) -> NDArray:
    """Positions of the new tokens."""
    return cache.query_positions()


@builtin("attention_kv_cache_debug_get_kv")
def debug_get_kv(
    cache: PagedKVCache, seq_id: int, start_pos: int, end_pos: int, k_data: NDArray, v_data: NDArray
) -> None:
    """Copy stored keys and values."""
    cache.debug_get_kv(int(seq_id), int(start_pos), int(end_pos), k_data, v_data)


@builtin("attention_kv_cache_debug_get_kv_mla")
def debug_get_kv_mla(cache: PagedKVCache, seq_id: int, start_pos: int, end_pos: int, kv_data: NDArray) -> None:
    """Copy stored latent vectors."""
    cache.debug_get_kv_mla(int(seq_id), int(start_pos), int(end_pos), kv_data)


@builtin("kv_cache_disagg_prepare_recv")
def disagg_prepare_recv(cache: PagedKVCache, seq_id: int, length: int) -> ShapeTuple:
    """Make room for tokens that another process will send; their places as (number of runs, begin, length, ...)."""
    sequence = cache.table[int(seq_id)]
    if int(length) < 0:
        raise ArgumentError(f"there is no room for {length} tokens")
    start = sequence.length
    cache.table.extend(sequence, int(length))
    return ShapeTuple(compressed(cache.table.positions(sequence, start, sequence.length).tolist()))


@builtin("kv_cache_disagg_mark_send")
def disagg_mark_send(
    cache: PagedKVCache, seq_id: int, begin: int, compressed_remote_position_map: Sequence[int], recver_pe_offset: int
) -> None:
    """Send a sequence's tokens from ``begin`` on: what there is now, and what each forward pass adds.

    The map says where the receiver wants them (``kv_cache_disagg_prepare_recv``), ``recver_pe_offset`` which receiver.
    """
    cache.table[int(seq_id)]
    if int(begin) < 0:
        raise ArgumentError(f"tokens cannot be sent from {begin} on")
    cache.marks[int(seq_id)] = Mark(int(begin), expanded(compressed_remote_position_map), int(recver_pe_offset))
    send_marked(cache, int(seq_id))
