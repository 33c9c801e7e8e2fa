"""The primitives: one instruction kind a class, related ones in one file."""

from __future__ import annotations

from . import (
    blockize,
    buffer_attrs,
    cache,
    compute_at,
    inline,
    loops,
    marks,
    queries,
    reduction,
    rfactor,
    sample,
    tensorize,
)

__all__ = [
    "blockize", "buffer_attrs", "cache", "compute_at", "inline", "loops", "marks", "queries", "reduction", "rfactor",
    "sample", "tensorize",
]  # fmt: skip
