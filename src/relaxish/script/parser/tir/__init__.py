"""``T``: what tensor programs are written with."""

from __future__ import annotations

from ....support.entry_points import lazy_package
from . import parser as _dialect
from .entry import *  # noqa: F403
from .entry import __all__ as __all__

_ = _dialect

__getattr__, __dir__ = lazy_package(globals())
