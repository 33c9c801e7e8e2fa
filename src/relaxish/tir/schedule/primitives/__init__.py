"""The primitives: one instruction kind a class, related ones in one file."""

from __future__ import annotations

from . import buffer_attrs, cache, compute_at, inline, loops, marks, queries, reduction, sample

__all__ = ["buffer_attrs", "cache", "compute_at", "inline", "loops", "marks", "queries", "reduction", "sample"]
