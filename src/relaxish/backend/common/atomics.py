"""Updates of memory that other threads update at the same time: calls by the names that CUDA's functions have."""

from __future__ import annotations

__all__ = ["ATOMICS"]

ATOMICS = {f"atomic{how}": how.lower() for how in ("Add", "Max", "Min", "And", "Or", "Xor", "Exch")}
"""Functions that take an address and a value, and give what was there before -> what they do."""
