"""``R``: what graph functions are written with."""

from __future__ import annotations

from ..support.entry_points import lazy_package
from .parser.relax import *  # noqa: F403
from .parser.relax import __all__ as __all__

__getattr__, __dir__ = lazy_package(globals())
