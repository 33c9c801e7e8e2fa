"""Names while parsing: nested scopes with shadowing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TYPE_CHECKING

from ....ir.expr import PrimExpr
from ....ir.node import Node
from ....tir.buffer import Buffer

if TYPE_CHECKING:
    pass

__all__ = ["VarTable", "VarTableFrame"]


class VarTableFrame:
    """The names defined in one scope."""

    def __init__(self) -> None:
        self.vars: set[str] = set()

    def add(self, var: str) -> None:
        """Note a name. Raises ValueError if the scope has it already."""
        if var in self.vars:
            raise ValueError(f"Variable {var} already defined in current scope")
        self.vars.add(var)

    def pop_all(self, fn_pop: Callable[[str], Any]) -> None:
        """Forget all names, calling ``fn_pop`` with each."""
        for name in self.vars:
            fn_pop(name)
        self.vars.clear()


def _same(known: object, value: object) -> bool:
    """Whether a name may be given its value again without being defined anew."""
    if known is value:
        return True
    if not isinstance(known, type(value)) or isinstance(value, Node):
        return False
    # Arrays compare elementwise.
    equal = known == value
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


class VarTable:
    """A stack of scopes; leaving one restores what its names meant before.

    >>> table = VarTable()
    >>> with table.with_frame():
    ...     table.add("x", 1)
    ...     with table.with_frame():
    ...         table.add("x", 2)
    ...         inner = table.get()["x"]
    ...     print(inner, table.get()["x"])
    2 1
    """

    def __init__(self) -> None:
        self.frames: list[VarTableFrame] = []
        self.name2value: dict[str, list[Any]] = defaultdict(list)

    @contextmanager
    def with_frame(self) -> Iterator[None]:
        """A scope for the duration of a ``with`` block."""
        self.frames.append(VarTableFrame())
        try:
            yield
        finally:
            self.frames.pop().pop_all(lambda name: self.name2value[name].pop())

    def add(self, var: str, value: object, allow_shadowing: bool = False) -> None:
        """Give a name a meaning in the innermost scope. Raises ValueError if it has another one there already."""
        known = self.name2value[var]
        if known and _same(known[-1], value):
            return
        if allow_shadowing and var in self.frames[-1].vars:
            known[-1] = value
            return
        self.frames[-1].add(var)
        known.append(value)

    def get(self) -> dict[str, Any]:
        """All names and what they mean now."""
        return {name: stack[-1] for name, stack in self.name2value.items() if stack}

    def lookup(self, name: str) -> Any:
        """Value of a name. Raises KeyError."""
        stack = self.name2value.get(name)
        if not stack:
            raise KeyError(name)
        return stack[-1]

    def exist(self, value: Buffer | PrimExpr) -> bool:
        """Whether some name means this very object."""
        return any(v is value for stack in self.name2value.values() for v in stack)
