"""Containers of the public API: arrays are tuples and maps are dicts here, so the two names are those types."""

from __future__ import annotations

__all__ = ["Array", "Map"]

Array = tuple  # type: ignore[type-arg]
Map = dict
