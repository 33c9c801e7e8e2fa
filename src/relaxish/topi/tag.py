"""Tags that say what kind of computation an operation is."""

from __future__ import annotations

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"
__all__ = ["BROADCAST", "COMM_REDUCE", "COMM_REDUCE_IDX", "ELEMWISE", "INJECTIVE", "is_broadcast", "is_injective"]


def is_broadcast(tag: str) -> bool:
    """Element-wise operations count as broadcasts."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Each output element reads a fixed element of each input."""
    return is_broadcast(tag) or tag.startswith(INJECTIVE)
