"""The primitives: one instruction kind a class, related ones in one file."""

from __future__ import annotations

from . import loops, marks, queries, sample

__all__ = ["loops", "marks", "queries", "sample"]
