"""``T``: what tensor programs are written with."""

from __future__ import annotations

from ..support.entry_points import lazy_package
from .parser.tir import *  # noqa: F403
from .parser.tir import __all__ as __all__

__getattr__, __dir__ = lazy_package(globals())
