"""Rules of the target key ``cuda``."""

from . import layout_transform, winograd

__all__ = ["layout_transform", "winograd"]
