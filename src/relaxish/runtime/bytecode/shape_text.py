"""Values of shape expressions that come as text, such as ``"(n + T.int64(3)) // T.int64(4)"``.

The text is parsed, never executed: integers, names, arithmetic, and the few functions that extents are written with.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["Extent", "extent_of", "trunc_div"]

#: The value of an expression, given those of its names; None where one of them is not known.
Extent = Callable[[Mapping[str, int]], int | None]

_LONGEST = 2000


class _Unknown(Exception):
    """The text has something that is not understood."""


def trunc_div(a: int, b: int) -> int:
    """Division rounding to zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_CALLS: dict[str, tuple[int, Callable[..., int]]] = {
    "int64": (1, int),
    "int32": (1, int),
    "max": (2, max),
    "min": (2, min),
    "Div": (2, trunc_div),
    "truncdiv": (2, trunc_div),
    "floordiv": (2, operator.floordiv),
    "floormod": (2, operator.mod),
    "shift_left": (2, lambda a, b: a << min(b, 64)),
    "shift_right": (2, operator.rshift),
    "if_then_else": (3, lambda condition, a, b: a if condition else b),
}


def _build(node: ast.expr) -> Callable[[Mapping[str, int]], int]:
    match node:
        case ast.Constant() if type(node.value) is int:
            value = node.value
            return lambda names: value
        case ast.Name():
            name = node.id
            return lambda names: names[name]
        case ast.UnaryOp(op=ast.USub()):
            inner = _build(node.operand)
            return lambda names: -inner(names)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _applied(_BINARY[type(node.op)], [node.left, node.right])
        case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return _applied(_COMPARE[type(node.ops[0])], [node.left, node.comparators[0]])
        case ast.Call(func=ast.Attribute(attr=called)) if not node.keywords:
            if called == "Cast" and len(node.args) == 2:
                return _build(node.args[1])
            count, function = _CALLS.get(called, (-1, int))
            if count == len(node.args):
                return _applied(function, node.args)
    raise _Unknown


def _applied(function: Callable[..., Any], operands: list[ast.expr]) -> Callable[[Mapping[str, int]], int]:
    parts = [_build(o) for o in operands]
    return lambda names: function(*[p(names) for p in parts])


@lru_cache(maxsize=1024)
def extent_of(text: str) -> Extent:
    """A function from the values of names to that of the expression; it gives None where that is not known."""
    try:
        if len(text) > _LONGEST:
            raise _Unknown
        inner = _build(ast.parse(text, mode="eval").body)
    except (_Unknown, SyntaxError, RecursionError, MemoryError):
        return lambda names: None

    def value(names: Mapping[str, int]) -> int | None:
        try:
            return inner(names)
        except (KeyError, ZeroDivisionError, ValueError):
            return None

    return value
