"""``R``: what graph functions are written with."""

from __future__ import annotations

from typing import Any

from .parser import relax as _namespace
from .parser.relax import *  # noqa: F403
from .parser.relax import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(_namespace, name)
