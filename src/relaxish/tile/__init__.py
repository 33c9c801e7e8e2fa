"""Tile programs: kernels written as operators on tiles, lowered for each architecture by one planner.

``relaxish.tile.language`` (usually ``T``) is what they are written with.
"""

from __future__ import annotations

from ..support.aliases import lazy_package as _lazy_package
from ..support.aliases import register_attributes as _register

__all__: list[str] = ["language"]

_register("relaxish.tile", {"language": "relaxish.tile.language"})
__getattr__, __dir__ = _lazy_package(globals())
