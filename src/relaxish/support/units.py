"""Numbers with units, for people."""

from __future__ import annotations

__all__ = ["human_time"]


def human_time(seconds: float) -> str:
    """``1.234 ms`` and the like."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.3f} {unit}"
    return f"{seconds * 1e9:.1f} ns"
