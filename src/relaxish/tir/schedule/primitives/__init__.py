"""The primitives: one instruction kind a class, related ones in one file."""

from __future__ import annotations

from . import (
    access,
    at_loop,
    blockize,
    buffer_attrs,
    cache,
    cache_index,
    compute_at,
    inline,
    layout,
    loops,
    marks,
    padding,
    partition,
    queries,
    reduction,
    reindex,
    rfactor,
    rolling,
    sample,
    tensorize,
)

__all__ = [
    "access",
    "at_loop",
    "blockize",
    "buffer_attrs",
    "cache",
    "cache_index",
    "compute_at",
    "inline",
    "layout",
    "loops",
    "marks",
    "padding",
    "partition",
    "queries",
    "reduction",
    "reindex",
    "rfactor",
    "rolling",
    "sample",
    "tensorize",
]
