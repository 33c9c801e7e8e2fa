"""Helpers for tile programs' data."""

from __future__ import annotations

from . import sparse

__all__ = ["sparse"]
