"""``T``: what tensor programs are written with."""

from __future__ import annotations

from typing import Any

from ...ir_builder import tir as _builder
from . import parser as _dialect
from .entry import *  # noqa: F403
from .entry import __all__ as __all__

_ = _dialect


def __getattr__(name: str) -> Any:
    return getattr(_builder, name)
