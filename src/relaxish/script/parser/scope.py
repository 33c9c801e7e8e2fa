"""Names while parsing: nested scopes with shadowing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["VarTable"]


class VarTable:
    """A stack of scopes; leaving one restores what its names meant before."""

    def __init__(self) -> None:
        self.frames: list[set[str]] = []
        self.values: dict[str, list[Any]] = defaultdict(list)

    @contextmanager
    def with_frame(self) -> Iterator[None]:
        """A scope for the duration of a ``with`` block."""
        self.frames.append(set())
        try:
            yield
        finally:
            for name in self.frames.pop():
                self.values[name].pop()

    def add(self, name: str, value: Any, allow_shadowing: bool = False) -> None:
        """Give a name a meaning in the innermost scope. Raises ValueError if it has one there already."""
        if name in self.frames[-1]:
            if self.values[name][-1] is value:
                return
            if not allow_shadowing:
                raise ValueError(f"Variable {name!r} is already defined in current scope")
            self.values[name][-1] = value
            return
        self.frames[-1].add(name)
        self.values[name].append(value)

    def get(self) -> dict[str, Any]:
        """All names and what they mean now."""
        return {name: stack[-1] for name, stack in self.values.items() if stack}

    def lookup(self, name: str) -> Any:
        """What a name means. Raises KeyError."""
        stack = self.values.get(name)
        if not stack:
            raise KeyError(name)
        return stack[-1]

    def exist(self, value: Any) -> bool:
        """Whether some name means this very object."""
        return any(v is value for stack in self.values.values() for v in stack)
