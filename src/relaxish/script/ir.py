"""``I``: what modules are written with."""

from __future__ import annotations

from typing import Any

from .parser import ir as _namespace
from .parser.ir import *  # noqa: F403
from .parser.ir import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(_namespace, name)
