"""References to global functions by name, for where a program must hold one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..support.entry_points import public_name
from .node import Node, field

__all__ = ["EnvFunc"]


class EnvFunc(Node):
    """A global function by its name; two are equal when their names are.

    >>> import relaxish
    >>> from relaxish.ir import EnvFunc
    >>> _ = relaxish.register_func("doc.twice", lambda x: 2 * x, override=True)
    >>> EnvFunc.get("doc.twice")(21)
    42
    """

    name: str = field(role="attr")

    @staticmethod
    def get(name: str) -> EnvFunc:
        """The reference. Raises ValueError when nobody registered the name."""
        public_name("relaxish", "get_global_func")(name)
        return EnvFunc(name)

    @property
    def func(self) -> Callable[..., Any]:
        """The function itself."""
        return public_name("relaxish", "get_global_func")(self.name)

    def __call__(self, *args: Any) -> Any:
        return self.func(*args)
