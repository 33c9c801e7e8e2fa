"""Building blocks of language models: the paged key-value cache, rotary positions, tree attention."""

from . import kv_cache, position_embedding, tree_attn

__all__ = ["kv_cache", "position_embedding", "tree_attn"]
