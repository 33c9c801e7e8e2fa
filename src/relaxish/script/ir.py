"""``I``: what modules are written with."""

from __future__ import annotations

from ..support.entry_points import lazy_package
from .parser.ir import *  # noqa: F403
from .parser.ir import __all__ as __all__

__getattr__, __dir__ = lazy_package(globals())
