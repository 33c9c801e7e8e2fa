"""``T``: what tensor programs are written with."""

from __future__ import annotations

from typing import Any

from .parser import tir as _namespace
from .parser.tir import *  # noqa: F403
from .parser.tir import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(_namespace, name)
