"""Pieces of program text that know how tightly they bind, so that only needed parentheses are printed.

>>> from relaxish.backend.common.csource.pieces import ADD, MUL, Piece, infix
>>> infix("*", infix("+", Piece("a"), Piece("b"), ADD), Piece("c"), MUL)
'(a + b) * c'
"""

from __future__ import annotations

__all__ = [
    "ADD", "AND", "ATOM", "BITS", "CONDITION", "MUL", "OR", "RELATION", "UNARY", "Piece", "infix", "quoted", "wrapped",
]  # fmt: skip

# From loose to tight. Bit operators bind loosest: languages of the family disagree about them (WGSL forbids mixing them
# with others), so they always get parentheses.
CONDITION, BITS, OR, AND, RELATION, ADD, MUL, UNARY, ATOM = range(9)


class Piece(str):
    """The text of an expression; ``level`` says how tightly its outermost operator binds."""

    level: int

    def __new__(cls, text: str, level: int = ATOM) -> Piece:
        made = super().__new__(cls, text)
        made.level = level
        return made


def quoted(text: str) -> Piece:
    """A string as the family's languages write it."""
    marks = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    return Piece('"' + "".join(marks.get(c, c) for c in text) + '"')


def wrapped(piece: str, level: int) -> str:
    """The text, in parentheses if it binds less tightly than ``level``."""
    return f"({piece})" if getattr(piece, "level", ATOM) < level else str(piece)


def infix(operator: str, a: str, b: str, level: int) -> Piece:
    """``a operator b`` for an operator of a level, grouped to the left."""
    left, right = _operand_levels(level)
    return Piece(f"{wrapped(a, left)} {operator} {wrapped(b, right)}", level)


def _operand_levels(level: int) -> tuple[int, int]:
    if level == BITS:
        return UNARY, UNARY
    if level == RELATION:
        return ADD, ADD
    if level == OR:
        return OR, RELATION
    return level, level + 1
