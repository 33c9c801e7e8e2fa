"""What the parts of a schedule that are not program nodes share: being one object or another."""

from __future__ import annotations

__all__ = ["Identity"]


class Identity:
    """An object that is equal only to itself."""

    __slots__ = ()

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other
