"""Tables of what dialects do: with kinds of statements, and with operators on their own classes.

A dialect is named by a token (``"tir"``, ``"relax"``); the functions it decorates carry the token, and the parser
looks statements up under the innermost one::

    @dispatch.register("tir", "While")
    def _while(parser, node): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .parser import Parser

__all__ = ["OpMethod", "OpVTable", "ParseMethod", "ParseVTable", "find_op", "get", "get_op", "register", "register_op"]

ParseMethod = Callable[["Parser", Any], Any]
OpMethod = Callable[..., Any]

ParseVTable: dict[tuple[str, str], ParseMethod] = {}
OpVTable: dict[tuple[type, type, int], OpMethod] = {}


def register(token: str, type_name: str, *more: str) -> Callable[[ParseMethod], ParseMethod]:
    """Say what a dialect does with syntax nodes of the given class names."""

    def decorate(method: ParseMethod) -> ParseMethod:
        for name in (type_name, *more):
            ParseVTable[(token, name)] = method
        return method

    return decorate


def get(token: str, type_name: str, default: ParseMethod | None = None) -> ParseMethod | None:
    """Handler of a dialect for a kind of syntax node."""
    return ParseVTable.get((token, type_name), default)


def register_op(operand_type: type, op_node_type: type, operand_index: int) -> Callable[[OpMethod], OpMethod]:
    """Define an operator for operands of a class, and of its subclasses, at one position.

    >>> import ast
    >>> class Text(str): pass
    >>> @register_op(Text, ast.Div, 0)
    ... def join(a, b):
    ...     return f"{a}/{b}"
    >>> get_op(Text, ast.Div, 0)(Text("a"), "b")
    'a/b'
    """

    def decorate(method: OpMethod) -> OpMethod:
        OpVTable[(operand_type, op_node_type, operand_index)] = method
        return method

    return decorate


def get_op(
    operand_type: type, op_node_type: type, operand_index: int, default: OpMethod | None = None
) -> OpMethod | None:
    """The operator defined for a class at a position."""
    for base in operand_type.__mro__:
        found = OpVTable.get((base, op_node_type, operand_index))
        if found is not None:
            return found
    return default


def find_op(op_node_type: type, *operands: Any) -> OpMethod | None:
    """The first operator that any of the operands' classes defines."""
    for index, operand in enumerate(operands):
        found = get_op(type(operand), op_node_type, index)
        if found is not None:
            return found
    return None
