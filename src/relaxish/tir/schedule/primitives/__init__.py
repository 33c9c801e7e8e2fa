"""The primitives: one instruction kind a class, related ones in one file."""

from __future__ import annotations

from . import (
    access,
    blockize,
    buffer_attrs,
    cache,
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
    sample,
    tensorize,
)

__all__ = [
    "access",
    "blockize",
    "buffer_attrs",
    "cache",
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
    "sample",
    "tensorize",
]
