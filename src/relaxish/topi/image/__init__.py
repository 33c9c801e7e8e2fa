"""Image computations."""

from __future__ import annotations

from .resize import resize1d, resize2d, resize3d

__all__ = ["resize1d", "resize2d", "resize3d"]
