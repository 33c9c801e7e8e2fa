"""Python objects that stand for IR values, and turning Python values into those."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from .expr import GENERIC, convert
from .node import Node
from .prim import const

if TYPE_CHECKING:
    from .source import Span

__all__ = ["ObjectGeneric", "asnode", "const", "convert", "convert_to_object"]


class ObjectGeneric:
    """A base class for objects of users that can be converted to IR values.

    >>> class Half(ObjectGeneric):
    ...     def asobject(self):
    ...         return const(0.5, "float32")
    >>> convert([Half()])
    (T.float32(0.5),)
    """

    def asobject(self) -> Node:
        """The value that this object stands for."""
        raise NotImplementedError


GENERIC.append(ObjectGeneric)


def asnode(obj: ObjectGeneric) -> Node:
    """``obj.asobject()``."""
    return obj.asobject()


def convert_to_object(value: Any, span: Span | None = None) -> Any:
    """A Python value as an IR value. Raises TypeError (a ValueError too, as in the field) if there is none for it."""
    return convert(value, span)
