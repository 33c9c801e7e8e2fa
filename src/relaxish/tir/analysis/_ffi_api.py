"""Analyses under the names by which scripts reach them beside the functions of their own."""

from __future__ import annotations

from .memcpy import identify_memcpy as _identify_memcpy

__all__ = ["_identify_memcpy"]
