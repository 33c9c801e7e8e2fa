"""Room for deep programs: visitors recurse once or twice for every level of nesting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["deep_programs"]

# Before 3.11 every Python call also takes C stack, of which the main thread has 8 MB.
_DEPTH = 50_000 if sys.version_info >= (3, 11) else 6_000


@contextmanager
def deep_programs() -> Iterator[None]:
    """Raise the recursion limit while a program is worked on.

    A host function with thirty buffer parameters nests some four hundred statements, each two or three calls deep.

    >>> def depth(n):
    ...     return 0 if n == 0 else 1 + depth(n - 1)
    >>> with deep_programs():
    ...     depth(3000)
    3000
    """
    before = sys.getrecursionlimit()
    if before >= _DEPTH:
        yield
        return
    sys.setrecursionlimit(_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
