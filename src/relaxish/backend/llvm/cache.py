"""The cache of objects that LLVM compiled: keys name its version."""

from __future__ import annotations

import functools

from ..common import object_cache
from ..common.object_cache import lookup, store

__all__ = ["key_of", "lookup", "store"]


@functools.lru_cache(maxsize=1)
def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


def key_of(text: str, *parts: str) -> str:
    """The key of an object compiled from ``text`` with settings ``parts``."""
    return object_cache.key_of(text, _version(), *parts)
