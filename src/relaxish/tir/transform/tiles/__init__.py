"""Tile programs to code: one planner, a lowering for each kind of hardware."""

from __future__ import annotations

from .program import TileLoweringError, has_kernels

__all__ = ["TileLoweringError", "has_kernels"]
