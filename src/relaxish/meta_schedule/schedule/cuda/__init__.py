"""Rules of the target key ``cuda``."""

from . import layout_transform

__all__ = ["layout_transform"]
