"""Base of the parts of a schedule that are no program nodes: they are compared by identity."""

from __future__ import annotations

__all__ = ["Identity"]


class Identity:
    """An object that is equal only to itself."""

    __slots__ = ()

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other
